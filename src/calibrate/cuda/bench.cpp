#include "calibrate/cuda/bench.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include <fmt/format.h>

#include "calibrate/cuda/kernels.hpp"

namespace moecast::cuda {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Events {
 public:
  explicit Events(int n) : events_(static_cast<std::size_t>(n)) {
    for (auto& e : events_) check(cudaEventCreate(&e));
  }
  ~Events() {
    for (auto& e : events_) cudaEventDestroy(e);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  cudaEvent_t operator[](int i) const { return events_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] double us_between(int a, int b) const {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, (*this)[a], (*this)[b]));
    return 1e3 * static_cast<double>(ms);
  }

 private:
  std::vector<cudaEvent_t> events_;
};

constexpr double kReplaySeconds = 2e-3;  ///< of one timed group of launches
constexpr int kMaxLaunches = 400;

/// Groups of launches back to back, an event after each; the clock is read while they run.
Timing time_groups(Gpu& gpu, const Replay& replay, int groups) {
  const Events events(groups + 1);
  check(cudaEventRecord(events[0], gpu.stream));
  for (int i = 1; i <= groups; ++i) {
    replay.run(gpu.stream);
    check(cudaEventRecord(events[i], gpu.stream));
  }
  check(cudaEventSynchronize(events[groups / 2]));
  const double clock = gpu.nvml->sm_clock_mhz(), power = gpu.nvml->power_w();
  const bool is_throttled = gpu.nvml->is_throttled();
  gpu.sync();
  std::vector<double> us;
  for (int i = 1; i <= groups; ++i) us.push_back(events.us_between(i - 1, i) / replay.launches());
  Timing t = summarize(std::move(us));
  t.sm_clock_mhz = clock;
  t.power_w = power;
  t.is_throttled = is_throttled;
  return t;
}

/// Runs until three windows in a row take the same time: the clock has come down to what power
/// allows.
void heat(Gpu& gpu, const Replay& replay, double group_s, const Effort& effort) {
  constexpr double kWindowSeconds = 0.02, kSettled = 0.01;
  const int groups = std::max(1, static_cast<int>(kWindowSeconds / group_s));
  const Events events(2);
  const auto start = Clock::now();
  double before = 0;
  for (int settled = 0;
       since(start) < effort.max_heat_s && (settled < 2 || since(start) < effort.heat_s);) {
    check(cudaEventRecord(events[0], gpu.stream));
    for (int i = 0; i < groups; ++i) replay.run(gpu.stream);
    check(cudaEventRecord(events[1], gpu.stream));
    gpu.sync();
    const double now = events.us_between(0, 1);
    settled = std::abs(now - before) < kSettled * now ? settled + 1 : 0;
    before = now;
  }
}

Timing time_sustained(Gpu& gpu, const Replay& replay, double group_s, const Effort& effort) {
  heat(gpu, replay, group_s, effort);
  return time_groups(gpu, replay, std::clamp(static_cast<int>(effort.sample_s / group_s), 7, 40));
}

/// The first milliseconds after idling: boost clocks, as for a kernel among host-bound ones.
Timing time_burst(Gpu& gpu, const Replay& replay, const Effort& effort) {
  std::vector<double> us;
  Timing last;
  for (int i = 0; i < effort.bursts; ++i) {
    std::this_thread::sleep_for(std::chrono::duration<double>(effort.idle_s));
    last = time_groups(gpu, replay, 1);
    us.push_back(last.median_us);
  }
  Timing t = summarize(std::move(us));
  t.sm_clock_mhz = last.sm_clock_mhz;
  t.power_w = last.power_w;
  t.is_throttled = last.is_throttled;
  return t;
}

}  // namespace

double require_error_below(double rel_error, double bound) {
  if (!(rel_error <= bound))
    throw WrongResult(fmt::format("relative error {:.2g} is above {:.2g}", rel_error, bound));
  return rel_error;
}

