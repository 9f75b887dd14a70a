#include <string>

#include "catch.hpp"
#include "reading.hpp"

using namespace moecast;

namespace {

Diagnostics problems_of(const std::string& text) {
  return parse_document(text, "f.yaml").problems();
}
std::string first_problem(const std::string& text) { return first_problem_of(text, "f.yaml"); }

}  // namespace

TEST_CASE("Every YAML key and value knows its line and column") {
  const auto doc =
      parse_document("a: 1\nlist:\n  - x\n  - {k: v}\nempty:\nlast:   'q'\n", "f.yaml");
  REQUIRE(doc.ok());
  const Node& root = doc.value().root;
  CHECK(at(root.mark) == "1:1");
  CHECK(at(root.entries[0].mark) == "1:1");
  CHECK(at(root.find("a")->mark) == "1:4");
  CHECK(at(root.entries[1].mark) == "2:1");
  CHECK(at(root.find("list")->mark) == "3:3");
  CHECK(at(root.find("list")->items[0].mark) == "3:5");
  CHECK(at(root.find("list")->items[1].mark) == "4:5");
  CHECK(at(root.find("list")->items[1].entries[0].mark) == "4:6");
  CHECK(at(root.find("list")->items[1].find("k")->mark) == "4:9");
  CHECK(root.find("empty")->is_null());
  CHECK(at(root.find("empty")->mark) == "5:1");
  CHECK(at(root.find("last")->mark) == "6:9");
  CHECK(root.find("last")->quoted);
  CHECK(root.find("missing") == nullptr);
}

TEST_CASE("Windows line ends and a byte order mark change neither values nor positions") {
  const auto doc = parse_document(
      "\xEF\xBB\xBF"
      "a: 1\r\nb:\r\n  c: text\r\n",
      "f.yaml");
  REQUIRE(doc.ok());
  CHECK(at(doc.value().root.entries[0].mark) == "1:1");
  CHECK(at(doc.value().root.find("b")->find("c")->mark) == "3:6");
  CHECK(doc.value().root.to_json().dump() == R"({"a":1,"b":{"c":"text"}})");
}

TEST_CASE("All duplicate keys are reported, each with both places") {
  const Diagnostics problems = problems_of("a: 1\nb: {x: 1, x: 2}\na: 2\nl:\n  - k: 1\n    k: 2\n");
  REQUIRE(problems.size() == 3);
  CHECK(to_string(problems[0]) ==
        "f.yaml:2:11: b.x: duplicate key 'x', first given at line 2, column 5; keep one of them");
  CHECK(to_string(problems[1]) ==
        "f.yaml:3:1: a: duplicate key 'a', first given at line 1, column 1; keep one of them");
  CHECK(to_string(problems[2]) ==
        "f.yaml:6:5: l[0].k: duplicate key 'k', first given at line 5, column 5; keep one of them");
}

TEST_CASE("Anchors, aliases, tags and second documents are refused where they stand") {
  CHECK(first_problem("a: &x 1\n") ==
        "f.yaml:1:4: a: anchors (&name) are not accepted; put the value in quotes if it is text");
  CHECK(first_problem("a: !!int 1\n").starts_with("f.yaml:1:4: a: tags are not accepted"));
  CHECK(first_problem("a: !mine {b: 1}\n")
            .starts_with("f.yaml:1:4: a: tags are not accepted: '!mine'"));
  CHECK(first_problem("a: ! x\n").starts_with("f.yaml:1:4: a: tags are not accepted"));
  CHECK(first_problem("a: *x\n").starts_with("f.yaml:1:4: not valid YAML: the referenced anchor"));
  CHECK(
      first_problem("a: 1\n---\nb: 2\n").starts_with("f.yaml:2:1: a second document starts here"));
  const Diagnostics both = problems_of("a: &x 1\nb: *x\n");
  REQUIRE(both.size() == 2);
  CHECK(to_string(both[1]).starts_with("f.yaml:2:4: b: aliases (*name) are not accepted"));
}

TEST_CASE("A syntax error follows the problems found before it") {
  const Diagnostics problems = problems_of("a: 1\na: 2\nb: c: d\n");
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].key == "a");
  CHECK(problems[1].line == 3);
  CHECK(problems[1].message == "not valid YAML: illegal map value");
  CHECK_FALSE(problems[1].hint.empty());
}

