#include "estimate/legal.hpp"

#include "layout/layout_config.hpp"

namespace moecast {
namespace {

MegatronConfig config_of(const Problem& p, Flavour flavour) {
  MegatronConfig c = megatron_config_of(p.run, p.model, flavour);
  c.pipeline_model_parallel_layout = p.run.pipeline_model_parallel_layout;
  c.world_size = p.world;
  c.seq_length = c.max_position_embeddings.emplace(p.seq_length);
  c.global_batch_size = p.global_batch_size;
  return c;
}

Surroundings around(const Problem& p, Flavour flavour) {
  Run run = p.run;
  // a build that allows what its release does not says so in its stack
  if (const auto patch = p.software.features.find("overlap_with_recompute");
      patch != p.software.features.end())
    run.software.features.insert(*patch);
  return surroundings_of(config_of(p, flavour), run, p.model, p.system(),
                         parse_versions(p.software), flavour);
}

}  // namespace

Legality::Legality(const Problem& p, Flavour flavour)
    : subject_(config_of(p, flavour), around(p, flavour)) {
  knobs_ = subject_.asked();
}

const RuleInput& Legality::input(const Layout& l) {
  set_layout(knobs_, l);
  Surroundings& at = subject_.surroundings();
  at.auto_split = l.pipeline_split == PipelineSplit::automatic;
  at.layout.given = l.pipeline_split == PipelineSplit::explicit_string;
  subject_.ask(knobs_);
  return subject_.input();
}

std::vector<Finding> check_layout(const Problem& p, const Layout& l, Flavour flavour) {
  Legality legality(p, flavour);
  return check_rules(legality.input(l));
}

}  // namespace moecast
