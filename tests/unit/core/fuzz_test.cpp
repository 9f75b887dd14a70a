#include <algorithm>
#include <array>
#include <random>
#include <string>

#include "catch.hpp"
#include "core/document.hpp"
#include "core/text.hpp"

using namespace moecast;

namespace {

constexpr std::array kTokens = {"a",
                                "b",
                                "key",
                                "1",
                                "-2.5",
                                "1e999",
                                "true",
                                "null",
                                "~",
                                ": ",
                                ":",
                                ":\n",
                                "\n",
                                "\n  ",
                                "\n    ",
                                "- ",
                                "-",
                                "? ",
                                "[",
                                "]",
                                "{",
                                "}",
                                ",",
                                "\"",
                                "'",
                                "\\",
                                "\\u00",
                                "\\x",
                                "#",
                                " # c\n",
                                "&a ",
                                "*a",
                                "!t ",
                                "!!str ",
                                "! ",
                                "|\n",
                                "|2-\n",
                                ">\n",
                                "---\n",
                                "...\n",
                                "%TAG ! x\n",
                                "%YAML 1.2\n",
                                "<<: ",
                                "\t",
                                "\r\n",
                                "\r",
                                " ",
                                "\xEF\xBB\xBF",
                                "\xC3\xA9",
                                "@",
                                "`",
                                "%",
                                "\"a\": ",
                                "\"a\",",
                                "{\"a\": [1, 2]}",
                                "[[",
                                "]]",
                                "=",
                                "\xC2\x85"};

std::string random_text(std::mt19937& random) {
  std::string out;
  const bool bytes = random() % 8 == 0;
  for (auto n = random() % 24; n > 0; --n) {
    if (bytes) {
      out += static_cast<char>(random() % 256);
    } else {
      out += kTokens[random() % kTokens.size()];
    }
  }
  return out;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

/// "" or what is wrong with an answer, whatever the input was.
std::string flaw(const Result<Document>& doc, const std::string& text) {
  if (doc.ok() != doc.problems().empty()) return "neither a value nor a problem";
  const int lines = 1 + static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  for (const Diagnostic& problem : doc.problems()) {
    if (problem.line < 0 || problem.line > lines + 1 || problem.column < 0)
      return "a place outside the text";
    if (problem.message.empty()) return "a problem without words";
    if (is_utf8(text) && !is_utf8(to_string(problem))) return "a message that is not UTF-8";
  }
  return "";
}

}  // namespace

TEST_CASE("No short text crashes a reader, and what is accepted survives a round trip") {
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::string text = random_text(random);
    for (const char* name : {"f.yaml", "f.json"}) {
      const auto doc = parse_document(text, name);
      if (const std::string wrong = flaw(doc, text); !wrong.empty()) FAIL(wrong << "\n" << text);
      if (!doc.ok()) continue;
      ++accepted;
      const auto json = doc.value().root.to_json();
      const auto again = parse_document(to_yaml(json), "f.yaml");
      if (!again.ok() || again.value().root.to_json() != json)
        FAIL("round trip of\n" << text << "\n" << to_yaml(json));
    }
    const auto value = parse_value(text, "--set");
    if (value.ok() != value.problems().empty()) FAIL(text);
  }
  CHECK(accepted > 1000);
}
