#include <algorithm>
#include <cctype>

#include "core/shell_parts.hpp"

namespace moecast::shell {
namespace {

constexpr std::string_view kOperators[] = {"<<<", "<<-", "&&", "||", ";;", "|&", ">>",
                                           "<<",  ">&",  "<&", "&>", ">|", "<>", "|",
                                           "&",   ";",   "(",  ")",  "<",  ">"};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
bool ends_word(char c) {
  return is_blank(c) || c == '\n' || std::string_view("|&;()<>").find(c) != std::string_view::npos;
}

/// "NAME=" or "NAME+=", whole.
bool is_assignment_head(std::string_view text) {
  const std::size_t name = name_length(text);
  return name > 0 && (text.substr(name) == "=" || text.substr(name) == "+=");
}

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& file, Diagnostics& warnings)
      : text_(text), file_(file), warnings_(warnings) {}

  std::vector<Token> read() {
    while (at_ < text_.size()) step(tokens_);
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] std::string_view rest() const { return text_.substr(at_); }

  /// The length of a backslash before the end of a line; 0 if there is none.
  [[nodiscard]] std::size_t continuation() const {
    if (rest().substr(0, 2) == "\\\n") return 2;
    return rest().substr(0, 3) == "\\\r\n" ? 3 : 0;
  }

  /// Reads blanks, a comment, or one token into `out`.
  void step(std::vector<Token>& out) {
    const char c = text_[at_];
    if (const std::size_t joined = continuation(); joined > 0) {
      at_ += joined;
      ++line_;
    } else if (is_blank(c)) {
      ++at_;
    } else if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '\n') {
      end_line(out);
    } else if (rest().substr(0, 2) == "((" && arithmetic_command(out)) {
      return;
    } else if (!operation(out)) {
      word(out);
    }
  }

  void end_line(std::vector<Token>& out) {
    ++at_;
    for (const std::string& delimiter : heredocs_) heredoc(delimiter, out);
    heredocs_.clear();
    out.push_back({Token::Kind::newline, "", line_++, {}});
  }

  /// The lines up to the delimiter, placed before the newline that ends the command.
  void heredoc(const std::string& delimiter, std::vector<Token>& out) {
    Token body{Token::Kind::heredoc, "", line_ + 1, {}};
    while (at_ < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      std::string_view line = text_.substr(at_, end - at_);
      at_ = std::min(end + 1, text_.size());
      ++line_;
      std::string_view bare = line;
      while (!bare.empty() && bare.front() == '\t') bare.remove_prefix(1);
      while (!bare.empty() && bare.back() == '\r') bare.remove_suffix(1);
      if (bare == delimiter) break;
      body.text.append(line).push_back('\n');
    }
    out.push_back(std::move(body));
  }

  bool arithmetic_command(std::vector<Token>& out) {
    if (unclosed_) return false;
    const std::size_t end = closing(text_, at_);
    unclosed_ = end == std::string_view::npos;
    if (unclosed_ || text_[end - 2] != ')') return false;
    const std::string_view whole = text_.substr(at_, end - at_);
    out.push_back({Token::Kind::word, std::string(whole), line_, {}});
    line_ += static_cast<int>(std::count(whole.begin(), whole.end(), '\n'));
    at_ = end;
    return true;
  }

  bool operation(std::vector<Token>& out) {
    for (const std::string_view op : kOperators) {
      if (rest().substr(0, op.size()) != op) continue;
      if ((op == "<" || op == ">") && rest().substr(1, 1) == "(") return false;  // <( ... )
      at_ += op.size();
      if (op == "<<" || op == "<<-") return here_delimiter();
      out.push_back({Token::Kind::operation, std::string(op), line_, {}});
      return true;
    }
    return false;
  }

  bool here_delimiter() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
    std::string delimiter;
    for (; at_ < text_.size() && !ends_word(text_[at_]); ++at_) {
      if (std::string_view("'\"\\").find(text_[at_]) == std::string_view::npos)
        delimiter += text_[at_];
    }
    heredocs_.push_back(std::move(delimiter));
    return true;
  }

  void word(std::vector<Token>& out) {
    Token token{Token::Kind::word, "", line_, {}};
    while (at_ < text_.size() && piece(token.text)) {
    }
    if (at_ < text_.size() && text_[at_] == '(' && !in_array_ && is_assignment_head(token.text))
      return array(std::move(token), out);
    const bool digits = std::all_of(token.text.begin(), token.text.end(),
                                    [](unsigned char c) { return std::isdigit(c); });
    const bool redirects = at_ < text_.size() && (text_[at_] == '<' || text_[at_] == '>');
    if (!(digits && redirects)) out.push_back(std::move(token));  // 2>&1
  }

  /// Copies one character or one quoted or bracketed piece; false at the end of the word.
  bool piece(std::string& into) {
    const char c = text_[at_];
    if ((c == '<' || c == '>') && into.empty() && rest().substr(1, 1) == "(")
      return copy_to(closing(text_, at_ + 1), "a bracket", into);
    if (ends_word(c)) return false;
    if (c == '\\') return copy_escape(into);
    if (c == '\'') return copy_to(after(text_.find('\'', at_ + 1)), "a quote", into);
    if (c == '`') return copy_to(after(text_.find('`', at_ + 1)), "a backquote", into);
    if (c == '"') return copy_to(closing(text_, at_), "a quote", into);
    if (c == '$' && at_ + 1 < text_.size() && (text_[at_ + 1] == '(' || text_[at_ + 1] == '{'))
      return copy_to(closing(text_, at_ + 1), "a bracket", into);
    return copy_to(at_ + 1, "", into);
  }

  static std::size_t after(std::size_t found) {
    return found == std::string_view::npos ? found : found + 1;
  }

  bool copy_escape(std::string& into) {
    const std::size_t joined = continuation();
    if (joined == 0) return copy_to(std::min(at_ + 2, text_.size()), "", into);
    at_ += joined;
    ++line_;
    return true;
  }

  bool copy_to(std::size_t end, std::string_view what, std::string& into) {
    if (end == std::string_view::npos) {
      warnings_.push_back({file_, line_, 0, "", std::string(what) + " is opened and never closed",
                           "the rest of the file is taken as part of it"});
      end = text_.size();
    }
    const std::string_view copied = text_.substr(at_, end - at_);
    line_ += static_cast<int>(std::count(copied.begin(), copied.end(), '\n'));
    into += copied;
    at_ = end;
    return true;
  }

  void array(Token token, std::vector<Token>& out) {
    token.kind = Token::Kind::array;
    in_array_ = true;
    ++at_;
    while (at_ < text_.size() && text_[at_] != ')') {
      const std::size_t before = at_;
      step(token.items);
      if (at_ == before) ++at_;
    }
    if (at_ == text_.size())
      warnings_.push_back({file_, token.line, 0, token.text, "the array is never closed", "add )"});
    at_ = std::min(at_ + 1, text_.size());
    in_array_ = false;
    std::erase_if(token.items, [](const Token& t) { return t.kind != Token::Kind::word; });
    out.push_back(std::move(token));
  }

  std::string_view text_;
  const std::string& file_;
  Diagnostics& warnings_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool in_array_ = false, unclosed_ = false;
  std::vector<Token> tokens_;
  std::vector<std::string> heredocs_;  ///< delimiters of the bodies that start on the next line
};

}  // namespace

