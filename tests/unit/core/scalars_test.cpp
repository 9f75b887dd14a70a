#include <cmath>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/document.hpp"

using namespace moecast;

namespace {

Node plain(std::string text) {
  Node node;
  node.kind = Node::Kind::scalar;
  node.scalar = std::move(text);
  return node;
}

}  // namespace

TEST_CASE("Only a whole, finite, decimal number is a number") {
  const std::vector<std::pair<std::string, double>> numbers = {{"0", 0},
                                                               {"4096", 4096},
                                                               {"-1", -1},
                                                               {"+7", 7},
                                                               {"1.5", 1.5},
                                                               {"15e12", 15e12},
                                                               {"1e6", 1e6},
                                                               {"2.5E-3", 0.0025},
                                                               {".5", 0.5},
                                                               {"5.", 5},
                                                               {"0.1", 0.1},
                                                               {"-0.25", -0.25},
                                                               {"99999999999999999999", 1e20}};
  for (const auto& [text, value] : numbers) {
    INFO(text);
    REQUIRE(plain(text).as_double().has_value());
    CHECK(*plain(text).as_double() == value);
  }
  for (const char* text :
       {"",     " 1",  "1 ",       "1_000",  "1,000",  "0x10",  "0o7",         "010",
        "00",   "-01", "1e999",    "-1e999", "1e-999", "inf",   "-inf",        ".inf",
        ".nan", "nan", "infinity", "1e",     "e5",     "--1",   "+-1",         "+",
        "-",    ".",   "1.2.3",    "4096B",  "true",   "12:30", "\xEF\xBC\x91"}) {
    INFO(text);
    CHECK_FALSE(plain(text).as_double().has_value());
  }
}

TEST_CASE("Only digits make an integer, and it must fit") {
  CHECK(plain("4096").as_int() == 4096);
  CHECK(plain("-3").as_int() == -3);
  CHECK(plain("+3").as_int() == 3);
  CHECK(plain("9223372036854775807").as_int() == 9223372036854775807LL);
  for (const char* text :
       {"9223372036854775808", "1e6", "15e12", "4096.0", "1_000", "0x10", "010", "", "4 "}) {
    INFO(text);
    CHECK_FALSE(plain(text).as_int().has_value());
  }
}

TEST_CASE("Only true and false are booleans, and quotes make everything text") {
  CHECK(plain("true").as_bool() == true);
  CHECK(plain("false").as_bool() == false);
  for (const char* text : {"yes", "no", "on", "off", "True", "FALSE", "1", "0", "y", ""}) {
    INFO(text);
    CHECK_FALSE(plain(text).as_bool().has_value());
  }
  for (const char* text : {"true", "12", "1.5"}) {
    Node quoted = plain(text);
    quoted.quoted = true;
    CHECK_FALSE(quoted.as_bool().has_value());
    CHECK_FALSE(quoted.as_int().has_value());
    CHECK_FALSE(quoted.as_double().has_value());
    CHECK(quoted.as_string() == text);
    CHECK(quoted.to_json() == text);
  }
}

TEST_CASE("A tree becomes JSON with the types that its texts say, keys in file order") {
  const auto doc = parse_document(
      "z: 1\na: [1.0, true, yes, '1', null, ~, 1e3, 1_000]\nm: {y: , x: \"\"}\n", "t.yaml");
  REQUIRE(doc.ok());
  CHECK(doc.value().root.to_json().dump() ==
        R"({"z":1,"a":[1.0,true,"yes","1",null,null,1000.0,"1_000"],"m":{"y":null,"x":""}})");
}
