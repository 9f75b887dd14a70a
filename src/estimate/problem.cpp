#include "estimate/problem.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "core/document.hpp"
#include "estimate/inputs.hpp"
#include "layout/environment.hpp"
#include "moecast/model_io.hpp"
#include "topology/profile.hpp"
#include "topology/system_figures.hpp"

namespace moecast {
namespace {

bool on(const Software& s, const char* name, bool fallback) {
  const auto found = s.features.find(name);
  return found == s.features.end() ? fallback : found->second;
}

Features read_features(const Software& s, const Stack& stack, const Run& run) {
  Features f;
  f.transformer_engine = stack.transformer_engine;
  f.router_fusion = on(s, "router_fusion", false);
  f.permute_fusion = on(s, "permute_fusion", false);
  f.rope_fusion = on(s, "rope_fusion", stack.transformer_engine);
  f.fused_grouped_mlp = on(s, "fused_grouped_mlp", false);
  f.grouped_mm = on(s, "grouped_mm", false);
  f.sequential_experts = on(s, "sequential_experts", false);
  f.unfused_attention = on(s, "unfused_attention", false);
  f.unfused_kernels = on(s, "unfused_kernels", false);
  f.static_dispatch = on(s, "static_dispatch", false) || on(s, "paged_stash", false);
  f.fp8_attention = on(s, "fp8_attention", false);
  f.fp8_output_proj = on(s, "fp8_output_proj", false);
  if (const auto said = run.software.features.find("fp8_param_gather");
      said != run.software.features.end()) {
    f.fp8_param_gather = said->second ? Tristate::on : Tristate::off;
  }
  f.single_queue = environment_of(s.env, "CUDA_DEVICE_MAX_CONNECTIONS") == "1";
  f.te_cross_entropy = on(s, "te_cross_entropy", stack.transformer_engine);
  f.captures_without_reuse = captures_without_reuse(s.env);
  return f;
}

/// Distinct layer kinds, decoder first.
void index_classes(Problem& p) {
  const auto class_of = [&](const LayerKind& kind) {
    const auto found = std::find(p.classes.begin(), p.classes.end(), kind);
    if (found != p.classes.end()) return static_cast<int>(found - p.classes.begin());
    p.classes.push_back(kind);
    return static_cast<int>(p.classes.size()) - 1;
  };
  for (const LayerKind& kind : p.model.layers) p.class_of_layer.push_back(class_of(kind));
  for (const LayerKind& kind : p.model.mtp_pattern) p.mtp_classes.push_back(class_of(kind));
}

/// Expandable segments are what the recipes' launchers set; only a stated False says otherwise.
double fragmentation_of(const Stack& stack, const Software& s) {
  const bool off = allocator_says(s.env, "expandable_segments:False");
  return off ? stack.fragmentation_default_allocator : stack.fragmentation;
}

void append(Diagnostics& to, const Diagnostics& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

namespace {

/// What make_problem has read, by what was asked for.
struct Inputs {
  std::map<std::string, Result<ModelSpec>> models;
  std::map<std::string, Result<System>> systems;
  std::map<std::string, Result<StackMatch>> stacks;
  std::map<std::string, Result<Profile>> profiles;
};
thread_local std::unique_ptr<Inputs> shared_inputs;

template <typename T, typename Load>
Result<T> once(std::map<std::string, Result<T>> Inputs::*kind, const std::string& key, Load load) {
  if (shared_inputs == nullptr) return load();
  auto& known = (*shared_inputs).*kind;
  const auto at = known.find(key);
  return at != known.end() ? at->second : known.emplace(key, load()).first->second;
}

/// Relative paths of a run file are taken from its folder first, then from the working directory.
std::string beside(const std::string& name, const std::string& base_dir) {
  const std::filesystem::path path = name;
  if (base_dir.empty() || path.is_absolute() || !path.has_extension()) return name;
  std::error_code ignored;
  const std::filesystem::path candidate = std::filesystem::path(base_dir) / path;
  return std::filesystem::exists(candidate, ignored) ? candidate.string() : name;
}

/// A variable's number above 0; software.env holds text. Anything else is a warning.
std::optional<double> environment(Problem& p, const char* name) {
  const auto found = p.run.software.env.find(name);
  if (found == p.run.software.env.end()) return std::nullopt;
  const std::string& text = found->second;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value > 0) return value;
  p.warnings.push_back({"software.env", fmt::format("{}: '{}' is not a number above 0; it is as if "
                                                    "it were not set",
                                                    name, text)});
  return std::nullopt;
}

struct Count {
  const char* name;
  int HybridEp::*member;
};
constexpr Count kHybridEpCounts[] = {
    {"NUM_OF_TOKENS_PER_CHUNK_DISPATCH_API", &HybridEp::dispatch_chunk_tokens},
    {"NUM_OF_TOKENS_PER_CHUNK_COMBINE_API", &HybridEp::combine_chunk_tokens},
    {"moe_hybridep_num_blocks_permute", &HybridEp::permute_blocks},
    {"moe_hybridep_num_blocks_unpermute", &HybridEp::unpermute_blocks}};

void read_hybridep(Problem& p) {
  std::vector<std::string> known;
  for (const auto& [name, member] : kHybridEpCounts) {
    if (const auto stated = environment(p, name))
      p.hybridep.*member = static_cast<int>(std::clamp(*stated, 1.0, 1e6));
    known.emplace_back(name);
  }
  for (const auto& [name, value] : p.run.software.env) {
    const bool alike = name.rfind("NUM_OF_TOKENS_PER_CHUNK", 0) == 0 ||
                       name.rfind("moe_hybridep_num_block", 0) == 0;
    const bool priced = std::find(known.begin(), known.end(), name) != known.end();
    if (alike && !priced && name != "NUM_OF_TOKENS_PER_CHUNK_PREPROCESSING_API") {
      p.warnings.push_back(
          {"software.env", fmt::format("{} is not known; {}", name, suggestion(name, known))});
    }
  }
}

}  // namespace

SharedInputs::SharedInputs() { shared_inputs = std::make_unique<Inputs>(); }
SharedInputs::~SharedInputs() { shared_inputs.reset(); }

Result<Problem> make_problem(const Run& run, bool fitted) {
  Diagnostics problems;
  auto model = once(&Inputs::models,
                    fmt::format("{}\n{}\n{}", run.base_dir, run.model, run.model_overrides.dump()),
                    [&] { return load_model(run.model, run.model_overrides, run.base_dir); });
  append(problems, model.problems());
  const std::string place = beside(run.system, run.base_dir);
  auto system = once(&Inputs::systems, place, [&] { return load_system(place); });
  append(problems, system.problems());
  if (system) append(problems, override_figures(system.value(), run.system_overrides));
  const std::string container =
      run.software.container.empty() ? "current" : beside(run.software.container, run.base_dir);
  auto stack = once(&Inputs::stacks, container, [&] { return load_stack(container); });
  append(problems, stack.problems());
  if (!problems.empty()) return problems;

  auto cluster = Cluster::build(system.value(), run.gpus, run.gpus_used_per_domain);
  append(problems, cluster.problems());
  auto profile =
      once(&Inputs::profiles, fmt::format("{}\n{}", place, system.value().gpu.compute_capability),
           [&] { return profile_for(place, system.value()); });
  append(problems, profile.problems());
  if (!problems.empty()) return problems;

  Problem p;
  p.run = run;
  p.model = model.take();
  p.cluster = cluster.take();
  p.profile = profile.take();
  p.stack = stack.value().stack;
  apply_stack(p.stack, p.system(), p.profile, fitted);
  p.software = complete_software(run.software, p.stack);
  p.features = read_features(p.software, p.stack, run);
  p.fragmentation = fragmentation_of(p.stack, p.software);
  p.world = run.gpus;
  p.seq_length = run.seq_length;
  p.global_batch_size = run.global_batch_size;
  if (run.routing.kind == Routing::Kind::imbalance) p.imbalance = run.routing.imbalance;
  p.dispatch_capacity =
      std::max(1.0, environment(p, "moe_expert_rank_capacity_factor").value_or(1));
  read_hybridep(p);
  index_classes(p);
  if (p.classes.size() > kMaxLayerClasses) {
    return Diagnostic{run.model,
                      0,
                      0,
                      "model",
                      fmt::format("has {} kinds of layers; at most {} are supported",
                                  p.classes.size(), kMaxLayerClasses),
                      ""};
  }
  for (const std::string& w : p.model.warnings) p.warnings.push_back({"model", w});
  if (!stack.value().exact) {
    p.warnings.push_back({"stack", "'" + run.software.container + "' is read as stack " +
                                       p.stack.name + " (nearest by date)"});
  }
  return p;
}

}  // namespace moecast
