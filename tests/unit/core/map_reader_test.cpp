#include <string>
#include <vector>

#include "catch.hpp"
#include "core/document.hpp"

using namespace moecast;

namespace {

Document document(const std::string& text) { return parse_document(text, "f.yaml").take(); }

std::vector<std::string> lines(const Diagnostics& problems) {
  std::vector<std::string> out;
  for (const Diagnostic& problem : problems) out.push_back(to_string(problem));
  return out;
}

}  // namespace

TEST_CASE("A map reader takes values, and defaults for what is absent or null") {
  const Document doc =
      document("n: 2.5\ni: 7\nb: true\nt: text\nv: 2.10\nnothing: null\nextra: 1\n");
  Diagnostics problems;
  MapReader map(doc, doc.root, "", problems);
  CHECK(map.number("n", 0) == 2.5);
  CHECK(map.number("i", 0) == 7.0);
  CHECK(map.integer("i", 0) == 7);
  CHECK(map.boolean("b", false));
  CHECK(map.text("t", "") == "text");
  CHECK(map.text("v", "") == "2.10");
  CHECK(map.number("nothing", 4.5) == 4.5);
  CHECK(map.integer("absent", 3) == 3);
  CHECK(map.boolean("absent", true));
  CHECK(map.text("absent", "d") == "d");
  CHECK(map.required_number("n") == 2.5);
  CHECK(map.required_integer("i") == 7);
  CHECK(map.required_text("t") == "text");
  map.ignore("extra");
  map.finish();
  CHECK(problems.empty());
}

TEST_CASE("Every wrong type, unknown key and missing key is reported at its place") {
  const Document doc = document(
      "layout:\n  tp: '8'\n  pp: 1e1\n  cp: 99999999999\n  sequence: yes\n  name: [a]\n  size: "
      "1_000\n  vppp: 2\n  ep:\n");
  Diagnostics problems;
  MapReader map(doc, *doc.root.find("layout"), "layout", problems);
  map.integer("tp", 1);
  map.integer("pp", 1);
  map.integer("cp", 1);
  map.boolean("sequence", false);
  map.text("name", "");
  map.number("size", 0);
  map.integer("vpp", 1);
  map.required_integer("ep");
  map.required_number("mbs");
  map.finish();
  CHECK(lines(problems) ==
        std::vector<std::string>{
            "f.yaml:2:7: layout.tp: expected a whole number, found the text '8'; write 8",
            "f.yaml:3:7: layout.pp: expected a whole number, found '1e1'; write 10",
            "f.yaml:4:7: layout.cp: 99999999999 is out of range",
            "f.yaml:5:13: layout.sequence: expected true or false, found 'yes'; write true or "
            "false, without quotes",
            "f.yaml:6:9: layout.name: expected text, found a list",
            "f.yaml:7:9: layout.size: expected a number, found '1_000'; write 1000",
            "f.yaml:9:3: layout.ep: needs a value",
            "f.yaml:2:3: layout.mbs: is required and missing",
            "f.yaml:8:3: layout.vppp: unknown key; did you mean 'vpp'?",
        });
}

TEST_CASE("A map reader on something else than a map says so once") {
  const Document doc = document("layout: 7\nempty:\n");
  Diagnostics problems;
  MapReader map(doc, *doc.root.find("layout"), "layout", problems);
  CHECK(map.integer("tp", 5) == 5);
  CHECK(map.required_integer("pp") == 0);
  map.finish();
  CHECK(lines(problems) ==
        std::vector<std::string>{"f.yaml:1:9: layout: expected a map of keys, found '7'"});

  problems.clear();
  MapReader empty(doc, *doc.root.find("empty"), "empty", problems);
  CHECK(empty.integer("tp", 5) == 5);
  CHECK(problems.empty());
  empty.require("pp");
  CHECK(lines(problems) ==
        std::vector<std::string>{"f.yaml:2:1: empty.pp: is required and missing"});
}

TEST_CASE("Many unknown keys are counted, not all shown") {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "unknown" + std::to_string(i) + ": 1\n";
  const Document doc = document(text);
  Diagnostics problems;
  MapReader map(doc, doc.root, "", problems);
  map.finish();
  REQUIRE(problems.size() == 21);
  CHECK(problems.back().message == "30 more unknown keys");
}

TEST_CASE("The schema line must name this kind and a version that is understood") {
  const auto check = [](const std::string& text, int version) {
    const Document doc = document(text);
    Diagnostics problems;
    check_schema(doc, "run", version, problems);
    return problems.empty() ? "accepted" : to_string(problems.front());
  };
  CHECK(check("schema: moecast/run@1\n", 1) == "accepted");
  CHECK(check("schema: moecast/run@1\n", 2) == "accepted");
  CHECK(check("a: 1\nschema: moecast/run@2\n", 1) ==
        "f.yaml:2:9: schema: 'moecast/run@2' is a version that is not understood; understood here: "
        "moecast/run@1");
  CHECK(check("schema: moecast/run@3\n", 2)
            .ends_with("understood here: moecast/run@1, moecast/run@2"));
  CHECK(check("schema: moecast/model@1\n", 1) ==
        "f.yaml:1:9: schema: 'moecast/model@1' is another kind of file; understood here: "
        "moecast/run@1");
  CHECK(check("a: 1\n", 1) ==
        "f.yaml:1:1: schema: the schema line is missing; add the line 'schema: moecast/run@1'");
  for (const char* value :
       {"run@1", "moecast/run", "moecast/run@", "moecast/run@x", "moecast/run@0", "moecast/run@1 x",
        "moecast/run@1.0", "[moecast/run@1]", "", "moecast/@1", "1"}) {
    INFO(value);
    CHECK(check("schema: " + std::string(value) + "\n", 1).starts_with("f.yaml:1:"));
  }
  CHECK(check("- a\n", 1).find("schema line is missing") != std::string::npos);
}
