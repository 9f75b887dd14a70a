#include "rules_case_words.hpp"

namespace moecast::test {
namespace {

const Cases kMesh = {
    {"SIZES", [](C c) { c.seq_length = 0; }, [](C c) { c.seq_length = 4; }},
    {"WORLD-ATTENTION", [](C c) { c.layout.tp = 3; }, [](C c) { c.layout.tp = 4; }},
    {"WORLD-EXPERT", [](C c) { c.layout.ep = 64; }, [](C c) { c.layout.ep = 32; }},
    {"BATCH-DIVIDES", [](C c) { c.global_batch_size = 24; }, [](C c) { c.global_batch_size = 48; }},
    {"VPP-NEEDS-PP", [](C c) { c.layout.pp = 1; }, [](C c) { c.layout.pp = c.layout.vpp = 1; }},
    {"EVEN-SPLIT",
     [](C c) {
       c.layout.pipeline_split = PipelineSplit::megatron;
       c.layout.vpp = 3;
     },
     [](C c) {
       c.layout.pipeline_split = PipelineSplit::megatron;
       c.layout.vpp = 4;
     }},
    {"STAGES-HAVE-LAYERS", [](C c) { c.layout.vpp = 10; }, [](C c) { c.layout.vpp = 9; }},
    {"INTERLEAVE-GROUP", [](C c) { c.global_batch_size = 16; },
     [](C c) { c.global_batch_size = 32; }},
    {"INTERLEAVE-REMAINDER", [](C c) { c.global_batch_size = 80; },
     [](C c) {
       c.global_batch_size = 80;
       c.layout.vpp = 1;
     }},
};

const Cases kModel = {
    {"EP-NEEDS-EXPERTS",
     [](C c) {
       dense(c);
       c.layout.ep = 8;
     },
     [](C c) { dense(c); }},
    {"EXPERTS-DIVIDE-EP", [](C c) { c.model.moe.num_moe_experts = 60; },
     [](C c) { c.model.moe.num_moe_experts = 72; }},
    {"ROUTER-GROUPS", [](C c) { c.model.moe.moe_router_group_topk = 4; },
     [](C c) {
       c.model.moe.moe_router_group_topk = 4;
       c.model.moe.moe_router_num_groups = 8;
     }},
    {"ROUTER-TOPK", [](C c) { c.model.moe.moe_router_topk = 65; },
     [](C c) { c.model.moe.moe_router_topk = 64; }},
    {"EXPERT-FFN-ETP",
     [](C c) {
       c.layout.etp = 2;
       c.model.moe.moe_ffn_hidden_size = 1401;
     },
     [](C c) {
       c.layout.etp = 2;
       c.model.moe.moe_ffn_hidden_size = 1402;
     }},
    {"SHARED-FFN-TP", [](C c) { c.model.moe.moe_shared_expert_intermediate_size = 2047; },
     [](C c) { c.model.moe.moe_shared_expert_intermediate_size = 2046; }},
    {"HEADS-TP", [](C c) { c.model.mixers[1].num_attention_heads = 33; },
     [](C c) { c.model.mixers[1].num_attention_heads = 34; }},
    {"KV-HEADS-TP", [](C c) { c.model.mixers[1].num_query_groups = 3; },
     [](C c) { c.model.mixers[1].num_query_groups = 1; }},
    {"GDN-HEADS", [](C c) { c.model.mixers[2].linear_num_key_heads = 5; },
     [](C c) { c.model.mixers[2].linear_num_key_heads = 8; }},
    {"MAMBA-HEADS-TP", [](C c) { c.model.mixers[3].mamba_num_groups = 1; },
     [](C c) { c.model.mixers[3].mamba_num_groups = 2; }},
    {"DENSE-FFN-TP", [](C c) { c.model.ffn_hidden_size = 8193; },
     [](C c) { c.model.ffn_hidden_size = 8194; }},
    {"MOE-TP-NEEDS-SP", [](C c) { c.layout.sequence_parallel = Tristate::off; },
     [](C c) {
       c.layout.sequence_parallel = Tristate::off;
       no_tp(c);
     }},
    {"SP-SEQUENCE", [](C c) { c.seq_length = 4097; }, [](C c) { c.seq_length = 4098; }},
    {"CP-SEQUENCE",
     [](C c) {
       c.layout.cp = 2;
       c.seq_length = 4102;
     },
     [](C c) {
       c.layout.cp = 2;
       c.seq_length = 4104;
     }},
    {"CP-A2A-HEADS",
     [](C c) {
       c.layout.cp = 8;
       c.layout.cp_comm_type = CpCommType::a2a;
     },
     [](C c) {
       c.layout.cp = 4;
       c.layout.cp_comm_type = CpCommType::a2a;
     }},
    {"CP-DSA",
     [](C c) {
       c.layout.cp = 2;
       c.model.mixers[1].kind = MixerKind::mla;
       c.model.mixers[1].index_n_heads = 64;
     },
     [](C c) {
       c.layout.cp = 2;
       c.layout.cp_comm_type = CpCommType::all_gather;
       c.model.mixers[1].kind = MixerKind::mla;
       c.model.mixers[1].index_n_heads = 64;
     }},
    {"CP-HIERARCHY", [](C c) { c.layout.cp_comm_type = CpCommType::a2a_p2p; },
     [](C c) { c.layout.cp_comm_type = CpCommType::a2a; }},
};

const Cases kOverlap = {
    {"EP-OVERLAP-EP",
     [](C c) {
       overlap(c);
       c.layout.ep = 1;
     },
     [](C c) {
       overlap(c);
       c.layout.ep = 2;
     }},
    {"EP-OVERLAP-EXPERTS",
     [](C c) {
       overlap(c);
       c.model.moe.num_moe_experts = 1;
     },
     overlap},
    {"EP-OVERLAP-DISPATCHER",
     [](C c) {
       overlap(c);
       c.layout.dispatcher = Dispatcher::allgather;
     },
     [](C c) {
       overlap(c);
       deepep(c);
     }},
    {"EP-OVERLAP-VPP",
     [](C c) {
       overlap(c);
       c.layout.vpp = 1;
       layout_string(c, "Et*4|t*4|t*4|t*4L");
     },
     [](C c) {
       overlap(c);
       layout_string(c, "Et*4|t*4|t*4|t*4L");
     }},
    {"EP-OVERLAP-RECOMPUTE",
     [](C c) {
       overlap(c);
       c.layout.recompute_method = RecomputeMethod::uniform;
     },
     [](C c) {
       overlap(c);
       selective(c, RecomputeModule::moe_act);
     }},
    {"EP-OVERLAP-MOE-RECOMPUTE",
     [](C c) {
       overlap(c);
       c.layout.recompute_modules.add(RecomputeModule::moe);
     },
     [](C c) {
       overlap(c);
       c.layout.recompute_modules.add(RecomputeModule::moe_act);
     }},
    {"EP-OVERLAP-SHARED",
     [](C c) {
       overlap(c);
       c.layout.moe_shared_expert_overlap = true;
       c.model.moe.moe_shared_expert_intermediate_size = 0;
     },
     [](C c) { c.layout.moe_shared_expert_overlap = true; }},
    {"EP-OVERLAP-MTP",
     [](C c) {
       overlap(c);
       c.model.mtp_num_layers = 2;
     },
     [](C c) {
       overlap(c);
       c.model.mtp_num_layers = 1;
     }},
    {"EP-OVERLAP-GRAPH-SCOPE",
     [](C c) {
       overlap(c);
       te_graph(c, {GraphModule::mlp});
     },
     [](C c) {
       overlap(c);
       te_graph(c, {GraphModule::attn});
     }},
    {"EP-OVERLAP-FSDP",
     [](C c) {
       overlap(c);
       c.layout.fsdp = FsdpSharding::optim_grads_params;
     },
     [](C c) {
       overlap(c);
       c.layout.fsdp = FsdpSharding::optim_grads_params;
       c.layout.pp = c.layout.vpp = 1;
     }},
    {"EP-OVERLAP-SMALL",
     [](C c) {
       overlap(c);
       c.gpus = 16;
       c.layout.ep = 4;
     },
     [](C c) {
       overlap(c);
       c.layout.ep = 4;
     }},
    {"DELAY-WGRAD-OVERLAP", [](C c) { c.layout.delay_wgrad_compute = true; },
     [](C c) { delayed(c, "2.14"); }},
    {"DELAY-WGRAD-ATTN-BIAS",
     [](C c) {
       delayed(c, "2.14");
       te_graph(c, {GraphModule::attn});
       c.model.mixers[1].add_qkv_bias = true;
     },
     [](C c) {
       delayed(c, "2.14");
       te_graph(c, {});
       c.model.mixers[1].add_qkv_bias = true;
     }},
};

}  // namespace

Cases layout_cases() {
  Cases all = kMesh;
  all.insert(all.end(), kModel.begin(), kModel.end());
  all.insert(all.end(), kOverlap.begin(), kOverlap.end());
  return all;
}

}  // namespace moecast::test
