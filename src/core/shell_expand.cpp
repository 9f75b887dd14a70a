#include <algorithm>
#include <cctype>
#include <charconv>

#include "core/shell_parts.hpp"

namespace moecast {
namespace shell {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// The fields that one word becomes.
class Fields {
 public:
  void literal(std::string_view text, int line) {
    current_.add(text, line);
    begun_ = true;
  }
  void whole(const Spanned& text) {
    current_.add(text);
    begun_ = true;
  }
  /// An unquoted value: blanks separate fields.
  void split(const Spanned& value) {
    const std::string& text = value.text();
    for (std::size_t i = 0; i < text.size();) {
      if (is_space(text[i])) {
        end_field();
        ++i;
        continue;
      }
      const std::size_t start = i;
      while (i < text.size() && !is_space(text[i])) ++i;
      literal(std::string_view(text).substr(start, i - start), value.line_at(start));
    }
  }
  void end_field() {
    if (begun_) done_.push_back(std::move(current_));
    current_ = {};
    begun_ = false;
  }
  std::vector<Spanned> take() {
    end_field();
    return std::move(done_);
  }

 private:
  std::vector<Spanned> done_;
  Spanned current_;
  bool begun_ = false;
};

Spanned joined(const std::vector<Spanned>& items) {
  Spanned all;
  for (const Spanned& item : items) {
    if (&item != items.data()) all.add(" ", item.line_at(0));
    all.add(item);
  }
  return all;
}

class Expander {
 public:
  Expander(Scope& scope, bool splits) : scope_(scope), splits_(splits) {}

  std::vector<Spanned> expand(std::string_view raw, int line) {
    line_ = line;
    walk(raw, false);
    return fields_.take();
  }

 private:
  void walk(std::string_view raw, bool quoted) {
    for (std::size_t i = 0; i < raw.size();) {
      const char c = raw[i];
      if (c == '\\') {
        i += escape(raw.substr(i), quoted);
      } else if (c == '\'' && !quoted) {
        const std::size_t end = std::min(raw.find('\'', i + 1), raw.size());
        keep(raw.substr(i + 1, end - i - 1));
        i = end + 1;
      } else if (c == '"' && !quoted) {
        const std::size_t end = std::min(closing(raw, i), raw.size() + 1);
        fields_.literal("", line_);
        walk(raw.substr(i + 1, end - i - 2), true);
        i = end;
      } else if (c == '$') {
        i += dollar(raw.substr(i), quoted);
      } else if (c == '`') {
        const std::size_t end = std::min(raw.find('`', i + 1), raw.size() - 1);
        keep(raw.substr(i, end + 1 - i));
        i = end + 1;
      } else {
        keep(raw.substr(i, 1));
        ++i;
      }
    }
  }

  void keep(std::string_view text) {
    if (!scope_.afford(text.size())) return;
    fields_.literal(text, line_);
    line_ += static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }

  std::size_t escape(std::string_view raw, bool quoted) {
    if (raw.size() < 2) return keep(raw), 1;
    const bool crlf = raw.substr(1, 2) == "\r\n";
    if (raw[1] == '\n' || crlf) {
      ++line_;
      return crlf ? 3 : 2;
    }
    const bool special = std::string_view("$`\"\\").find(raw[1]) != std::string_view::npos;
    keep(quoted && !special ? raw.substr(0, 2) : raw.substr(1, 1));
    return 2;
  }

  /// Returns the length of the expansion at the start of `raw`.
  std::size_t dollar(std::string_view raw, bool quoted) {
    const std::string_view next = raw.substr(1, 1);
    if (next == "{" || next == "(") {
      const std::size_t end = std::min(closing(raw, 1), raw.size());
      const std::string_view whole = raw.substr(0, end);
      if (next == "{") {
        braces(whole, quoted);
      } else {
        parentheses(whole);
      }
      return end;
    }
    const std::size_t name = name_length(raw.substr(1));
    if (name > 0) {
      variable(std::string(raw.substr(1, name)), "", raw.substr(0, name + 1), quoted);
      return name + 1;
    }
    if (next == "@" || next == "*") return 2;  // the script's own arguments: none here
    const bool special =
        !next.empty() && (std::isdigit(static_cast<unsigned char>(next[0])) ||
                          std::string_view("#?$!-").find(next[0]) != std::string_view::npos);
    keep(raw.substr(0, special ? 2 : 1));
    return special ? 2 : 1;
  }

