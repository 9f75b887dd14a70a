// run_calibration: opens the GPUs, runs the sections, keeps what was measured.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <thread>

#include <fmt/format.h>

#include "calibrate/cuda/device_facts.hpp"
#include "calibrate/cuda/sections.hpp"
#include "calibrate/device.hpp"
#include "calibrate/ranks.hpp"

namespace moecast {
namespace cuda {
namespace {

std::atomic<bool> interrupted{false};

std::atomic<std::time_t> interrupted_at{0};

/// Ctrl-C asks the measurement to end; another one, a second later or more, ends the program.
/// (Launchers signal a process and its group at once.)
class CatchInterrupt {
 public:
  CatchInterrupt() {
    interrupted = false;
    old_ = std::signal(SIGINT, [](int) {
      const std::time_t now = std::time(nullptr);
      if (interrupted && now > interrupted_at + 1) std::signal(SIGINT, SIG_DFL);
      if (!interrupted) interrupted_at = now;
      interrupted = true;
    });
  }
  ~CatchInterrupt() { std::signal(SIGINT, old_ == SIG_ERR ? SIG_DFL : old_); }
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;

 private:
  void (*old_)(int) = SIG_DFL;
};

/// Which function measures a section: one GPU at a time, or all together.
struct Section {
  const char* name;
  void (*alone)(Bench&);
  void (*together)(Bench&, World&);
};
constexpr Section kSections[] = {
    {"launch", measure_launch, nullptr},
    {"offload", measure_offload, nullptr},
    {"memory", measure_memory, nullptr},
    {"permute", measure_permute, nullptr},
    {"gemm", measure_gemm, nullptr},
    {"grouped_gemm", measure_grouped, nullptr},
    {"attention", measure_attention, nullptr},
    {"contention", measure_local_contention, measure_contention},
    {"collectives", nullptr, measure_collectives},
    {"dispatch", nullptr, measure_dispatch},
};

class Session {
 public:
  Session(const CalibrationRequest& request, const CalibrationSink& sink, ProcessPlace place)
      : request_(request),
        sink_(sink),
        place_(std::move(place)),
        recorder_(place_.rank == 0 ? request.samples_path : "", request.run) {}

  Result<Samples> run() {
    const CatchInterrupt guard;
    open_gpus();
    if (auto problems = recorder_.resume(device_facts(gpus_)); !problems.empty()) return problems;
    open_world();
    count_planned();
    for (const Section& section : kSections) {
      if (!is_wanted(section.name) || interrupted) continue;
      section_ = section.name;
      if (section.alone != nullptr && place_.is_alone()) run_alone(section);
      if (section.together != nullptr && world_.ranks > 1) run_together(section);
      if (auto problems = recorder_.save(); !problems.empty()) return problems;
      if (is_lost_) break;
    }
    return recorder_.samples();
  }

  ~Session() {
    for (ncclComm_t comm : world_.comms) ncclCommDestroy(comm);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  [[nodiscard]] bool is_wanted(const std::string& name) const {
    return request_.only.empty() ||
           std::find(request_.only.begin(), request_.only.end(), name) != request_.only.end();
  }

  void warn(const std::string& text) {
    const std::lock_guard lock(sink_mutex_);
    if (sink_.warn) sink_.warn(text);
  }

  void open_gpus() {
    int count = 0;
    check(cudaGetDeviceCount(&count));
    for (const int ordinal : own_gpus(place_, count)) {
      const double before = is_wanted("overhead") ? context_bytes(ordinal) : 0;
      gpus_.push_back(std::make_unique<Gpu>(ordinal));
      if (before > 0) overhead("context", ordinal, before);
    }
  }

  /// Bytes, as the microseconds of a sample: memory_overhead has no time.
  void overhead(const char* what, int gpu, double bytes) {
    recorder_.add({"memory_overhead", {{"what", what}, {"bytes", bytes}}, "cuda"}, "sustained", gpu,
                  Timing{1, 0, 0, 0, 0, 0, 0, false}, 0);
  }

  void open_world() {
    const bool has_overhead = is_wanted("overhead");
    for (auto& gpu : gpus_) {
      const double before = free_bytes(*gpu);
      gpu->open_libraries();
      if (has_overhead)
        overhead("libraries", gpu->ordinal,
                 before - free_bytes(*gpu) -
                     static_cast<double>(gpu->arena->capacity() + gpu->workspaces->capacity()));
      world_.gpus.push_back(gpu.get());
    }
    world_.ranks = static_cast<int>(gpus_.size());
    if (!place_.is_alone()) {
      world_.ranks *= place_.processes;
      world_.first_rank = place_.rank * static_cast<int>(gpus_.size());
    }
    if (world_.ranks < 2) return;
    world_.has_peer_access = enable_peer_access(world_);
    for (const char* what : {"nccl_first_communicator", "nccl_next_communicator"}) {
      const double before = free_bytes(*gpus_[0]);
      std::vector<ncclComm_t> comms = connect();
      const std::vector<ncclComm_t> old = std::exchange(world_.comms, std::move(comms));
      warm_up(world_);
      if (has_overhead) overhead(what, gpus_[0]->ordinal, before - free_bytes(*gpus_[0]));
      for (ncclComm_t comm : old) ncclCommDestroy(comm);
      if (!has_overhead) return;
    }
  }

  std::vector<ncclComm_t> connect() {
    std::string bytes(sizeof(ncclUniqueId), '\0');
    if (place_.rank == 0) check(ncclGetUniqueId(reinterpret_cast<ncclUniqueId*>(bytes.data())));
    const auto shared = share_bytes(place_, bytes);
    if (!shared) throw DeviceError(to_string(shared.problems()[0]));
    ncclUniqueId id;
    std::copy(shared.value().begin(), shared.value().end(), reinterpret_cast<char*>(&id));
    std::vector<ncclComm_t> comms(gpus_.size());
    check(ncclGroupStart());
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      gpus_[i]->make_current();
      check(ncclCommInitRank(&comms[i], world_.ranks, id, world_.first_rank + static_cast<int>(i)));
    }
    check(ncclGroupEnd());
    return comms;
  }

