#pragma once
/// Work that all GPUs of this process do together, timed as the slowest of them sees it.
#include <functional>

#include "calibrate/cuda/bench.hpp"
#include "calibrate/cuda/world.hpp"

namespace moecast::cuda {

/// Enqueues one call on every GPU: on its main stream, or on `stream_of`(gpu).
using StreamOf = std::function<cudaStream_t(const Gpu&)>;
struct JointWork {
  std::function<void(const StreamOf&)> launch;
  double rel_error = 0;
};

inline cudaStream_t main_stream(const Gpu& gpu) { return gpu.stream; }
inline cudaStream_t side_stream(const Gpu& gpu) { return gpu.side[0]; }

/// One CUDA graph per GPU with `launches` calls.
class JointReplay {
 public:
  JointReplay(World& world, const JointWork& work, int launches, StreamOf stream = main_stream);
  ~JointReplay();
  JointReplay(const JointReplay&) = delete;
  JointReplay& operator=(const JointReplay&) = delete;
  void run() const;
  [[nodiscard]] int launches() const { return launches_; }

 private:
  World& world_;
  StreamOf stream_;
  int launches_;
  std::vector<cudaGraphExec_t> graphs_;
};

/// An event on every GPU's stream.
class JointEvents {
 public:
  JointEvents(World& world, int n);
  ~JointEvents();
  JointEvents(const JointEvents&) = delete;
  JointEvents& operator=(const JointEvents&) = delete;
  void record(int i, const StreamOf& stream = main_stream) const;
  /// Makes a stream of that GPU wait.
  void wait(int i, std::size_t gpu, cudaStream_t s) const;
  /// Of the GPU that took longest.
  [[nodiscard]] double us_between(int from, int to) const;
  /// Whether event `a` came before `b` on every GPU.
  [[nodiscard]] bool is_before(int a, int b) const;

 private:
  [[nodiscard]] double us(std::size_t gpu, int from, int to) const;
  World& world_;
  std::vector<std::vector<cudaEvent_t>> events_;
};

void sync_all(const World& world);
/// The largest of what the processes pass: whatever decides how often a collective is called must
/// be the same everywhere.
double agree(const World& world, double value);
double estimate_seconds(World& world, const JointWork& work);
Timing time_together(World& world, const JointWork& work, const Effort& effort);
/// Prepares and records a kernel of all GPUs.
void measure_together(Bench& bench, World& world, const Kernel& kernel,
                      const std::function<JointWork()>& prepare);

}  // namespace moecast::cuda