  void parentheses(std::string_view whole) {
    const bool sum =
        whole.size() > 5 && whole.substr(0, 3) == "$((" && whole.substr(whole.size() - 2) == "))";
    if (sum) {
      if (const auto value = scope_.arithmetic(whole.substr(3, whole.size() - 5)))
        return keep(std::to_string(*value));
    }
    keep(whole);
  }

  void variable(const std::string& name, std::string_view index, std::string_view as_written,
                bool quoted) {
    const auto found = scope_.variables.find(name);
    if (found == scope_.variables.end()) return unknown(name, as_written);
    const Variable& v = found->second;
    std::size_t bytes = 0;
    for (const Spanned& item : v.items) bytes += item.text().size() + 1;
    if (!scope_.afford(bytes)) return;
    if (index == "@" && quoted && splits_) return each(v.items);
    if (index == "@" || index == "*") return value(joined(v.items), quoted);
    std::size_t at = 0;
    std::from_chars(index.data(), index.data() + index.size(), at);
    if (at < v.items.size()) value(v.items[at], quoted);
  }

  void unknown(const std::string& name, std::string_view as_written) {
    if (!scope_.unset_is_empty || std::isdigit(static_cast<unsigned char>(name[0])))
      return keep(as_written);
    scope_.unset.push_back(name);
    fields_.literal("", line_);
  }

  void each(const std::vector<Spanned>& items) {
    for (const Spanned& item : items) {
      if (&item != items.data()) fields_.end_field();
      fields_.whole(item);
    }
  }

  void value(const Spanned& text, bool quoted) {
    if (quoted || !splits_) {
      fields_.whole(text);
    } else {
      fields_.split(text);
    }
  }

  /// ${name}, ${name[i]}, ${#name[@]}, and the forms with a default.
  void braces(std::string_view whole, bool quoted) {
    std::string_view inside =
        whole.substr(2, whole.size() - std::min<std::size_t>(3, whole.size()));
    const bool counts = inside.size() > 1 && inside[0] == '#';
    if (counts) inside.remove_prefix(1);
    std::size_t length = name_length(inside);
    while (length == 0 && !inside.empty() && std::isdigit(static_cast<unsigned char>(inside[0])) &&
           length < inside.size() && std::isdigit(static_cast<unsigned char>(inside[length])))
      ++length;
    const std::string name(inside.substr(0, length));
    std::string_view rest = inside.substr(length), index;
    if (!rest.empty() && rest[0] == '[') {
      const std::size_t end = std::min(rest.find(']'), rest.size() - 1);
      index = rest.substr(1, end - 1);
      rest = rest.substr(end + 1);
    }
    if (name.empty()) {
      if (inside == "@" || inside == "*") return;
      return keep(whole);
    }
    if (counts) return count(name, index, whole);
    if (rest.empty()) return variable(name, index, whole, quoted);
    with_default(name, index, rest, whole, quoted);
  }

  void count(const std::string& name, std::string_view index, std::string_view whole) {
    const auto found = scope_.variables.find(name);
    if (found == scope_.variables.end() || found->second.items.empty()) return keep(whole);
    const bool items = index == "@" || index == "*";
    keep(std::to_string(items ? found->second.items.size()
                              : found->second.items.front().text().size()));
  }

