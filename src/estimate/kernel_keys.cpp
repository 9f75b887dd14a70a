// The keys of `moecast kernel`, in one table.
#include <algorithm>

#include "estimate/kernel_shape.hpp"
#include "layout/enum_names.hpp"

namespace moecast {
namespace {

using Choices = std::vector<std::string>;

template <typename E>
bool assign(E& field, const std::string& word, const Choices& choices) {
  const auto found = std::find(choices.begin(), choices.end(), word);
  if (found == choices.end()) return false;
  field = static_cast<E>(found - choices.begin());
  return true;
}

Choices passes() { return {"forward", "dgrad", "wgrad", "backward"}; }
Choices launches() { return {"multi_stream", "single"}; }
Choices precisions() {
  Choices words = enum_choices<Precision>();
  words.emplace_back("fp8");   // the pipe's name: per-tensor scaling
  words.emplace_back("fp32");  // what Adam and the router compute in; no GEMM pipe
  return words;
}

bool set_precision(KernelShape& s, const std::string& word) {
  s.element_bytes = word == "fp32" ? 4 : 2;
  if (word == "fp32") return true;
  const auto read = enum_from_text<Precision>(word == "fp8" ? "fp8_tensorwise" : word);
  if (!read) return false;
  s.precision = *read;
  s.pipe = pipe_of(*read);
  return true;
}
bool set_pass(KernelShape& s, const std::string& word) {
  s.backward = word == "backward";
  return s.backward || assign(s.pass, word, passes());
}
bool set_backend(KernelShape& s, const std::string& word) {
  return assign(s.backend, word, enum_choices<Dispatcher>());
}
bool set_launch(KernelShape& s, const std::string& word) {
  return assign(s.launch, word, launches());
}

}  // namespace

const std::vector<KernelKey>& kernel_keys() {
  using S = KernelShape;
  static const std::vector<KernelKey> table = {
      {"m", &S::m, nullptr, nullptr, 1, 1e9},
      {"n", &S::n, nullptr, nullptr, 1, 1e9},
      {"k", &S::k, nullptr, nullptr, 1, 1e9},
      {"tokens", &S::tokens, nullptr, nullptr, 1, 1e9},
      {"experts", &S::experts, nullptr, nullptr, 1, 1e5},
      {"topk", &S::topk, nullptr, nullptr, 1, 1e4},
      {"hidden", &S::hidden, nullptr, nullptr, 1, 1e7},
      {"skew", &S::skew, nullptr, nullptr, 1, 1e4},
      {"batch", &S::batch, nullptr, nullptr, 1, 1e7},
      {"seq", &S::seq, nullptr, nullptr, 1, 1e8},
      {"heads", &S::heads, nullptr, nullptr, 1, 1e5},
      {"kv_heads", &S::kv_heads, nullptr, nullptr, 1, 1e5},
      {"qk_dim", &S::qk_dim, nullptr, nullptr, 1, 1e4},
      {"v_dim", &S::v_dim, nullptr, nullptr, 1, 1e4},
      {"rows", &S::rows, nullptr, nullptr, 1, 1e10},
      {"cols", &S::cols, nullptr, nullptr, 1, 1e10},
      {"bytes", &S::bytes, nullptr, nullptr, 1, 1e13},
      {"ranks", &S::ranks, nullptr, nullptr, 2, 1e5},
      {"sms", &S::sms, nullptr, nullptr, 0, 1024},
      {"fused", &S::fused, nullptr, nullptr, 0, 1},
      {"accumulate", &S::accumulate, nullptr, nullptr, 0, 1},
      {"precision", nullptr, set_precision, precisions},
      {"pass", nullptr, set_pass, passes},
      {"backend", nullptr, set_backend, enum_choices<Dispatcher>},
      {"launch", nullptr, set_launch, launches},
  };
  return table;
}

}  // namespace moecast
