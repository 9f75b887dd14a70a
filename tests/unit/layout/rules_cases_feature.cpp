#include "rules_case_words.hpp"

namespace moecast::test {
namespace {

const Cases kDispatcher = {
    {"DEEPEP-GPU",
     [](C c) {
       deepep(c);
       c.on_gpu("NVIDIA GB200", 10.0, 72, true);
     },
     [](C c) {
       deepep(c);
       c.on_gpu("NVIDIA B200", 10.0, 8, false);
     }},
    {"DEEPEP-GROUP",
     [](C c) {
       deepep(c);
       c.layout.ep = 1;
     },
     [](C c) {
       deepep(c);
       c.layout.ep = 1;
       c.layout.etp = 2;
     }},
    {"DEEPEP-GROUP-SIZE",
     [](C c) {
       deepep(c);
       c.gpus = 80;
       c.layout.ep = 40;
       c.model.moe.num_moe_experts = 80;
     },
     [](C c) {
       deepep(c);
       c.gpus = 96;
       c.layout.ep = 48;
       c.model.moe.num_moe_experts = 96;
     }},
    {"DEEPEP-SMS",
     [](C c) {
       deepep(c);
       c.layout.dispatcher_num_sms = 21;
     },
     [](C c) {
       deepep(c);
       c.layout.dispatcher_num_sms = 20;
     }},
    {"DEEPEP-CAPACITY",
     [](C c) {
       deepep(c);
       c.run.capacity_factor = 1.0;
     },
     [](C c) { c.run.capacity_factor = 1.0; }},
    {"DEEPEP-GRAPH",
     [](C c) {
       deepep(c);
       te_graph(c, {});
     },
     [](C c) {
       deepep(c);
       te_graph(c, {GraphModule::attn, GraphModule::moe_router});
     }},
    {"HYBRIDEP-GPU",
     [](C c) {
       hybridep(c);
       c.on_gpu("V100", 7.0, 8, false);
     },
     hybridep},
    {"HYBRIDEP-DOMAIN",
     [](C c) {
       hybridep(c);
       c.gpus = 48;
       c.layout.ep = 12;
       c.model.moe.num_moe_experts = 96;
     },
     [](C c) {
       hybridep(c);
       c.gpus = 48;
       c.layout.ep = 24;
       c.model.moe.num_moe_experts = 96;
     }},
    {"HYBRIDEP-HIDDEN",
     [](C c) {
       hybridep(c);
       c.model.moe.moe_latent_size = 1000;
     },
     [](C c) {
       hybridep(c);
       c.model.moe.moe_latent_size = 1008;
     }},
    {"HYBRIDEP-EXPERTS",
     [](C c) {
       hybridep(c);
       c.layout.ep = 2;
       c.model.moe.num_moe_experts = 6;
     },
     [](C c) {
       hybridep(c);
       c.layout.ep = 2;
       c.model.moe.num_moe_experts = 8;
     }},
    {"HYBRIDEP-TOKENS",  // 43692 / TP 2 = 21846 tokens
     [](C c) {
       hybridep(c);
       c.layout.ep = 16;
       c.seq_length = 43692;
     },
     [](C c) {
       hybridep(c);
       c.layout.ep = 16;
       c.seq_length = 43688;
     }},
    {"SHARED-OVERLAP-DISPATCHER",
     [](C c) {
       c.layout.moe_shared_expert_overlap = true;
       c.layout.dispatcher = Dispatcher::allgather;
     },
     [](C c) {
       c.layout.moe_shared_expert_overlap = true;
       c.layout.dispatcher = Dispatcher::allgather;
       c.model.moe.moe_shared_expert_intermediate_size = 0;
     }},
    {"SHARED-OVERLAP-LATENT",
     [](C c) {
       c.layout.moe_shared_expert_overlap = true;
       c.model.moe.moe_latent_size = 1024;
     },
     [](C c) { c.layout.moe_shared_expert_overlap = true; }},
    {"SHARED-OVERLAP-FLEX",
     [](C c) {
       c.layout.moe_shared_expert_overlap = true;
       hybridep(c);
     },
     [](C c) { c.layout.moe_shared_expert_overlap = true; }},
    {"ROUTER-PADDING-PRECISION", [](C c) { feature(c, "moe_router_padding_for_quantization"); },
     [](C c) {
       feature(c, "moe_router_padding_for_quantization");
       c.layout.precision = Precision::fp8_tensorwise;
     }},
    {"ROUTER-PADDING-ALLGATHER",
     [](C c) {
       feature(c, "moe_router_padding_for_quantization");
       c.layout.dispatcher = Dispatcher::allgather;
     },
     [](C c) { feature(c, "moe_router_padding_for_quantization"); }},
    {"PAGED-STASH-DISPATCHER", [](C c) { feature(c, "paged_stash"); },
     [](C c) {
       feature(c, "paged_stash");
       hybridep(c);
     }},
    {"PAGED-STASH-FUSER",
     [](C c) {
       feature(c, "paged_stash");
       hybridep(c);
     },
     [](C c) {
       feature(c, "paged_stash");
       feature(c, "fused_grouped_mlp");
       hybridep(c);
     }},
    {"PAGED-STASH-OFFLOAD",
     [](C c) {
       feature(c, "paged_stash");
       c.layout.offload_modules.add(OffloadModule::expert_fc1);
     },
     [](C c) {
       feature(c, "paged_stash");
       c.layout.offload_modules.add(OffloadModule::core_attn);
     }},
};

const Cases kGraph = {
    {"GRAPH-LOCAL", [](C c) { graph(c, CudaGraphImpl::local); },
     [](C c) { graph(c, CudaGraphImpl::full_iteration); }},
    {"GRAPH-FULL-SCOPE", [](C c) { graph(c, CudaGraphImpl::full_iteration, {GraphModule::attn}); },
     [](C c) { graph(c, CudaGraphImpl::full_iteration); }},
    {"GRAPH-MOE-ROUTER",
     [](C c) {
       te_graph(c, {GraphModule::moe, GraphModule::moe_router});
     },
     [](C c) { te_graph(c, {GraphModule::moe}); }},
    {"GRAPH-PREPROCESS", [](C c) { te_graph(c, {GraphModule::moe_preprocess}); },
     [](C c) {
       te_graph(c, {GraphModule::moe_preprocess, GraphModule::moe_router});
     }},
    {"GRAPH-MOE-MODEL",
     [](C c) {
       dense(c);
       te_graph(c, {GraphModule::moe_router});
     },
     [](C c) { te_graph(c, {GraphModule::moe_router}); }},
    {"GRAPH-MLP-DENSE",
     [](C c) {
       for (LayerKind& l : c.model.layers) l.ffn = FfnKind::moe;
       te_graph(c, {GraphModule::mlp});
     },
     [](C c) { te_graph(c, {GraphModule::mlp}); }},
    {"GRAPH-SCOPE-IGNORED", [](C c) { c.layout.cuda_graph_scope.add(GraphModule::attn); },
     [](C c) { te_graph(c, {GraphModule::attn}); }},
    {"GRAPH-MOE-CAPACITY", [](C c) { te_graph(c, {GraphModule::moe}); },
     [](C c) {
       te_graph(c, {GraphModule::moe});
       c.run.capacity_factor = 1.25;
     }},
    {"GRAPH-STATIC-SHAPES", [](C c) { graph(c, CudaGraphImpl::full_iteration); },
     [](C c) {
       graph(c, CudaGraphImpl::full_iteration);
       feature(c, "paged_stash");
     }},
    {"GRAPH-FULL-RECOMPUTE",
     [](C c) {
       te_graph(c, {GraphModule::attn});
       full(c, RecomputeMethod::block, 1);
     },
     [](C c) {
       graph(c, CudaGraphImpl::full_iteration);
       full(c, RecomputeMethod::block, 1);
     }},
    {"GRAPH-MOE-RECOMPUTE",
     [](C c) {
       te_graph(c, {GraphModule::moe_router});
       selective(c, RecomputeModule::moe);
     },
     [](C c) {
       te_graph(c, {GraphModule::attn});
       selective(c, RecomputeModule::moe);
     }},
    {"GRAPH-LAYERNORM-RECOMPUTE",
     [](C c) {
       te_graph(c, {GraphModule::moe_router});
       selective(c, RecomputeModule::layernorm);
     },
     [](C c) {
       te_graph(c, {GraphModule::moe_router, GraphModule::moe_preprocess});
       selective(c, RecomputeModule::layernorm);
     }},
    {"GRAPH-LAYER-OFFLOAD",
     [](C c) {
       te_graph(c, {GraphModule::attn});
       c.layout.cpu_offloading_num_layers = 2;
     },
     [](C c) {
       graph(c, CudaGraphImpl::full_iteration);
       c.layout.cpu_offloading_num_layers = 2;
     }},
    {"GRAPH-MOE-OFFLOAD",
     [](C c) {
       te_graph(c, {GraphModule::moe});
       c.layout.offload_modules.add(OffloadModule::moe_act);
     },
     [](C c) {
       te_graph(c, {GraphModule::attn});
       c.layout.offload_modules.add(OffloadModule::moe_act);
     }},
    {"GRAPH-EXPANDABLE",
     [](C c) {
       te_graph(c, {GraphModule::attn});
       env(c, "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
     },
     [](C c) {
       te_graph(c, {GraphModule::attn});
       env(c, "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
       env(c, "NCCL_GRAPH_REGISTER", "0");
     }},
};

}  // namespace

Cases feature_cases() {
  Cases all = kDispatcher;
  all.insert(all.end(), kGraph.begin(), kGraph.end());
  return all;
}

}  // namespace moecast::test
