// The rows of moe.
#include "layout/knob_values.hpp"
#include "layout/routing_value.hpp"

namespace moecast {

std::vector<Knob> moe_knobs() {
  Knob routing =
      knob({"moe.routing", "routing", "--moe-router-force-load-balancing",
            "model.moe_router_force_load_balancing", "force_balance",
            "How tokens spread over experts: evenly; with a ratio of the fullest EP rank "
            "to the mean; or by the weights of a CSV file (one weight per line, or "
            "expert,tokens).",
            true},
           field(&Run::routing), RoutingKind{});
  routing.set = [](Run& run, const Value& value) {
    return set_routing(value, run.base_dir, run.routing);
  };
  return {
      knob(
          {"moe.dispatcher", "dispatcher", "--moe-token-dispatcher-type",
           "model.moe_token_dispatcher_type", "alltoall",
           "What moves tokens to their experts (deepep and hybridep are Megatron's flex dispatcher "
           "with that --moe-flex-dispatcher-backend).",
           true},
          field(&Layout::dispatcher), ChoiceKind<Dispatcher>{}),
      knob({"moe.dispatcher_num_sms", "", "--moe-flex-dispatcher-num-sms",
            "model.moe_flex_dispatcher_num_sms", "null",
            "SMs that the flex dispatcher's kernels occupy; null = the backend's default."},
           field(&Layout::dispatcher_num_sms), IntegerKind{1, 1024, 0}),
      knob({"moe.overlap_moe_expert_parallel_comm", "", "--overlap-moe-expert-parallel-comm",
            "comm_overlap.overlap_moe_expert_parallel_comm", "false",
            "Hides dispatch and combine of one micro batch behind the computation of another."},
           field(&Layout::overlap_moe_expert_parallel_comm), BooleanKind{}),
      knob(
          {"moe.delay_wgrad_compute", "", "--delay-wgrad-compute",
           "comm_overlap.delay_wgrad_compute", "false",
           "Splits weight gradients off the backward pass so that they hide more of the exchange."},
          field(&Layout::delay_wgrad_compute), BooleanKind{}),
      knob({"moe.moe_shared_expert_overlap", "", "--moe-shared-expert-overlap",
            "model.moe_shared_expert_overlap", "false",
            "Runs the shared experts on their own stream beside dispatch and combine."},
           field(&Layout::moe_shared_expert_overlap), BooleanKind{}),
      routing,
      knob({"moe.capacity_factor", "", "--moe-expert-capacity-factor",
            "model.moe_expert_capacity_factor", "null",
            "Tokens an expert takes, in even shares; more are dropped; null = dropless."},
           field(&Run::capacity_factor), NumberKind{0, 1024, 0, true}),
  };
}

}  // namespace moecast
