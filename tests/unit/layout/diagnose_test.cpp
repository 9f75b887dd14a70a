#include "layout/diagnose.hpp"

#include "catch.hpp"
#include "layout/rules.hpp"

using namespace moecast;

namespace {

std::string best(std::string_view text) {
  const auto found = diagnose(text);
  return found.empty() ? "" : found.front().rule;
}
std::string best_cause(std::string_view text) {
  const auto found = diagnose(text);
  return found.empty() ? "" : found.front().cause;
}

}  // namespace

TEST_CASE("Does the failure table of the EP overlap guide lead to its rules?") {
  CHECK(best("assert expert_model_parallel_size > 1") == "EP-OVERLAP-EP");
  CHECK(best("assert moe_token_dispatcher_type") == "EP-OVERLAP-DISPATCHER");
  CHECK(best("AssertionError: overlap_moe_expert_parallel_comm is only supported with bf16 or fp16 "
             "precision") == "EP-OVERLAP-PRECISION");
  CHECK(best("assert virtual_pipeline_model_parallel_size") == "EP-OVERLAP-VPP");
  CHECK(best("assert recompute_granularity: disable full recomputation when enabling "
             "overlap_moe_expert_parallel_comm") == "EP-OVERLAP-RECOMPUTE");
  CHECK(best("assert overlap_moe_expert_parallel_comm required for delay_wgrad_compute") ==
        "DELAY-WGRAD-OVERLAP");
  CHECK(best("assert gradient_accumulation_fusion with CUDA graph and delay_wgrad_compute") ==
        "DELAY-WGRAD-GRAPH-FUSION");
  CHECK(best("CUDA graph with delay_wgrad_compute: add_bias_linear attention bias") ==
        "DELAY-WGRAD-ATTN-BIAS");
}

TEST_CASE("Does a real message lead to its rule?") {
  CHECK(best("RuntimeError: world_size (8) is not divisible by "
             "expert_tensor_model_pipeline_parallel size (16)") == "WORLD-EXPERT");
  CHECK(best("ValueError: Currently there is no support for Pipeline parallelism with CPU "
             "offloading") == "OFFLOAD-LAYERS-PP");
  CHECK(
      best("AssertionError: Using tensor model parallelism or context parallelism require setting "
           "the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1") ==
      "MAX-CONNECTIONS-LAUNCH");
  CHECK(
      best("seq-length should be a multiple of 2 * context-parallel-size if context-parallel-size "
           "> 1.") == "CP-SEQUENCE");
}

TEST_CASE("Are symptoms without a message known too?") {
  CHECK(best_cause("training hangs, torch < 2.6").find("PyTorch") != std::string::npos);
  CHECK(best_cause("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB") ==
        "the memory wall");
  CHECK(best_cause("no performance gain from the flex dispatcher").find("flex") !=
        std::string::npos);
  CHECK(best_cause("HybridEP silently skipped").find("falls back") != std::string::npos);
}

TEST_CASE("Does every logged message find its own rule among the first three?") {
  for (const Rule& rule : rule_table()) {
    if (rule.log.empty()) continue;
    bool named = false;
    for (const Diagnosis& d : diagnose(rule.log)) named |= d.rule == rule.id;
    INFO(rule.id);
    CHECK(named);
  }
}

TEST_CASE("Is unrelated text left alone?") {
  CHECK(diagnose("").empty());
  CHECK(diagnose("the quick brown fox").empty());
  CHECK_NOTHROW(diagnose(std::string(1'000'000, '\xff')));
}
