// Dispatch and combine between the GPUs of a node: our peer-to-peer kernels by SM count, NCCL's
// all-to-all-v as the alltoall dispatcher issues it, and the plain peer copy that both are held
// against.
#include "calibrate/cuda/dispatch.hpp"

#include <algorithm>
#include <cstdint>
#include <set>

#include "calibrate/cuda/collectives.hpp"
#include "calibrate/cuda/host_check.hpp"
#include "calibrate/cuda/sections.hpp"

namespace moecast::cuda {
namespace {

std::size_t size(int n) { return static_cast<std::size_t>(n); }

KernelKeys keys_of(const RoutedShape& s, int ranks, int sms) {
  return {{"tokens", double(s.tokens)},   {"hidden", double(s.hidden)}, {"topk", double(s.topk)},
          {"experts", double(s.experts)}, {"ranks", double(ranks)},     {"sms", double(sms)},
          {"precision", "bf16"}};
}

constexpr std::size_t kCheckedTokens = 128;
constexpr int kSetUpSms = 16;
constexpr std::uint64_t kTokenBytes =
    4096 * 7168 * sizeof(bf16);  ///< what dispatch and combine of 4096 tokens move, about

/// Ranks that hold an expert of the token.
std::set<int> destinations(const P2pExchange& e, std::size_t source, std::size_t token) {
  std::set<int> ranks;
  for (std::size_t k = 0; k < size(e.world.topk); ++k)
    ranks.insert(e.chosen[source][token * size(e.world.topk) + k] /
                 (e.world.experts / e.world.ranks));
  return ranks;
}

/// A dispatch and a combine with nothing between: each token comes back once per destination; and
/// expert ids arrived where rows did.
double verify(World& world, const P2pExchange& e, int sms) {
  const std::size_t width = size(e.world.hidden), topk = size(e.world.topk),
                    tokens = size(e.world.tokens);
  enqueue_dispatch(world, e, false, sms, main_stream);
  enqueue_combine(world, e, sms, main_stream);
  sync_all(world);
  double worst = 0;
  for (std::size_t me = 0; me < world.gpus.size(); ++me) {
    Gpu& gpu = *world.gpus[me];
    gpu.make_current();
    const Numbers slots = to_host(gpu, e.slot[me], tokens * size(e.world.ranks));
    std::vector<int> next(size(e.world.ranks), 0);
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::set<int> ranks = destinations(e, me, t);
      for (const int r : ranks) {
        const int slot = next[size(r)]++;
        if (static_cast<int>(slots[t * size(e.world.ranks) + size(r)]) != slot)
          throw WrongResult("a token has another slot than its order gives");
      }
      if (t % std::max<std::size_t>(tokens / kCheckedTokens, 1) != 0) continue;
      Numbers want = to_host(gpu, e.x[me] + t * width, width);
      for (double& v : want) v *= static_cast<double>(ranks.size());
      worst = std::max(worst, rel_error(to_host(gpu, e.out[me] + t * width, width), want));
    }
    for (std::size_t r = 0; r < world.gpus.size();
         ++r) {  // ids of the first token that r got from me
      std::size_t t = 0;
      while (t + 1 < tokens && !destinations(e, me, t).contains(static_cast<int>(r))) ++t;
      world.gpus[r]->make_current();
      const Numbers ids =
          to_host(*world.gpus[r], e.world.rank[r].experts + me * tokens * topk, topk);
      for (std::size_t k = 0; k < topk; ++k)
        if (static_cast<int>(ids[k]) != e.chosen[me][t * topk + k])
          throw WrongResult("expert ids did not arrive with their row");
    }
  }
  return require_error_below(worst, 6e-3);
}

JointWork prepare_p2p(World& world, const RoutedShape& shape, int sms, bool is_combine,
                      bool has_layout) {
  const P2pExchange e = set_up_exchange(world, shape);
  JointWork work;
  work.rel_error = verify(world, e, sms);
  work.launch = [&world, e, sms, is_combine, has_layout](const StreamOf& stream) {
    if (is_combine) return enqueue_combine(world, e, sms, stream);
    enqueue_dispatch(world, e, has_layout, sms, stream);
  };
  return work;
}

/// Rows in expert order to their owners; every (token, expert) is a row, as after Megatron's
/// permute.
JointWork prepare_alltoall(World& world, const RoutedShape& shape, bool is_combine) {
  const std::size_t n = world.gpus.size(), width = size(shape.hidden),
                    pairs = size(shape.tokens) * size(shape.topk);
  std::vector<std::vector<std::size_t>> rows(
      n, std::vector<std::size_t>(n, 0));  // [source][destination]
  for (std::size_t i = 0; i < n; ++i)
    for (const int expert :
         route_tokens(shape.tokens, shape.topk, shape.experts, static_cast<unsigned>(i + 1)))
      ++rows[i][size(expert / (shape.experts / static_cast<int>(n)))];
  if (is_combine) {
    const auto there = rows;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) rows[i][j] = there[j][i];
  }
  std::vector<bf16*> send, receive;
  for (Gpu* gpu : world.gpus) {
    gpu->make_current();
    send.push_back(gpu->arena->take<bf16>(2 * pairs * width));
    receive.push_back(gpu->arena->take<bf16>(2 * pairs * width));
    fill_normal(send.back(), pairs * width, 1, gpu->stream);
  }
  sync_all(world);
  JointWork work;
  work.launch = [&world, rows, send, receive, width, n](const StreamOf& stream) {
    check(ncclGroupStart());
    for (std::size_t i = 0; i < n; ++i) {
      std::size_t sent = 0, got = 0;
      for (std::size_t j = 0; j < n; ++j) {
        check(ncclSend(send[i] + sent * width, rows[i][j] * width, ncclBfloat16,
                       static_cast<int>(j), world.comms[i], stream(*world.gpus[i])));
        check(ncclRecv(receive[i] + got * width, rows[j][i] * width, ncclBfloat16,
                       static_cast<int>(j), world.comms[i], stream(*world.gpus[i])));
        sent += rows[i][j];
        got += rows[j][i];
      }
    }
    check(ncclGroupEnd());
  };
  return work;
}

