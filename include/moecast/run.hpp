#pragma once
/// A run file, completed: model + cluster + train + layout + software. Schema moecast/run@1.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "moecast/layout.hpp"

namespace moecast {

/// Token routing. Balanced unless said: imbalance = max-over-mean rows per EP rank.
struct Routing {
  enum class Kind : std::uint8_t { force_balance, imbalance, tokens_per_expert };
  Kind kind = Kind::force_balance;
  double imbalance = 1.0;
  std::string tokens_per_expert_file;
  std::vector<double> tokens_per_expert;  ///< read from the file; relative weights, one per expert

  bool operator==(const Routing&) const = default;
};

/// Versions are strings as the user wrote them; empty = unknown.
struct Software {
  std::string container, pytorch, transformer_engine, megatron_core, bridge;
  std::map<std::string, bool> features;
  std::map<std::string, std::string> env;

  bool operator==(const Software&) const = default;
};

struct Run {
  std::string model;   ///< shipped name, or path
  std::string system;  ///< cluster.system: shipped name or path
  int gpus = 0;
  int gpus_used_per_domain = 0;  ///< cluster.gpus_used_per_domain; 0 = auto
  nlohmann::ordered_json system_overrides =
      nlohmann::ordered_json::object();  ///< cluster.system_overrides: figures, a number or "x2"
  int seq_length = 0;
  int global_batch_size = 0;
  Layout layout;  ///< micro_batch_size lives here (train.micro_batch_size in the file)
  std::string
      pipeline_model_parallel_layout;  ///< set when layout.pipeline_split == explicit_string
  Routing routing;
  double capacity_factor = 0.0;  ///< 0 = dropless
  Software software;
  nlohmann::ordered_json model_overrides = nlohmann::ordered_json::object();
  std::string base_dir;  ///< folder that relative paths are taken from first

  bool operator==(const Run&) const = default;
};

}  // namespace moecast
