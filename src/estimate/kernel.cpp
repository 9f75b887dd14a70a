// Reads the keys of one kernel and prices it.
#include "moecast/kernel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "core/document.hpp"
#include "estimate/kernel_shape.hpp"

namespace moecast {
namespace {

std::vector<std::string> words_of(const char* list) {
  std::istringstream in(list);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

const KernelClass* find_class(const std::string& name) {
  for (const KernelClass& c : kernel_table())
    if (name == c.name) return &c;
  return nullptr;
}

Diagnostic problem(const std::string& key, std::string message, std::string hint = "") {
  return {"", 0, 0, key, std::move(message), std::move(hint)};
}

void read_number(const KernelKey& key, double value, KernelShape& shape, Diagnostics& problems) {
  if (value < key.low || value > key.high) {
    problems.push_back(problem(key.name, fmt::format("{} is out of range", value),
                               fmt::format("between {} and {}", key.low, key.high)));
  }
  shape.*key.number = value;
}

void read_key(const std::string& name, const std::variant<double, std::string>& value,
              KernelShape& shape, Diagnostics& problems) {
  for (const KernelKey& key : kernel_keys()) {
    if (name != key.name) continue;
    const auto* number = std::get_if<double>(&value);
    if (key.number != nullptr && number != nullptr) {
      read_number(key, *number, shape, problems);
    } else if (key.number != nullptr) {
      problems.push_back(
          problem(name, fmt::format("'{}' is not a number", std::get<std::string>(value))));
    } else {
      const std::string word = number ? fmt::format("{}", *number) : std::get<std::string>(value);
      if (!key.word(shape, word)) {
        problems.push_back(problem(name, fmt::format("no {} is called '{}'", name, word),
                                   suggestion(word, key.choices())));
      }
    }
  }
}

/// What single keys cannot tell.
void check_together(const std::string& cls, KernelShape& s, Diagnostics& problems) {
  if (cls == "attention" ? s.pass != Pass::forward : s.backward) {
    problems.push_back(
        problem("pass", "is not a pass of " + cls,
                cls == "attention" ? "forward or backward" : "forward, dgrad or wgrad"));
  }
  if ((cls == "quantize" || cls == "cast") && s.precision == Precision::bf16)
    problems.push_back(problem("precision", "bf16 is not quantised", "such as fp8_tensorwise"));
  const bool math = cls == "gemm" || cls == "grouped_gemm" || cls == "attention";
  if (s.element_bytes == 4 && (math || cls == "quantize" || cls == "cast"))
    problems.push_back(problem("precision", "fp32 is not a precision of " + cls, "such as bf16"));
  if ((cls == "dispatch" || cls == "combine") && s.topk > s.experts)
    problems.push_back(problem("topk", "is above the number of experts"));
  if (cls == "grouped_gemm" && s.experts > s.tokens)
    problems.push_back(problem("experts", "is above the number of tokens"));
}

void set_span(const System& system, KernelShape& s, Diagnostics& problems) {
  const int ranks = static_cast<int>(s.ranks);
  const int node = system.gpus_per_node;
  const int gpus = ranks <= node ? node : (ranks + node - 1) / node * node;
  auto cluster = Cluster::build(system, gpus);
  if (!cluster) {
    problems.insert(problems.end(), cluster.problems().begin(), cluster.problems().end());
    return;
  }
  s.span = cluster.value().span(1, ranks);
}

}  // namespace

struct KernelCall::Impl {
  const KernelClass* cls;
  KernelShape shape;
};

Result<KernelCall> KernelCall::make(const std::string& cls, const KernelKeys& keys,
                                    const System& system) {
  const KernelClass* found = find_class(cls);
  if (found == nullptr) {
    std::vector<std::string> names;
    for (const KernelClass& c : kernel_table()) names.emplace_back(c.name);
    return problem(cls, "unknown kernel class", suggestion(cls, names));
  }
  const auto required = words_of(found->required), optional = words_of(found->optional);
  std::vector<std::string> known = required;
  known.insert(known.end(), optional.begin(), optional.end());
  Diagnostics problems;
  auto impl = std::make_shared<Impl>();
  impl->cls = found;
  impl->shape.hopper = system.gpu.compute_capability < 10;
  if (cls == "quantize" || cls == "cast") impl->shape.precision = Precision::fp8_tensorwise;
  for (const auto& [name, value] : keys) {
    if (contains(known, name)) {
      read_key(name, value, impl->shape, problems);
    } else {
      problems.push_back(
          problem(name, fmt::format("{} has no such key", cls), suggestion(name, known)));
    }
  }
  for (const std::string& name : required) {
    if (!keys.contains(name)) {
      problems.push_back(problem(name, fmt::format("{} needs this key", cls),
                                 fmt::format("keys: {}", fmt::join(known, " "))));
    }
  }
  if (problems.empty()) check_together(cls, impl->shape, problems);
  if (problems.empty() && contains(required, "ranks")) set_span(system, impl->shape, problems);
  if (!problems.empty()) return problems;
  return KernelCall(std::move(impl));
}

Seconds KernelCall::time(const Calibration& c, const System& system) const {
  return impl_->cls->price({&c, &system, 1.0}, impl_->shape);
}

KernelPrice KernelCall::price(const Profile& profile, const System& system) const {
  KernelPrice out;
  out.time = time(profile.calibration, system);
  const KernelWork work = impl_->cls->work(system, impl_->shape);
  const double t = out.time.value;
  const double compute = work.peak > 0 ? work.flops / work.peak : 0;
  const double transfer = work.rate > 0 ? work.bytes / work.rate : 0;
  if (t > 0) {
    out.tflops = work.flops / t / 1e12;
    out.gb_per_s = work.bytes / t / 1e9;
    out.fraction_of_limit = std::max(compute, transfer) / t;
  }
  out.limit = compute >= transfer ? "peak" : work.link;
  const std::string path = impl_->cls->parameter(impl_->shape);
  const auto value = profile.values.find(path);
  if (value != profile.values.end()) {
    out.source = fmt::format("{}: {} ({}), {}", profile.calibration.name, path, value->second.kind,
                             value->second.source);
  }
  return out;
}

const std::vector<KernelClassInfo>& kernel_classes() {
  static const std::vector<KernelClassInfo> list = [] {
    std::vector<KernelClassInfo> out;
    for (const KernelClass& c : kernel_table())
      out.push_back({c.name, words_of(c.required), words_of(c.optional), c.counts});
    return out;
  }();
  return list;
}

std::variant<double, std::string> key_value(const std::string& text) {
  Node node;
  node.kind = Node::Kind::scalar;
  node.scalar = text;
  if (const auto number = node.as_double()) return *number;
  if (const auto flag = node.as_bool()) return *flag ? 1.0 : 0.0;
  return text;
}

}  // namespace moecast
