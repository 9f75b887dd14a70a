#include "calibrate/cuda/together.hpp"

#include <algorithm>
#include <exception>

namespace moecast::cuda {
namespace {

constexpr double kReplaySeconds = 3e-3;
constexpr int kMaxLaunches = 200;

}  // namespace

void sync_all(const World& world) {
  for (const Gpu* gpu : world.gpus) {
    gpu->make_current();
    check(cudaDeviceSynchronize());
  }
}

double agree(const World& world, double value) {
  if (!world.spans_processes()) return value;
  check(ncclGroupStart());
  for (std::size_t i = 0; i < world.gpus.size(); ++i) {
    Gpu& gpu = *world.gpus[i];
    gpu.make_current();
    check(
        cudaMemcpyAsync(gpu.error_sums, &value, sizeof(value), cudaMemcpyHostToDevice, gpu.stream));
    check(ncclAllReduce(gpu.error_sums, gpu.error_sums, 1, ncclDouble, ncclMax, world.comms[i],
                        gpu.stream));
  }
  check(ncclGroupEnd());
  sync_all(world);
  check(cudaMemcpy(&value, world.gpus[0]->error_sums, sizeof(value), cudaMemcpyDeviceToHost));
  return value;
}

JointReplay::JointReplay(World& world, const JointWork& work, int launches, StreamOf stream)
    : world_(world), stream_(std::move(stream)), launches_(launches) {
  for (Gpu* gpu : world.gpus) {
    gpu->make_current();
    check(cudaStreamBeginCapture(stream_(*gpu), cudaStreamCaptureModeRelaxed));
  }
  std::exception_ptr failed;
  try {
    for (int i = 0; i < launches; ++i) work.launch(stream_);
  } catch (...) {
    failed = std::current_exception();
  }
  // Every capture ends before anything else happens, also after a failure.
  std::vector<cudaGraph_t> captured(world.gpus.size());
  cudaError_t status = cudaSuccess;
  for (std::size_t i = 0; i < captured.size(); ++i) {
    world.gpus[i]->make_current();
    const cudaError_t ended = cudaStreamEndCapture(stream_(*world.gpus[i]), &captured[i]);
    if (status == cudaSuccess) status = ended;
  }
  if (failed) std::rethrow_exception(failed);
  check(status);
  for (std::size_t i = 0; i < captured.size(); ++i) {
    world.gpus[i]->make_current();
    graphs_.push_back(nullptr);
    check(cudaGraphInstantiate(&graphs_.back(), captured[i], 0));
    check(cudaGraphDestroy(captured[i]));
  }
}

JointReplay::~JointReplay() {
  for (cudaGraphExec_t graph : graphs_) cudaGraphExecDestroy(graph);
}

void JointReplay::run() const {
  for (std::size_t i = 0; i < graphs_.size(); ++i) {
    world_.gpus[i]->make_current();
    check(cudaGraphLaunch(graphs_[i], stream_(*world_.gpus[i])));
  }
}

JointEvents::JointEvents(World& world, int n) : world_(world) {
  for (Gpu* gpu : world.gpus) {
    gpu->make_current();
    events_.emplace_back(static_cast<std::size_t>(n));
    for (auto& e : events_.back()) check(cudaEventCreate(&e));
  }
}

JointEvents::~JointEvents() {
  for (auto& list : events_)
    for (auto& e : list) cudaEventDestroy(e);
}

void JointEvents::record(int i, const StreamOf& stream) const {
  for (std::size_t g = 0; g < events_.size(); ++g) {
    world_.gpus[g]->make_current();
    check(cudaEventRecord(events_[g][static_cast<std::size_t>(i)], stream(*world_.gpus[g])));
  }
}

void JointEvents::wait(int i, std::size_t gpu, cudaStream_t s) const {
  world_.gpus[gpu]->make_current();
  check(cudaStreamWaitEvent(s, events_[gpu][static_cast<std::size_t>(i)], 0));
}

double JointEvents::us(std::size_t gpu, int from, int to) const {
  float ms = 0;
  check(cudaEventElapsedTime(&ms, events_[gpu][static_cast<std::size_t>(from)],
                             events_[gpu][static_cast<std::size_t>(to)]));
  return 1e3 * static_cast<double>(ms);
}

double JointEvents::us_between(int from, int to) const {
  double longest = 0;
  for (std::size_t g = 0; g < events_.size(); ++g) longest = std::max(longest, us(g, from, to));
  return longest;
}

bool JointEvents::is_before(int a, int b) const {
  for (std::size_t g = 0; g < events_.size(); ++g)
    if (us(g, a, b) < 0) return false;
  return true;
}

double estimate_seconds(World& world, const JointWork& work) {
  for (int i = 0; i < 2; ++i) work.launch(main_stream);
  sync_all(world);
  const JointEvents events(world, 2);
  constexpr int kCalls = 3;
  events.record(0);
  for (int i = 0; i < kCalls; ++i) work.launch(main_stream);
  events.record(1);
  sync_all(world);
  return agree(world, std::max(events.us_between(0, 1) / kCalls * 1e-6, 2e-6));
}

Timing time_together(World& world, const JointWork& work, const Effort& effort) {
  const double seconds = estimate_seconds(world, work);
  const JointReplay replay(world, work,
                           std::clamp(static_cast<int>(kReplaySeconds / seconds), 1, kMaxLaunches));
  const double group_s = seconds * replay.launches();
  const auto warm_up = static_cast<int>(std::clamp(effort.heat_s / 2 / group_s, 1.0, 30.0));
  for (int i = 0; i < warm_up; ++i) replay.run();
  sync_all(world);
  const int groups = std::clamp(static_cast<int>(effort.sample_s / group_s), 7, 30);
  const JointEvents events(world, groups + 2);
  replay.run();
  events.record(0);
  for (int i = 1; i <= groups; ++i) {
    replay.run();
    events.record(i);
  }
  const Nvml& nvml = *world.gpus[0]->nvml;
  const double clock = nvml.sm_clock_mhz(), power = nvml.power_w();
  sync_all(world);
  std::vector<double> us;
  for (int i = 1; i <= groups; ++i) us.push_back(events.us_between(i - 1, i) / replay.launches());
  Timing t = summarize(std::move(us));
  t.median_us = agree(world, t.median_us);
  t.spread_pct = agree(world, t.spread_pct);
  t.sm_clock_mhz = clock;
  t.power_w = power;
  return t;
}

void measure_together(Bench& bench, World& world, const Kernel& kernel,
                      const std::function<JointWork()>& prepare) {
  bench.guard(kernel, {Mode::sustained}, [&] {
    for (Gpu* gpu : world.gpus) gpu->arena->reset();
    const JointWork work = prepare();
    bench.record(kernel, Mode::sustained, work.rel_error,
                 [&] { return time_together(world, work, bench.effort); });
  });
}

}  // namespace moecast::cuda
