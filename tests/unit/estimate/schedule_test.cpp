// Orders, makespans and in-flight counts of Megatron's schedules.
#include "estimate/schedule.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "catch.hpp"
#include "schedule_cases.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

/// "F2.1" = forward of microbatch 2 through chunk 1.
std::string in_words(const std::vector<ScheduleOp>& order) {
  std::string text;
  for (const ScheduleOp& op : order) {
    const auto piece = [&](char kind, int microbatch, int chunk) {
      text += kind + std::to_string(microbatch) + '.' + std::to_string(chunk);
    };
    if (!text.empty()) text += ' ';
    if (op.kind != ScheduleOp::Kind::backward) piece('F', op.forward_microbatch, op.forward_chunk);
    if (op.kind == ScheduleOp::Kind::both) text += '+';
    if (op.kind != ScheduleOp::Kind::forward) piece('B', op.backward_microbatch, op.backward_chunk);
  }
  return text;
}

int total(const std::vector<int>& v) { return std::accumulate(v.begin(), v.end(), 0); }

}  // namespace

TEST_CASE("PP 2, VPP 2, 4 microbatches run in the order of Megatron's schedule table") {
  const ScheduleShape s{2, 2, 4, 2, false};
  CHECK(in_words(rank_order(s, 0)) ==
        "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
  CHECK(in_words(rank_order(s, 1)) ==
        "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
}

TEST_CASE("1F1B on PP 3 warms up with PP - 1 - rank forwards") {
  const ScheduleShape s{3, 1, 4, 3, false};
  CHECK(in_words(rank_order(s, 0)) == "F0.0 F1.0 F2.0 B0.0 F3.0 B1.0 B2.0 B3.0");
  CHECK(in_words(rank_order(s, 1)) == "F0.0 F1.0 B0.0 F2.0 B1.0 F3.0 B2.0 B3.0");
  CHECK(in_words(rank_order(s, 2)) == "F0.0 B0.0 F1.0 B1.0 F2.0 B2.0 F3.0 B3.0");
}

TEST_CASE("EP overlap without pipelining pairs every forward with the backward before it") {
  CHECK(in_words(rank_order({1, 1, 3, 1, true}, 0)) == "F0.0 F1.0+B0.0 F2.0+B1.0 B2.0");
}

TEST_CASE("EP overlap with interleaving warms up one forward more") {
  const ScheduleShape plain{2, 2, 4, 2, false}, overlap{2, 2, 4, 2, true};
  for (const int rank : {0, 1}) CHECK(warmup_count(overlap, rank) == warmup_count(plain, rank) + 1);
  CHECK(in_words(rank_order(overlap, 1)) ==
        "F0.0 F1.0 F0.1 F1.1+B0.1 F2.0+B1.1 F3.0+B0.0 F2.1+B1.0 F3.1+B2.1 B3.1 B2.0 B3.0");
}

TEST_CASE("a short last group of microbatches keeps chunk order inside the group") {
  // table: 0 1 | 0 1 (chunk 1), then the last group 2 3 4 as microbatches of one group of 3
  const ScheduleShape s{2, 2, 5, 3, false};
  std::string forwards;
  for (const ScheduleOp& op : rank_order(s, 0)) {
    if (op.kind == ScheduleOp::Kind::forward) forwards += in_words({op}) + ' ';
  }
  CHECK(forwards == "F0.0 F1.0 F2.0 F0.1 F1.1 F2.1 F3.0 F4.0 F3.1 F4.1 ");
}

TEST_CASE("every rank runs every forward and every backward exactly once, backward after forward") {
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    const ScheduleShape s = random_shape(random);
    INFO(to_string(s));
    const int rank = std::uniform_int_distribution<int>(0, s.pp - 1)(random);
    std::set<std::pair<int, int>> forward, backward;
    for (const ScheduleOp& op : rank_order(s, rank)) {
      if (op.kind != ScheduleOp::Kind::forward) {
        REQUIRE(forward.contains({op.backward_chunk, op.backward_microbatch}));
        REQUIRE(backward.insert({op.backward_chunk, op.backward_microbatch}).second);
      }
      if (op.kind != ScheduleOp::Kind::backward)
        REQUIRE(forward.insert({op.forward_chunk, op.forward_microbatch}).second);
    }
    const auto all = static_cast<std::size_t>(s.microbatches * s.vpp);
    CHECK(forward.size() == all);
    CHECK(backward.size() == all);
  }
}

TEST_CASE("1F1B of equal stages takes (M + PP - 1)(f + b)") {
  for (int pp = 1; pp <= 8; ++pp) {
    for (const int m : {1, 2, 3, 7, 8, 20}) {
      const ScheduleShape s{pp, 1, m, std::min(pp, m), false};
      INFO(to_string(s));
      CHECK_THAT(walk(s, equal_times(s, 1.25, 2.75)).makespan,
                 WithinRel((m + pp - 1) * 4.0, 1e-12));
    }
  }
}

TEST_CASE("interleaved 1F1B of equal chunks takes (M + (PP - 1) / VPP)(f + b)") {
  for (const int pp : {2, 3, 4, 8}) {
    for (const int vpp : {2, 3, 5}) {
      for (const int groups : {1, 2, 4}) {
        const ScheduleShape s{pp, vpp, groups * pp, pp, false};
        INFO(to_string(s));
        const double ideal = (s.microbatches + (pp - 1.0) / vpp) * 4.0;
        CHECK_THAT(walk(s, equal_times(s, 2, 2)).makespan, WithinRel(ideal, 1e-12));
        CHECK_THAT(walk(s, equal_times(s, 1, 3)).makespan, WithinRel(ideal, 1e-12));
      }
    }
  }
}

TEST_CASE("a blocking transfer holds its sender, an asynchronous one only its receiver") {
  const ScheduleShape s{2, 1, 1, 1, false};
  ScheduleTimes t = equal_times(s, 1, 2);
  t.p2p = 0.5;
  for (const bool blocks : {false, true}) {
    t.p2p_blocks = blocks;
    const Walk w = walk(s, t);
    CHECK_THAT(w.makespan, WithinRel(1 + 0.5 + 1 + 2 + 0.5 + 2, 1e-12));
    CHECK(w.ranks[0].p2p_blocked == (blocks ? 0.5 : 0.0));
    CHECK(w.ranks[1].p2p_blocked == (blocks ? 0.5 : 0.0));
    CHECK(w.ranks[0].busy == 3.0);
  }
}

TEST_CASE("a walk reports each operation once, in order, inside the makespan") {
  std::mt19937 random(12);
  for (int i = 0; i < 100; ++i) {
    const ScheduleShape s = random_shape(random);
    const ScheduleTimes t = random_times(random, s);
    INFO(to_string(s));
    std::vector<double> free(static_cast<std::size_t>(s.pp), 0.0), busy = free;
    std::size_t seen = 0, expected = 0;
    bool ordered = true;
    const Walk w = walk(s, t, [&](int rank, const ScheduleOp&, double start, double end) {
      const auto r = static_cast<std::size_t>(rank);
      ordered = ordered && start >= free[r] && end >= start;
      free[r] = end;
      busy[r] += end - start;
      ++seen;
    });
    CHECK(ordered);
    for (int r = 0; r < s.pp; ++r) {
      const RankTimeline& rank = w.ranks[static_cast<std::size_t>(r)];
      expected += rank_order(s, r).size();
      CHECK_THAT(rank.busy, WithinRel(busy[static_cast<std::size_t>(r)], 1e-9));
      CHECK(rank.end <= w.makespan);
      CHECK(rank.busy + rank.p2p_blocked <= rank.end * (1 + 1e-12));
      CHECK(*std::max_element(rank.last_backward_end.begin(), rank.last_backward_end.end()) ==
            free[static_cast<std::size_t>(r)]);
    }
    CHECK(seen == expected);
  }
}

TEST_CASE("no walk is shorter than the bound") {
  std::mt19937 random(13);
  for (int i = 0; i < 2000; ++i) {
    const ScheduleShape s = random_shape(random);
    const ScheduleTimes t = random_times(random, s);
    ScheduleTimes least = t;
    if (s.overlap) {  // what no combined step avoids: half of each direction here
      for (double& f : least.forward) f *= 0.5;
      for (double& b : least.backward) b *= 0.5;
    }
    INFO("case " << i << ": " << to_string(s));
    REQUIRE(makespan_bound(s, least) <= walk(s, t).makespan * (1 + 1e-12));
  }
}

TEST_CASE("the bound is tight for one rank and for equal 1F1B stages") {
  const ScheduleShape one{1, 1, 5, 1, false}, six{6, 1, 9, 6, false};
  for (const ScheduleShape& s : {one, six}) {
    const ScheduleTimes t = equal_times(s, 1, 2);
    CHECK_THAT(makespan_bound(s, t), WithinRel(walk(s, t).makespan, 1e-12));
  }
}

TEST_CASE("a cheaper piece never makes the step longer") {
  std::mt19937 random(14);
  for (int i = 0; i < 500; ++i) {
    const ScheduleShape s = random_shape(random);
    const ScheduleTimes t = random_times(random, s);
    ScheduleTimes cheaper = t;
    auto& pieces = i % 3 == 0 && s.overlap ? cheaper.both
                   : i % 2 == 0            ? cheaper.forward
                                           : cheaper.backward;
    pieces[std::uniform_int_distribution<std::size_t>(0, pieces.size() - 1)(random)] *= 0.5;
    INFO("case " << i << ": " << to_string(s));
    REQUIRE(walk(s, cheaper).makespan <= walk(s, t).makespan);
  }
}

TEST_CASE("chunks in flight match the counts of Megatron's memory estimator") {
  // 1F1B: min(M, PP - r); interleaved: min(MV, 2(PP - r - 1) + (V - 1) G + 1)
  CHECK(alive_closed_form({4, 1, 8, 4, false}, 0) == 4);
  CHECK(alive_closed_form({4, 1, 8, 4, false}, 3) == 1);
  CHECK(alive_closed_form({4, 1, 2, 2, false}, 0) == 2);
  CHECK(alive_closed_form({4, 3, 8, 4, false}, 0) == 15);
  CHECK(alive_closed_form({4, 3, 8, 4, false}, 3) == 9);
  CHECK(alive_closed_form({4, 3, 8, 6, false}, 0) == 19);
  CHECK(alive_closed_form({8, 2, 8, 8, false}, 0) == 16);  // clamped by M V
  CHECK(alive_closed_form({1, 1, 8, 1, false}, 0) == 1);
}

TEST_CASE("the closed form of chunks in flight is the peak of the order") {
  std::mt19937 random(15);
  for (int i = 0; i < 10000; ++i) {
    const ScheduleShape s = random_shape(random);
    const int rank = std::uniform_int_distribution<int>(0, s.pp - 1)(random);
    int peak = 0;
    for (const auto& alive : alive_vectors(s, rank)) peak = std::max(peak, total(alive));
    INFO("case " << i << ": " << to_string(s) << " rank " << rank);
    REQUIRE(peak == alive_closed_form(s, rank));
  }
}

TEST_CASE("the maximal vectors hold the peak of any weighting of the chunks") {
  std::mt19937 random(16);
  std::uniform_real_distribution<double> weight(0.1, 3);
  for (int i = 0; i < 300; ++i) {
    const ScheduleShape s = random_shape(random);
    const int rank = std::uniform_int_distribution<int>(0, s.pp - 1)(random);
    std::vector<double> bytes(static_cast<std::size_t>(s.vpp));
    for (double& b : bytes) b = weight(random);
    double held = 0, peak = 0, expected = 0;
    for (const ScheduleOp& op : rank_order(s, rank)) {  // a combined step frees what it fills
      if (op.kind == ScheduleOp::Kind::both)
        held -= bytes[static_cast<std::size_t>(op.backward_chunk)];
      if (op.kind != ScheduleOp::Kind::backward)
        held += bytes[static_cast<std::size_t>(op.forward_chunk)];
      peak = std::max(peak, held);
      if (op.kind == ScheduleOp::Kind::backward)
        held -= bytes[static_cast<std::size_t>(op.backward_chunk)];
    }
    for (const auto& alive : alive_vectors(s, rank)) {
      expected =
          std::max(expected, std::inner_product(alive.begin(), alive.end(), bytes.begin(), 0.0));
    }
    INFO("case " << i << ": " << to_string(s));
    REQUIRE_THAT(expected, WithinRel(peak, 1e-9));
  }
}