  /// ${name:-word} and its kin; ${name^^} and ${name,,}. Other forms stay as written.
  void with_default(const std::string& name, std::string_view index, std::string_view rest,
                    std::string_view whole, bool quoted) {
    const bool colon = rest[0] == ':';
    const char form = rest.size() > (colon ? 1u : 0u) ? rest[colon ? 1 : 0] : '\0';
    const std::string_view word = rest.substr(std::min<std::size_t>(colon ? 2 : 1, rest.size()));
    const auto found = scope_.variables.find(name);
    const bool set =
        found != scope_.variables.end() &&
        !(colon && (found->second.items.empty() || found->second.items.front().text().empty()));
    if (rest == "^^" || rest == ",,") return change_case(name, rest == "^^", whole, quoted);
    if (std::string_view("-=+?").find(form) == std::string_view::npos || form == '\0')
      return keep(whole);
    if (form == '+') return set ? nested(word, quoted) : void();
    if (set || form == '?') return variable(name, index, whole, quoted);
    if (form == '=') {
      scope_.variables[name].items = {inner(word)};
      return variable(name, index, whole, quoted);
    }
    nested(word, quoted);
  }

  Spanned inner(std::string_view word) {
    const Nested level(scope_.nesting);
    return level.too_deep() ? Spanned() : joined(Expander(scope_, false).expand(word, line_));
  }

  void nested(std::string_view word, bool quoted) { value(inner(word), quoted); }

  void change_case(const std::string& name, bool upper, std::string_view whole, bool quoted) {
    const auto found = scope_.variables.find(name);
    if (found == scope_.variables.end() || found->second.items.empty()) return keep(whole);
    std::string text = found->second.items.front().text();
    std::transform(text.begin(), text.end(), text.begin(), [&](unsigned char c) {
      return static_cast<char>(upper ? std::toupper(c) : std::tolower(c));
    });
    Spanned changed;
    changed.add(text, found->second.items.front().line_at(0));
    value(changed, quoted);
  }

  Scope& scope_;
  bool splits_;
  int line_ = 0;
  Fields fields_;
};

}  // namespace

void Spanned::add(std::string_view text, int line) {
  if (lines_.empty() || lines_.back().second != line) lines_.emplace_back(text_.size(), line);
  text_ += text;
}

void Spanned::add(const Spanned& other) {
  for (std::size_t i = 0; i < other.lines_.size(); ++i) {
    const std::size_t from = other.lines_[i].first;
    const std::size_t to =
        i + 1 < other.lines_.size() ? other.lines_[i + 1].first : other.text_.size();
    add(std::string_view(other.text_).substr(from, to - from), other.lines_[i].second);
  }
}

int Spanned::line_at(std::size_t offset) const {
  int line = lines_.empty() ? 0 : lines_.front().second;
  for (const auto& [from, at] : lines_)
    if (from <= offset) line = at;
  return line;
}

bool Scope::afford(std::size_t bytes) {
  budget_ = bytes < budget_ ? budget_ - bytes : 0;
  return budget_ > 0;
}

std::vector<ShellWord> Scope::expand(const Token& word) {
  std::vector<ShellWord> words;
  for (const Spanned& field : Expander(*this, true).expand(word.text, word.line))
    words.push_back({field.text(), field.line_at(0)});
  return words;
}

Spanned Scope::expand_whole(const Token& word) {
  return joined(Expander(*this, false).expand(word.text, word.line));
}

}  // namespace shell

bool is_undecided(std::string_view text) {
  return text.find_first_of("$`") != std::string_view::npos;
}

std::vector<std::string> undecided_names(std::string_view text) {
  std::vector<std::string> names;
  for (std::size_t at = text.find('$'); at != std::string_view::npos; at = text.find('$', at + 1)) {
    const std::size_t start = at + (text.substr(at + 1, 1) == "{" ? 2 : 1);
    const std::size_t length = shell::name_length(text.substr(std::min(start, text.size())));
    if (length > 0) names.emplace_back(text.substr(start, length));
  }
  return names;
}

}  // namespace moecast
