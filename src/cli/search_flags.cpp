#include "cli/search_flags.hpp"

#include "cli/knob_flags.hpp"

namespace moecast::cli {

void add_search_flags(CLI::App& app, SearchWords& words) {
  app.add_option("--precision", words.precisions, "Precisions to search, bf16 unless said")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--fix", words.fix, "Give an axis one value; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--objective", words.objective,
                 "step_time, memory, tokens_per_dollar or "
                 "robustness (step time with the worst routing)")
      ->capture_default_str();
  app.add_flag("--exhaustive", words.exhaustive,
               "Simulate every legal layout that fits: the same answer, slower");
  app.add_option("--min-headroom-gib", words.min_headroom_gib, "Memory to leave free")
      ->type_name("GIB")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--worst-imbalance", words.worst_imbalance,
                 "Objective robustness: rows of the fullest expert rank over the mean, at worst")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1000.0));
  app.add_option("--max-ep-domains", words.max_ep_domains,
                 "NVLink domains that an expert group may span")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--threads", words.threads,
                 "Threads; 0 = all cores; the answer does not depend on it")
      ->check(CLI::Range(0, 4096));
  add_knob_flags(app, words.sets, {"precision"});
}

}  // namespace moecast::cli
