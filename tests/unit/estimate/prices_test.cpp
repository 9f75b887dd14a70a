// Prices against physical limits, monotony, and slow counts of what routing does.
#include "estimate/prices.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <set>

#include "catch.hpp"
#include "problem_of.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

struct Machine {
  System system;
  Profile profile;
  [[nodiscard]] Prices prices() const { return {&profile.calibration, &system, 1.0}; }
};
Machine machine_of(const std::string& name) {
  return {must(load_system(name)), must(load_profile(name))};
}

double log_uniform(std::mt19937& random, double low, double high) {
  return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random));
}

double peak_of(const Gpu& gpu, Pipe pipe) {
  if (pipe == Pipe::bf16) return gpu.bf16.value;
  return pipe == Pipe::nvfp4 && gpu.fp4.value > 0 ? gpu.fp4.value : gpu.fp8.value;
}

constexpr Pass kPasses[] = {Pass::forward, Pass::dgrad, Pass::wgrad};

/// Mean of f(set of experts) over every set of k different experts.
double mean_over_routings(int experts, int k, const std::function<double(unsigned)>& f) {
  double sum = 0, count = 0;
  for (unsigned set = 0; set < (1u << experts); ++set) {
    if (std::popcount(set) != k) continue;
    sum += f(set);
    ++count;
  }
  return sum / count;
}

/// Ranks (or domains) of `size` consecutive experts that a set of experts touches.
std::set<int> touched(unsigned experts, int size) {
  std::set<int> bins;
  for (int e = 0; e < 32; ++e) {
    if ((experts >> e) & 1) bins.insert(e / size);
  }
  return bins;
}

GroupSpan span_of(int ranks, int per_domain) {
  GroupSpan s;
  s.ranks = ranks;
  s.ranks_per_domain = per_domain;
  s.domains = ranks / per_domain;
  return s;
}

}  // namespace

TEST_CASE("no GEMM is faster than the pipe's peak or the memory's bandwidth") {
  std::mt19937 random(41);
  for (const std::string& name : shipped_systems()) {
    const Machine m = machine_of(name);
    for (int i = 0; i < 200; ++i) {
      const Pipe pipe = static_cast<Pipe>(i % static_cast<int>(Pipe::count));
      const GemmShape s{log_uniform(random, 1, 3e4), log_uniform(random, 16, 3e4),
                        log_uniform(random, 16, 3e4)};
      const double least = 2 * s.m * s.n * s.k / peak_of(m.system.gpu, pipe);
      const double outputs = 2 * s.m * s.n / m.system.gpu.hbm_bandwidth.value;
      INFO(name << " pipe " << i % 5 << ": " << s.m << " x " << s.n << " x " << s.k);
      for (const Pass pass : kPasses) {
        REQUIRE(m.prices().gemm(pipe, s, pass).value >= least);
        REQUIRE(m.prices().grouped_gemm(pipe, 8, s, pass, 0, i % 2 == 0).value >= 8 * least);
      }
      REQUIRE(m.prices().gemm(pipe, s, Pass::forward).value >= outputs);
    }
  }
}

TEST_CASE("more rows, outputs or inputs never make a GEMM cheaper") {
  std::mt19937 random(42);
  const Machine machines[] = {machine_of("dgx-h200"), machine_of("gb200-nvl72")};
  for (int i = 0; i < 600; ++i) {
    const Prices prices = machines[i % 2].prices();
    const Pipe pipe = static_cast<Pipe>(i / 2 % static_cast<int>(Pipe::count));
    const GemmShape s{std::round(log_uniform(random, 1, 2e4)),
                      std::round(log_uniform(random, 16, 2e4)),
                      std::round(log_uniform(random, 16, 2e4))};
    GemmShape larger = s;
    (i % 3 == 0   ? larger.m
     : i % 3 == 1 ? larger.n
                  : larger.k) += std::round(log_uniform(random, 1, 3000));
    INFO("pipe " << i / 2 % 5 << ": " << s.m << " x " << s.n << " x " << s.k << " -> " << larger.m
                 << " x " << larger.n << " x " << larger.k);
    for (const Pass pass : kPasses)
      REQUIRE(prices.gemm(pipe, larger, pass) >= prices.gemm(pipe, s, pass));
    REQUIRE(prices.fp32_gemm(larger) > prices.fp32_gemm(s));
  }
}

