// The shapes that calibration measures, the routing behind them, and who measures together.
#include "calibrate/shapes.hpp"

#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "calibrate/device.hpp"
#include "calibrate/ranks.hpp"
#include "catch.hpp"

using namespace moecast;

namespace {

Result<ProcessPlace> place_of(const std::map<std::string, std::string>& environment) {
  return process_place([&](const std::string& name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  });
}

}  // namespace

TEST_CASE("a quick calibration measures a part of the full one, and both reach the corners") {
  CHECK(gemm_shapes({true, 0}).size() * 3 < gemm_shapes({false, 0}).size());
  CHECK(grouped_shapes({true, 0}).size() * 3 < grouped_shapes({false, 0}).size());
  CHECK(attention_shapes({true, 0}).size() * 3 < attention_shapes({false, 0}).size());
  for (const bool is_quick : {false, true}) {
    CHECK(message_bytes({is_quick, 0}).front() == 1024);
    CHECK(message_bytes({is_quick, 0}).back() == std::uint64_t{1} << 30);
    std::set<int> widths;
    for (const AttentionGrid& a : attention_shapes({is_quick, 0})) widths.insert(a.qk_dim);
    CHECK(widths == std::set<int>{64, 128, 192});
  }
}

TEST_CASE("no shape is measured twice") {
  std::set<std::vector<int>> gemms, grouped, attention;
  for (const DenseShape& s : gemm_shapes({false, 0})) CHECK(gemms.insert({s.m, s.n, s.k}).second);
  for (const GroupedShape& s : grouped_shapes({false, 0}))
    CHECK(grouped.insert({s.experts, s.tokens_per_expert, s.n, s.k, s.is_skewed}).second);
  for (const AttentionGrid& s : attention_shapes({false, 0}))
    CHECK(attention.insert({s.batch, s.seq, s.heads, s.kv_heads, s.qk_dim, s.v_dim}).second);
}

TEST_CASE("experts together hold all rows, skewed or not, in multiples that FP8 takes") {
  for (const int experts : {4, 8, 32, 64}) {
    for (const bool is_skewed : {false, true}) {
      const std::vector<int> rows = rows_per_expert(experts, 512, is_skewed);
      CHECK(std::accumulate(rows.begin(), rows.end(), 0) == experts * 512);
      for (const int r : rows) CHECK((r > 0 && r % 16 == 0));
      CHECK((skew_of(rows) > 1.4) == is_skewed);
    }
  }
}

TEST_CASE("a token is routed to distinct experts, evenly over all") {
  constexpr int kTokens = 20000, kTopk = 4, kExperts = 16;
  const std::vector<int> chosen = route_tokens(kTokens, kTopk, kExperts, 1);
  std::vector<int> count(kExperts, 0);
  for (std::size_t t = 0; t < kTokens; ++t) {
    const std::set<int> own(chosen.begin() + static_cast<std::ptrdiff_t>(t * kTopk),
                            chosen.begin() + static_cast<std::ptrdiff_t>((t + 1) * kTopk));
    REQUIRE(own.size() == kTopk);
    for (const int e : own) ++count[static_cast<std::size_t>(e)];
  }
  // Binomial: 5000 expected of each, standard deviation 61.
  for (const int c : count) CHECK(std::abs(c - kTokens * kTopk / kExperts) < 6 * 61);
  CHECK(route_tokens(100, kTopk, kExperts, 7) == route_tokens(100, kTopk, kExperts, 7));
}

TEST_CASE("torchrun, Open MPI and Slurm say which process this is; nobody says: alone") {
  CHECK(place_of({}).value().is_alone());
  const auto torchrun = place_of({{"RANK", "9"},
                                  {"WORLD_SIZE", "16"},
                                  {"LOCAL_RANK", "1"},
                                  {"LOCAL_WORLD_SIZE", "8"},
                                  {"MASTER_ADDR", "node0"},
                                  {"MASTER_PORT", "29600"}});
  REQUIRE(torchrun.ok());
  CHECK(torchrun.value().rank == 9);
  CHECK(torchrun.value().master == "node0");
  CHECK(torchrun.value().port == 29600);
  CHECK(own_gpus(torchrun.value(), 8) == std::vector<int>{1});
  const auto mpi = place_of({{"OMPI_COMM_WORLD_RANK", "1"},
                             {"OMPI_COMM_WORLD_SIZE", "2"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  CHECK(own_gpus(mpi.value(), 4) ==
        std::vector<int>{0, 1, 2, 3});  // one process a node: all its GPUs
  CHECK(place_of({{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}}).value().processes == 4);
  CHECK_FALSE(place_of({{"RANK", "x"}, {"WORLD_SIZE", "2"}}).ok());
  CHECK_FALSE(place_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).ok());
}

TEST_CASE("rank 0's bytes reach every process") {
  ProcessPlace first;
  first.processes = 3;
  first.port =
      39533 + static_cast<int>(std::hash<std::thread::id>()(std::this_thread::get_id()) % 1000);
  std::vector<std::string> got(2);
  std::vector<std::thread> others;
  for (int rank = 1; rank < 3; ++rank) {
    others.emplace_back([&, rank] {
      ProcessPlace place = first;
      place.rank = rank;
      const auto bytes = share_bytes(place, std::string(128, '?'));
      if (bytes) got[static_cast<std::size_t>(rank - 1)] = bytes.value();
    });
  }
  const std::string id(128, 'x');
  const auto own = share_bytes(first, id);
  for (std::thread& t : others) t.join();
  REQUIRE(own.ok());
  CHECK(own.value() == id);
  CHECK(got == std::vector<std::string>{id, id});
}

TEST_CASE("without device code the command says how to get it") {
  if (has_device_code()) return;
  const auto result = run_calibration({}, {});
  REQUIRE_FALSE(result.ok());
  CHECK(result.problems()[0].hint.find("--preset cuda") != std::string::npos);
  CHECK(calibration_sections().size() >= 9);
}
