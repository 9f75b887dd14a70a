#include "cli/knob_flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "layout/knobs.hpp"

namespace moecast::cli {
namespace {

/// "--tp,--tensor-model-parallel-size": the spellings that --set takes without a section, dashed.
std::string flags_of(const Knob& knob) {
  std::vector<std::string> flags;
  for (std::string name : knob.names()) {
    if (find_knob(name) != &knob) continue;
    std::replace(name.begin(), name.end(), '_', '-');
    name = "--" + name;
    if (std::find(flags.begin(), flags.end(), name) == flags.end()) flags.push_back(name);
  }
  return fmt::to_string(fmt::join(flags, ","));
}

bool is_list(const Knob& knob) { return knob.domain.substr(0, 7) == "list of"; }

/// Lists may be written without brackets: --recompute-modules moe_act,layernorm
std::string value_text(const Knob& knob, const std::string& text) {
  return is_list(knob) && (text.empty() || text.front() != '[') ? "[" + text + "]" : text;
}

void add_flag(CLI::App& app, const Knob& knob, std::vector<std::string>& sets) {
  const std::string flags = flags_of(knob);
  if (flags.empty()) return;
  const std::string key(knob.key), help(knob.help);
  CLI::Option* option = nullptr;
  if (knob.domain == "true | false") {
    option = app.add_flag_function(
        flags, [&sets, key](std::int64_t n) { sets.push_back(key + (n > 0 ? "=true" : "=false")); },
        help);
  } else {
    option = app.add_option_function<std::string>(
        flags,
        [&sets, &knob, key](const std::string& text) {
          sets.push_back(key + "=" + value_text(knob, text));
        },
        help);
    option->type_name("X")->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  option->group("Run-file keys (each as in moecast list knobs)");
}

}  // namespace

void add_knob_flags(CLI::App& app, std::vector<std::string>& sets,
                    const std::vector<std::string>& except) {
  for (const Knob& knob : knob_table()) {
    if (std::find(except.begin(), except.end(), knob.key) == except.end())
      add_flag(app, knob, sets);
  }
  app.add_option_function<std::vector<std::string>>(
         "--set",
         [&sets](const std::vector<std::string>& all) {
           sets.insert(sets.end(), all.begin(), all.end());
         },
         "Override any run-file key; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

}  // namespace moecast::cli