/// Every GPU writes to the next at once (`both`), or only the first does.
JointWork prepare_peer_copy(World& world, std::size_t bytes, bool both) {
  const CollectiveBuffers buffers = take_buffers(world, bytes);
  JointWork work;
  work.launch = [&world, buffers, bytes, both](const StreamOf& stream) {
    for (std::size_t i = 0; i < (both ? world.gpus.size() : 1); ++i) {
      const std::size_t next = (i + 1) % world.gpus.size();
      world.gpus[i]->make_current();
      check(cudaMemcpyAsync(buffers.receive[next], buffers.send[i], bytes, cudaMemcpyDefault,
                            stream(*world.gpus[i])));
    }
  };
  return work;
}

}  // namespace

P2pExchange set_up_exchange(World& world, const RoutedShape& shape) {
  const std::size_t n = world.gpus.size(), tokens = size(shape.tokens), width = size(shape.hidden),
                    topk = size(shape.topk);
  P2pExchange e;
  e.world.ranks = static_cast<int>(n);
  e.world.tokens = shape.tokens;
  e.world.hidden = shape.hidden;
  e.world.topk = shape.topk;
  e.world.experts = shape.experts;
  for (std::size_t i = 0; i < n; ++i) {
    Gpu& gpu = *world.gpus[i];
    gpu.make_current();
    p2p_prepare_dispatch();
    p2p_prepare_combine();
    Arena& a = *gpu.arena;
    P2pRank& rank = e.world.rank[i];
    rank.rows = a.take<bf16>(n * tokens * width);
    rank.back = a.take<bf16>(n * tokens * width);
    rank.experts = a.take<int>(n * tokens * topk);
    rank.probs = a.take<float>(n * tokens * topk);
    const std::size_t words = 3 * kMaxP2pRanks + n * tokens;
    rank.sent = a.take<int>(kMaxP2pRanks);
    rank.arrived = a.take<unsigned>(words);
    rank.ready = rank.arrived + kMaxP2pRanks;
    rank.expected = rank.ready + kMaxP2pRanks;
    rank.returned = rank.expected + kMaxP2pRanks;
    check(cudaMemsetAsync(rank.arrived, 0, words * sizeof(unsigned), gpu.stream));
    check(cudaMemsetAsync(rank.rows, 0xff, n * tokens * width * sizeof(bf16), gpu.stream));
    e.expert_of.push_back(a.take<int>(tokens * topk));
    e.slot.push_back(a.take<int>(tokens * n));
    e.probs.push_back(a.take<float>(tokens * topk));
    e.x.push_back(a.take<bf16>(tokens * width));
    e.out.push_back(a.take<bf16>(tokens * width));
    e.chosen.push_back(
        route_tokens(shape.tokens, shape.topk, shape.experts, static_cast<unsigned>(i + 1)));
    check(cudaMemcpyAsync(e.expert_of[i], e.chosen[i].data(), tokens * topk * sizeof(int),
                          cudaMemcpyHostToDevice, gpu.stream));
    fill_normal(e.probs[i], tokens * topk, 5, gpu.stream);
    fill_normal(e.x[i], tokens * width, static_cast<unsigned>(i + 9), gpu.stream);
  }
  sync_all(world);
  enqueue_dispatch(world, e, false, kSetUpSms, main_stream);
  sync_all(world);
  return e;
}

