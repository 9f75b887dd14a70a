#pragma once
/// Times kernels as training sees them and records them: cold inputs, sustained or burst clocks,
/// repeated when noisy.
#include <atomic>
#include <functional>
#include <stdexcept>

#include "calibrate/cuda/gpu.hpp"
#include "calibrate/recorder.hpp"
#include "calibrate/shapes.hpp"

namespace moecast::cuda {

enum class Mode { sustained, burst };
inline const char* name_of(Mode mode) { return mode == Mode::sustained ? "sustained" : "burst"; }

/// Ctrl-C: leaves the section that is being measured.
struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

/// A kernel ready to be timed. `launch` enqueues one call, on inputs number `copy`.
struct Work {
  int copies = 1;
  std::function<void(cudaStream_t, int copy)> launch;
  double rel_error = 0;       ///< against the reference
  bool is_capturable = true;  ///< into a CUDA graph, which hides the launch
};

/// How long a measurement lasts.
struct Effort {
  double heat_s = 0.075;     ///< at least, before sustained samples
  double max_heat_s = 0.25;  ///< at most, until the clock has settled
  double sample_s = 0.05;    ///< over which they are taken
  double idle_s = 0.015;     ///< before each burst
  int bursts = 5;
};

class Bench {
 public:
  /// `tick` counts a measurement that is over, `warn` tells of one that failed.
  Bench(Gpu& on, Recorder& into, const Grid& shapes, const std::atomic<bool>& stop,
        std::function<void()> tick, std::function<void(const std::string&)> warn)
      : gpu(on),
        recorder(into),
        grid(shapes),
        stop_(stop),
        tick_(std::move(tick)),
        warn_(std::move(warn)) {
    if (grid.is_quick) effort = {0.04, 0.12, 0.03, 0.01, 4};
  }

  /// Prepares, checks and times a kernel in each mode that has no sample yet. Kernels that this GPU
  /// lacks are passed over; those that fail are told and left out.
  void measure(const Kernel& kernel, std::initializer_list<Mode> modes,
               const std::function<Work()>& prepare);
  /// Repeats `timed` (which returns one set of timings) until it is quiet, and records it.
  void record(const Kernel& kernel, Mode mode, double rel_error,
              const std::function<Timing()>& timed);
  /// For what has no launch to time: runs `measured` unless the sample is there.
  void guard(const Kernel& kernel, std::initializer_list<Mode> modes,
             const std::function<void()>& measured);
  void check_stop() const {
    if (stop_.load()) throw Interrupted();
  }

  Gpu& gpu;
  Recorder& recorder;
  const Grid grid;
  bool is_planning = false;   ///< only counts
  bool is_repeating = false;  ///< measures what is known, too: all processes must do the same
  Effort effort;

 private:
  const std::atomic<bool>& stop_;
  std::function<void()> tick_;
  std::function<void(const std::string&)> warn_;
};

/// Throws WrongResult above the bound.
double require_error_below(double rel_error, double bound);

/// Microseconds per launch.
Timing time_work(Gpu& gpu, const Work& work, Mode mode, const Effort& effort);
/// Rough seconds of one launch, warmed up.
double estimate_seconds(Gpu& gpu, const Work& work);

/// `launches` calls captured into a graph that is replayed; plain calls where capture is not
/// possible.
class Replay {
 public:
  Replay(Gpu& gpu, const Work& work, int launches);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  void run(cudaStream_t s) const;
  [[nodiscard]] int launches() const { return launches_; }

 private:
  const Work& work_;
  int launches_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace moecast::cuda