Replay::Replay(Gpu& gpu, const Work& work, int launches) : work_(work), launches_(launches) {
  if (!work.is_capturable) return;
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeThreadLocal));
  try {
    for (int i = 0; i < launches; ++i) work.launch(gpu.stream, i % work.copies);
  } catch (...) {
    cudaStreamEndCapture(gpu.stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(gpu.stream, &graph));
  const cudaError_t status = cudaGraphInstantiate(&graph_, graph, 0);
  cudaGraphDestroy(graph);
  check(status);
}

Replay::~Replay() {
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
}

void Replay::run(cudaStream_t s) const {
  if (graph_ != nullptr) return check(cudaGraphLaunch(graph_, s));
  for (int i = 0; i < launches_; ++i) work_.launch(s, i % work_.copies);
}

double estimate_seconds(Gpu& gpu, const Work& work) {
  for (int i = 0; i < 2; ++i) work.launch(gpu.stream, i % work.copies);
  gpu.sync();
  const Events events(2);
  constexpr int kCalls = 3;
  check(cudaEventRecord(events[0], gpu.stream));
  for (int i = 0; i < kCalls; ++i) work.launch(gpu.stream, i % work.copies);
  check(cudaEventRecord(events[1], gpu.stream));
  gpu.sync();
  return std::max(events.us_between(0, 1) / kCalls * 1e-6, 1e-6);
}

Timing time_work(Gpu& gpu, const Work& work, Mode mode, const Effort& effort) {
  const double seconds = estimate_seconds(gpu, work);
  const int launches = std::clamp(static_cast<int>(kReplaySeconds / seconds), 1, kMaxLaunches);
  const Replay replay(gpu, work, launches);
  replay.run(gpu.stream);
  gpu.sync();
  return mode == Mode::sustained ? time_sustained(gpu, replay, seconds * launches, effort)
                                 : time_burst(gpu, replay, effort);
}

void Bench::record(const Kernel& kernel, Mode mode, double rel_error,
                   const std::function<Timing()>& timed) {
  Timing best;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    check_stop();
    const Timing t = timed();
    if (attempt == 0 || best.is_throttled || (!t.is_throttled && noise(t) < noise(best))) best = t;
    if (is_accepted(best)) break;
  }
  if (is_usable(best))
    recorder.add(kernel, name_of(mode), gpu.ordinal, best, rel_error);
  else
    recorder.refuse(kernel);
}

void Bench::guard(const Kernel& kernel, std::initializer_list<Mode> modes,
                  const std::function<void()>& measured) {
  tick_();
  if (is_planning) return;
  check_stop();
  const bool is_known = std::all_of(modes.begin(), modes.end(), [&](Mode m) {
    return recorder.has(kernel, name_of(m), gpu.ordinal);
  });
  if (is_known && !is_repeating) return;
  try {
    gpu.arena->reset();
    measured();
  } catch (const Unsupported&) {
    recorder.note("unsupported_" + kernel.cls, 1);
  } catch (const Interrupted&) {
    throw;
  } catch (const std::runtime_error& error) {
    const std::string what =
        fmt::format("{} ({}): {}", describe(kernel), kernel.backend, error.what());
    cudaGetLastError();
    if (cudaDeviceSynchronize() != cudaSuccess) throw DeviceError(what);  // the context is lost
    recorder.note("failed_" + kernel.cls, 1);
    warn_(what);
  }
}

void Bench::measure(const Kernel& kernel, std::initializer_list<Mode> modes,
                    const std::function<Work()>& prepare) {
  guard(kernel, modes, [&] {
    const Work work = prepare();
    for (const Mode mode : modes) {
      if (recorder.has(kernel, name_of(mode), gpu.ordinal)) continue;
      record(kernel, mode, work.rel_error, [&] { return time_work(gpu, work, mode, effort); });
    }
  });
}

}  // namespace moecast::cuda
