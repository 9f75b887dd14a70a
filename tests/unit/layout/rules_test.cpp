#include "layout/rules.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "catch.hpp"
#include "layout/knobs.hpp"
#include "layout/megatron_config.hpp"
#include "moecast/run.hpp"
#include "rules_fixture.hpp"
#include "rules_option_cases.hpp"

using namespace moecast;
using namespace moecast::test;

TEST_CASE("The base case breaks no rule above info") {
  for (const Finding& f : check_rules(Candidate{}.input())) {
    INFO(f.rule << ": " << f.message);
    CHECK(f.severity == Severity::info);
  }
}

TEST_CASE("Every rule has a layout that breaks it and a near one that does not") {
  for (const RuleCase& c : rule_cases()) {
    Candidate bad, good;
    c.breaks(bad);
    c.passes(good);
    INFO(c.id);
    CHECK(broken_rules(bad).count(c.id) == 1);
    CHECK(broken_rules(good).count(c.id) == 0);
  }
}

TEST_CASE("Every rule over Megatron's options has some that break it and near ones that do not") {
  for (const OptionCase& c : option_cases()) {
    const Rule* rule = find_rule(c.id);
    INFO(c.id);
    REQUIRE(rule != nullptr);
    const bool bridge = c.for_bridge || rule->enforcer == Enforcer::bridge;
    const Flavour flavour = bridge ? Flavour::bridge : Flavour::megatron_lm;
    CHECK(broken_by_options(c.breaks, flavour).count(c.id) == 1);
    CHECK(broken_by_options(c.passes, flavour).count(c.id) == 0);
  }
}

TEST_CASE("The base of the option cases breaks no error rule of either launcher") {
  for (const Flavour flavour : {Flavour::megatron_lm, Flavour::bridge}) {
    for (const std::string& id : broken_by_options("{}", flavour)) {
      INFO(id);
      CHECK(find_rule(id)->severity != Severity::error);
    }
  }
}

TEST_CASE("No rule is without a case") {
  std::set<std::string> cases, rules;
  for (const RuleCase& c : rule_cases()) cases.insert(c.id);
  for (const OptionCase& c : option_cases()) cases.insert(c.id);
  for (const Rule& rule : rule_table()) {
    CHECK(rules.insert(std::string(rule.id)).second);
  }
  CHECK(cases == rules);
}

TEST_CASE("Rules say what must hold, how to fix it and who enforces it, and read known options") {
  for (const Rule& rule : rule_table()) {
    INFO(rule.id);
    CHECK_FALSE(rule.condition.empty());
    CHECK_FALSE(rule.fix.empty());
    CHECK_FALSE(rule.source.empty());
    CHECK_FALSE(rule.reads.empty());
    for (const std::string& name : knobs_of(rule)) {
      INFO(name);
      CHECK((name.starts_with("env.") || find_megatron_field(name) != nullptr));
    }
  }
}

TEST_CASE("Options that a run file can say lead to one of its knobs") {
  for (const MegatronField& field : megatron_fields()) {
    INFO(field.name);
    const std::string_view key = field.run_key;
    CHECK((key.empty() || key == "model" || find_knob(key) != nullptr));
  }
}

TEST_CASE("first_broken_rule is the first error of the table") {
  CHECK(first_broken_rule(Candidate{}.input()) == -1);
  for (const RuleCase& c : rule_cases()) {
    Candidate bad;
    c.breaks(bad);
    int first = -1;
    const RuleInput& input = bad.input();
    const auto& table = rule_table();
    for (std::size_t i = 0; i < table.size() && first < 0; ++i) {
      if (table[i].severity == Severity::error && table[i].holds_for(Flavour::bridge) &&
          table[i].broken(input))
        first = static_cast<int>(i);
      if (first == 0) break;
    }
    INFO(c.id);
    CHECK(first_broken_rule(input) == first);
  }
}

TEST_CASE("Findings are errors first and carry values") {
  Candidate c;
  c.run.layout.tp = 3;  // not read: the layout decides
  c.layout.overlap_moe_expert_parallel_comm = true;
  c.layout.dispatcher = Dispatcher::allgather;
  c.layout.ep = 1;
  const auto findings = check_rules(c.input());
  REQUIRE(findings.size() >= 3);
  CHECK(findings[0].rule == "EP-OVERLAP-EP");
  CHECK(std::is_sorted(findings.begin(), findings.end(),
                       [](const Finding& a, const Finding& b) { return a.severity < b.severity; }));
}

TEST_CASE("Sizes of zero and absurd sizes give one finding, not a division by zero") {
  for (int size : {0, -1, 1 << 30}) {
    Candidate c;
    c.layout.tp = c.layout.ep = c.layout.pp = size;
    const auto findings = check_rules(c.input());
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].rule == "SIZES");
    CHECK(first_broken_rule(c.input()) == 0);
  }
}