std::size_t name_length(std::string_view text) {
  std::size_t n = 0;
  while (n < text.size() && (std::isalpha(static_cast<unsigned char>(text[n])) || text[n] == '_' ||
                             (n > 0 && std::isdigit(static_cast<unsigned char>(text[n])))))
    ++n;
  return n;
}

std::size_t closing(std::string_view text, std::size_t at) {
  std::string open;  // what must still be closed, innermost last
  for (std::size_t i = at; i < text.size(); ++i) {
    const char c = text[i], inner = open.empty() ? '\0' : open.back();
    if (c == '\\') {
      ++i;
    } else if (inner == '\'') {
      if (c == '\'') open.pop_back();
    } else if (c == inner) {
      open.pop_back();
    } else if (c == '"' || (c == '\'' && inner != '"')) {
      open.push_back(c);
    } else if (c == '(' && (inner != '"' || (i > 0 && text[i - 1] == '$'))) {
      open.push_back(')');
    } else if (c == '{' && (i == at || text[i - 1] == '$')) {
      open.push_back('}');
    }
    if (open.empty()) return std::min(i + 1, text.size());
  }
  return std::string_view::npos;
}

std::vector<Token> tokens_of(std::string_view text, const std::string& file,
                             Diagnostics& warnings) {
  return Lexer(text, file, warnings).read();
}

}  // namespace moecast::shell
