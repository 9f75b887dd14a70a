#pragma once
/// Diagnostics for users, and Result<T>: a value or everything that was wrong (never just the first
/// problem).
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace moecast {

/// One thing that is wrong with an input, as a user must read it.
struct Diagnostic {
  std::string
      file;        ///< as the user wrote it; empty when the input is not a file (then e.g. "--set")
  int line = 0;    ///< 1-based; 0 = unknown
  int column = 0;  ///< 1-based; 0 = unknown
  std::string key;      ///< dotted path, such as layout.tensor_model_parallel_size; may be empty
  std::string message;  ///< what is wrong
  std::string hint;     ///< the likely fix; may be empty ("did you mean 'x'?")
};

using Diagnostics = std::vector<Diagnostic>;

/// "file:line:column: key: message; hint"
std::string to_string(const Diagnostic& d);

template <typename T>
class Result {
 public:
  Result(T value) : value_(std::move(value)) {}                     // NOLINT: implicit on purpose
  Result(Diagnostics problems) : problems_(std::move(problems)) {}  // NOLINT
  Result(Diagnostic problem) : problems_{std::move(problem)} {}     // NOLINT

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] const T& value() const& { return require(); }
  [[nodiscard]] T& value() & { return require(); }
  [[nodiscard]] T&& take() { return std::move(require()); }
  [[nodiscard]] const Diagnostics& problems() const { return problems_; }

 private:
  const T& require() const {
    if (!value_) throw std::logic_error("Result has no value");
    return *value_;
  }
  T& require() {
    if (!value_) throw std::logic_error("Result has no value");
    return *value_;
  }
  std::optional<T> value_;
  Diagnostics problems_;
};

}  // namespace moecast
