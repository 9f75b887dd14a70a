#pragma once
/// Small run files for tests of the program, and questions about what it printed.
#include <string>

namespace moecast::test {

/// A legal run that fits: 7 B parameters on one node. Line 3 is the model, 4 the cluster, 6 the
/// layout.
inline const std::string kSmallRun =
    "# a small run\n"
    "schema: moecast/run@1\n"
    "model: olmoe-1b-7b\n"
    "cluster: {system: dgx-h100, gpus: 8}\n"
    "train: {seq_length: 4096, micro_batch_size: 1, global_batch_size: 64}\n"
    "layout: {ep: 8}\n";

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace moecast::test
