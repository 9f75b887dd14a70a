#include "rules_case_words.hpp"

namespace moecast::test {
namespace {

const Cases kVersions = {
    {"EP-OVERLAP-PYTORCH",
     [](C c) {
       overlap(c);
       c.run.software.pytorch = "2.5.1";
     },
     [](C c) {
       overlap(c);
       c.run.software.pytorch = "2.6.0";
     }},
    {"DELAY-WGRAD-TE", [](C c) { delayed(c, "2.2.0"); }, [](C c) { delayed(c, "2.3.0"); }},
    {"DELAY-WGRAD-FUSION-TE", [](C c) { delayed(c, "2.6.0"); }, [](C c) { delayed(c, "2.7.0"); }},
    {"DELAY-WGRAD-REDUCE-TE", [](C c) { delayed(c, "2.6.0"); },
     [](C c) {
       delayed(c, "2.6.0");
       c.layout.overlap_grad_reduce = false;
     }},
    {"DELAY-WGRAD-GRAPH-TE",
     [](C c) {
       delayed(c, "2.9.0");
       te_graph(c, {});
     },
     [](C c) {
       delayed(c, "2.10.0");
       te_graph(c, {});
     }},
    {"DELAY-WGRAD-SCOPE-TE",
     [](C c) {
       delayed(c, "2.11.0");
       te_graph(c, {GraphModule::moe_router});
     },
     [](C c) {
       delayed(c, "2.11.0");
       te_graph(c, {GraphModule::moe_router});
       c.model.moe.moe_shared_expert_intermediate_size = 0;
     }},
    {"NVFP4-TE",
     [](C c) {
       c.layout.precision = Precision::nvfp4;
       c.run.software.transformer_engine = "2.6";
     },
     [](C c) { c.layout.precision = Precision::nvfp4; }},
    {"FP8-EXPERTS-TE",
     [](C c) {
       c.layout.precision = Precision::fp8_tensorwise;
       c.run.software.transformer_engine = "1.10";
     },
     [](C c) {
       c.layout.precision = Precision::fp8_tensorwise;
       c.run.software.transformer_engine = "1.11";
     }},
    {"FP8-RECOMPUTE-TE",
     [](C c) {
       c.layout.precision = Precision::fp8_tensorwise;
       selective(c, RecomputeModule::moe_act);
       c.run.software.transformer_engine = "2.5";
     },
     [](C c) {
       selective(c, RecomputeModule::moe_act);
       c.run.software.transformer_engine = "2.5";
     }},
    {"PERMUTE-FUSION-TE",
     [](C c) {
       feature(c, "permute_fusion");
       c.run.software.transformer_engine = "2.0";
     },
     [](C c) {
       feature(c, "permute_fusion");
       c.run.software.transformer_engine = "2.1";
     }},
    {"ROUTER-FUSION-TE",
     [](C c) {
       feature(c, "router_fusion");
       c.run.software.transformer_engine = "2.6.9";
     },
     [](C c) {
       feature(c, "router_fusion");
       c.run.software.transformer_engine = "2.7";
     }},
    {"FUSED-MLP-TE",
     [](C c) {
       feature(c, "fused_grouped_mlp");
       c.run.software.transformer_engine = "2.13";
     },
     [](C c) {
       feature(c, "fused_grouped_mlp");
       c.run.software.transformer_engine = "2.14";
     }},
    {"PYTORCH-UNKNOWN", overlap,
     [](C c) {
       overlap(c);
       c.run.software.pytorch = "2.0";
     }},
    {"TE-UNKNOWN", [](C c) { delayed(c, ""); }, [](C c) { delayed(c, "2.2.0"); }},
};

}  // namespace

Cases version_cases() { return kVersions; }

}  // namespace moecast::test
