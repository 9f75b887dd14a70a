#include "rules_case_words.hpp"

namespace moecast::test {
namespace {

const Cases kPrecision = {
    {"PRECISION-BLACKWELL", [](C c) { c.layout.precision = Precision::mxfp8; },
     [](C c) {
       c.layout.precision = Precision::mxfp8;
       c.on_gpu("NVIDIA B200", 10.0, 8, false);
     }},
    {"PRECISION-FP8",
     [](C c) {
       c.layout.precision = Precision::fp8_tensorwise;
       c.on_gpu("NVIDIA A100", 8.0, 8, false);
     },
     [](C c) { c.layout.precision = Precision::fp8_tensorwise; }},
    {"PRECISION-BLOCKWISE",
     [](C c) {
       c.layout.precision = Precision::fp8_blockwise;
       c.on_gpu("NVIDIA B200", 10.0, 8, false);
     },
     [](C c) { c.layout.precision = Precision::fp8_blockwise; }},
    {"FIRST-LAST-BF16",
     [](C c) {
       feature(c, "first_last_layers_bf16");
       c.layout.precision = Precision::fp8_delayed;
     },
     [](C c) {
       feature(c, "first_last_layers_bf16");
       c.layout.precision = Precision::fp8_tensorwise;
     }},
    {"OPTIMIZER-DTYPES", [](C c) { c.layout.moment_dtype = DType::bf16; },
     [](C c) {
       c.layout.moment_dtype = DType::bf16;
       c.layout.precision_aware_optimizer = true;
     }},
    {"OPTIMIZER-MASTER-DTYPE",
     [](C c) {
       c.layout.master_dtype = DType::bf16;
       c.layout.precision_aware_optimizer = true;
     },
     [](C c) {
       c.layout.master_dtype = DType::fp16;
       c.layout.precision_aware_optimizer = true;
     }},
    {"PARAM-GATHER-OPTIMIZER", [](C c) { c.layout.distributed_optimizer = false; },
     [](C c) { c.layout.distributed_optimizer = c.layout.overlap_param_gather = false; }},
    {"FSDP-OPTIMIZER",
     [](C c) {
       c.layout.fsdp = FsdpSharding::optim_grads_params;
       c.layout.distributed_optimizer = false;
     },
     [](C c) { c.layout.fsdp = FsdpSharding::optim_grads_params; }},
    {"FSDP-CONNECTIONS",
     [](C c) {
       c.layout.fsdp = FsdpSharding::optim_grads_params;
       env(c, "CUDA_DEVICE_MAX_CONNECTIONS", "1");
     },
     [](C c) {
       c.layout.fsdp = FsdpSharding::optim_grads_params;
       env(c, "CUDA_DEVICE_MAX_CONNECTIONS", "32");
     }},
    {"TP-OVERLAP-IGNORED",
     [](C c) {
       c.layout.tp_comm_overlap = true;
       no_tp(c);
     },
     [](C c) { c.layout.tp_comm_overlap = true; }},
    {"LAYOUT-VPP-UNSTATED",
     [](C c) {
       c.layout.vpp = 1;
       layout_string(c, "Et*4|t*4|t*4|t*4L");
     },
     [](C c) {
       c.layout.vpp = 1;
       layout_string(c, "Et*8|t*8L");
     }},
    {"MAX-CONNECTIONS", [](C c) { env(c, "CUDA_DEVICE_MAX_CONNECTIONS", "8"); },
     [](C c) { env(c, "CUDA_DEVICE_MAX_CONNECTIONS", "1"); }},
    {"GRAPH-FRAGMENTATION", [](C c) { graph(c, CudaGraphImpl::full_iteration); },
     [](C c) {
       graph(c, CudaGraphImpl::full_iteration);
       env(c, "PYTORCH_ALLOC_CONF", "max_split_size_mb:64,expandable_segments:True");
     }},
    {"GRAPH-STREAM-REUSE",
     [](C c) {
       graph(c, CudaGraphImpl::full_iteration);
       c.layout.overlap_moe_expert_parallel_comm = true;
       env(c, "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
     },
     [](C c) {
       graph(c, CudaGraphImpl::full_iteration);
       c.layout.overlap_moe_expert_parallel_comm = true;
       env(c, "PYTORCH_CUDA_ALLOC_CONF",
           "expandable_segments:True,graph_capture_record_stream_reuse:True");
     }},
    {"FUSED-MLP-FALLBACK",
     [](C c) {
       feature(c, "fused_grouped_mlp");
       c.layout.etp = 2;
     },
     [](C c) { feature(c, "fused_grouped_mlp"); }},
    {"FORCE-BALANCE", [](C) {}, [](C c) { c.run.routing.kind = Routing::Kind::imbalance; }},
    {"ROUTER-FP32", [](C) {}, [](C c) { c.model.moe.num_moe_experts = 16; }},
    {"GRAPH-WARMUP", [](C c) { te_graph(c, {GraphModule::attn}); }, [](C) {}},
};

}  // namespace

Cases precision_cases() { return kPrecision; }

}  // namespace moecast::test
