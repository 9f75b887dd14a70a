#include "calibrate/fit/curves.hpp"

#include <algorithm>

#include "estimate/prices.hpp"
#include "layout/enum_names.hpp"
#include "topology/parameter_names.hpp"

namespace moecast {
namespace {

using Names = std::vector<std::string>;

std::string word(const Sample& s, const char* key, const char* fallback = "") {
  const auto found = s.keys.find(key);
  const auto* text = found == s.keys.end() ? nullptr : std::get_if<std::string>(&found->second);
  return text == nullptr ? fallback : *text;
}

std::optional<double> number(const Sample& s, const char* key) {
  const auto found = s.keys.find(key);
  const auto* value = found == s.keys.end() ? nullptr : std::get_if<double>(&found->second);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

/// A GEMM and the kernels of EP overlap at the same time. What the exchange loses there is mostly
/// waiting for SMs of GEMMs that run back to back, which a training step's queue doesn't do: the
/// profile keeps what training traces say of that.
bool beside_exchange(const Sample& s) {
  return s.cls == "contention" && (word(s, "with") == "dispatch" || word(s, "with") == "combine");
}

Names under(const std::string& section, const Names& fields) {
  Names paths;
  for (const std::string& field : fields) paths.push_back(section + "." + field);
  return paths;
}

bool has_pipe(const Sample& s, Pipe pipe) {
  const std::string text = word(s, "precision", "bf16");
  const auto precision = enum_from_text<Precision>(text == "fp8" ? "fp8_tensorwise" : text);
  return precision && pipe_of(*precision) == pipe;
}

void add_gemm(std::vector<FitCurve>& curves) {
  const auto of = [](const char* cls, std::size_t i) {
    return [=](const Sample& s) { return s.cls == cls && has_pipe(s, static_cast<Pipe>(i)); };
  };
  // few rows per expert: the traffic of the fp32 gradient is all that a wgrad costs
  curves.push_back({"gemm.accumulate",
                    {"gemm.accumulate_fraction", "grouped_gemm.bf16.launch_us_per_group"},
                    [](const Sample& s) {
                      const double tokens = number(s, "tokens").value_or(0);
                      return s.cls == "grouped_gemm" && has_pipe(s, Pipe::bf16) &&
                             word(s, "pass") == "wgrad" &&
                             tokens <= 256 * number(s, "experts").value_or(1) &&
                             s.backend.find("stream") != std::string::npos;
                    }});
  for (std::size_t i = 0; i < std::size(kPipeNames); ++i) {
    const std::string name = std::string("gemm.") + kPipeNames[i];
    curves.push_back(
        {name,
         under(name, {"launch_us", "efficiency", "k_half", "tile_edge", "wave_quantization",
                      "bandwidth_fraction", "dgrad_ratio", "wgrad_ratio"}),
         of("gemm", i)});
  }
  for (std::size_t i = 0; i < std::size(kPipeNames); ++i) {
    const std::string name = std::string("grouped_gemm.") + kPipeNames[i];
    Names fields = {"efficiency_ratio", "wgrad_ratio", "launch_us_per_group"};
    curves.push_back({name, under(name, fields), [takes = of("grouped_gemm", i)](const Sample& s) {
                        return takes(s) && s.backend.find("stream") != std::string::npos;
                      }});
    // cuBLAS's grouped GEMM is half as quick as experts over streams: nobody trains with it
    curves.push_back({name + ".single_launch",
                      under(name, {"fused_efficiency_ratio", "few_rows_ratio", "wave_quantization",
                                   "single_launch_us"}),
                      [takes = of("grouped_gemm", i)](const Sample& s) {
                        return takes(s) && s.backend == "torch_grouped_mm";
                      }});
  }
}

/// Launch time and tail are those of the commonest heads; narrower and wider ones take them over.
void add_attention(std::vector<FitCurve>& curves) {
  for (const char* heads : {"d128", "d64", "d192", "d256"}) {
    const std::string name = std::string("attention.") + heads;
    Names paths = under(
        name, {"forward_efficiency", "backward_efficiency", "forward_s_half", "backward_s_half"});
    if (name == "attention.d128")
      paths.insert(paths.end(), {"attention.launch_us", "attention.tail"});
    curves.push_back({name, paths, [=](const Sample& s) {
                        return s.cls == "attention" && has_pipe(s, Pipe::bf16) &&
                               head_class_name(number(s, "qk_dim").value_or(0)) ==
                                   std::string(heads);
                      }});
  }
  curves.push_back({"attention.fp8", {"attention.fp8_speedup"}, [](const Sample& s) {
                      return s.cls == "attention" && !has_pipe(s, Pipe::bf16);
                    }});
}

void add_streams(std::vector<FitCurve>& curves) {
  const auto add = [&](const std::string& name, Names fields, const Names& classes) {
    fields.insert(fields.end(), {"start_us", "fraction"});
    curves.push_back({name, under(name, fields), [=](const Sample& s) {
                        return std::find(classes.begin(), classes.end(), s.cls) != classes.end();
                      }});
  };
  add("memory_bound.elementwise", {}, {"residual"});
  add("memory_bound.rope", {}, {"rope"});
  add("memory_bound.activation", {"row_gb_per_s"}, {"swiglu", "swiglu_backward"});
  const Names rows = {"row_bytes", "row_gb_per_s"};
  add("memory_bound.norm", rows, {"rms_norm"});
  add("memory_bound.norm_backward", rows, {"rms_norm_backward"});
  add("memory_bound.loss", rows, {"cross_entropy"});
  add("memory_bound.router", {"row_bytes"}, {"router"});
  add("memory_bound.sort", {"row_gb_per_s"}, {"sort"});
  add("memory_bound.adam", {}, {"adam"});
  for (const char* cls : {"permute", "unpermute"}) {
    const std::string name = std::string("permute.") + cls;
    const auto limited = [](const Sample& s) { return number(s, "sms").value_or(0) > 0; };
    curves.push_back({name, under(name, {"start_us", "fraction", "unfused_factor"}),
                      [=](const Sample& s) {  // unfused: of so many copies that L2 can't keep them
                        const bool fused = number(s, "fused").value_or(1) != 0;
                        return s.cls == cls && !limited(s) &&
                               (fused || number(s, "topk").value_or(1) > 2);
                      }});
    curves.push_back({name + ".sms", under(name, {"gb_per_s_per_sm"}),
                      [=](const Sample& s) { return s.cls == cls && limited(s); }});
  }
  for (const auto& [precision, text] : kEnumNames<Precision>) {
    if (precision == Precision::bf16) continue;
    const std::string name = "quantize." + std::string(text);
    curves.push_back(
        {name, under(name, {"start_us", "fraction"}), [recipe = text](const Sample& s) {
           return s.cls == "quantize" && word(s, "precision") == recipe;
         }});
  }
  curves.push_back({"offload",
                    {"offload.link_fraction", "offload.latency_us"},
                    [](const Sample& s) { return s.cls == "h2d" || s.cls == "d2h"; }});
}

void add_links(std::vector<FitCurve>& curves) {
  for (const char* op : kCollectiveNames) {
    const std::string name = std::string("collectives.nvlink.") + op;
    Names fields = {"latency_us",         "latency_us_per_rank",
                    "bandwidth_fraction", "ramp_us",
                    "ramp_mib",           "own_share"};
    if (name == "collectives.nvlink.send_recv") fields.pop_back();
    curves.push_back({name, under(name, fields), [=](const Sample& s) { return s.cls == op; }});
  }
  for (const auto& [dispatcher, text] : kEnumNames<Dispatcher>) {
    const std::string name = "dispatch." + std::string(text);
    Names fields = {"latency_us", "nvlink_fraction"};
    if (dispatcher == Dispatcher::deepep || dispatcher == Dispatcher::hybridep)
      fields.insert(fields.end(), {"gb_per_s_per_sm", "combine_gb_per_s_per_sm"});
    curves.push_back({name, under(name, fields), [d = dispatcher](const Sample& s) {
                        const bool exchange = s.cls == "dispatch" || s.cls == "combine";
                        // a layout kept from the call before is not what a layer sees
                        return exchange && dispatcher_of(s) == d &&
                               s.backend.find("cached") == std::string::npos;
                      }});
  }
}

}  // namespace

const std::vector<FitCurve>& fit_curves() {
  static const std::vector<FitCurve> curves = [] {
    std::vector<FitCurve> list;
    add_gemm(list);
    add_attention(list);
    add_streams(list);
    add_links(list);
    return list;
  }();
  return curves;
}

const std::vector<DirectCurve>& direct_curves() {
  static const std::vector<DirectCurve> curves = {
      {"contention.compute", "contention.compute_per_sm_share",
       [](const Sample& s, const SampleDevice& d) -> std::optional<double> {
         const auto slowdown = number(s, "gemm_slowdown"), sms = number(s, "sms");
         if (!beside_exchange(s) || !slowdown || !sms || *sms <= 0 || d.sms <= 0)
           return std::nullopt;
         return (*slowdown - 1) * d.sms / *sms;
       }},
      {"launch.sync", "launch.sync_us",
       [](const Sample& s, const SampleDevice&) -> std::optional<double> {
         if (s.cls != "launch" || word(s, "kind") != "d2h_sync") return std::nullopt;
         return s.median_us;
       }},
  };
  return curves;
}

}  // namespace moecast
