#include <map>

#include "catch.hpp"
#include "report/report.hpp"
#include "unit/report/sample_results.hpp"

using namespace moecast;
using namespace moecast::test;

TEST_CASE("a trace has one process per pipeline rank and one named thread per track") {
  const Json events = trace_json(sample_estimate()).at("traceEvents");
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;
  for (const Json& event : events) {
    const int pid = event.at("pid"), tid = event.at("tid");
    if (event.at("name") == "process_name") processes[pid] = event.at("args").at("name");
    if (event.at("name") == "thread_name") threads[{pid, tid}] = event.at("args").at("name");
  }
  CHECK(processes == std::map<int, std::string>{{0, "pipeline rank 0"}, {1, "pipeline rank 1"}});
  CHECK(threads == std::map<std::pair<int, int>, std::string>{
                       {{0, 0}, "compute"}, {{0, 1}, "comm"}, {{1, 0}, "p2p"}});
}

TEST_CASE("trace boxes are complete events in microseconds on the thread of their track") {
  const Json events = trace_json(sample_estimate()).at("traceEvents");
  Json boxes = Json::array();
  for (const Json& event : events)
    if (event.at("ph") == "X") boxes.push_back(event);
  REQUIRE(boxes.size() == 3);
  CHECK(boxes[0].at("name") == "dispatch");
  CHECK_THAT(boxes[0].at("ts").get<double>(), WithinRel(2000.0, 1e-12));
  CHECK_THAT(boxes[0].at("dur").get<double>(), WithinRel(1000.0, 1e-12));
  CHECK(boxes[0].at("tid") == 1);
  CHECK(boxes[0].at("args").at("detail") == "chunk 0");
  CHECK_THAT(boxes[2].at("dur").get<double>(), WithinRel(5.0, 1e-12));
  CHECK_FALSE(boxes[1].contains("args"));
}

TEST_CASE("an estimate without a trace gives an empty trace, not none") {
  Estimate e = sample_estimate();
  e.trace.clear();
  CHECK(trace_json(e).at("traceEvents") == Json::array());
}