TEST_CASE("Truncated YAML is refused") {
  for (const char* text : {"a: [1, 2\n", "a: {b: 1\n", "a: \"open", "a: 'open\n", "a: \"open\n",
                           "a: 'it''s\n", "a: 'x''\n", "a: \"\\\"\n", "{a: 1", "[1, [2]", "? [a"}) {
    INFO(text);
    CHECK_FALSE(parse_document(text, "f.yaml").ok());
  }
}

TEST_CASE("Quotes, escapes and block text are read as YAML says") {
  const auto doc = parse_document(
      "a: 'it''s'\nb: \"q\\\"\\u00e9\\n\"\nc: |\n  two\n  lines\nd: two\n  words\ne: ''\n",
      "f.yaml");
  REQUIRE(doc.ok());
  CHECK(doc.value().root.to_json() == nlohmann::ordered_json{{"a", "it's"},
                                                             {"b", "q\"\xC3\xA9\n"},
                                                             {"c", "two\nlines\n"},
                                                             {"d", "two words"},
                                                             {"e", ""}});
  CHECK(doc.value().root.find("c")->quoted);
}

TEST_CASE("A tab in the indentation is an error, elsewhere it is a blank") {
  CHECK(first_problem("a:\n  - x\n\t- y\n") ==
        "f.yaml:3:1: a tab in the indentation; indent with spaces");
  CHECK(first_problem("a:\n  \tb: 1\n") ==
        "f.yaml:2:3: a tab in the indentation; indent with spaces");
  CHECK(first_problem("a: 1\t# note\n\t\n\t# note\nb: 2\n") == "accepted");
}

TEST_CASE("Nesting stops at 32 levels") {
  const auto nested = [](int depth) {
    return "a: " + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "\n";
  };
  CHECK(first_problem(nested(32)) == "accepted");
  CHECK(first_problem(nested(33)).find("more than 32 levels of nesting") != std::string::npos);
  std::string block;
  for (int i = 0; i < 3000; ++i) block += "- ";
  CHECK(first_problem(block).find("more than 32 levels of nesting") != std::string::npos);
  for (const char* piece : {"[", "{", "{a: ", "[\n", "? ", "- [", "!a ["}) {
    std::string bomb = "k: ";
    while (bomb.size() < 100'000) bomb += piece;
    INFO(piece);
    CHECK_FALSE(parse_document(bomb, "f.yaml").ok());
  }
}

TEST_CASE("Keys must be names") {
  CHECK(first_problem("? [a]\n: 1\n").starts_with("f.yaml:1:3: a key must be a single name"));
  CHECK(first_problem(": 1\n").find("a key is missing or null") != std::string::npos);
  CHECK(first_problem("null: 1\n").starts_with("f.yaml:1:1: a key is missing or null"));
}

TEST_CASE("Thousands of problems are cut short") {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "a: 1\n";
  const Diagnostics problems = problems_of(text);
  REQUIRE(problems.size() == 101);
  CHECK(problems[99].line == 101);
  CHECK(problems[100].message.starts_with("too many problems"));
}

TEST_CASE("Files that hold nothing are refused") {
  for (const char* text : {"", "\n\n", "# only a comment\n", "---\n", "null\n", "\xEF\xBB\xBF"}) {
    INFO(text);
    CHECK(first_problem(text) == "f.yaml:1:1: the file is empty");
  }
}

TEST_CASE("A value from the command line is a scalar or a flow value") {
  const auto value = [](const char* text) { return parse_value(text, "--set"); };
  CHECK(value("8").value().as_int() == 8);
  CHECK(value("'8'").value().quoted);
  CHECK(value("").value().is_null());
  CHECK(value("null").value().is_null());
  CHECK(value("[moe_act, 3]").value().to_json().dump() == R"(["moe_act",3])");
  CHECK(value("{imbalance: 1.2}").value().to_json().dump() == R"({"imbalance":1.2})");
  CHECK(value("Et*3|(tt|)*29m|L").value().scalar == "Et*3|(tt|)*29m|L");
  for (const char* text :
       {"a: b", "- a", "[a", "*x", "a\n---\nb", "{a: 1, a: 2}", "\x01", "!x 1"}) {
    INFO(text);
    REQUIRE_FALSE(value(text).ok());
    CHECK(value(text).problems().front().file == "--set");
  }
}
