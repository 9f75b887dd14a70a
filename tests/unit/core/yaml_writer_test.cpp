#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/document.hpp"

using namespace moecast;
using Json = nlohmann::ordered_json;

namespace {

std::string read_back(const Json& value) {
  const std::string yaml = to_yaml(value);
  const auto node = parse_value(yaml, "f.yaml");
  if (node.ok()) return node.value().to_json().dump();
  const auto doc = parse_document(yaml, "f.yaml");
  return doc.ok() ? doc.value().root.to_json().dump()
                  : to_string(doc.problems().front()) + "\n" + yaml;
}

class RandomTree {
 public:
  explicit RandomTree(unsigned seed) : random_(seed) {}

  Json tree(int depth) {
    const unsigned kind = below(depth > 0 ? 4 : 2);
    if (kind < 2) return scalar();
    Json out = kind == 2 ? Json::array() : Json::object();
    const unsigned size = below(6);
    for (unsigned i = 0; i < size; ++i) {
      if (kind == 2) {
        out.push_back(tree(depth - 1));
      } else {
        out[text()] = tree(depth - 1);
      }
    }
    return out;
  }

 private:
  unsigned below(unsigned n) { return static_cast<unsigned>(random_() % n); }
  Json scalar() {
    switch (below(6)) {
      case 0:
        return nullptr;
      case 1:
        return below(2) == 1;
      case 2:
        return static_cast<long long>(random_()) * (below(2) == 1 ? 1 : -1'000'003);
      case 3:
        return std::ldexp(static_cast<double>(random_()), static_cast<int>(below(400)) - 200);
      default:
        return text();
    }
  }
  std::string text() {
    static const std::vector<std::string> pieces = {"null",
                                                    "true",
                                                    "no",
                                                    "1.0",
                                                    "0x1",
                                                    "1_0",
                                                    "~",
                                                    ":",
                                                    ": ",
                                                    " #",
                                                    "#",
                                                    "- ",
                                                    "-",
                                                    "?",
                                                    "*",
                                                    "&",
                                                    "!",
                                                    "|",
                                                    ">",
                                                    "'",
                                                    "\"",
                                                    "%",
                                                    "@",
                                                    "`",
                                                    "{",
                                                    "}",
                                                    "[",
                                                    "]",
                                                    ",",
                                                    " ",
                                                    "\n",
                                                    "\t",
                                                    "\r",
                                                    "\\",
                                                    "a",
                                                    "Zed",
                                                    "12",
                                                    "e5",
                                                    ".",
                                                    "\xC3\xA9",
                                                    "\xF0\x9F\x98\x80",
                                                    "\xEF\xBB\xBF",
                                                    "\xC2\x85",
                                                    "\xE2\x80\xA8",
                                                    "\x7F",
                                                    "\x01",
                                                    "---",
                                                    "...",
                                                    "<<",
                                                    "=",
                                                    "/",
                                                    "http://x"};
    std::string out;
    for (unsigned n = below(5); n > 0; --n)
      out += pieces[below(static_cast<unsigned>(pieces.size()))];
    return out;
  }

  std::mt19937 random_;
};

}  // namespace

TEST_CASE("YAML is written as block maps, with lists of scalars on one line") {
  const Json value = Json::parse(R"({
    "schema": "moecast/run@1", "cluster": {"system": "gb200-nvl72", "gpus": 256},
    "recompute": {"modules": ["mla_up_proj", "moe_act"], "method": null}, "fsdp": {}, "none": [], "x": 1.5, "on": true,
    "layers": [{"a": 1, "b": [1, 2]}, [3, 4], "s"], "layout": "Et*3|(tt|)*29m|L", "source": "https://a.b/c"})");
  CHECK(to_yaml(value) == R"(schema: moecast/run@1
cluster:
  system: gb200-nvl72
  gpus: 256
recompute:
  modules: [mla_up_proj, moe_act]
  method: null
fsdp: {}
none: []
x: 1.5
"on": true
layers:
  - a: 1
    b: [1, 2]
  - [3, 4]
  - s
layout: Et*3|(tt|)*29m|L
source: https://a.b/c
)");
  CHECK(read_back(value) == value.dump());
}

TEST_CASE("Text that YAML would read as something else is quoted, other text is not") {
  for (const char* text : {"",    "null",  "Null", "~",    "true",  "yes",        "Off",
                           "1",   "1.0",   "1e6",  "0x1F", "1_000", "12:30",      "2024-01-01",
                           ": ",  "a: b",  "a #b", "#a",   "- a",   "-",          "*a",
                           "&a",  "!a",    "|",    ">",    "%a",    "@a",         "`a",
                           "'a'", "\"a\"", "{a",   "[a",   "a, b",  " a",         "a ",
                           "a:",  "a\nb",  "a\tb", "---",  "?",     "caf\xC3\xA9"}) {
    INFO(text);
    CHECK(to_yaml(text).front() == '"');
    CHECK(read_back(text) == Json(text).dump());
    CHECK(read_back(Json{{text, {text, 1}}}) == Json{{text, {text, 1}}}.dump());
  }
  for (const char* text :
       {"bf16", "gb200-nvl72", "moecast/run@1", "two words", "it's", "v2.10", "nothing"}) {
    INFO(text);
    CHECK(to_yaml(text) == std::string(text) + "\n");
  }
}

TEST_CASE("Long lists wrap within 100 columns and long keys are still keys") {
  Json value;
  for (int i = 0; i < 300; ++i) value["deep"]["tokens_per_expert"].push_back(i * 1000);
  value[std::string(1500, 'k')] = 1;
  value["list"] = Json::array({Json{{std::string(1500, 'q'), Json::array({1, 2})}}});
  const std::string yaml = to_yaml(value);
  std::size_t longest = 0, lines = 0;
  for (std::size_t start = 0; start < yaml.find("\n? ");) {
    const std::size_t end = yaml.find('\n', start);
    longest = std::max(longest, end - start);
    start = end + 1;
    ++lines;
  }
  CHECK(longest <= 100);
  CHECK(lines > 10);
  CHECK(read_back(value) == value.dump());
}

TEST_CASE("What is not a finite number or not UTF-8 is written as something that can be read") {
  CHECK(to_yaml(Json{{"a", std::nan("")}}) == "a: null\n");
  CHECK(parse_document(to_yaml(Json{{"a", "x\xFFy"}}), "f.yaml").ok());
}

TEST_CASE("Reading back what was written gives the same tree, for any tree") {
  for (unsigned seed = 0; seed < 4000; ++seed) {
    const Json value = RandomTree(seed).tree(4);
    const std::string back = read_back(value);
    if (back != value.dump())
      FAIL("seed " << seed << "\n" << value.dump() << "\n" << to_yaml(value) << "\n" << back);
  }
  SUCCEED();
}
