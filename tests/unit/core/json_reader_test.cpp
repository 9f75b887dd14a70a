#include <string>

#include "catch.hpp"
#include "reading.hpp"

using namespace moecast;

namespace {

std::string first_json_problem(const std::string& text) { return first_problem_of(text, "f.json"); }

}  // namespace

TEST_CASE("Every JSON key and value knows its line and column") {
  const auto doc = parse_document(
      "{\"a\": 12,\n  \"b\\u00e9\" : [1,-2.50e3 ,\"x\\\"y\", true,null],\n\t\"c\":{\"d\":{}}\n}\n",
      "f.json");
  REQUIRE(doc.ok());
  const Node& root = doc.value().root;
  CHECK(at(root.mark) == "1:1");
  CHECK(at(root.entries[0].mark) == "1:2");
  CHECK(at(root.entries[0].value.mark) == "1:7");
  CHECK(root.entries[1].key == "b\xC3\xA9");
  CHECK(at(root.entries[1].mark) == "2:3");
  const Node& list = root.entries[1].value;
  CHECK(at(list.mark) == "2:15");
  CHECK(at(list.items[0].mark) == "2:16");
  CHECK(at(list.items[1].mark) == "2:18");
  CHECK(list.items[1].scalar == "-2.50e3");
  CHECK(at(list.items[2].mark) == "2:27");
  CHECK(list.items[2].quoted);
  CHECK(list.items[2].scalar == "x\"y");
  CHECK(at(list.items[3].mark) == "2:35");
  CHECK(at(list.items[4].mark) == "2:40");
  CHECK(at(root.entries[2].mark) == "3:2");
  CHECK(at(root.find("c")->mark) == "3:6");
  CHECK(at(root.find("c")->entries[0].mark) == "3:7");
  CHECK(at(root.find("c")->find("d")->mark) == "3:11");
}

TEST_CASE("Duplicate JSON keys are reported with both places") {
  const auto doc = parse_document("{\"a\":[1, {\"b\":2,\n\"b\":3}], \"a\": 4}", "f.json");
  REQUIRE(doc.problems().size() == 2);
  CHECK(
      to_string(doc.problems()[0]) ==
      "f.json:2:1: a[1].b: duplicate key 'b', first given at line 1, column 11; keep one of them");
  CHECK(to_string(doc.problems()[1]) ==
        "f.json:2:10: a: duplicate key 'a', first given at line 1, column 2; keep one of them");
}

TEST_CASE("JSON syntax errors are placed at the token that is wrong") {
  CHECK(first_json_problem("{\"a\" 17}") ==
        "f.json:1:6: not valid JSON: unexpected number literal; expected ':'");
  CHECK(first_json_problem("{\"a\":\n  nan}") == "f.json:2:3: not valid JSON: invalid literal");
  CHECK(
      first_json_problem("{\"a\": 1,}").starts_with("f.json:1:9: not valid JSON: unexpected '}'"));
  CHECK(first_json_problem("{\"a\": 1e999}") ==
        "f.json:1:7: not valid JSON: the number is too large");
  CHECK(first_json_problem("[1,2").starts_with(
      "f.json:1:5: not valid JSON: unexpected end of input"));
  CHECK(first_json_problem("{\"a\": \xC3\xA9}") == "f.json:1:7: not valid JSON: invalid literal");
  CHECK(first_json_problem("{\"a\": 1} x").starts_with("f.json:1:10: not valid JSON"));
  CHECK(first_json_problem("{\"a\": \"\\ud800\"}")
            .starts_with("f.json:1:14: not valid JSON: invalid string"));
  CHECK(first_json_problem("{\"a\": \"\\u0000\"}") ==
        "f.json:1:7: a: a NUL character in text; remove it");
}

TEST_CASE("JSON that is cut anywhere is refused") {
  const std::string whole = "{\"a\": [1, 2.5, \"x\"], \"b\": {\"c\": null, \"d\": true}}";
  REQUIRE(parse_document(whole, "f.json").ok());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    INFO(whole.substr(0, length));
    CHECK_FALSE(parse_document(whole.substr(0, length), "f.json").ok());
  }
}

TEST_CASE("JSON nesting stops at 32 levels") {
  CHECK(first_json_problem(std::string(32, '[') + std::string(32, ']')) == "accepted");
  CHECK(
      first_json_problem(std::string(33, '[') + std::string(33, ']')).starts_with("f.json:1:33: "));
  CHECK(first_json_problem(std::string(1'000'000, '[')).find("32 levels") != std::string::npos);
}

TEST_CASE("YAML's flow style is read in files that say they are YAML, and only there") {
  const std::string flow = "{model: x, list: [a, b],}\n";
  CHECK(first_json_problem(flow).starts_with("f.json:1:2: not valid JSON"));
  const auto doc = parse_document(flow, "f.yaml");
  REQUIRE(doc.ok());
  CHECK(doc.value().root.to_json().dump() == R"({"model":"x","list":["a","b"]})");
}
