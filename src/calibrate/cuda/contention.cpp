// A GEMM beside communication (or beside a copy, on one GPU) that occupies k SMs: each timed while
// the other keeps running, and alone.
#include <algorithm>

#include "calibrate/cuda/collectives.hpp"
#include "calibrate/cuda/dispatch.hpp"
#include "calibrate/cuda/lt_gemm.hpp"
#include "calibrate/cuda/sections.hpp"

namespace moecast::cuda {
namespace {

constexpr double kTimedSeconds = 12e-3;
constexpr int kRepeats = 9;
constexpr std::size_t kCopyBytes = std::size_t{512} << 20,
                      kCollectiveBytes = std::size_t{256} << 20;

struct Pair {
  JointWork gemm, other;
};

/// `timed` on the main streams while `background` runs on the side streams from before to after.
double overlapped_us(World& world, const JointReplay& timed, const JointReplay& background,
                     int background_runs) {
  const JointEvents events(world, 4);
  for (int i = 0; i < background_runs; ++i) {
    background.run();
    if (i == 0) events.record(0, side_stream);
  }
  events.record(3, side_stream);
  for (std::size_t g = 0; g < world.gpus.size(); ++g) events.wait(0, g, world.gpus[g]->stream);
  events.record(1);
  timed.run();
  events.record(2);
  sync_all(world);
  if (!events.is_before(2, 3)) throw WrongResult("the background ended first");
  return events.us_between(1, 2) / timed.launches();
}

int launches_for(double seconds) {
  return std::clamp(static_cast<int>(kTimedSeconds / seconds), 1, 200);
}

struct Both {
  Timing alone, together;
};

/// Times `work` alone and beside `background`.
Both time_beside(World& world, const JointWork& work, const JointWork& background,
                 const Effort& effort) {
  const double own_s = estimate_seconds(world, work), other_s = estimate_seconds(world, background);
  const JointReplay timed(world, work, launches_for(own_s));
  const JointReplay other(world, background, launches_for(other_s), side_stream);
  // Four times its duration alone: both slow each other down.
  const int runs =
      2 + static_cast<int>(4 * own_s * timed.launches() / (other_s * other.launches()));
  Both result;
  result.alone = time_together(world, work, effort);
  std::vector<double> us;
  for (int i = 0; i < kRepeats; ++i) us.push_back(overlapped_us(world, timed, other, runs));
  result.together = summarize(std::move(us));
  result.together.sm_clock_mhz = result.alone.sm_clock_mhz;
  result.together.power_w = result.alone.power_w;
  return result;
}

JointWork gemm_work(World& world, const GemmProblem& problem) {
  std::vector<std::shared_ptr<LtGemm>> gemms;
  std::vector<GemmOperands> operands;
  for (Gpu* gpu : world.gpus) {
    gpu->make_current();
    gemms.push_back(std::make_shared<LtGemm>(*gpu, problem));
    operands.push_back(gemms.back()->take(1));
  }
  sync_all(world);
  JointWork work;
  work.launch = [&world, gemms, operands](const StreamOf& stream) {
    for (std::size_t i = 0; i < gemms.size(); ++i) {
      world.gpus[i]->make_current();
      gemms[i]->run(operands[i], world.gpus[i]->workspace[0], stream(*world.gpus[i]));
    }
  };
  return work;
}

/// One sample for both sides: the GEMM's time together, and each side's slow-down among the keys.
void measure_pair(Bench& bench, World& world, const GemmProblem& p, KernelKeys with,
                  const std::function<JointWork()>& make_other) {
  Kernel kernel{"contention", std::move(with), "moecast"};
  kernel.keys.insert({{"m", double(p.m)},
                      {"n", double(p.n)},
                      {"k", double(p.k)},
                      {"precision", p.precision},
                      {"pass", p.pass}});
  bench.guard(kernel, {Mode::sustained}, [&] {
    for (Gpu* gpu : world.gpus) gpu->arena->reset();
    const JointWork gemm = gemm_work(world, p), other = make_other();
    const Both of_gemm = time_beside(world, gemm, other, bench.effort),
               of_other = time_beside(world, other, gemm, bench.effort);
    kernel.keys["gemm_alone_us"] = rounded(of_gemm.alone.median_us);
    kernel.keys["gemm_slowdown"] = rounded(of_gemm.together.median_us / of_gemm.alone.median_us);
    kernel.keys["other_alone_us"] = rounded(of_other.alone.median_us);
    kernel.keys["other_slowdown"] = rounded(of_other.together.median_us / of_other.alone.median_us);
    bench.recorder.add(kernel, name_of(Mode::sustained), bench.gpu.ordinal, of_gemm.together, 0);
  });
}

std::vector<GemmProblem> problems(bool is_quick) {
  if (is_quick) return {{4096, 4096, 7168, "bf16", "forward"}};
  return {{4096, 4096, 7168, "bf16", "forward"},
          {4096, 7168, 2048, "bf16", "forward"},
          {8192, 5120, 2048, "bf16", "dgrad"},
          {8192, 1536, 4096, "bf16", "wgrad"}};
}

/// NCCL on at most `sms` blocks.
std::vector<ncclComm_t> limited_comms(const World& world, int sms) {
  std::vector<ncclComm_t> comms(world.gpus.size());
  ncclUniqueId id;
  check(ncclGetUniqueId(&id));
  check(ncclGroupStart());
  for (std::size_t i = 0; i < comms.size(); ++i) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.maxCTAs = sms;
    world.gpus[i]->make_current();
    check(ncclCommInitRankConfig(&comms[i], static_cast<int>(comms.size()), id, static_cast<int>(i),
                                 &config));
  }
  check(ncclGroupEnd());
  return comms;
}

}  // namespace

