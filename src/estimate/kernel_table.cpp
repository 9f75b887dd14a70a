// The kernel classes of `moecast kernel` and of the samples: which price formula each one is, what
// it computes and moves, and which parameter decides.
#include <fmt/format.h>

#include "estimate/dims.hpp"
#include "estimate/kernel_shape.hpp"
#include "layout/enum_names.hpp"
#include "topology/parameter_names.hpp"

namespace moecast {
namespace {

constexpr double kAccumulateBytes = 8;  // wgrad reads and writes fp32

std::string of_pipe(const char* section, const KernelShape& s, const char* field) {
  return fmt::format("{}.{}.{}", section, kPipeNames[static_cast<int>(s.pipe)], field);
}

double accumulate(const KernelShape& s) {
  return s.pass == Pass::wgrad && s.accumulate != 0 ? kAccumulateBytes : 0;
}

KernelWork gemm_work(const System& system, const KernelShape& s, double m, double matrices) {
  const double element = operand_bytes(s.precision);
  const double a = m * s.k, b = matrices * s.n * s.k, c = m * s.n;
  const double moved = s.pass == Pass::forward ? (a + b) * element + c * 2
                       : s.pass == Pass::dgrad
                           ? (c + b) * element + a * 2
                           : (a + c) * element + b * (s.accumulate != 0 ? kAccumulateBytes : 2);
  return {2 * m * s.n * s.k, pipe_peak(system.gpu, s.pipe).value, moved,
          system.gpu.hbm_bandwidth.value};
}

Prices::AttentionShape attention_shape(const KernelShape& s) {
  const double kv = s.kv_heads > 0 ? s.kv_heads : s.heads;
  const double v = s.v_dim > 0 ? s.v_dim : s.qk_dim;
  return {s.batch,  s.seq, mean_context(s.seq, 0),         s.heads, kv,
          s.qk_dim, v,     s.precision != Precision::bf16, false};
}

KernelWork attention_work(const System& system, const KernelShape& s) {
  const Prices::AttentionShape a = attention_shape(s);
  return {Prices::attention_flops(a, s.backward), (a.fp8 ? system.gpu.fp8 : system.gpu.bf16).value,
          Prices::attention_bytes(a, s.backward), system.gpu.hbm_bandwidth.value};
}

KernelWork hbm_work(const System& system, double bytes) {
  return {0, 0, bytes, system.gpu.hbm_bandwidth.value};
}

/// `nics`: how many of a domain's NICs the bytes of one rank can leave by.
KernelWork link_work(const System& system, const KernelShape& s, double bytes, double nics) {
  if (s.span.domains <= 1) return {0, 0, bytes, system.nvlink_per_direction.value, "NVLink"};
  return {0, 0, bytes, system.nic_per_gpu.value * nics, "NIC"};
}

/// Elements read and written per row and column.
template <int kElements>
double moving(const KernelShape& s) {
  return kElements * s.element_bytes * s.rows * s.cols;
}
double adam_bytes(const KernelShape& s) { return 30 * s.rows * s.cols; }
double cast_bytes(const KernelShape& s) { return 3 * s.rows * s.cols; }
double permute_bytes(const KernelShape& s) { return moving<1>(s) * (1 + s.topk); }
double sort_bytes(const KernelShape& s) { return 12 * s.rows * s.topk; }  // read, count, place
/// fp32 logits read, dense probabilities and byte map written.
double router_bytes(const KernelShape& s) { return (4 + 4 + 1) * s.rows * s.cols; }
double quantized_bytes(const KernelShape& s) {
  return s.rows * s.cols * quantize_bytes(s.precision, s.hopper);
}

DispatchShape dispatch_shape(const KernelShape& s, bool combine) {
  DispatchShape d;
  d.tokens = s.tokens;
  d.row_bytes = 2 * s.hidden + (combine ? 0 : 4);  // a probability travels with a token
  d.topk = static_cast<int>(s.topk);
  d.num_experts = static_cast<int>(s.experts);
  d.num_sms = static_cast<int>(s.sms);
  return d;
}

KernelClass gemm_class() {
  return {
      "gemm",
      "m n k",
      "precision pass accumulate",
      [](const Prices& p, const KernelShape& s) {
        return p.gemm(s.pipe, {s.m, s.n, s.k}, s.pass, accumulate(s));
      },
      [](const System& system, const KernelShape& s) { return gemm_work(system, s, s.m, 1); },
      [](const KernelShape& s) { return of_pipe("gemm", s, "efficiency"); },
      "m n k of the forward GEMM in every pass; wgrad accumulates into fp32 unless accumulate=0"};
}

KernelClass grouped_class() {
  return {"grouped_gemm",
          "tokens experts n k",
          "precision pass launch skew accumulate",
          [](const Prices& p, const KernelShape& s) {
            return p.grouped_gemm(s.pipe, s.experts, {s.tokens / s.experts, s.n, s.k}, s.pass,
                                  accumulate(s), s.launch == GroupedLaunch::single, true);
          },
          [](const System& system, const KernelShape& s) {
            return gemm_work(system, s, s.tokens, s.experts);
          },
          [](const KernelShape& s) {
            return of_pipe("grouped_gemm", s,
                           s.pass == Pass::wgrad ? "wgrad_ratio" : "efficiency_ratio");
          },
          "tokens = rows over all experts, evenly"};
}

KernelClass attention_class() {
  return {"attention",
          "seq heads qk_dim",
          "batch kv_heads v_dim precision pass",
          [](const Prices& p, const KernelShape& s) {
            return p.attention(attention_shape(s), s.backward);
          },
          attention_work,
          [](const KernelShape& s) {
            return fmt::format("attention.{}.{}_efficiency", head_class_name(s.qk_dim),
                               s.backward ? "backward" : "forward");
          },
          "causal"};
}

using BytesOf = double (*)(const KernelShape&);
KernelClass streamed(const char* name, const char* optional, BytesOf bytes, Stream cls,
                     const char* parameter, const char* counts) {
  return {name,
          "rows cols",
          optional,
          [=](const Prices& p, const KernelShape& s) { return p.stream(cls, bytes(s), s.rows); },
          [=](const System& system, const KernelShape& s) { return hbm_work(system, bytes(s)); },
          [=](const KernelShape&) { return std::string(parameter); },
          counts};
}

KernelClass quantizing() {
  constexpr BytesOf bytes = quantized_bytes;
  return {"quantize",
          "rows cols",
          "precision",
          [=](const Prices& p, const KernelShape& s) { return p.quantize(s.precision, bytes(s)); },
          [=](const System& system, const KernelShape& s) { return hbm_work(system, bytes(s)); },
          [](const KernelShape& s) {
            return fmt::format("quantize.{}.fraction", enum_text(s.precision));
          },
          "both copies that training needs"};
}

KernelClass permuting(const char* name, Seconds (Prices::*price)(double, bool, int) const) {
  return {
      name,
      "rows cols",
      "precision topk experts fused sms",
      [=](const Prices& p, const KernelShape& s) {
        return (p.*price)(permute_bytes(s), s.fused != 0, static_cast<int>(s.sms));
      },
      [](const System& system, const KernelShape& s) { return hbm_work(system, permute_bytes(s)); },
      [=](const KernelShape&) { return fmt::format("permute.{}.fraction", name); },
      "rows tokens of cols BF16 elements, topk copies of each; sms that it may use, else all"};
}

KernelClass collective(Collective op, const char* name) {
  return {name,
          "ranks bytes",
          "precision",
          [=](const Prices& p, const KernelShape& s) { return p.collective(op, s.bytes, s.span); },
          [=](const System& system, const KernelShape& s) {
            return link_work(system, s, wire_factor(op, s.span.ranks) * s.bytes,
                             op == Collective::send_recv ? 1 : s.span.ranks_per_domain);
          },
          [=](const KernelShape& s) {
            return fmt::format("collectives.{}.{}.bandwidth_fraction",
                               s.span.domains <= 1 ? "nvlink" : "network", name);
          },
          "bytes as nccl-tests counts them; GB/s is its bus bandwidth"};
}

KernelClass dispatching(const char* name, bool combine) {
  return {name,
          "tokens hidden topk experts ranks",
          "backend sms precision",
          [=](const Prices& p, const KernelShape& s) {
            return p.dispatch(s.backend, dispatch_shape(s, combine), s.span, combine);
          },
          [=](const System& system, const KernelShape& s) {
            const DispatchShape d = dispatch_shape(s, combine);
            const DispatchVolume v = dispatch_volume(s.backend, d, s.span);
            const double copies = s.span.domains <= 1 ? v.nvlink_copies : v.network_copies;
            return link_work(system, s, copies * d.tokens * d.row_bytes, 1);
          },
          [](const KernelShape& s) {
            return fmt::format("dispatch.{}.{}", enum_text(s.backend),
                               s.span.domains <= 1 ? "nvlink_fraction" : "nic_fraction");
          },
          "tokens of one rank; experts over all ranks"};
}

KernelClass host_copying(const char* name) {
  return {name,
          "bytes",
          "",
          [](const Prices& p, const KernelShape& s) { return p.host_copy(s.bytes); },
          [](const System& system, const KernelShape& s) {
            return KernelWork{0, 0, s.bytes, system.host_link_per_direction.value, "host link"};
          },
          [](const KernelShape&) { return std::string("offload.link_fraction"); },
          "pinned memory, one direction"};
}

void add_streams(std::vector<KernelClass>& table) {
  const auto add = [&](const char* name, const char* optional, BytesOf bytes, Stream cls,
                       const char* parameter, const char* counts) {
    table.push_back(streamed(name, optional, bytes, cls, parameter, counts));
  };
  constexpr const char* kElementwise = "memory_bound.elementwise.fraction";
  constexpr const char* kActivation = "memory_bound.activation.fraction";
  add("sort", "precision topk experts", sort_bytes, Stream::sort, "memory_bound.sort.start_us",
      "rows tokens, topk experts each");
  add("copy", "precision", moving<2>, Stream::elementwise, kElementwise, "BF16 read and written");
  add("cast", "precision", cast_bytes, Stream::elementwise, kElementwise, "BF16 to FP8, one copy");
  add("residual", "precision", moving<3>, Stream::elementwise, kElementwise,
      "two read, one written");
  add("rope", "precision", moving<2>, Stream::rope, "memory_bound.rope.fraction",
      "read and written");
  add("swiglu", "precision", moving<3>, Stream::activation, kActivation,
      "cols outputs from 2 cols inputs");
  add("swiglu_backward", "precision", moving<5>, Stream::activation, kActivation,
      "reads 3, writes 2 per output");
  add("rms_norm", "precision", moving<2>, Stream::norm, "memory_bound.norm.fraction",
      "read and written");
  add("rms_norm_backward", "precision", moving<3>, Stream::norm_backward,
      "memory_bound.norm_backward.fraction", "two read, one written");
  add("router", "precision topk experts", router_bytes, Stream::router,
      "memory_bound.router.fraction", "softmax and top-k of rows tokens over cols experts");
  add("cross_entropy", "precision", moving<3>, Stream::loss, "memory_bound.loss.fraction",
      "rows tokens, cols words; loss and gradient");
  add("adam", "precision", adam_bytes, Stream::adam, "memory_bound.adam.fraction",
      "rows x cols parameters, fp32 gradient, master and moments, BF16 weight");
}

std::vector<KernelClass> build() {
  using P = Prices;
  std::vector<KernelClass> table = {gemm_class(), grouped_class(), attention_class()};
  for (std::size_t i = 0; i < std::size(kCollectiveNames); ++i)
    table.push_back(collective(static_cast<Collective>(i), kCollectiveNames[i]));
  table.insert(table.end(), {dispatching("dispatch", false), dispatching("combine", true)});
  table.insert(table.end(), {host_copying("h2d"), host_copying("d2h")});
  table.insert(table.end(),
               {permuting("permute", &P::permute), permuting("unpermute", &P::unpermute)});
  add_streams(table);
  table.push_back(quantizing());
  return table;
}

}  // namespace

const std::vector<KernelClass>& kernel_table() {
  static const std::vector<KernelClass> table = build();
  return table;
}

}  // namespace moecast
