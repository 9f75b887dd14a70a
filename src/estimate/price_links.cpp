// Collectives and EP dispatch.
// Collective inside one NVLink domain: t = latency(n) + f S / B + ramp S / (S + S_ramp): a cheap
// low-latency regime for small messages, a start-up cost for large ones. f = (n-1)/n
// (all-gather, reduce-scatter, all-to-all), 2(n-1)/n (all-reduce), 1 (send/recv). Across domains
// the ring's bottleneck is the NICs: each domain reaches out with as many NICs as it has members,
// so the bus bandwidth is min(NVLink, NIC x members per domain). Ref: nccl-tests
// doc/PERFORMANCE.md. A rank also copies (or adds) its own 1/n of the buffer at a rate of its own:
// wire bytes x own_share / (n - 1) more, which is why two ranks reach less bus bandwidth than eight
// (aiconfigurator's nccl-tests: all-gather 258, 317, 337 GB/s at 2, 4, 8 H200s). Dispatch: NVLink
// and NIC parts run at the same time and join by a 2-norm; the SMs of the kernel bound the sum, by
// bytes and, where a domain has many ranks, by the look at every rank for every token (HybridEP's
// README, FP8 on 16 SMs of GB200: 1.0, 1.3, 2.3, 3.0 and 3.3 us a token and SM at 8, 16, 24, 32 and
// 36 ranks, and no faster with half the bytes).
// Across domains HybridEP's SMs take turns at chunks of 64 tokens (a time per row that leaves the
// domain, whatever its width; 4096 tokens are 6, 4, 4 and 2 turns of 12, 16, 20 and 32 SMs). The
// last chunk of the last domain is handed on inside when all has come: its rows once more. SMs
// keep queue pairs of their own. So too few SMs, too many, and large chunks are slow:
// Megatron-Bridge's tuning log of Qwen3.5-35B-A3B on 16 H100 with 12, 16, 20 and 108 SMs, and with
// chunks of 128. Volumes: Megatron
// token_dispatcher.py; DeepEP and HybridEP copy once per distinct rank (NVLink) or domain
// (network).
#include <cmath>

#include "estimate/prices.hpp"

