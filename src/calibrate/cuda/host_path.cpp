// What the host costs: pinned copies both ways, kernel launches, CUDA graphs, waiting for the
// device.
#include <chrono>
#include <cstdint>

#include "calibrate/cuda/kernels.hpp"
#include "calibrate/cuda/sections.hpp"
#include "calibrate/shapes.hpp"

namespace moecast::cuda {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// Host microseconds of one call of f, over `samples` groups of `calls`; the device is idle before
/// each group.
Timing time_host(const Gpu& gpu, int samples, int calls, const std::function<void()>& f) {
  std::vector<double> us;
  for (int i = 0; i <= samples; ++i) {
    gpu.sync();
    const auto start = Clock::now();
    for (int c = 0; c < calls; ++c) f();
    if (i > 0) us.push_back(us_since(start) / calls);  // the first warms up
  }
  gpu.sync();
  return summarize(std::move(us));
}

Kernel launch_kernel(const char* kind, int nodes) {
  return {"launch", {{"kind", kind}, {"nodes", double(nodes)}}, "cuda"};
}

/// Chains of empty kernels: their launch on the host, their time on the device.
void measure_graphs(Bench& bench) {
  Gpu& gpu = bench.gpu;
  for (const int nodes : {1, 10, 100, 1000}) {
    const Work work{1, [](cudaStream_t s, int) { empty_kernel(s); }, 0, true};
    bench.guard(launch_kernel("graph", nodes), {Mode::sustained}, [&] {
      const Replay replay(gpu, work, nodes);
      bench.record(launch_kernel("graph", nodes), Mode::sustained, 0,
                   [&] { return time_host(gpu, 30, 1, [&] { replay.run(gpu.stream); }); });
    });
    bench.guard(launch_kernel("graph_device", nodes), {Mode::sustained}, [&] {
      const Replay replay(gpu, work, nodes);
      const Work whole{1, [&](cudaStream_t s, int) { replay.run(s); }, 0, false};
      bench.record(launch_kernel("graph_device", nodes), Mode::sustained, 0,
                   [&] { return time_work(gpu, whole, Mode::sustained, bench.effort); });
    });
  }
}

}  // namespace

void measure_launch(Bench& bench) {
  Gpu& gpu = bench.gpu;
  bench.guard(launch_kernel("eager", 1), {Mode::sustained}, [&] {
    bench.record(launch_kernel("eager", 1), Mode::sustained, 0,
                 [&] { return time_host(gpu, 30, 200, [&] { empty_kernel(gpu.stream); }); });
  });
  measure_graphs(bench);
  const PinnedBuffer pinned(64);
  // The device is idle: launch, the kernel, and the host's waking up.
  bench.guard(launch_kernel("kernel_sync", 1), {Mode::sustained}, [&] {
    bench.record(launch_kernel("kernel_sync", 1), Mode::sustained, 0, [&] {
      return time_host(gpu, 30, 20, [&] {
        empty_kernel(gpu.stream);
        gpu.sync();
      });
    });
  });
  bench.guard(launch_kernel("d2h_sync", 1), {Mode::sustained}, [&] {
    auto* device = gpu.arena->take<int>(1);
    bench.record(launch_kernel("d2h_sync", 1), Mode::sustained, 0, [&] {
      return time_host(gpu, 30, 20, [&] {
        check(cudaMemcpyAsync(pinned.as<int>(), device, sizeof(int), cudaMemcpyDeviceToHost,
                              gpu.stream));
        gpu.sync();
      });
    });
  });
  bench.guard(launch_kernel("event_record", 1), {Mode::sustained}, [&] {
    bench.record(launch_kernel("event_record", 1), Mode::sustained, 0, [&] {
      return time_host(gpu, 30, 100, [&] { check(cudaEventRecord(gpu.fork, gpu.stream)); });
    });
  });
}

void measure_offload(Bench& bench) {
  Gpu& gpu = bench.gpu;
  const std::vector<std::uint64_t> sizes = host_copy_bytes(bench.grid);
  std::unique_ptr<PinnedBuffer> to, from;
  if (!bench.is_planning) {
    to = std::make_unique<PinnedBuffer>(sizes.back());
    from = std::make_unique<PinnedBuffer>(sizes.back());
  }
  struct Way {
    const char* cls;
    bool up, down;
  };
  for (const Way way :
       {Way{"h2d", true, false}, Way{"d2h", false, true}, Way{"h2d_d2h", true, true}}) {
    for (const std::uint64_t bytes : sizes) {
      bench.measure({way.cls, {{"bytes", double(bytes)}}, "copy_engine"}, {Mode::sustained}, [&] {
        void *in = gpu.arena->take(bytes), *out = gpu.arena->take(bytes);
        return Work{
            1,
            [&, way, bytes, in, out](cudaStream_t s, int) {
              if (way.up && way.down) {
                check(cudaEventRecord(gpu.fork, s));
                check(cudaStreamWaitEvent(gpu.side[0], gpu.fork, 0));
              }
              if (way.up)
                check(cudaMemcpyAsync(in, to->as<void>(), bytes, cudaMemcpyHostToDevice, s));
              if (way.down)
                check(cudaMemcpyAsync(from->as<void>(), out, bytes, cudaMemcpyDeviceToHost,
                                      way.up ? gpu.side[0] : s));
              if (way.up && way.down) {
                check(cudaEventRecord(gpu.join[0], gpu.side[0]));
                check(cudaStreamWaitEvent(s, gpu.join[0], 0));
              }
            },
            0, true};
      });
    }
  }
}

}  // namespace moecast::cuda