// The library chooses tiles by what is quickest alone, so larger GEMMs can fill the SMs better when
// experts share them: rarely and by little.
TEST_CASE("twice the rows, outputs or inputs hardly ever make the experts' GEMMs cheaper") {
  std::mt19937 random(43);
  const Machine machines[] = {machine_of("dgx-h200"), machine_of("gb200-nvl72")};
  for (int i = 0; i < 600; ++i) {
    const Prices prices = machines[i % 2].prices();
    const Pipe pipe = static_cast<Pipe>(i / 2 % static_cast<int>(Pipe::count));
    const GemmShape s{std::round(log_uniform(random, 16, 8e3)),
                      std::round(log_uniform(random, 64, 1e4)),
                      std::round(log_uniform(random, 64, 1e4))};
    GemmShape larger = s;
    (i % 3 == 0 ? larger.m : i % 3 == 1 ? larger.n : larger.k) *= 2;
    INFO("pipe " << i / 2 % 5 << ": " << s.m << " x " << s.n << " x " << s.k);
    for (const Pass pass : kPasses) {
      for (const bool single_launch : {false, true}) {
        for (const bool even : {false, true}) {
          REQUIRE(prices.grouped_gemm(pipe, 4, larger, pass, 8, single_launch, even).value >=
                  0.85 * prices.grouped_gemm(pipe, 4, s, pass, 8, single_launch, even).value);
        }
      }
    }
  }
}

TEST_CASE("expected distinct bins equal the mean over every routing") {
  for (const int experts : {4, 6, 8, 12}) {
    for (int k = 1; k <= 4; ++k) {
      for (int bins = 1; bins <= experts; ++bins) {
        if (experts % bins != 0) continue;
        const double mean = mean_over_routings(experts, k, [&](unsigned set) {
          return static_cast<double>(touched(set, experts / bins).size());
        });
        INFO(experts << " experts, top " << k << ", " << bins << " bins");
        CHECK_THAT(expected_distinct(bins, experts, k), WithinRel(mean, 1e-12));
      }
    }
  }
}

TEST_CASE("an all-to-all sends one copy per expert on another rank") {
  const DispatchVolume v =
      dispatch_volume(Dispatcher::alltoall, {4096, 4096, 8, 64, 0, 1}, span_of(16, 8));
  CHECK_THAT(v.nvlink_copies, WithinRel(8 * 7.0 / 16, 1e-12));
  CHECK_THAT(v.network_copies, WithinRel(8 * 8.0 / 16, 1e-12));
}

TEST_CASE(
    "DeepEP and HybridEP send one copy per remote domain and forward it to each distinct rank") {
  const int experts = 12, ranks = 6, per_domain = 3;
  for (int k = 1; k <= 4; ++k) {
    // the sender is rank 0 (domain 0, index 0); copies arrive at the same index of a remote domain
    const double network = mean_over_routings(experts, k, [&](unsigned set) {
      return static_cast<double>(touched(set, experts / (ranks / per_domain)).contains(1));
    });
    const double nvlink = mean_over_routings(experts, k, [&](unsigned set) {
      const std::set<int> hit = touched(set, experts / ranks);
      return static_cast<double>(
          std::count_if(hit.begin(), hit.end(), [&](int r) { return r % per_domain != 0; }));
    });
    for (const Dispatcher d : {Dispatcher::deepep, Dispatcher::hybridep}) {
      const DispatchVolume v =
          dispatch_volume(d, {1, 1, k, experts, 0, 1}, span_of(ranks, per_domain));
      CHECK_THAT(v.network_copies, WithinRel(network, 1e-12));
      CHECK_THAT(v.nvlink_copies, WithinRel(nvlink, 1e-12));
    }
  }
}