namespace moecast {
namespace {

double start_seconds(const LinkParameters& p, double latency_steps, double bytes) {
  const double ramp = p.ramp_us * bytes / (bytes + p.ramp_mib * 1024 * 1024);
  return (p.latency_us + p.latency_us_per_rank * latency_steps + ramp) * 1e-6;
}

double link_seconds(const LinkParameters& p, double rate, double latency_steps, double wire,
                    double bytes) {
  return start_seconds(p, latency_steps, bytes) + wire / (rate * p.bandwidth_fraction);
}

/// All-to-all across domains: the two parts of what a rank sends, each on its own link, at the same
/// time.
double alltoall_seconds(const Prices& p, double bytes, const GroupSpan& span) {
  const auto index = static_cast<std::size_t>(Collective::alltoall);
  const double n = span.ranks;
  const double inside = bytes * (span.ranks_per_domain - 1) / n;
  const double outside = bytes * (n - span.ranks_per_domain) / n;
  const double fast =
      link_seconds(p.calibration->nvlink[index], p.system->nvlink_per_direction.value,
                   span.ranks_per_domain - 1, inside, inside);
  const double slow = link_seconds(p.calibration->network[index], p.system->nic_per_gpu.value,
                                   n - 1, outside, outside);
  return std::max(fast, slow);
}

}  // namespace

double wire_factor(Collective op, int ranks) {
  switch (op) {
    case Collective::all_reduce:
      return 2.0 * (ranks - 1) / ranks;
    case Collective::send_recv:
      return 1;
    default:
      return static_cast<double>(ranks - 1) / ranks;
  }
}

int default_num_sms(Dispatcher d, int domains) {
  switch (d) {
    case Dispatcher::deepep:
      return 20;
    case Dispatcher::hybridep:
      return domains > 1 ? 8 : 24;
    default:
      return 16;  // NCCL channels of an all-to-all
  }
}

double expected_distinct(int bins, int num_experts, int topk) {
  if (bins <= 1) return 1;
  const double per_bin = static_cast<double>(num_experts) / bins;
  double miss = 1;  // C(E - e, k) / C(E, k)
  for (int i = 0; i < topk; ++i)
    miss *= std::max(0.0, (num_experts - per_bin - i) / (num_experts - i));
  return bins * (1 - miss);
}

DispatchVolume dispatch_volume(Dispatcher d, const DispatchShape& s, const GroupSpan& span) {
  const double n = span.ranks;
  const double inside = (span.ranks_per_domain - 1) / n;
  const double outside = (n - span.ranks_per_domain) / n;
  DispatchVolume v;
  v.distinct_ranks = expected_distinct(span.ranks, s.num_experts, s.topk);
  switch (d) {
    case Dispatcher::alltoall:  // one copy per (token, expert), no de-duplication
      v.nvlink_copies = s.topk * inside;
      v.network_copies = s.topk * outside;
      break;
    case Dispatcher::allgather:
      v.nvlink_copies = span.ranks_per_domain - 1;
      v.network_copies = n - span.ranks_per_domain;
      break;
    case Dispatcher::deepep:
    case Dispatcher::hybridep: {
      const int domains = std::max(1, static_cast<int>(std::lround(n / span.ranks_per_domain)));
      // a copy crosses the network once per distinct remote domain, then is forwarded there to each
      // distinct rank
      v.network_copies =
          expected_distinct(domains, s.num_experts, s.topk) * (domains - 1) / domains;
      v.nvlink_copies = v.distinct_ranks * (span.ranks_per_domain - 1) / span.ranks_per_domain;
      break;
    }
  }
  return v;
}

Seconds Prices::collective(Collective op, double bytes, const GroupSpan& span) const {
  if (span.ranks <= 1 || bytes <= 0) return {};
  if (op == Collective::alltoall && span.domains > 1)
    return seconds(alltoall_seconds(*this, bytes, span));
  const auto index = static_cast<std::size_t>(op);
  const double wire = wire_factor(op, span.ranks) * bytes;
  const LinkParameters& fast = calibration->nvlink[index];
  const double local = wire * (1 + fast.own_share / (span.ranks - 1));
  if (span.domains <= 1) {
    return seconds(
        link_seconds(fast, system->nvlink_per_direction.value, span.ranks - 1, local, bytes));
  }
  const LinkParameters& slow = calibration->network[index];
  const int members = op == Collective::send_recv ? 1 : span.ranks_per_domain;
  const double network =
      link_seconds(slow, system->nic_per_gpu.value * members, span.domains - 1, wire, bytes);
  const double nvlink = span.ranks_per_domain > 1
                            ? link_seconds(fast, system->nvlink_per_direction.value,
                                           span.ranks_per_domain - 1, local, bytes)
                            : 0;
  return seconds(std::max(network, nvlink));
}

Seconds Prices::dispatch(Dispatcher d, const DispatchShape& s, const GroupSpan& span,
                         bool combine) const {
  if (span.ranks <= 1 && d != Dispatcher::hybridep) return {};
  const auto& p = calibration->dispatch[static_cast<std::size_t>(d)];
  const DispatchVolume v = dispatch_volume(d, s, span);
  const double row =
      d == Dispatcher::allgather && combine ? 2 * s.row_bytes : s.row_bytes;  // fp32 reduction
  const double scale = s.tokens * row * s.imbalance;
  const double nvlink =
      v.nvlink_copies * scale / (system->nvlink_per_direction.value * p.nvlink_fraction);
  const int sms = s.num_sms > 0 ? s.num_sms : default_num_sms(d, span.domains);
  const double per_sm = combine ? p.combine_gb_per_s_per_sm : p.gb_per_s_per_sm;
  const double through_sms =
      std::max(per_sm > 0 ? v.distinct_ranks * scale / (sms * per_sm * 1e9) : 0,
               s.tokens * s.imbalance * span.ranks_per_domain * p.rank_us * 1e-6 / sms);
  const double sent = v.network_copies * s.tokens * s.imbalance;
  const double turns = std::ceil(std::ceil(s.tokens / s.chunk_tokens) / sms);
  const double turn = s.chunk_tokens * v.network_copies * s.imbalance * p.network_row_us * 1e-6;
  const double last = turn / std::max(1, span.domains - 1);
  const double network =
      last + std::max(sent * row / (system->nic_per_gpu.value * p.nic_fraction), turns * turn);
  const double queues = span.domains > 1 ? sms * p.network_us_per_sm * 1e-6 : 0;
  const double start =
      d == Dispatcher::alltoall
          ? start_seconds(calibration->nvlink[static_cast<std::size_t>(Collective::alltoall)],
                          span.ranks_per_domain - 1, s.topk * scale)
          : 0;
  return seconds(p.latency_us * 1e-6 + start + queues +
                 std::max(std::hypot(nvlink, network), through_sms));
}

}  // namespace moecast
