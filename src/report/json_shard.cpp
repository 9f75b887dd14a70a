// A part of a search as a document that can be merged: doubles are written so that they read back
// the same.
#include <fmt/format.h>

#include <cstdint>
#include <fstream>

#include "layout/run_file.hpp"
#include "report/report.hpp"

namespace moecast {
namespace {

Json key_json(const RankKey& key) {
  return {{"value", key.value},
          {"step_s", key.step},
          {"place", key.place},
          {"family", key.family},
          {"reserved_bytes", key.reserved}};
}

void add_keys(Json& rows, const std::vector<RankedLayout>& layouts) {
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    rows[i]["key"] = key_json(layouts[i].key);
    rows[i]["value"] = layouts[i].value;
  }
}

/// A run of the document; problems of the run file reader are thrown as text.
Run read_run_of(const Json& tree) {
  Result<Run> run = run_from_json(tree);
  if (!run) throw std::invalid_argument(to_string(run.problems().front()));
  return run.take();
}

Wall wall_of(const std::string& name) {
  for (const Wall wall : {Wall::memory, Wall::communication, Wall::host, Wall::compute})
    if (to_string(wall) == name) return wall;
  throw std::invalid_argument("unknown wall '" + name + "'");
}

RankedLayout read_layout(const Json& row) {
  RankedLayout layout;
  layout.run = read_run_of(row.at("run"));
  layout.step_time = seconds(row.at("step_time_s").get<double>());
  layout.tflops_per_gpu = row.at("tflops_per_gpu").get<double>();
  layout.peak = gibibytes(row.at("peak_gib").get<double>());
  layout.peak_reserved = gibibytes(row.at("peak_reserved_gib").get<double>());
  layout.wall = wall_of(row.at("wall").get<std::string>());
  layout.why = row.at("why").get<std::string>();
  layout.worst_step_time = seconds(row.value("worst_step_time_s", 0.0));
  const Json& key = row.at("key");
  layout.key = {key.at("value").get<double>(), key.at("step_s").get<double>(),
                key.at("place").get<decltype(RankKey::place)>(),
                key.at("family").get<decltype(RankKey::family)>(),
                key.at("reserved_bytes").get<double>()};
  layout.value = row.value("value", layout.key.value);
  return layout;
}

std::vector<RankedLayout> read_layouts(const Json& rows) {
  std::vector<RankedLayout> layouts;
  for (const Json& row : rows) layouts.push_back(read_layout(row));
  return layouts;
}

void read_counts(const Json& space, SearchResult& r) {
  const auto count = [&](const char* name) { return space.at(name).get<std::uint64_t>(); };
  r.candidates = count("candidates");
  r.legal = count("legal");
  r.evaluated = count("evaluated");
  r.fit = count("fit");
  r.simulated = count("simulated");
  r.pruned = count("pruned");
}

SearchResult read_result(const Json& d) {
  SearchResult r;
  read_counts(d.at("space"), r);
  r.elapsed_s = d.at("elapsed_s").get<double>();
  r.complete = d.at("complete").get<bool>();
  r.ranked = read_layouts(d.at("ranked"));
  r.pareto = read_layouts(d.at("pareto"));
  for (const auto& [reason, n] : d.at("rejected").items())
    r.rejected[reason] = n.get<std::uint64_t>();
  r.any_fit = !d.at("fit").is_null();
  if (r.any_fit) {
    r.first_fit = read_layout(d.at("fit"));
    r.first_fit_order = d.at("fit").at("order").get<FitOrder>();
  } else if (const Json& nearest = d.at("nearest"); !nearest.at("run").is_null()) {
    r.nearest = {read_run_of(nearest.at("run")), gibibytes(nearest.at("over_gib").get<double>()),
                 nearest.at("change").get<std::string>(), nearest.at("mesh").get<std::uint32_t>()};
  }
  return r;
}

SearchShard read_document_of(const Json& d, const std::string& path) {
  if (d.at("schema") != "moecast/search@1")
    throw std::invalid_argument("its schema is not moecast/search@1");
  const Json& shard = d.at("shard");
  const SearchPart part{shard.at("index").get<int>(), shard.at("of").get<int>()};
  const int top = shard.at("top").get<int>();
  if (part.index < 1 || part.index > part.of || part.of > kMaxParts || top < 1)
    throw std::invalid_argument("its shard is none of 1/n ... n/n");
  return {path, part, top, shard.at("asked"), read_result(d)};
}

}  // namespace

Json shard_json(const SearchShard& shard) {
  const SearchResult& r = shard.result;
  Json d = search_json(r);
  add_keys(d["ranked"], r.ranked);
  add_keys(d["pareto"], r.pareto);
  if (r.any_fit) {
    d["fit"]["key"] = key_json(r.first_fit.key);
    d["fit"]["order"] = r.first_fit_order;
  } else {
    d["nearest"]["mesh"] = r.nearest.mesh;
  }
  d["shard"] = {{"index", shard.part.index},
                {"of", shard.part.of},
                {"top", shard.top},
                {"asked", shard.asked}};
  return d;
}

Result<SearchShard> read_shard(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Diagnostic{path, 0, 0, "", "cannot be read", "check the path"};
  try {
    return read_document_of(Json::parse(file), path);
  } catch (const std::exception& error) {  // JSON that is broken, lacks a key or has a wrong type
    return Diagnostic{path,
                      0,
                      0,
                      "",
                      fmt::format("is no part of a search: {}", error.what()),
                      "write it with moecast search ... --shard i/n -o FILE"};
  }
}

}  // namespace moecast