TEST_CASE("THUDM/slime issue 1818: PP2 x EP8 on 8 GPUs") {
  Candidate c;
  c.gpus = 8;
  c.layout.tp = c.layout.pp = c.layout.cp = 2;
  c.layout.vpp = 1;
  c.layout.ep = 8;
  CHECK(broken_rules(c).count("WORLD-ATTENTION") == 0);
  const auto findings = check_rules(c.input());
  const auto it = std::find_if(findings.begin(), findings.end(),
                               [](const Finding& f) { return f.rule == "WORLD-EXPERT"; });
  REQUIRE(it != findings.end());
  CHECK(it->message.find("world size 8 is not divisible by ETP*EP*PP = 16") == 0);
}

TEST_CASE("Minimum GPUs of Megatron-Bridge's parallelism-strategies table") {
  struct Row {
    int pp, tp, cp, ep, etp;
    long gpus;
  };
  for (const Row& r : {Row{1, 2, 1, 8, 1, 8}, Row{1, 4, 1, 8, 1, 8}, Row{1, 2, 2, 8, 1, 8},
                       Row{1, 2, 4, 8, 1, 8}, Row{2, 2, 1, 8, 1, 16}, Row{1, 2, 1, 4, 2, 8}}) {
    Layout l;
    l.pp = r.pp;
    l.tp = r.tp;
    l.cp = r.cp;
    l.ep = r.ep;
    l.etp = r.etp;
    CHECK(minimum_gpus(l) == r.gpus);
  }
}

TEST_CASE("EP overlap preconditions of Megatron-Bridge pull requests 4971 and 497") {
  Candidate on;
  on.layout.overlap_moe_expert_parallel_comm = true;
  on.run.software.pytorch = "2.9.0";
  auto rejected = [&on](const std::function<void(Candidate&)>& change) {
    Candidate c = on;
    change(c);
    return first_broken_rule(c.input()) >= 0;
  };
  CHECK(rejected([](Candidate& c) {
    c.layout.pp = 4;
    c.layout.vpp = 1;
  }));
  CHECK(rejected([](Candidate& c) { c.layout.ep = 1; }));
  CHECK(rejected([](Candidate& c) { c.layout.recompute_modules.add(RecomputeModule::moe); }));
  CHECK(rejected([](Candidate& c) { c.layout.moe_shared_expert_overlap = true; }));
  CHECK(rejected([](Candidate& c) {
    c.layout.overlap_moe_expert_parallel_comm = false;
    c.layout.delay_wgrad_compute = true;
  }));
  CHECK_FALSE(rejected([](Candidate& c) { c.layout.pp = c.layout.vpp = 1; }));
  CHECK_FALSE(rejected([](Candidate& c) {
    c.layout.pp = 4;
    c.layout.vpp = 2;
    c.layout.recompute_granularity = RecomputeGranularity::selective;
    c.layout.recompute_modules.add(RecomputeModule::moe_act);
  }));
}

TEST_CASE("DeepSeek-V4-Flash at 128K on 160 B200 is accepted (Megatron-Bridge pull request 5797)") {
  Candidate c = deepseek_v4_flash_on_160_b200();
  for (const Finding& f : check_rules(c.input())) {
    INFO(f.rule << ": " << f.message);
    CHECK(f.severity != Severity::error);
  }
  CHECK(c.layout.dp(c.gpus) == 2);
  CHECK(c.global_batch_size / (c.layout.micro_batch_size * c.layout.dp(c.gpus)) == 64);
}

TEST_CASE("Versions become comparable numbers") {
  Software s;
  s.pytorch = "2.6.0a0+ecf3bae40a.nv25.01";
  s.transformer_engine = "2.14";
  s.megatron_core = "core_v0.16.1";
  const Versions v = parse_versions(s);
  CHECK(v.pytorch == 2006000);
  CHECK(v.transformer_engine == 2014000);
  CHECK(v.megatron_core == 16001);
  CHECK(v.bridge == 0);
  s.bridge = "main";
  s.pytorch = "99999999999999999999.1";
  CHECK(parse_versions(s).bridge == 0);
  CHECK(parse_versions(s).pytorch == 999001000);
}

TEST_CASE("docs/rules.md is what the table says") {
  const std::string path = std::string(MOECAST_SOURCE_DIR) + "/docs/rules.md";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string expected = rules_markdown();
  if (text.str() != expected) std::ofstream(path + ".new") << expected;
  INFO("the rule table changed: mv docs/rules.md.new docs/rules.md");
  CHECK((text.str() == expected));
}
