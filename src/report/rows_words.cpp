#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "layout/enum_names.hpp"
#include "report/rows.hpp"

namespace moecast::rows {
namespace {

/// Adds the modules named in `words`; unknown ones become a note.
template <typename E>
ModuleSet<E> module_set(const std::vector<std::string>& words, const char* column,
                        MeasuredRow& row) {
  ModuleSet<E> set;
  for (const std::string& word : words) {
    if (const auto module = enum_from_text<E>(word)) {
      set.add(*module);
    } else {
      row.notes.push_back(fmt::format("{}: '{}' is not known and left out", column, word));
    }
  }
  return set;
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

void read_full_recompute(const std::string& text, MeasuredRow& row, Layout& layout) {
  layout.recompute_granularity = RecomputeGranularity::full;
  layout.recompute_method = RecomputeMethod::uniform;
  layout.recompute_num_layers = 1;
  if (text == "full") return;
  const auto words = split(text.substr(5, text.size() - 6), ',');
  const auto method = words.empty() ? std::nullopt : enum_from_text<RecomputeMethod>(words[0]);
  const auto layers = words.size() == 2 ? positive_integer(words[1]) : std::nullopt;
  if (method && layers) {
    layout.recompute_method = *method;
    layout.recompute_num_layers = *layers;
  } else {
    row.notes.push_back(fmt::format("recompute_modules: '{}' is read as full(uniform,1)", text));
  }
}

}  // namespace

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  return std::string(text.substr(0, text.find_last_not_of(kBlank) + 1));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (std::string part = trimmed(text.substr(0, end)); !part.empty())
      parts.push_back(std::move(part));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::optional<int> positive_integer(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

void read_precision(MeasuredRow& row, Run& run, std::vector<std::string>& missing) {
  const std::string word = has_column(row, "precision") ? cell(row, "precision") : "bf16";
  const std::string recipe = cell(row, "fp8_recipe");
  if (word.empty()) {
    missing.push_back("precision");
  } else if (word == "fp8") {
    const bool blockwise = starts_with(recipe, "blockwise");
    run.layout.precision = blockwise                        ? Precision::fp8_blockwise
                           : starts_with(recipe, "delayed") ? Precision::fp8_delayed
                           : starts_with(recipe, "mxfp8")   ? Precision::mxfp8
                                                            : Precision::fp8_tensorwise;
    if (!starts_with(recipe, "tensorwise") && run.layout.precision == Precision::fp8_tensorwise) {
      row.notes.push_back(
          "fp8_recipe not stated: tensorwise (current scaling), the recipes' default");
    }
  } else if (const auto precision = enum_from_text<Precision>(word)) {
    run.layout.precision = *precision;
  } else {
    missing.push_back(fmt::format("precision ('{}' is not known)", word));
  }
}

void read_recompute(MeasuredRow& row, Run& run) {
  const std::string text = cell(row, "recompute_modules");
  if (text.empty() || text == "none") return;
  if (text == "full" || (starts_with(text, "full(") && text.back() == ')'))
    return read_full_recompute(text, row, run.layout);
  auto words = split(text, '+');
  for (auto& word : words) {
    if (word == "gdn") word = "gdn_norm_out";
  }
  run.layout.recompute_modules = module_set<RecomputeModule>(words, "recompute_modules", row);
  if (!run.layout.recompute_modules.empty())
    run.layout.recompute_granularity = RecomputeGranularity::selective;
}

void read_offload(MeasuredRow& row, Run& run) {
  const std::string text = cell(row, "offload_modules");
  if (text.empty() || text == "none") return;
  std::vector<std::string> modules;
  bool in_modules = false;
  for (const std::string& part : split(text, '+')) {
    const std::size_t colon = part.find(':');
    const std::string value = colon == std::string::npos ? part : part.substr(colon + 1);
    if (starts_with(part, "opt_cpu:") && number(value)) {
      run.layout.optimizer_offload_fraction = *number(value);
      in_modules = false;
    } else if (const auto layers = positive_integer(value.substr(0, value.find(' ')));
               starts_with(part, "layers:") && layers) {
      run.layout.cpu_offloading_num_layers = *layers;
      in_modules = false;
    } else if (starts_with(part, "act:") || (in_modules && colon == std::string::npos)) {
      modules.push_back(value);
      in_modules = true;
    } else {
      row.notes.push_back(fmt::format("offload_modules: '{}' is not known and left out", part));
    }
  }
  run.layout.offload_modules = module_set<OffloadModule>(modules, "offload_modules", row);
}

void read_cuda_graph(MeasuredRow& row, Run& run) {
  const std::string text = cell(row, "cuda_graph_scope");
  if (text.empty() || text == "none") return;
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos && enum_from_text<GraphModule>(text.substr(0, text.find('+')))) {
    run.layout.cuda_graph_impl = CudaGraphImpl::transformer_engine;  // bare module names
    run.layout.cuda_graph_scope =
        module_set<GraphModule>(split(text, '+'), "cuda_graph_scope", row);
  } else if (const auto impl = enum_from_text<CudaGraphImpl>(text.substr(0, colon))) {
    run.layout.cuda_graph_impl = *impl;
    if (colon == std::string::npos) return;
    run.layout.cuda_graph_scope =
        module_set<GraphModule>(split(text.substr(colon + 1), '+'), "cuda_graph_scope", row);
  } else {
    row.notes.push_back(
        fmt::format("cuda_graph_scope: '{}' is not known: no graphs assumed", text));
  }
}

void read_fsdp(MeasuredRow& row, Run& run) {
  const std::string text = cell(row, "fsdp");
  if (text.empty() || text == "False") return;
  run.layout.fsdp = FsdpSharding::optim_grads_params;
  if (text != "megatron_fsdp:optim_grads_params") {
    row.notes.push_back(fmt::format(
        "fsdp: '{}' is read as Megatron FSDP that shards optimizer, gradients and parameters",
        text));
  }
}

}  // namespace moecast::rows
