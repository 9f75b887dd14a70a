#include <string>

#include "catch.hpp"
#include "core/text.hpp"
#include "reading.hpp"

using namespace moecast;

namespace {

std::string first_text_problem(const std::string& text) { return first_problem_of(text, "f"); }

/// Slow twin of utf8_length: decode, then encode again.
std::size_t utf8_by_encoding(std::string_view text) {
  for (std::size_t length = 1; length <= 4 && length <= text.size(); ++length) {
    const auto lead = static_cast<unsigned char>(text[0]);
    unsigned code = length == 1 ? lead : lead & (0xFFU >> (length + 1));
    for (std::size_t i = 1; i < length; ++i)
      code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3FU);
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) continue;
    std::string again;
    const auto put = [&](unsigned byte) { again += static_cast<char>(byte); };
    if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
      put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
    } else {
      put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F)), put(0x80 | (code >> 6 & 0x3F));
      put(0x80 | (code & 0x3F));
    }
    if (again == text.substr(0, length)) return length;
  }
  return 0;
}

}  // namespace

TEST_CASE("A UTF-8 sequence is one that its own code point encodes to") {
  std::size_t accepted = 0;
  for (unsigned lead = 0; lead < 256; ++lead) {
    for (unsigned second = 0; second < 256; ++second) {
      for (const char* rest : {"", "\x80", "\x80\x80", "\xBF\xBF", "A\x80"}) {
        const std::string text =
            std::string{static_cast<char>(lead), static_cast<char>(second)} + rest;
        if (utf8_length(text) != utf8_by_encoding(text)) FAIL(lead << " " << second << " " << rest);
        accepted += utf8_length(text) > 0 ? 1 : 0;
      }
    }
  }
  CHECK(accepted > 128 * 256 * 5);
  CHECK(utf8_length("") == 0);
}

TEST_CASE("What is not text is named by its byte and place") {
  CHECK(first_text_problem(std::string("a: 1\nb: \0x", 10)) ==
        "f:2:4: byte 0x00 is a control character, not text; write the file as plain UTF-8");
  CHECK(first_text_problem("a: \x04\n").starts_with("f:1:4: byte 0x04 is a control character"));
  CHECK(first_text_problem("a: caf\xE9\n").starts_with("f:1:7: byte 0xe9 is not UTF-8 text"));
  CHECK(first_text_problem("\xFF\xFE"
                           "a")
            .starts_with("f:1:1: byte 0xff is not UTF-8 text"));
  CHECK(first_text_problem("\x7F"
                           "ELF\x02\x01")
            .find("byte 0x02") != std::string::npos);
  CHECK(first_text_problem("{\"a\": \"\xC0\x80\"}").starts_with("f:1:8: byte 0xc0"));
  CHECK(first_text_problem("a: caf\xC3\xA9\n") == "accepted");
}

TEST_CASE("Four MiB are read, one byte more is not") {
  std::string text = "a: 1\n#";
  text.resize(std::size_t{4} << 20, 'x');
  CHECK(first_text_problem(text) == "accepted");
  CHECK(first_text_problem(text + "x") ==
        "f: the file is larger than 4 MiB; is this the right file?");
}

TEST_CASE("Excerpts are short and never cut a character in two") {
  CHECK(quoted_excerpt("abc") == "'abc'");
  CHECK(quoted_excerpt(std::string(60, 'a')) == "'" + std::string(60, 'a') + "'");
  CHECK(quoted_excerpt(std::string(61, 'a')) == "'" + std::string(60, 'a') + "...'");
  CHECK(quoted_excerpt(std::string(59, 'a') + "\xC3\xA9"
                                              "bc") == "'" + std::string(59, 'a') + "...'");
}

TEST_CASE("A diagnostic prints what it knows") {
  CHECK(to_string(Diagnostic{"f", 3, 7, "a.b", "is wrong", "do x"}) ==
        "f:3:7: a.b: is wrong; do x");
  CHECK(to_string(Diagnostic{"f", 3, 0, "", "is wrong", ""}) == "f:3: is wrong");
  CHECK(to_string(Diagnostic{"f", 0, 0, "a", "is wrong", ""}) == "f: a: is wrong");
  CHECK(to_string(Diagnostic{"", 0, 0, "", "is wrong", ""}) == "is wrong");
  CHECK(to_string(Diagnostic{"", 4, 1, "", "is wrong", ""}) == "line 4:1: is wrong");
}
