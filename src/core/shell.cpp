#include "core/shell.hpp"

#include <algorithm>

#include "core/shell_condition.hpp"
#include "core/shell_parts.hpp"

namespace moecast {
namespace {

using namespace shell;
using Ends = std::vector<std::string_view>;

bool contains(const Ends& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Follows a script's tokens: one pass, never a loop, every branch at most once.
class Follower {
 public:
  Follower(Scope& scope, const std::string& file, ShellScript& script)
      : scope_(scope), file_(file), script_(script) {}

  void follow(std::string_view text, int first_line) {
    const Nested level(scope_.nesting);
    if (level.too_deep() || !scope_.afford(text.size())) return;
    std::vector<Token> outer = std::move(tokens_);
    const std::size_t outer_at = at_;
    tokens_ = tokens_of(text, file_, script_.warnings);
    for (Token& token : tokens_) shift(token, first_line - 1);
    at_ = 0;
    while (at_ < tokens_.size()) {
      block({}, true);
      ++at_;  // what closes nothing
    }
    tokens_ = std::move(outer);
    at_ = outer_at;
  }

 private:
  static void shift(Token& token, int lines) {
    token.line += lines;
    for (Token& item : token.items) shift(item, lines);
  }

  [[nodiscard]] bool is(Token::Kind kind, std::string_view text) const {
    return at_ < tokens_.size() && tokens_[at_].kind == kind && tokens_[at_].text == text;
  }
  [[nodiscard]] bool is_word(std::string_view text) const { return is(Token::Kind::word, text); }
  [[nodiscard]] bool is_op(std::string_view text) const { return is(Token::Kind::operation, text); }
  [[nodiscard]] bool is_newline() const {
    return at_ < tokens_.size() && tokens_[at_].kind == Token::Kind::newline;
  }
  [[nodiscard]] int line() const {
    return at_ < tokens_.size() ? tokens_[at_].line : tokens_.empty() ? 0 : tokens_.back().line;
  }

  void warn(int at_line, std::string message, std::string hint) {
    script_.warnings.push_back({file_, at_line, 0, "", std::move(message), std::move(hint)});
  }

  /// Commands up to one of `ends`, which stays unread, or to a closing bracket.
  void block(const Ends& ends, bool active) {
    while (at_ < tokens_.size()) {
      if (tokens_[at_].kind == Token::Kind::word && contains(ends, tokens_[at_].text)) return;
      if (is_op(")") || is_op(";;")) return;
      if (is_newline() || is_op(";") || is_op("&")) {
        ++at_;
      } else {
        and_or(active);
      }
    }
  }

  Truth and_or(bool active) {
    Truth truth = pipeline(active);
    while (is_op("&&") || is_op("||")) {
      const bool both = is_op("&&");
      ++at_;
      while (is_newline()) ++at_;
      if (active && truth == Truth::unknown) undecided(line());
      const bool run = active && truth == (both ? Truth::yes : Truth::no);
      const Truth next = pipeline(run);
      if (run) truth = next;
    }
    return truth;
  }

  void undecided(int at_line) {
    warn(at_line, "what follows depends on a condition that only the shell can decide: not taken",
         "set its variables with --var NAME=VALUE");
  }

  Truth pipeline(bool active) {
    const bool negated = is_word("!");
    if (negated) ++at_;
    Truth truth = command(active);
    while (is_op("|") || is_op("|&")) {
      ++at_;
      while (is_newline()) ++at_;
      command(active);
    }
    if (!negated || truth == Truth::unknown) return truth;
    return truth == Truth::yes ? Truth::no : Truth::yes;
  }

  Truth command(bool active) {
    const Nested level(depth_);
    if (level.too_deep() && at_ < tokens_.size()) {
      warn(line(), "blocks are nested too deep to follow", "");
      at_ = tokens_.size();
    }
    if (at_ >= tokens_.size()) return Truth::unknown;
    if (is_word("if")) return branches(active);
    if (is_word("case")) return cases(active);
    if (is_word("for") || is_word("while") || is_word("until") || is_word("select"))
      return loop(active);
    if (is_word("{")) return group({"}"}, active);
    if (is_op("(")) return subshell(active);
    if (is_word("function")) {
      at_ += at_ + 1 < tokens_.size() ? 2 : 1;
      if (is_op("(")) at_ += 2;
      at_ = std::min(at_, tokens_.size());
      return function_body(active);
    }
    return simple(active);
  }

  /// A function's commands are read where it is defined: scripts define what they call.
  Truth function_body(bool active) {
    while (is_newline()) ++at_;
    return is_word("{") ? group({"}"}, active) : Truth::yes;
  }

  Truth group(const Ends& end, bool active) {
    ++at_;
    block(end, active);
    if (at_ < tokens_.size()) ++at_;
    return Truth::yes;
  }

  Truth subshell(bool active) {
    ++at_;
    block({}, active);
    if (at_ < tokens_.size()) ++at_;
    return Truth::yes;
  }

  /// The truth of the commands between `if` and `then`.
  Truth condition(bool active) {
    Truth truth = Truth::unknown;
    while (at_ < tokens_.size() && !is_word("then") && !is_word("fi")) {
      if (is_newline() || is_op(";")) {
        ++at_;
      } else {
        const std::size_t before = at_;
        tested_ = false;
        truth = and_or(active);
        if (!tested_) truth = Truth::unknown;  // what another program finds
        if (at_ == before) ++at_;
      }
    }
    if (is_word("then")) ++at_;
    return truth;
  }

  Truth branches(bool active) {
    const Ends ends{"elif", "else", "fi"};
    bool open = active;  // no earlier branch was taken
    do {
      const int at_line = line();
      ++at_;
      const Truth truth = condition(open);
      if (open && truth == Truth::unknown) {
        undecided(at_line);
        open = false;  // nor the branches after it
      }
      block(ends, open && truth == Truth::yes);
      if (truth == Truth::yes) open = false;
      while (is_op(")") || is_op(";;")) ++at_, block(ends, false);
    } while (is_word("elif"));
    if (is_word("else")) {
      ++at_;
      block({"fi"}, open);
    }
    if (is_word("fi")) ++at_;
    return Truth::yes;
  }

  Truth loop(bool active) {
    if (active) warn(line(), "a loop is not followed", "write out what it does");
    ++at_;
    block({"done"}, false);
    if (is_word("done")) ++at_;
    return Truth::yes;
  }

  Truth cases(bool active) {
    const int at_line = line();
    ++at_;
    std::string subject;
    if (at_ < tokens_.size()) subject = scope_.expand_whole(tokens_[at_++]).text();
    bool open = active;
    if (active && is_undecided(subject)) {
      undecided(at_line);
      open = false;
    }
    while (at_ < tokens_.size() && (is_newline() || is_word("in"))) ++at_;
    while (at_ < tokens_.size() && !is_word("esac")) {
      const bool matches = pattern(subject);
      block({"esac"}, open && matches);
      if (matches) open = false;
      while (is_op(";;") || is_newline()) ++at_;
    }
    if (is_word("esac")) ++at_;
    return Truth::yes;
  }

  /// One or more patterns and the bracket after them.
  bool pattern(const std::string& subject) {
    bool matches = false;
    while (at_ < tokens_.size() && !is_op(")") && !is_word("esac")) {
      if (tokens_[at_].kind == Token::Kind::word) {
        const std::string text = scope_.expand_whole(tokens_[at_]).text();
        matches |= text == "*" || text == subject;
      }
      ++at_;
    }
    if (is_op(")")) ++at_;
    return matches;
  }

  [[nodiscard]] bool ends_command() const {
    for (const std::string_view op : {";", ";;", "&", "&&", "||", "|", "|&", ")"})
      if (is_op(op)) return true;
    return at_ >= tokens_.size() || is_newline();
  }

  Truth simple(bool active) {
    std::vector<Token> words;
    const bool test = is_word("[[");
    while (at_ < tokens_.size() && (test ? !is_newline() : !ends_command())) {
      const Token& token = tokens_[at_++];
      if (token.kind == Token::Kind::operation && !test) {
        if (token.text == "(" && is_op(")")) {  // name() { ...
          ++at_;
          return function_body(active);
        }
        if (token.text != "(" && at_ < tokens_.size() && !is_newline()) ++at_;  // > file
        continue;
      }
      words.push_back(token);
      if (test && token.text == "]]") break;
    }
    return active && !words.empty() ? execute(std::move(words)) : Truth::unknown;
  }

  Truth execute(std::vector<Token> words) {
    std::size_t first = 0;
    while (first < words.size() && is_assignment(words[first])) ++first;
    if (first == words.size()) {
      for (const Token& word : words) assign(word, false);
      return Truth::yes;
    }
    const std::string& name = words[first].text;
    tested_ |= is_test(name) || name == "true" || name == "false" || name == ":";
    if (is_test(name)) return test(words, first);
    if (contains({"export", "declare", "local", "readonly", "typeset"}, name)) {
      const bool exports =
          name == "export" || (words.size() > first + 1 && words[first + 1].text == "-x");
      for (const Token& word : words) declare(word, exports);
      return Truth::yes;
    }
    return run(words, first);
  }

  Truth test(const std::vector<Token>& words, std::size_t first) {
    scope_.unset_is_empty = true;
    scope_.unset.clear();
    const Truth truth = decide(words, first, scope_);
    scope_.unset_is_empty = false;
    if (truth == Truth::unknown || scope_.unset.empty()) return truth;
    const std::string& name = scope_.unset.front();
    warn(words[first].line, name + " is set nowhere: the condition takes it as empty",
         "set it with --var " + name + "=VALUE");
    return truth;
  }

  static bool is_assignment(const Token& token) {
    if (token.kind == Token::Kind::array) return true;
    const std::string_view text = token.text;
    const std::size_t name = token.kind == Token::Kind::word ? name_length(text) : 0;
    return name > 0 && (text.substr(name, 1) == "=" || text.substr(name, 2) == "+=");
  }

  void declare(const Token& word, bool exports) {
    if (is_assignment(word)) return assign(word, exports);
    const auto found = scope_.variables.find(word.text);
    if (found != scope_.variables.end() && exports) found->second.exported = true;
  }

  void assign(const Token& token, bool exports) {
    const std::size_t name = name_length(token.text);
    const bool appends = token.text[name] == '+';
    Variable& variable = scope_.variables[token.text.substr(0, name)];
    std::vector<Spanned> items = values(token, name + (appends ? 2 : 1));
    variable.exported |= exports;
    if (!appends) {
      variable.is_array = token.kind == Token::Kind::array;
      variable.items = std::move(items);
    } else if (token.kind == Token::Kind::array) {
      variable.is_array = true;
      for (Spanned& item : items) variable.items.push_back(std::move(item));
    } else {
      if (variable.items.empty()) variable.items.emplace_back();
      variable.items.front().add(items.front());
    }
  }

  std::vector<Spanned> values(const Token& token, std::size_t head) {
    if (token.kind != Token::Kind::array) {
      Token value = token;
      value.text.erase(0, head);
      return {scope_.expand_whole(value)};
    }
    std::vector<Spanned> items;
    for (const Token& item : token.items) {
      for (const ShellWord& word : scope_.expand(item)) {
        items.emplace_back();
        items.back().add(word.text, word.line);
      }
    }
    return items;
  }

  Truth run(const std::vector<Token>& tokens, std::size_t first) {
    ShellCommand command;
    for (std::size_t i = 0; i < first; ++i) {
      const Token& token = tokens[i];
      const std::size_t name = name_length(token.text);
      const std::vector<Spanned> items = values(token, name + (token.text[name] == '+' ? 2 : 1));
      if (!items.empty()) command.env[token.text.substr(0, name)] = items.front().text();
    }
    std::string heredoc;
    int heredoc_line = 0;
    for (std::size_t i = first; i < tokens.size(); ++i) {
      if (tokens[i].kind == Token::Kind::heredoc) {
        heredoc = tokens[i].text;
        heredoc_line = tokens[i].line;
      } else if (tokens[i].kind == Token::Kind::word) {
        for (ShellWord& word : scope_.expand(tokens[i])) command.words.push_back(std::move(word));
      }
    }
    if (command.words.empty()) return Truth::yes;
    return dispatch(std::move(command), heredoc, heredoc_line);
  }

  Truth dispatch(ShellCommand command, const std::string& heredoc, int heredoc_line) {
    const std::vector<ShellWord>& words = command.words;
    const std::string name = words.front().text;
    if (name == "true" || name == ":") return Truth::yes;
    if (name == "false") return Truth::no;
    if (name == "echo" || name == "printf" || name == "set" || name == "cd") return Truth::yes;
    if (name == "unset") {
      for (const ShellWord& word : words) scope_.variables.erase(word.text);
      return Truth::yes;
    }
    if (name == "source" || name == ".") {
      warn(words.front().line,
           "the file " + (words.size() > 1 ? words[1].text : std::string("?")) + " is not read",
           "give what it sets with --var NAME=VALUE");
      return Truth::yes;
    }
    if (name == "eval") {
      std::string text;
      for (std::size_t i = 1; i < words.size(); ++i) text += words[i].text + " ";
      follow(text, words.front().line);
      return Truth::yes;
    }
    const std::string inner = inner_script(words);
    const bool reads_heredoc = !heredoc.empty() && contains({"sbatch", "bash", "sh"}, name);
    const int line = words.back().line;
    script_.commands.push_back(std::move(command));
    if (!inner.empty()) follow(inner, line);
    if (reads_heredoc) follow(heredoc, heredoc_line);
    return Truth::yes;
  }

  /// The script of `bash -c "script"`, with whatever launcher before it.
  static std::string inner_script(const std::vector<ShellWord>& words) {
    for (std::size_t i = 0; i + 2 < words.size(); ++i) {
      const std::string& name = words[i].text;
      const bool shell = name == "bash" || name == "sh" || name == "/bin/bash" || name == "/bin/sh";
      const std::string& option = words[i + 1].text;
      if (shell && option.size() > 1 && option[0] == '-' && option.back() == 'c')
        return words[i + 2].text;
    }
    return "";
  }

  Scope& scope_;
  const std::string& file_;
  ShellScript& script_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool tested_ = false;  ///< the condition was one that can be decided
};

Scope scope_of(const std::map<std::string, std::string>& variables) {
  Scope scope;
  for (const auto& [name, value] : variables) {
    Variable& variable = scope.variables[name];
    variable.items.emplace_back();
    variable.items.back().add(value, 0);
    variable.exported = true;
  }
  return scope;
}

}  // namespace

std::string expand_text(std::string_view text,
                        const std::map<std::string, std::string>& variables) {
  if (!is_undecided(text)) return std::string(text);
  return scope_of(variables).expand_whole({Token::Kind::word, std::string(text), 0, {}}).text();
}

ShellScript read_shell(std::string_view text, const std::string& file,
                       const std::map<std::string, std::string>& variables) {
  ShellScript script;
  Scope scope = scope_of(variables);
  Follower(scope, file, script).follow(text, 1);
  if (scope.exhausted())
    script.warnings.push_back({file, 0, 0, "", "its variables grow without end: read in part", ""});
  for (const auto& [name, variable] : scope.variables) {
    if (variable.items.empty() || variable.is_array) continue;
    const std::string value = variable.items.front().text();
    script.variables[name] = value;
    if (variable.exported) script.environment[name] = value;
  }
  return script;
}

}  // namespace moecast