  Bench bench_of(Gpu& gpu) {
    return {gpu,         recorder_,          Grid{request_.quick, request_.seed},
            interrupted, [this] { tick(); }, [this](const std::string& text) { warn(text); }};
  }

  void count_planned() {
    Bench planner(*gpus_[0], recorder_, Grid{request_.quick, request_.seed}, interrupted,
                  [this] { ++planned_; }, {});
    planner.is_planning = true;
    for (const Section& section : kSections) {
      if (!is_wanted(section.name)) continue;
      if (section.alone != nullptr && place_.is_alone())
        for (std::size_t i = 0; i < gpus_.size(); ++i) section.alone(planner);
      if (section.together != nullptr && world_.ranks > 1) section.together(planner, world_);
    }
    start_ = std::chrono::steady_clock::now();
  }

  void tick() {
    const std::lock_guard lock(sink_mutex_);
    ++done_;
    if (!sink_.progress) return;
    const double fraction = std::min(1.0, done_ / std::max(1.0, planned_));
    const double elapsed =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    sink_.progress({fraction, elapsed * (1 - fraction) / fraction, section_});
  }

  /// A section that fails is told and left out; a lost context ends the run.
  template <typename F>
  void guarded(const std::string& what, F f) {
    try {
      f();
    } catch (const Interrupted&) {
    } catch (const std::exception& error) {
      warn(what + ": " + error.what());
      cudaGetLastError();
      if (cudaDeviceSynchronize() != cudaSuccess) is_lost_ = true;
    }
  }

  void run_alone(const Section& section) {
    std::vector<std::thread> threads;
    for (auto& gpu : gpus_) {
      threads.emplace_back([&] {
        guarded(fmt::format("{} on GPU {}", section.name, gpu->ordinal), [&] {
          gpu->make_current();
          Bench bench = bench_of(*gpu);
          section.alone(bench);
        });
      });
    }
    for (std::thread& t : threads) t.join();
  }

  void run_together(const Section& section) {
    guarded(section.name, [&] {
      gpus_[0]->make_current();
      Bench bench = bench_of(*gpus_[0]);
      bench.is_repeating = world_.spans_processes();
      section.together(bench, world_);
    });
  }

  const CalibrationRequest& request_;
  const CalibrationSink& sink_;
  const ProcessPlace place_;
  Recorder recorder_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  World world_;
  std::mutex sink_mutex_;
  std::string section_;
  double planned_ = 0, done_ = 0;
  std::chrono::steady_clock::time_point start_;
  std::atomic<bool> is_lost_{false};
};

}  // namespace
}  // namespace cuda

bool has_device_code() { return true; }

Result<Samples> run_calibration(const CalibrationRequest& request, const CalibrationSink& sink) {
  const auto place = process_place([](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return std::string(value == nullptr ? "" : value);
  });
  if (!place) return place.problems();
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0)
    return Diagnostic{"",
                      0,
                      0,
                      "calibrate",
                      "no CUDA GPU is visible",
                      "run it on a GPU node; `calibrate --fit SAMPLES` works without one"};
  try {
    cuda::Session session(request, sink, place.value());
    return session.run();
  } catch (const std::exception& error) {
    return Diagnostic{"", 0, 0, "calibrate", error.what(), ""};
  }
}

}  // namespace moecast
