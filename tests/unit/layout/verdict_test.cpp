#include "layout/verdict.hpp"

#include <algorithm>
#include <fstream>
#include <random>
#include <set>

#include "catch.hpp"
#include "layout/megatron_config.hpp"
#include "layout/mutations.hpp"
#include "layout/rules.hpp"

using namespace moecast;
using Json = nlohmann::ordered_json;

namespace {

constexpr Flavour kLaunchers[] = {Flavour::megatron_lm, Flavour::bridge};

std::vector<Json> rows() {
  std::ifstream in(std::string(MOECAST_TEST_DIR) + "/unit/layout/data/verdicts.jsonl");
  std::vector<Json> all;
  for (std::string line; std::getline(in, line);) all.push_back(Json::parse(line));
  return all;
}

Json answer(const Json& row, Flavour flavour) { return verdict_of_line(row.dump(), flavour); }

/// A mutation passes on what it reads to the rules that read what it writes.
std::set<std::string> reads_of(const std::string& id) {
  std::set<std::string> reads;
  for (const std::string& name : knobs_of(*find_rule(id))) reads.insert(name);
  for (int pass = 0; pass < 2; ++pass) {
    for (const Mutation& m : mutation_table()) {
      const auto writes = words_of(m.writes), from = words_of(m.reads);
      if (std::any_of(writes.begin(), writes.end(),
                      [&](const std::string& w) { return reads.count(w) != 0; }))
        reads.insert(from.begin(), from.end());
    }
  }
  return reads;
}

}  // namespace

TEST_CASE("Do the rules say what Megatron-LM and Megatron-Bridge said of 300 layouts?") {
  const std::vector<Json> all = rows();
  REQUIRE(all.size() > 280);
  for (const Flavour flavour : kLaunchers) {
    int asked = 0, wrong = 0;
    std::string disagreements;
    for (const Json& row : all) {
      const std::string said = row.at(std::string(to_string(flavour)));
      if (said == "not_applicable") continue;
      ++asked;
      if (answer(row, flavour).at("verdict") == said) continue;
      ++wrong;
      disagreements += row.at("id").get<std::string>() + " ";
    }
    INFO(to_string(flavour) << ": " << disagreements);
    CHECK(wrong <= (flavour == Flavour::bridge ? 0.03 : 0.015) * asked);
  }
}

TEST_CASE("Does a rule that refuses a changed layout read one of the changed options?") {
  for (const Flavour flavour : kLaunchers) {
    for (const Json& row : rows()) {
      if (!row.contains("changed") || row.at(std::string(to_string(flavour))) != "rejected")
        continue;
      const Json said = answer(row, flavour);
      if (said.at("verdict") != "rejected") continue;
      bool reads_change = false;
      for (const Json& id : said.at("rules")) {
        const auto reads = reads_of(id);
        for (const Json& knob : row.at("changed")) reads_change |= reads.count(knob) != 0;
      }
      INFO(to_string(flavour) << " " << row.at("id") << " " << said.at("rules"));
      CHECK(reads_change);
    }
  }
}

TEST_CASE("Does a verdict change only with options that its rules say they read?") {
  const std::vector<Json> all = rows();
  std::mt19937 random(11);
  for (int i = 0; i < 400; ++i) {
    const Json& row = all[random() % all.size()];
    const auto& fields = megatron_fields();
    const MegatronField& field = fields[random() % fields.size()];
    const Flavour flavour = kLaunchers[i % 2];
    Json changed = row;
    const MegatronConfig defaults = default_config(flavour);
    const auto value = get(defaults, field);
    changed["knobs"][std::string(field.name)] =
        value.is_boolean() ? Json(!value.get<bool>()) : Json(value);
    std::set<std::string> before, after, moved;
    const Json first = answer(row, flavour), second = answer(changed, flavour);
    for (const Json& id : first.at("rules")) before.insert(id);
    for (const Json& id : second.at("rules")) after.insert(id);
    std::set_symmetric_difference(before.begin(), before.end(), after.begin(), after.end(),
                                  std::inserter(moved, moved.end()));
    for (const std::string& id : moved) {
      INFO(row.at("id") << ": " << id << " moved with " << field.name);
      CHECK((before.count("SIZES") + after.count("SIZES") > 0 ||
             reads_of(id).count(std::string(field.name)) == 1));
    }
  }
}

TEST_CASE("A line that is no layout is answered, not thrown at") {
  for (const std::string line :
       {"", "null", "[1,2", R"({"id":1})", R"({"id":"a","knobs":[]})", "\xff\xfe",
        R"({"id":"a","knobs":{"num_layers":"many"}})", R"({"knobs":{"world_size":1e99}})",
        R"({"knobs":{"world_size":-5,"tensor_model_parallel_size":0}})",
        R"({"knobs":{"pipeline_model_parallel_layout":"((((t*999999999"}})"}) {
    for (const Flavour flavour : kLaunchers) {
      const Json said = verdict_of_line(line, flavour);
      INFO(line);
      CHECK((said.at("verdict") == "unreadable" || said.at("verdict") == "rejected"));
      CHECK(said.contains("rules"));
    }
  }
  std::string deep = R"({"knobs":)";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  CHECK(verdict_of_line(deep, Flavour::bridge).at("verdict") == "unreadable");
}

TEST_CASE("Do random options ever break the rules' own code?") {
  const std::vector<Json> all = rows();
  std::mt19937 random(23);
  const auto any = [&](const MegatronField& field) -> Json {
    const int pick = static_cast<int>(random() % 9);
    if (pick == 0) return nullptr;
    if (pick == 1) return "bogus";
    if (pick == 2) return Json::array({0, -1, 3});
    if (pick == 3) return 2147483647;
    if (pick == 4) return -2147483647;
    if (pick == 5) return 0;
    if (pick == 6) return true;
    if (pick == 7) return 1.5;
    const auto value = get(MegatronConfig{}, field);
    return Json(value);
  };
  for (int i = 0; i < 2'000; ++i) {
    Json row = all[random() % all.size()];
    const auto& fields = megatron_fields();
    for (int k = 0; k < 4; ++k) {
      const MegatronField& field = fields[random() % fields.size()];
      row["knobs"][std::string(field.name)] = any(field);
    }
    CHECK_NOTHROW(answer(row, kLaunchers[i % 2]));
  }
}