TEST_CASE(
    "do HybridEP's SMs take chunks in turns, and hand on the last one, walked chunk by chunk?") {
  Machine m = machine_of("dgx-h100");
  auto& p = m.profile.calibration.dispatch[static_cast<std::size_t>(Dispatcher::hybridep)];
  p = {};
  p.nvlink_fraction = 1, p.nic_fraction = 1e6;  // neither NVLink's bytes nor the NICs' bind
  p.network_row_us = 1.5;
  const GroupSpan span = span_of(16, 8);
  std::mt19937 random(11);
  for (int trial = 0; trial < 300; ++trial) {
    const int tokens = std::uniform_int_distribution<int>(1, 300)(random) * 32;
    const int chunk = 32 << std::uniform_int_distribution<int>(0, 3)(random);
    const int sms = std::uniform_int_distribution<int>(1, 40)(random);
    DispatchShape s{double(tokens), 1e-3, 8, 128, sms, 1};
    s.chunk_tokens = chunk;
    std::vector<double> busy(static_cast<std::size_t>(sms), 0);  // of each SM, in rows
    for (int first = 0; first < tokens; first += chunk)
      *std::min_element(busy.begin(), busy.end()) += chunk;
    const double rows = *std::max_element(busy.begin(), busy.end()) + chunk;
    const double copies = dispatch_volume(Dispatcher::hybridep, s, span).network_copies;
    CHECK_THAT(m.prices().dispatch(Dispatcher::hybridep, s, span, false).value,
               WithinRel(rows * copies * 1.5e-6, 1e-6));
  }
}

TEST_CASE("is a mistyped setting of HybridEP named, and the rest of them used?") {
  Run run = run_of("qwen3-30b-a3b", "dgx-h100", 16);
  run.software.env = {{"NUM_OF_TOKENS_PER_CHUNK_COMBINE_API", "128k"},
                      {"NUM_OF_TOKENS_PER_CHUNK_DISPATCH_API", "128"},
                      {"moe_hybridep_num_blocks_unpermut", "32"}};
  const Problem p = problem_of(run);
  CHECK(p.hybridep.dispatch_chunk_tokens == 128);
  CHECK(p.hybridep.combine_chunk_tokens == kTokensPerChunk);
  const auto warned = [&](const std::string& part) {
    return std::any_of(p.warnings.begin(), p.warnings.end(),
                       [&](const Warning& w) { return w.message.find(part) != std::string::npos; });
  };
  CHECK(warned("'128k' is not a number above 0"));
  CHECK(warned("did you mean 'moe_hybridep_num_blocks_unpermute'"));
}

TEST_CASE("are moves on few SMs bound by the SMs, on many by HBM, and never faster than either?") {
  const Machine m = machine_of("h200-sxm");
  const Prices prices = m.prices();
  const double bytes = 4096.0 * 2 * 7168 * 9;
  const StreamParameters& s =
      m.profile.calibration.stream[static_cast<std::size_t>(Stream::permute)];
  double before = 1;
  for (int sms = 1; sms <= 132; ++sms) {
    const double t = prices.permute(bytes, true, sms).value;
    CHECK(t < before);
    CHECK(t > prices.permute(bytes, true).value);
    CHECK(t > bytes / (sms * s.gb_per_s_per_sm * 1e9));
    before = t;
  }
  // the H200 itself: 4096 x 7168 to 8 of 256 experts, with 4, 16 and 32 SMs (h200-sxm.samples.json)
  CHECK_THAT(prices.permute(bytes, true, 4).value, WithinRel(1966e-6, 0.06));
  CHECK_THAT(prices.permute(bytes, true, 16).value, WithinRel(497e-6, 0.08));
  CHECK_THAT(prices.permute(bytes, true, 32).value, WithinRel(263e-6, 0.12));
}

TEST_CASE(
    "de-duplication never sends more than an all-to-all, and nothing when one rank holds all "
    "experts") {
  for (const int ranks : {1, 2, 8, 16, 64}) {
    for (const int k : {1, 4, 8}) {
      const DispatchShape s{4096, 4096, k, 256, 0, 1};
      const GroupSpan span = span_of(ranks, std::min(ranks, 8));
      const DispatchVolume plain = dispatch_volume(Dispatcher::alltoall, s, span);
      const DispatchVolume once = dispatch_volume(Dispatcher::deepep, s, span);
      CHECK(once.network_copies <= plain.network_copies * (1 + 1e-12));
      CHECK(once.distinct_ranks <= std::min(ranks, k) * (1 + 1e-12));
      CHECK(once.distinct_ranks >= 1 - 1e-12);
      if (ranks == 1) {
        CHECK(plain.nvlink_copies + plain.network_copies + once.nvlink_copies +
                  once.network_copies ==
              0);
      }
    }
  }
}

