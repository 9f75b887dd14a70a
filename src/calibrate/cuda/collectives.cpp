// NCCL collectives between the GPUs that calibrate together.
#include "calibrate/cuda/collectives.hpp"

#include <cstdint>
#include <numeric>

#include "calibrate/cuda/host_check.hpp"
#include "calibrate/cuda/sections.hpp"
#include "calibrate/shapes.hpp"

namespace moecast::cuda {
namespace {

constexpr ncclDataType_t kType = ncclBfloat16;
constexpr std::size_t kElement = sizeof(bf16);

struct Call {
  const World& world;
  const CollectiveBuffers& buffers;
  std::size_t count;  ///< elements of the whole (n-rank) buffer
  [[nodiscard]] std::size_t share() const { return count / static_cast<std::size_t>(world.ranks); }
};

char* part(void* buffer, std::size_t elements) {
  return static_cast<char*>(buffer) + elements * kElement;
}

void exchange(const Call& c, std::size_t i, ncclComm_t comm, cudaStream_t s) {
  for (int peer = 0; peer < c.world.ranks; ++peer) {
    const std::size_t at = c.share() * static_cast<std::size_t>(peer);
    check(ncclSend(part(c.buffers.send[i], at), c.share(), kType, peer, comm, s));
    check(ncclRecv(part(c.buffers.receive[i], at), c.share(), kType, peer, comm, s));
  }
}

/// To the next rank, from the one before.
void shift(const Call& c, std::size_t i, ncclComm_t comm, cudaStream_t s) {
  const int rank = c.world.first_rank + static_cast<int>(i), n = c.world.ranks;
  check(ncclSend(c.buffers.send[i], c.count, kType, (rank + 1) % n, comm, s));
  check(ncclRecv(c.buffers.receive[i], c.count, kType, (rank + n - 1) % n, comm, s));
}

struct Row {
  std::string name;
  void (*enqueue)(const Call&, std::size_t gpu, ncclComm_t, cudaStream_t);
};
const std::vector<Row>& table() {
  static const std::vector<Row> rows = {
      {"all_reduce",
       [](const Call& c, std::size_t i, ncclComm_t comm, cudaStream_t s) {
         check(ncclAllReduce(c.buffers.send[i], c.buffers.receive[i], c.count, kType, ncclSum, comm,
                             s));
       }},
      {"all_gather",
       [](const Call& c, std::size_t i, ncclComm_t comm, cudaStream_t s) {
         check(ncclAllGather(c.buffers.send[i], c.buffers.receive[i], c.share(), kType, comm, s));
       }},
      {"reduce_scatter",
       [](const Call& c, std::size_t i, ncclComm_t comm, cudaStream_t s) {
         check(ncclReduceScatter(c.buffers.send[i], c.buffers.receive[i], c.share(), kType, ncclSum,
                                 comm, s));
       }},
      {"alltoall", exchange},
      {"send_recv", shift},
  };
  return rows;
}

/// What GPU 0 must hold, from what all GPUs sent; only when all ranks are in this process.
double error_of(const World& world, const std::string& name, const CollectiveBuffers& buffers,
                std::size_t count) {
  if (world.spans_processes()) return 0;
  const std::size_t n = world.gpus.size(), share = count / n;
  std::vector<Numbers> sent;
  for (std::size_t i = 0; i < n; ++i) {
    world.gpus[i]->make_current();
    sent.push_back(to_host(*world.gpus[i], static_cast<const bf16*>(buffers.send[i]), count));
  }
  Numbers want;
  if (name == "all_reduce" || name == "reduce_scatter") {
    want.assign(name == "all_reduce" ? count : share, 0.0);
    for (const Numbers& s : sent)
      for (std::size_t i = 0; i < want.size(); ++i) want[i] += s[i];
  } else if (name == "send_recv") {
    want = sent[n - 1];
  } else {  // rank 0 gets the first share of everybody
    for (const Numbers& s : sent)
      want.insert(want.end(), s.begin(), s.begin() + static_cast<std::ptrdiff_t>(share));
  }
  world.gpus[0]->make_current();
  return rel_error(
      to_host(*world.gpus[0], static_cast<const bf16*>(buffers.receive[0]), want.size()), want);
}

JointWork prepare(World& world, const std::string& name, std::size_t bytes) {
  const CollectiveBuffers buffers = take_buffers(world, bytes);
  JointWork work;
  work.launch = [&world, name, buffers, bytes](const StreamOf& stream) {
    enqueue_collective(world, world.comms, name, buffers, bytes, stream);
  };
  work.launch(main_stream);
  sync_all(world);
  constexpr std::size_t kCheckedBytes = 1u << 20;
  if (bytes <= kCheckedBytes)
    work.rel_error = require_error_below(error_of(world, name, buffers, bytes / kElement), 1e-2);
  return work;
}

}  // namespace

const std::vector<std::string>& collective_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Row& row : table()) out.push_back(row.name);
    return out;
  }();
  return names;
}

CollectiveBuffers take_buffers(World& world, std::size_t bytes) {
  CollectiveBuffers buffers;
  for (std::size_t i = 0; i < world.gpus.size(); ++i) {
    Gpu& gpu = *world.gpus[i];
    gpu.make_current();
    buffers.send.push_back(gpu.arena->take(bytes));
    buffers.receive.push_back(gpu.arena->take(bytes));
    fill_normal(static_cast<bf16*>(buffers.send.back()), bytes / kElement,
                static_cast<unsigned>(i + 1), gpu.stream);
    check(cudaMemsetAsync(buffers.receive.back(), 0xff, bytes, gpu.stream));
  }
  sync_all(world);
  return buffers;
}

void enqueue_collective(const World& world, const std::vector<ncclComm_t>& comms,
                        const std::string& name, const CollectiveBuffers& buffers,
                        std::size_t bytes, const StreamOf& stream) {
  for (const Row& row : table()) {
    if (row.name != name) continue;
    const Call call{world, buffers, bytes / kElement};
    check(ncclGroupStart());
    for (std::size_t i = 0; i < world.gpus.size(); ++i)
      row.enqueue(call, i, comms[i], stream(*world.gpus[i]));
    check(ncclGroupEnd());
  }
}

void measure_collectives(Bench& bench, World& world) {
  for (const Row& row : table()) {
    for (const std::uint64_t bytes : message_bytes(bench.grid)) {
      const Kernel kernel{
          row.name,
          {{"ranks", double(world.ranks)}, {"bytes", double(bytes)}, {"precision", "bf16"}},
          "nccl"};
      measure_together(bench, world, kernel, [&] { return prepare(world, row.name, bytes); });
    }
  }
}

}  // namespace moecast::cuda
