#include "rules_case_words.hpp"

namespace moecast::test {
namespace {

const Cases kMemory = {
    {"RECOMPUTE-FULL-METHOD", [](C c) { full(c, RecomputeMethod::block, 0); },
     [](C c) { full(c, RecomputeMethod::block, 4); }},
    {"RECOMPUTE-SELECTIVE-LAYERS",
     [](C c) {
       selective(c, RecomputeModule::moe_act);
       c.layout.recompute_num_layers = 1;
     },
     [](C c) { selective(c, RecomputeModule::moe_act); }},
    {"RECOMPUTE-MLA", [](C c) { selective(c, RecomputeModule::mla_up_proj); },
     [](C c) {
       selective(c, RecomputeModule::mla_up_proj);
       c.model.mixers[1].kind = MixerKind::mla;
     }},
    {"RECOMPUTE-GDN",
     [](C c) {
       selective(c, RecomputeModule::gdn_norm_out);
       c.model.mixers.resize(2);
     },
     [](C c) { selective(c, RecomputeModule::gdn_norm_out); }},
    {"RECOMPUTE-MHC", [](C c) { selective(c, RecomputeModule::mhc); },
     [](C c) {
       selective(c, RecomputeModule::mhc);
       c.model.hyper_connections = 4;
     }},
    {"RECOMPUTE-MHC-MLP",
     [](C c) {
       selective(c, RecomputeModule::mhc);
       selective(c, RecomputeModule::mlp);
     },
     [](C c) {
       selective(c, RecomputeModule::mhc);
       selective(c, RecomputeModule::moe_act);
     }},
    {"RECOMPUTE-SHARED-OVERLAP",
     [](C c) {
       selective(c, RecomputeModule::shared_experts);
       c.layout.moe_shared_expert_overlap = true;
     },
     [](C c) { selective(c, RecomputeModule::shared_experts); }},
    {"RECOMPUTE-FP8-DELAYED",
     [](C c) {
       selective(c, RecomputeModule::layernorm);
       c.layout.precision = Precision::fp8_delayed;
     },
     [](C c) {
       selective(c, RecomputeModule::layernorm);
       c.layout.precision = Precision::fp8_tensorwise;
     }},
    {"RECOMPUTE-MTP",
     [](C c) {
       full(c, RecomputeMethod::uniform, 2);
       c.model.mtp_num_layers = 1;
     },
     [](C c) {
       full(c, RecomputeMethod::uniform, 1);
       c.model.mtp_num_layers = 1;
     }},
    {"RECOMPUTE-MTP-BLOCK",
     [](C c) {
       full(c, RecomputeMethod::block, 2);
       c.model.mtp_num_layers = 1;
     },
     [](C c) { full(c, RecomputeMethod::block, 2); }},
    {"RECOMPUTE-CORE-ATTN", [](C c) { selective(c, RecomputeModule::core_attn); },
     [](C c) { selective(c, RecomputeModule::layernorm); }},
    {"RECOMPUTE-IGNORED", [](C c) { c.layout.recompute_modules.add(RecomputeModule::moe_act); },
     [](C c) { selective(c, RecomputeModule::moe_act); }},
    {"RECOMPUTE-NO-EFFECT",
     [](C c) {
       dense(c);
       selective(c, RecomputeModule::moe_act);
     },
     [](C c) {
       dense(c);
       selective(c, RecomputeModule::mlp);
     }},
    {"OFFLOAD-LAYERS-PP",
     [](C c) {
       c.layout.cpu_offloading_num_layers = 2;
       c.layout.pp = 4;
     },
     [](C c) {
       c.layout.cpu_offloading_num_layers = 2;
       c.layout.pp = c.layout.vpp = 1;
     }},
    {"OFFLOAD-LAYERS-COUNT", [](C c) { c.layout.cpu_offloading_num_layers = 16; },
     [](C c) { c.layout.cpu_offloading_num_layers = 15; }},
    {"OFFLOAD-LAYERS-RECOMPUTE",
     [](C c) {
       c.layout.cpu_offloading_num_layers = 2;
       selective(c, RecomputeModule::moe_act);
     },
     [](C c) { c.layout.cpu_offloading_num_layers = 2; }},
    {"OFFLOAD-BOTH",
     [](C c) {
       c.layout.cpu_offloading_num_layers = 2;
       c.layout.offload_modules.add(OffloadModule::moe_act);
     },
     [](C c) { c.layout.offload_modules.add(OffloadModule::moe_act); }},
    {"OFFLOAD-ATTN-PROJ", [](C c) { c.layout.offload_modules.add(OffloadModule::attn_proj); },
     [](C c) {
       c.layout.offload_modules.add(OffloadModule::attn_proj).add(OffloadModule::core_attn);
     }},
    {"OFFLOAD-MOE-RECOMPUTE",
     [](C c) {
       selective(c, RecomputeModule::moe);
       c.layout.offload_modules.add(OffloadModule::moe_act);
     },
     [](C c) {
       selective(c, RecomputeModule::moe);
       c.layout.offload_modules.add(OffloadModule::core_attn);
     }},
    {"OFFLOAD-FUSED-MLP", [](C c) { c.layout.offload_modules.add(OffloadModule::fused_group_mlp); },
     [](C c) {
       c.layout.offload_modules.add(OffloadModule::fused_group_mlp);
       feature(c, "fused_grouped_mlp");
     }},
    {"OFFLOAD-FRACTION", [](C c) { c.layout.optimizer_offload_fraction = 1.5; },
     [](C c) { c.layout.optimizer_offload_fraction = 1.0; }},
    {"OFFLOAD-ENV", [](C c) { c.layout.offload_modules.add(OffloadModule::moe_act); },
     [](C c) {
       c.layout.offload_modules.add(OffloadModule::moe_act);
       env(c, "NVTE_CPU_OFFLOAD_V1", "1");
     }},
    {"OPTIMIZER-OFFLOAD-DISTRIBUTED",
     [](C c) {
       c.layout.optimizer_offload_fraction = 0.5;
       c.layout.distributed_optimizer = false;
     },
     [](C c) { c.layout.optimizer_offload_fraction = 0.5; }},
    {"OPTIMIZER-OFFLOAD-PRECISION", [](C c) { c.layout.optimizer_offload_fraction = 0.5; },
     [](C c) {
       c.layout.optimizer_offload_fraction = 0.5;
       c.layout.precision_aware_optimizer = true;
     }},
};

}  // namespace

Cases memory_cases() { return kMemory; }

}  // namespace moecast::test