TEST_CASE("collectives grow with their bytes and never beat the link") {
  for (const std::string& name : shipped_systems()) {
    const Machine m = machine_of(name);
    const Cluster cluster = must(Cluster::build(m.system, 4 * m.system.gpus_per_nvlink_domain));
    const std::vector<std::pair<int, int>> groups = {
        {1, 2}, {1, 4}, {cluster.gpus_used_per_domain(), 4}, {1, cluster.gpus()}};
    for (int c = 0; c < static_cast<int>(Collective::count); ++c) {
      const auto op = static_cast<Collective>(c);
      for (const auto& [stride, size] : groups) {
        const GroupSpan& span = cluster.span(stride, size);
        const double n = span.ranks, factor = op == Collective::all_reduce  ? 2 * (n - 1) / n
                                              : op == Collective::send_recv ? 1
                                                                            : (n - 1) / n;
        // what a rank can move: its NVLink ports, or the NICs of all members of its domain together
        const double members = op == Collective::send_recv ? 1 : span.ranks_per_domain;
        const double link = span.domains > 1 && op != Collective::alltoall
                                ? m.system.nic_per_gpu.value * members
                                : m.system.nvlink_per_direction.value;
        double before = 0;
        for (double bytes = 1024; bytes < 1e11; bytes *= 3.7) {
          const double t = m.prices().collective(op, bytes, span).value;
          INFO(name << ", collective " << c << ", " << size << " ranks, stride " << stride << ", "
                    << bytes << " bytes");
          REQUIRE(t > before);
          REQUIRE(factor * bytes / t <= link * (1 + 1e-12));
          before = t;
        }
      }
    }
  }
}

TEST_CASE("a collective of one rank or of nothing is free") {
  const Machine m = machine_of("dgx-h200");
  CHECK(m.prices().collective(Collective::all_reduce, 1e9, span_of(1, 1)).value == 0);
  CHECK(m.prices().collective(Collective::all_reduce, 0, span_of(8, 8)).value == 0);
  CHECK(m.prices()
            .dispatch(Dispatcher::alltoall, {4096, 4096, 8, 64, 0, 1}, span_of(1, 1), false)
            .value == 0);
}

TEST_CASE("dispatch costs more with more tokens, a wider row, a slower busiest rank or fewer SMs") {
  for (const std::string& name : shipped_systems()) {
    const Machine m = machine_of(name);
    for (int d = 0; d < 4; ++d) {
      for (const GroupSpan& span : {span_of(8, 8), span_of(16, 8), span_of(64, 8)}) {
        const DispatchShape s{4096, 8192, 8, 128, 0, 1};
        const auto cost = [&](const DispatchShape& shape) {
          return m.prices().dispatch(static_cast<Dispatcher>(d), shape, span, false);
        };
        DispatchShape tokens = s, row = s, skewed = s, few = s, many = s;
        tokens.tokens *= 2;
        row.row_bytes *= 2;
        skewed.imbalance = 1.5;
        few.num_sms = 4;
        many.num_sms = 32;
        INFO(name << " dispatcher " << d << " ranks " << span.ranks);
        CHECK(cost(tokens) > cost(s));
        CHECK(cost(row) > cost(s));
        CHECK(cost(skewed) > cost(s));
        CHECK(cost(few) >= cost(many));
      }
    }
  }
}

TEST_CASE("causal attention of twice the sequence costs between two and four times as much") {
  const Machine m = machine_of("dgx-h100");
  Prices::AttentionShape a;
  a.seq_q = 8192;
  a.context = 4096;
  a.heads = a.kv_heads = 32;
  a.qk_dim = a.v_dim = 128;
  Prices::AttentionShape twice = a;
  twice.seq_q *= 2;
  twice.context *= 2;
  for (const bool backward : {false, true}) {
    const double ratio = m.prices().attention(twice, backward) / m.prices().attention(a, backward);
    CHECK(ratio > 2);
    CHECK(ratio <= 4);
    const double flops =
        (backward ? 2.5 : 1) * 2 * a.heads * a.seq_q * a.context * (a.qk_dim + a.v_dim);
    CHECK(m.prices().attention(a, backward).value >= flops / m.system.gpu.bf16.value);
  }
}