void enqueue_dispatch(const World& world, const P2pExchange& e, bool has_layout, int sms,
                      const StreamOf& stream) {
  for (std::size_t i = 0; i < world.gpus.size(); ++i) {
    world.gpus[i]->make_current();
    p2p_dispatch(e.world, static_cast<int>(i), e.x[i], e.expert_of[i], e.probs[i], e.slot[i],
                 has_layout, sms, stream(*world.gpus[i]));
  }
}

void enqueue_combine(const World& world, const P2pExchange& e, int sms, const StreamOf& stream) {
  for (std::size_t i = 0; i < world.gpus.size(); ++i) {
    world.gpus[i]->make_current();
    p2p_combine(e.world, static_cast<int>(i), e.slot[i], e.out[i], sms, stream(*world.gpus[i]));
  }
}

void measure_dispatch(Bench& bench, World& world) {
  if (world.spans_processes() || world.gpus.size() > kMaxP2pRanks) return;
  if (world.has_peer_access) {
    for (const bool both : {false, true}) {
      for (const std::uint64_t bytes :
           {std::uint64_t{1} << 20, std::uint64_t{1} << 24, kTokenBytes, std::uint64_t{1} << 28}) {
        const Kernel kernel{
            "peer_copy",
            {{"ranks", double(world.ranks)}, {"bytes", double(bytes)}, {"both", both ? 1.0 : 0.0}},
            "copy_engine"};
        measure_together(bench, world, kernel,
                         [&] { return prepare_peer_copy(world, bytes, both); });
      }
    }
  }
  for (const bool is_combine : {false, true}) {
    const char* cls = is_combine ? "combine" : "dispatch";
    for (const RoutedShape& shape : dispatch_shapes(bench.grid)) {
      measure_together(bench, world, {cls, keys_of(shape, world.ranks, 0), "nccl_alltoall"},
                       [&] { return prepare_alltoall(world, shape, is_combine); });
      if (!world.has_peer_access || !world.gpus[0]->has(9)) continue;
      for (const int sms : dispatch_sms(bench.grid)) {
        const KernelKeys keys = keys_of(shape, world.ranks, sms);
        measure_together(bench, world, {cls, keys, "p2p"},
                         [&] { return prepare_p2p(world, shape, sms, is_combine, false); });
        if (!is_combine && shape.tokens == 4096)
          measure_together(bench, world, {cls, keys, "p2p_cached_layout"},
                           [&] { return prepare_p2p(world, shape, sms, false, true); });
      }
    }
  }
}

}  // namespace moecast::cuda
