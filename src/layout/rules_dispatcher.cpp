/// Rules of the token dispatchers as Megatron and Bridge state them. What the DeepEP and HybridEP
/// libraries want is in rules_library.cpp.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

constexpr std::string_view kFlexPage =
    "perf-expert-parallel-overlap: compatibility and constraints";

std::vector<Rule> backend_rows() {
  return {
      error("DEEPEP-GPU", READS_DISPATCHER " gpu",
            "DeepEP needs Ampere, Hopper, B200 or B300 (not GB200 or GB300)",
            "use hybridep or alltoall", kFlexBackend,
            WHEN(moe(in) && deepep(in) && at.compute_capability > 0 &&
                 (compute_major(in) < 8 || compute_major(in) > 10 ||
                  (compute_major(in) == 10 && at.grace))))
          .by(kBridge)
          .logs("DeepEP is supported for Ampere, Hopper, and Blackwell (B200/B300) GPUs")
          .section(kFlexPage)
          .says([](In in) { return fmt::format("DeepEP does not run on {}", in.at.gpu); }),
      error("HYBRIDEP-GPU", READS_DISPATCHER " gpu", "HybridEP needs compute capability 8, 9 or 10",
            "use alltoall", kFlexBackend,
            WHEN(moe(in) && hybridep(in) && at.compute_capability > 0 &&
                 (compute_major(in) < 8 || compute_major(in) > 10)))
          .by(kBridge)
          .logs(
              "HybridEP is supported for GB200, GB300 with NVL72 and for Ampere, Hopper, B200 and "
              "B300")
          .section(kFlexPage)
          .says([](In in) { return fmt::format("HybridEP does not run on {}", in.at.gpu); }),
      error("DEEPEP-GROUP", READS_DISPATCHER " " READS_EP_GROUP, "DeepEP needs ETP * EP > 1",
            "use alltoall", kTokenDispatcher, WHEN(moe(in) && deepep(in) && ep_group(in) == 1))
          .at(Phase::build)
          .says([](In) { return std::string("DeepEP with ETP*EP = 1"); }),
      error("NCCLEP-GROUP", READS_DISPATCHER " " READS_EP_GROUP, "NCCL-EP needs ETP * EP > 1",
            "use alltoall", kTokenDispatcher, WHEN(moe(in) && ncclep(in) && ep_group(in) == 1))
          .at(Phase::build),
      error("NCCLEP-FLEX", READS_DISPATCHER, "backend ncclep needs dispatcher flex",
            "set moe_token_dispatcher_type to flex", kTransformerConfig,
            WHEN(moe(in) && c.moe_flex_dispatcher_backend == "ncclep"_w && !flex(in))),
  };
}