void measure_local_contention(Bench& bench) {
  World alone;
  alone.gpus = {&bench.gpu};
  Gpu& gpu = bench.gpu;
  for (const GemmProblem& p : problems(bench.grid.is_quick)) {
    for (const int sms : {4, 8, 16, 24, 32}) {
      if (bench.grid.is_quick && sms != 16) continue;
      measure_pair(bench, alone, p,
                   {{"with", "copy"}, {"sms", double(sms)}, {"bytes", double(kCopyBytes)}}, [&] {
                     void *from = gpu.arena->take(kCopyBytes), *to = gpu.arena->take(kCopyBytes);
                     fill_normal(static_cast<bf16*>(from), kCopyBytes / sizeof(bf16), 3,
                                 gpu.stream);
                     gpu.sync();
                     JointWork work;
                     work.launch = [&gpu, from, to, sms](const StreamOf& stream) {
                       copy_on_sms(from, to, kCopyBytes, sms, stream(gpu));
                     };
                     return work;
                   });
    }
  }
}

void measure_contention(Bench& bench, World& world) {
  if (world.spans_processes()) return;
  const RoutedShape shape{4096, 7168, 8, 256};
  for (const GemmProblem& p : problems(bench.grid.is_quick)) {
    for (const int sms : {8, 16, 24, 32}) {
      if (bench.grid.is_quick && sms != 16) continue;
      const KernelKeys exchange{{"sms", double(sms)},
                                {"tokens", double(shape.tokens)},
                                {"hidden", double(shape.hidden)},
                                {"topk", double(shape.topk)},
                                {"experts", double(shape.experts)},
                                {"ranks", double(world.ranks)}};
      for (const bool is_combine : {false, true}) {
        if (!world.has_peer_access || !world.gpus[0]->has(9)) continue;
        KernelKeys with = exchange;
        with["with"] = is_combine ? "combine" : "dispatch";
        measure_pair(bench, world, p, with, [&] {
          const P2pExchange e = set_up_exchange(world, shape);
          JointWork work;
          work.launch = [&world, e, sms, is_combine](const StreamOf& stream) {
            is_combine ? enqueue_combine(world, e, sms, stream)
                       : enqueue_dispatch(world, e, true, sms, stream);
          };
          return work;
        });
      }
      std::vector<ncclComm_t> comms;
      for (const char* name : {"all_gather", "reduce_scatter"}) {
        measure_pair(bench, world, p,
                     {{"with", name},
                      {"sms", double(sms)},
                      {"bytes", double(kCollectiveBytes)},
                      {"ranks", double(world.ranks)}},
                     [&] {
                       if (comms.empty()) comms = limited_comms(world, sms);
                       const CollectiveBuffers buffers = take_buffers(world, kCollectiveBytes);
                       JointWork work;
                       work.launch = [&world, &comms, name, buffers](const StreamOf& stream) {
                         enqueue_collective(world, comms, name, buffers, kCollectiveBytes, stream);
                       };
                       return work;
                     });
      }
      for (ncclComm_t comm : comms) ncclCommDestroy(comm);
    }
  }
}

}  // namespace moecast::cuda
