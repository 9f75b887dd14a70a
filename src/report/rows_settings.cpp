/// Columns that hold key=value lists, and what they switch on.
#include <algorithm>
#include <regex>
#include <set>

#include <fmt/format.h>

#include "layout/enum_names.hpp"
#include "layout/environment.hpp"
#include "layout/routing_value.hpp"
#include "report/rows.hpp"

namespace moecast::rows {
namespace {

struct Setting {
  std::string key, value;
};

std::vector<Setting> settings(std::string_view text) {
  std::vector<Setting> list;
  for (const std::string& part : split(text, ';')) {
    const std::size_t equals = std::min(part.find('='), part.size());
    list.push_back(
        {trimmed(part.substr(0, equals)), trimmed(part.substr(std::min(equals + 1, part.size())))});
  }
  return list;
}

void unknown(MeasuredRow& row, const char* column, const Setting& s) {
  row.notes.push_back(fmt::format("{}: '{}{}{}' is not known and left out", column, s.key,
                                  s.value.empty() ? "" : "=", s.value));
}

/// "True (launcher override)" -> true; None and expressions that were not resolved -> nothing.
std::optional<bool> flag(const std::string& value) {
  const std::string word = value.substr(0, value.find(' '));
  if (word == "True" || word == "true") return true;
  if (word == "False" || word == "false") return false;
  return std::nullopt;
}

bool set_dtype(const Setting& s, Layout& layout) {
  const auto dtype = enum_from_text<DType>(s.value);
  if (!dtype) return false;
  if (s.key == "m" || s.key == "v") {
    layout.moment_dtype = *dtype;
  } else if (s.key == "main_params" || s.key == "master") {
    layout.master_dtype = *dtype;
  } else if (s.key == "main_grads") {
    layout.grad_dtype = *dtype;
  } else {
    return s.key == "params" && *dtype == DType::bf16;  // what a run has anyway
  }
  return true;
}

bool set_flag(const Setting& s, Run& run) {
  const auto on = flag(s.value);
  if (s.key == "precision_aware") {
    run.layout.precision_aware_optimizer = on.value_or(false);  // None: the recipe does not set it
    return true;
  }
  if (!on) return false;
  if (s.key == "distributed") {
    run.layout.distributed_optimizer = *on;
  } else if (s.key == "overlap_grad_reduce") {
    run.layout.overlap_grad_reduce = *on;
  } else if (s.key == "overlap_param_gather") {
    run.layout.overlap_param_gather = *on;
  } else if (s.key == "fp8_param_gather") {
    run.software.features[s.key] = *on;
  } else {
    return s.key == "grad_reduce_fp32";
  }
  return true;
}

/// key=word features that switch something by name.
bool set_choice(const Setting& s, std::map<std::string, bool>& features) {
  const std::string choice = s.key + "=" + s.value;
  if (s.key == "cross_entropy" && (s.value == "te" || s.value == "native")) {
    features["te_cross_entropy"] = s.value == "te";
  } else if (choice == "router_dtype=fp32") {
    features["router_dtype_fp32"] = true;
  } else if (choice == "attention=cudnn" || choice == "attention=flash" ||
             choice == "attention=unfused") {
    features["unfused_attention"] = s.value == "unfused";
  } else if (choice == "kernels=gmm" || choice == "kernels=seq" || choice == "kernels=pure") {
    features["grouped_mm"] = s.value == "gmm";
    features["sequential_experts"] = s.value != "gmm";
    features["unfused_kernels"] = s.value == "pure";
  } else {
    return false;
  }
  return true;
}

bool set_number(const Setting& s, Run& run) {
  const auto value = number(s.value);
  if (!value) return false;
  if (s.key == "capacity_factor") {
    run.capacity_factor = *value;
  } else if (s.key == "paged_stash") {
    run.software.features["paged_stash"] = true;
    run.software.env["moe_expert_rank_capacity_factor"] = s.value;
  } else if (s.key == "cuda_device_max_connections") {
    run.software.env["CUDA_DEVICE_MAX_CONNECTIONS"] = s.value;
  } else if (s.key == "hybridep_ranks_per_domain") {
    run.software.env["NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"] = s.value;
  } else {
    return false;
  }
  return true;
}

constexpr const char* kAllocator = "PYTORCH_CUDA_ALLOC_CONF";

constexpr const char* kCombineChunk = "NUM_OF_TOKENS_PER_CHUNK_COMBINE_API";

/// Rows of Megatron-Bridge's releases and main ran its launchers, which set kCombineChunk to 128
/// (scripts/performance/perf_plugins.py); branches are campaigns with recipes of their own.
bool performance_recipe(const MeasuredRow& row) {
  const std::string release = cell(row, "release");
  return bridge_release(release) && release.rfind("branch", 0) != 0;
}

/// Environment variables that change time and that some rows state only in words.
void read_environment(const MeasuredRow& row, Run& run) {
  static const std::regex kVariable(
      "\\b(CUDA_DEVICE_MAX_CONNECTIONS|NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN|NVTE_FWD_LAYERNORM_"
      "SM_MARGIN|NUM_OF_TOKENS_PER_CHUNK_[A-Z]{1,13}_API|moe_hybridep_num_blocks_(?:un)?permute|"
      "moe_expert_rank_capacity_factor)="
      "([0-9]{1,6}(?:\\.[0-9]{1,4})?)\\b");
  static const std::regex kChunks("HybridEP chunks ([0-9]{1,6})/([0-9]{1,6})/([0-9]{1,6})\\b");
  static const std::regex kCombine("\\b([0-9]{1,4})-token combine chunks");
  static const std::regex kBlocks("\\b((?:un)?permute) [0-9]{1,4} -> ([0-9]{1,4}) blocks");
  const std::string notes = cell(row, "notes").substr(0, 4096);  // std::regex recurses
  auto& env = run.software.env;
  for (std::sregex_iterator hit(notes.begin(), notes.end(), kVariable), end; hit != end; ++hit)
    env[(*hit)[1].str()] = (*hit)[2].str();
  for (std::sregex_iterator hit(notes.begin(), notes.end(), kBlocks), end; hit != end; ++hit)
    env["moe_hybridep_num_blocks_" + (*hit)[1].str()] = (*hit)[2].str();
  if (std::smatch hit; std::regex_search(notes, hit, kCombine)) env[kCombineChunk] = hit[1].str();
  if (std::smatch hit; std::regex_search(notes, hit, kChunks)) {
    env["NUM_OF_TOKENS_PER_CHUNK_PREPROCESSING_API"] = hit[1].str();
    env["NUM_OF_TOKENS_PER_CHUNK_DISPATCH_API"] = hit[2].str();
    env[kCombineChunk] = hit[3].str();
  }
  if (performance_recipe(row)) env.try_emplace(kCombineChunk, "128");
  static const std::regex kConf("\\b(PYTORCH_(?:CUDA_)?ALLOC_CONF)=([^ ;]{1,200})");
  if (std::smatch hit; std::regex_search(notes, hit, kConf)) {
    env[hit[1].str()] = hit[2].str();
  } else if (notes.find("expandable_segments:True") !=
             std::string::npos) {  // of what it says no more
    env[kAllocator] = "expandable_segments:True,graph_capture_record_stream_reuse:True";
  }
}

}  // namespace

/// Their performance recipes all reduce gradients in BF16 (perf_recipes/_common.py) unless a row
/// says more.
bool bridge_release(const std::string& release) {
  for (const char* start : {"25.", "26.", "main ", "branch ", "bridge "}) {
    if (release.rfind(start, 0) == 0) return release.find("NeMo 2") == std::string::npos;
  }
  return false;
}

void read_optimizer(MeasuredRow& row, Run& run) {
  bool bf16_reduce =
      cell(row, "optimizer_dtype_notes").empty() && bridge_release(cell(row, "release"));
  if (bf16_reduce)
    row.notes.push_back("optimizer dtypes not stated: the recipes' BF16 gradient buffers assumed");
  for (const Setting& s : settings(cell(row, "optimizer_dtype_notes"))) {
    if (s.key == "grad_reduce_fp32") bf16_reduce = flag(s.value) == std::optional<bool>(false);
    if (!set_dtype(s, run.layout) && !set_flag(s, run)) unknown(row, "optimizer_dtype_notes", s);
  }
  // The gradient buffer is what is reduced; main_grads is the optimizer's copy of its shard.
  if (bf16_reduce) run.layout.grad_dtype = DType::bf16;
}

void read_allocator_groups(std::vector<MeasuredRow>& rows) {
  std::set<std::string> groups;
  for (const MeasuredRow& row : rows) {
    if (row.run && !allocator_settings(row.run->software.env).empty())
      groups.insert(cell(row, "ab_group"));
  }
  groups.erase("");
  for (MeasuredRow& row : rows) {
    if (!row.run || groups.count(cell(row, "ab_group")) == 0) continue;
    Environment& env = row.run->software.env;
    if (allocator_settings(env).empty()) env[kAllocator] = "expandable_segments:False";
  }
}

void read_features(MeasuredRow& row, Run& run, const std::map<std::string, bool>& known) {
  read_environment(row, run);
  for (const Setting& s : settings(cell(row, "features"))) {
    if (s.key.rfind("account_for_", 0) == 0) continue;  // the pipeline split reads them
    if (known.count(s.key) == 1 && (s.value.empty() || flag(s.value))) {
      run.software.features[s.key] = flag(s.value).value_or(true);
    } else if (!set_choice(s, run.software.features) && !set_number(s, run)) {
      unknown(row, "features", s);
    }
  }
}

void read_routing(MeasuredRow& row, Run& run) {
  const std::string text = cell(row, "force_balance");
  if (text.rfind("token-drop", 0) == 0) {
    if (run.capacity_factor == 0.0) run.capacity_factor = 1.0;
    row.notes.push_back("token drop: capacity factor 1.0 with padding");
  } else if (text == "False") {
    run.routing.kind = Routing::Kind::imbalance;
    run.routing.imbalance = natural_imbalance(run.layout.ep);
    row.imbalance_assumed = true;
    row.notes.push_back(
        fmt::format("natural routing: imbalance {} assumed", run.routing.imbalance));
  } else if (text != "True") {
    row.notes.push_back("routing not stated: forced balance assumed");
  }
}

}  // namespace moecast::rows
