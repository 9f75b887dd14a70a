#pragma once
/// THE rule table: what Megatron-Core, Megatron-LM and Megatron-Bridge refuse, warn about or
/// change. Rules read Megatron's own names; a run file's layout is turned into them first.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layout/megatron_knobs.hpp"

namespace moecast {

struct Layout;
struct Software;

enum class Severity : std::uint8_t { error, warning, mutation, info };
std::string_view to_string(Severity severity);
/// When it shows: while arguments are validated, when process groups are made, while the model is
/// built, in the first forward; or only later, at run time.
enum class Phase : std::uint8_t { config, init, build, first_step, runtime };
std::string_view to_string(Phase phase);
/// Who enforces it: Megatron-Core (so every launcher), one launcher, or nobody but moecast.
enum class Enforcer : std::uint8_t { core, megatron_lm, bridge, moecast };
std::string_view to_string(Enforcer enforcer);

/// Versions as numbers for comparison (2.14.0 -> 2014000); 0 = unknown.
struct Versions {
  long pytorch = 0, transformer_engine = 0, megatron_core = 0, bridge = 0;
};
Versions parse_versions(const Software& software);
long parse_version(std::string_view text);

/// Stages of a layout string, before it is held against a model. Positions are stage indices.
struct LayoutScan {
  bool given = false, expandable = false, known_letters = true;
  bool begins_with_embedding = false, ends_with_loss = false, decoder_behind_mtp = false;
  int stages = 0, embeddings = 0, losses = 0, decoders = 0, mtp = 0;
  int first_mtp_stage = -1, last_mtp_stage = -1;
};
LayoutScan scan_layout(const std::string& text);

struct AttentionShape {
  int heads = 0, query_groups = 0;
  bool latent = false;
};

/// What rules read beside the configuration; the same for all layouts of a search.
struct Surroundings {
  Flavour flavour = Flavour::bridge;
  Versions versions;
  std::string model = "the model", gpu = "this GPU";
  double compute_capability = 0;  ///< 0 = unknown
  bool grace = false;
  int gpus_per_node = 8, gpus_per_nvlink_domain = 8, gpus_used_per_domain = 0;
  // environment
  int max_connections = -1;  ///< CUDA_DEVICE_MAX_CONNECTIONS; -1 = not set
  int hybridep_domain = 0;   ///< NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN; 0 = not set
  bool expandable_segments = false, nccl_graph_register_off = false, cpu_offload_v1 = false;
  bool captures_without_reuse = false;  ///< allocator settings without record_stream reuse
  bool fused_grouped_mlp_env = false, graph_node_priority = false;
  // layers
  bool has_dense_layer = false, has_moe_layer = false, layer_freq_fits = true;
  std::vector<AttentionShape> attention;  ///< a hybrid model has several
  LayoutScan layout;
  // run files only
  bool run_file = false, auto_split = false;
  bool static_dispatch = false;
  bool overlap_with_recompute = false;  ///< software.features of a build that allows it
};
Surroundings surroundings_of(const MegatronConfig& config, Flavour flavour);

/// Everything that a rule may read. Integers and references: the search makes one per candidate.
struct RuleInput {
  const MegatronConfig& c;     ///< effective: after the mutations
  const MegatronKnobs& asked;  ///< as the user wrote it
  const Surroundings& at;
  // derived sizes; 0 where something does not divide (another rule says so)
  long weight_shards = 1, attention = 1, expert = 1, dp = 0, edp = 0, microbatches = 0;
  int vpp = 1;
};

struct Rule {
  std::string_view id;  ///< EP-OVERLAP-VPP
  Severity severity = Severity::error;
  std::string_view reads;      ///< Megatron's names, separated by blanks
  std::string_view condition;  ///< in words: what must hold
  std::string_view fix, source;
  bool (*broken)(const RuleInput&) = nullptr;  ///< no allocation: the search calls it per candidate
  Enforcer enforcer = Enforcer::core;
  Phase phase = Phase::config;
  std::string (*message)(const RuleInput&) = nullptr;  ///< default: the condition and the values
  std::string_view versions = {};  ///< "megatron-core>=0.14"; empty = all that moecast knows
  std::string_view log = {};       ///< words of the message in a training log, for check --error
  std::string_view document = {};  ///< section of the user documents that states it

  // what a row may add
  [[nodiscard]] Rule by(Enforcer who) const;
  [[nodiscard]] Rule at(Phase when) const;
  [[nodiscard]] Rule says(std::string (*text)(const RuleInput&)) const;
  [[nodiscard]] Rule since(std::string_view range) const;
  [[nodiscard]] Rule logs(std::string_view words) const;
  [[nodiscard]] Rule section(std::string_view where) const;

  [[nodiscard]] bool holds_for(Flavour flavour) const {
    return enforcer == Enforcer::core || enforcer == Enforcer::moecast ||
           (enforcer == Enforcer::bridge) == (flavour == Flavour::bridge);
  }
};

struct Finding {
  std::string rule;
  Severity severity = Severity::error;
  std::vector<std::string> keys;  ///< run-file keys; Megatron's name where a run file has none
  std::string message, fix, applies;
  Phase phase = Phase::config;
};

const std::vector<Rule>& rule_table();
const Rule* find_rule(std::string_view id);
/// Megatron's names and the run file's keys of what a rule reads.
std::vector<std::string> knobs_of(const Rule& rule);
std::vector<std::string> words_of(std::string_view blank_separated);
std::vector<std::string> keys_of(const Rule& rule);
std::string applies_text(const Rule& rule);

/// A configuration ready to be asked: mutated in the launcher's order, with the derived sizes.
class Checkable {
 public:
  Checkable(MegatronConfig config, Surroundings surroundings);
  Checkable(const Checkable&) = delete;
  Checkable& operator=(const Checkable&) = delete;
  /// Other knobs for the same job; the rest stays. Allocates nothing.
  void ask(const MegatronKnobs& knobs);
  [[nodiscard]] const RuleInput& input() const { return input_; }
  [[nodiscard]] const MegatronConfig& effective() const { return config_; }
  [[nodiscard]] const MegatronKnobs& asked() const { return asked_; }
  Surroundings& surroundings() { return at_; }

 private:
  MegatronKnobs asked_;
  MegatronConfig config_;
  Surroundings at_;
  RuleInput input_;
};

/// All findings, errors first, table order within a severity.
std::vector<Finding> check_rules(const RuleInput& input);
/// Index of the first broken error rule in table order, or -1. The hot path: allocates nothing.
int first_broken_rule(const RuleInput& input);

/// The smallest world that both meshes divide: PP * lcm(TP * CP, ETP * EP).
long minimum_gpus(const Layout& layout);
/// docs/rules.md.
std::string rules_markdown();

}  // namespace moecast
