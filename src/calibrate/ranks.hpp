#pragma once
/// Who calibrates together: read from the variables that mpirun, srun and torchrun set.
#include <functional>
#include <string>
#include <vector>

#include "moecast/result.hpp"

namespace moecast {

struct ProcessPlace {
  int rank = 0, processes = 1;
  int local_rank = 0, local_processes = 1;  ///< on this node
  std::string master = "127.0.0.1";         ///< where rank 0 listens
  int port = 29533;
  [[nodiscard]] bool is_alone() const { return processes == 1; }
};

/// `variable` returns a variable's value, or an empty string.
Result<ProcessPlace> process_place(const std::function<std::string(const std::string&)>& variable);

/// The GPUs of this process: all of the node when it is the only process there, else number
/// local_rank.
std::vector<int> own_gpus(const ProcessPlace& place, int gpus_of_node);

/// Rank 0 gives `bytes` to all others over TCP; returns them everywhere.
Result<std::string> share_bytes(const ProcessPlace& place, const std::string& bytes);

}  // namespace moecast
