// Trace Event Format:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#include <map>
#include <set>

#include "report/report.hpp"

namespace moecast {
namespace {

/// Tracks in the order they are shown; others follow in the order of their names.
int track_number(const std::string& track) {
  static const std::vector<std::string> kOrder{"compute", "comm", "p2p", "dp", "host"};
  for (std::size_t i = 0; i < kOrder.size(); ++i)
    if (kOrder[i] == track) return static_cast<int>(i);
  return static_cast<int>(kOrder.size());
}

Json metadata(const char* what, int pid, int tid, const char* key, const Json& value) {
  return {{"name", what}, {"ph", "M"}, {"pid", pid}, {"tid", tid}, {"args", {{key, value}}}};
}

}  // namespace

Json trace_json(const Estimate& e) {
  std::map<int, std::map<std::pair<int, std::string>, int>> tracks;
  for (const TraceEvent& event : e.trace)
    tracks[event.pp_rank][{track_number(event.track), event.track}] = 0;

  Json events = Json::array();
  for (auto& [rank, names] : tracks) {
    events.push_back(
        metadata("process_name", rank, 0, "name", "pipeline rank " + std::to_string(rank)));
    events.push_back(metadata("process_sort_index", rank, 0, "sort_index", rank));
    int next = 0;
    for (auto& [name, tid] : names) {
      tid = next++;
      events.push_back(metadata("thread_name", rank, tid, "name", name.second));
      events.push_back(metadata("thread_sort_index", rank, tid, "sort_index", tid));
    }
  }
  for (const TraceEvent& event : e.trace) {
    const int tid = tracks[event.pp_rank][{track_number(event.track), event.track}];
    Json box = {{"name", event.name},          {"cat", event.track}, {"ph", "X"},
                {"pid", event.pp_rank},        {"tid", tid},         {"ts", in_us(event.start)},
                {"dur", in_us(event.duration)}};
    if (!event.detail.empty()) box["args"] = {{"detail", event.detail}};
    events.push_back(std::move(box));
  }
  return {{"traceEvents", events},
          {"displayTimeUnit", "ms"},
          {"otherData",
           {{"model", e.run.model}, {"system", e.run.system}, {"step_time_s", e.step_time.value}}}};
}

}  // namespace moecast
