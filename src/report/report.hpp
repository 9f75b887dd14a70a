#pragma once
/// Writers: results as text for people, as JSON for scripts (docs/formats.md), as a trace for
/// chrome://tracing and Perfetto.
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "layout/diagnose.hpp"
#include "layout/rules.hpp"
#include "moecast/estimate.hpp"
#include "moecast/layout.hpp"
#include "moecast/model_spec.hpp"
#include "moecast/result.hpp"
#include "moecast/search.hpp"
#include "moecast/validation.hpp"
#include "report/style.hpp"

namespace moecast {

using Json = nlohmann::ordered_json;

// estimate
std::string estimate_text(const Estimate& e, const std::optional<PipelinePlan>& plan,
                          const Style& style);
/// The tree of one rank's memory, largest rank unless said; formulas included.
std::string memory_detail_text(const RankMemory& rank, const Style& style);
Json estimate_json(const Estimate& e, bool memory_detail);
/// Trace Event Format: one process per pipeline rank, one thread per track, complete events in
/// microseconds.
Json trace_json(const Estimate& e);
/// What every (rank, chunk) holds, in the letters of Megatron's layout strings.
std::string pipeline_drawing(const PipelinePlan& plan, const std::string& indent);

// search
std::string search_text(const SearchRequest& request, const SearchResult& result,
                        const Style& style);
Json search_json(const SearchResult& result);
/// The search document of a part, with `shard` and the keys of its rows; read_shard gives it back.
Json shard_json(const SearchShard& shard);
Result<SearchShard> read_shard(const std::string& path);

// check
struct Checked {
  Flavour flavour = Flavour::bridge;
  std::vector<Finding> findings, mutations;
  Json effective = Json::object();  ///< Megatron's options after the mutations
  std::optional<PipelinePlan> plan;
};
/// Findings, mutations and effective options of a configuration (no plan).
Checked checked_of(const Checkable& subject);
std::string check_text(const std::string& input, const Checked& checked, const Style& style);
Json check_json(const Checked& checked);
std::string diagnosis_text(const std::vector<Diagnosis>& found, const Style& style);
Json diagnosis_json(const std::vector<Diagnosis>& found);
/// A document on one line.
std::string line_of(const Json& document);

// validate
std::string validation_text(const Validation& validation, const Style& style);
Json validation_json(const Validation& validation);

// import
Json imported_model_json(const ModelSpec& model, int seq_length);

// problems of the input
Json error_json(const Diagnostics& problems);

/// A count that is held as a double, as a JSON integer.
Json whole_number(double count);

/// Text of a JSON document as the program prints it; text that is not UTF-8 is replaced, never
/// thrown at.
std::string dump(const Json& document);

}  // namespace moecast