std::vector<Rule> dispatcher_option_rows() {
  return {
      error("NCCLEP-CAPACITY", READS_DISPATCHER " moe_expert_capacity_factor",
            "NCCL-EP excludes an expert capacity factor", "drop moe_expert_capacity_factor",
            kTransformerConfig, WHEN(ncclep(in) && c.moe_expert_capacity_factor)),
      error("DEEPEP-ENABLE", READS_DISPATCHER,
            "the deprecated moe_enable_deepep needs dispatcher flex, and not the hybridep backend",
            "set moe_token_dispatcher_type to flex and moe_flex_dispatcher_backend to deepep",
            kTransformerConfig,
            WHEN(c.moe_enable_deepep &&
                 (!flex(in) || in.asked.moe_flex_dispatcher_backend == "hybridep"_w)))
          .logs("DeepEP backend is only supported with flex token dispatcher"),
      error("DEEPEP-CAPACITY",
            READS_DISPATCHER " moe_pad_expert_input_to_capacity "
                             "moe_expert_capacity_factor",
            "DeepEP excludes padding to an expert capacity",
            "drop the capacity factor, or use alltoall", kTransformerConfig,
            WHEN(moe(in) && deepep(in) && c.moe_pad_expert_input_to_capacity))
          .logs("Flex token dispatcher with deepep backend does not support "
                "moe_pad_expert_input_to_capacity")
          .says([](In in) {
            return fmt::format("DeepEP with capacity factor {}",
                               in.c.moe_expert_capacity_factor.value_or(0));
          }),
      error("DISPATCHER-SMS-TWICE",
            "moe_deepep_num_sms moe_hybridep_num_sms moe_flex_dispatcher_num_sms",
            "the deprecated moe_deepep_num_sms and moe_hybridep_num_sms agree",
            "state moe_flex_dispatcher_num_sms alone", kTransformerConfig,
            WHEN(!in.asked.moe_flex_dispatcher_num_sms && c.moe_deepep_num_sms &&
                 c.moe_hybridep_num_sms && c.moe_deepep_num_sms != c.moe_hybridep_num_sms)),
      error("ALLGATHER-VARIABLE", "moe_token_dispatcher_type variable_seq_lengths",
            "the allgather dispatcher excludes variable sequence lengths", "use alltoall",
            kTransformerConfig,
            WHEN(moe(in) && c.variable_seq_lengths && c.moe_token_dispatcher_type == "allgather"_w))
          .logs("use alltoall dispatcher instead"),
      error("FAKE-GROUP-FLEX", "fake_process_group moe_token_dispatcher_type",
            "a fake process group (the single-GPU memory check) excludes the flex dispatcher",
            "use alltoall for the dry run", kArguments, WHEN(c.fake_process_group && flex(in)))
          .by(kLM)
          .section("moe-optimization-workflow: phase 1"),
      error("DISPATCH-DTYPE-BACKEND",
            "moe_dispatch_fwd_dtype moe_combine_bwd_dtype " READS_DISPATCHER,
            "MXFP8 on the wire needs the ncclep backend", "leave the wire dtypes out",
            kTransformerConfig,
            WHEN((c.moe_dispatch_fwd_dtype == "mxfp8"_w || c.moe_combine_bwd_dtype == "mxfp8"_w) &&
                 !ncclep(in))),
      error("DISPATCH-DTYPE-FUSER",
            "moe_dispatch_fwd_dtype moe_combine_bwd_dtype use_transformer_engine_op_fuser "
            "moe_grouped_gemm",
            "MXFP8 on the wire needs the op fuser with grouped GEMM", "leave the wire dtypes out",
            kTransformerConfig,
            WHEN((c.moe_dispatch_fwd_dtype == "mxfp8"_w || c.moe_combine_bwd_dtype == "mxfp8"_w) &&
                 (!c.use_transformer_engine_op_fuser || !c.moe_grouped_gemm))),
  };
}

std::vector<Rule> shared_expert_rows() {
  return {
      error("SHARED-OVERLAP-DISPATCHER", READS_SHARED " moe_token_dispatcher_type",
            "shared-expert overlap needs dispatcher alltoall, deepep or hybridep",
            "choose one of them or turn the overlap off", kTransformerConfig,
            WHEN(c.moe_shared_expert_overlap && shared_experts(in) &&
                 c.moe_token_dispatcher_type == "allgather"_w))
          .logs("moe_shared_expert_overlap only works with alltoall or flex token dispatcher")
          .says([](In) {
            return std::string("shared-expert overlap with the allgather dispatcher");
          }),
      error("SHARED-OVERLAP-LATENT", READS_SHARED " moe_latent_size",
            "shared-expert overlap excludes latent MoE in training", "turn the overlap off",
            kMoeLayer,
            WHEN(c.moe_shared_expert_overlap && shared_experts(in) &&
                 c.moe_latent_size.value_or(0) > 0))
          .at(Phase::build)
          .says([](In) { return std::string("shared-expert overlap with latent MoE"); }),
      warning("SHARED-OVERLAP-FLEX", READS_SHARED " " READS_DISPATCHER,
              "Bridge's apply_flex_dispatcher_backend turns moe_shared_expert_overlap off",
              "set moe_shared_expert_overlap after the helper, or leave it off", kFlexBackend,
              WHEN(c.moe_shared_expert_overlap && moe(in) && flex(in)))
          .by(kBridge)
          .says([](In in) {
            return fmt::format("shared-expert overlap with {}",
                               text_of(in.c.moe_flex_dispatcher_backend));
          }),
      warning("FLEX-BACKEND-ALONE", READS_DISPATCHER,
              "a flex backend takes effect only with dispatcher flex (in Bridge through "
              "apply_flex_dispatcher_backend)",
              "call apply_flex_dispatcher_backend(...), or set moe_token_dispatcher_type to flex",
              kFlexBackend,
              WHEN(moe(in) && !flex(in) && !at.run_file &&
                   (in.asked.moe_flex_dispatcher_backend == "hybridep"_w)))
          .logs(
              "no speed-up from the flex dispatcher: moe_token_dispatcher_type is alltoall in the "
              "logged configuration")
          .section("perf-expert-parallel-overlap: failure diagnosis, known limitations"),
  };
}

}  // namespace

std::vector<Rule> dispatcher_rules() {
  return join({backend_rows, dispatcher_option_rows, shared_expert_rows});
}

}  // namespace moecast::rules
