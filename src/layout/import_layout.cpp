#include <algorithm>

#include <fmt/format.h>

#include "layout/import_parts.hpp"
#include "layout/pipeline_plan.hpp"
#include "layout/routing_value.hpp"
#include "layout/uneven_split.hpp"

namespace moecast {
namespace {

class LayoutPart : ImportPart {
 public:
  explicit LayoutPart(ImportState& state) : ImportPart(state) {}

  void read() {
    read_sizes();
    read_split();
    read_precision();
    read_experts();
  }

 private:
  void read_sizes() {
    Layout& l = layout();
    l.tp = c_.tensor_model_parallel_size;
    l.pp = c_.pipeline_model_parallel_size;
    l.cp = c_.context_parallel_size;
    l.ep = c_.expert_model_parallel_size;
    const bool one = !lm_ && l.ep > 1;  // Bridge _set_moe_expert_tensor_parallel_default
    l.etp = c_.expert_tensor_parallel_size.value_or(one || !c_.num_experts ? 1 : l.tp);
    l.micro_batch_size = c_.micro_batch_size;
    run().seq_length = c_.seq_length;
    const int dp = std::max(1, run().gpus / std::max(1, l.tp * l.pp * l.cp));
    run().global_batch_size =
        c_.global_batch_size.value_or(lm_ && run().gpus > 0 ? c_.micro_batch_size * dp : 0);
    l.microbatch_group_size_per_vp_stage = c_.microbatch_group_size_per_vp_stage.value_or(0);
    if (l.microbatch_group_size_per_vp_stage == l.pp) l.microbatch_group_size_per_vp_stage = 0;
    const bool sp = c_.sequence_parallel && l.tp > 1;
    if (sp != (l.tp > 1)) l.sequence_parallel = sp ? Tristate::on : Tristate::off;
  }

  /// Chunks per rank, and which layers the stages hold.
  void read_split() {
    Layout& l = layout();
    const int layers = state_.layers;
    l.vpp = c_.num_virtual_stages_per_pipeline_rank.value_or(1);
    if (const auto per = c_.num_layers_per_virtual_pipeline_stage; per && *per > 0 && layers > 0)
      l.vpp = std::max(1, layers / l.pp / *per);
    if (!c_.pipeline_model_parallel_layout.empty()) {
      run().pipeline_model_parallel_layout = c_.pipeline_model_parallel_layout;
      l.pipeline_split = PipelineSplit::explicit_string;
      const int stages = count_layout_stages(c_.pipeline_model_parallel_layout);
      if (lm_ && stages > 0 && stages % l.pp == 0) l.vpp = stages / l.pp;
      return;
    }
    const bool uneven =
        c_.decoder_first_pipeline_num_layers || c_.decoder_last_pipeline_num_layers ||
        c_.account_for_embedding_in_pipeline_split || c_.account_for_loss_in_pipeline_split;
    if (uneven && l.pp > 1) return read_uneven_split(layers);
    const bool divides =
        layers > 0 && layers % l.pp == 0 && layers / l.pp % std::max(1, l.vpp) == 0;
    l.pipeline_split = divides ? PipelineSplit::automatic : PipelineSplit::megatron;
  }

  void read_uneven_split(int layers) {
    UnevenSplit split;
    split.first = c_.decoder_first_pipeline_num_layers;
    split.last = c_.decoder_last_pipeline_num_layers;
    split.embedding = c_.account_for_embedding_in_pipeline_split;
    split.loss = c_.account_for_loss_in_pipeline_split;
    const int mtp = state_.model ? state_.model->mtp_num_layers : c_.mtp_num_layers.value_or(0);
    const std::string text = layout_string_of(split, layers, layout().pp, layout().vpp, mtp);
    if (text.empty()) {
      const std::string_view field = split.first  ? "decoder_first_pipeline_num_layers"
                                     : split.last ? "decoder_last_pipeline_num_layers"
                                                  : "account_for_embedding_in_pipeline_split";
      return state_.fail(in_.problem(field, "", "").key,
                         fmt::format("{} layers do not divide over PP {} x VPP {} that way", layers,
                                     layout().pp, layout().vpp),
                         "state --pipeline-model-parallel-layout");
    }
    run().pipeline_model_parallel_layout = text;
    layout().pipeline_split = PipelineSplit::explicit_string;
  }

  void read_precision() {
    layout().precision = Precision::bf16;
    if (c_.fp4_format) layout().precision = Precision::nvfp4;
    if (c_.fp8_format && !c_.fp4_format) {
      bool known = false;
      for (const PrecisionNames& names : precision_names()) {
        if (names.recipe != text_of(c_.fp8_recipe)) continue;
        layout().precision = names.precision;
        known = true;
      }
      if (!known) {
        state_.fail(in_.problem("fp8_recipe", "", "").key,
                    "is a recipe that a run file has no word for", "--set precision=...");
      }
    }
    if (c_.fp16) warn("fp16", "is forecast as bf16: the same speed and size");
    if (lm_ && !c_.fp16 && !c_.bf16)
      warn("bf16", "is not given: FP32 training is not modelled, read as bf16", "add --bf16");
  }

  void read_experts() {
    Layout& l = layout();
    l.overlap_moe_expert_parallel_comm = c_.overlap_moe_expert_parallel_comm;
    l.delay_wgrad_compute = c_.delay_wgrad_compute;
    l.moe_shared_expert_overlap = c_.moe_shared_expert_overlap;
    const bool experts = c_.num_experts.value_or(0) > 0 || !state_.model;
    if (!experts) return;
    read_dispatcher();
    read_routing();
  }

  void read_dispatcher() {
    Layout& l = layout();
    Word type = c_.moe_token_dispatcher_type;
    if (!lm_ && !in_.is_given("moe_token_dispatcher_type")) type = "alltoall"_w;  // the recipes'
    l.dispatcher = type == "allgather"_w ? Dispatcher::allgather : Dispatcher::alltoall;
    if (type == "flex"_w || c_.moe_enable_deepep) {
      const bool hybrid = !c_.moe_enable_deepep && c_.moe_flex_dispatcher_backend == "hybridep"_w;
      l.dispatcher = hybrid ? Dispatcher::hybridep : Dispatcher::deepep;
      if (c_.moe_flex_dispatcher_backend == "ncclep"_w && !c_.moe_enable_deepep)
        warn("moe_flex_dispatcher_backend", "ncclep is not modelled: read as deepep");
      const auto sms = c_.moe_flex_dispatcher_num_sms ? c_.moe_flex_dispatcher_num_sms
                       : hybrid                       ? c_.moe_hybridep_num_sms
                                                      : c_.moe_deepep_num_sms;
      l.dispatcher_num_sms = sms.value_or(0);
    }
  }

  void read_routing() {
    const double capacity = c_.moe_expert_capacity_factor.value_or(-1);
    if (capacity > 0) run().capacity_factor = capacity;
    const bool known = lm_ || in_.is_given("moe_router_force_load_balancing");
    if (c_.moe_router_force_load_balancing || !known || state_.routing_said) return;
    run().routing.kind = Routing::Kind::imbalance;
    run().routing.imbalance = natural_imbalance(run().layout.ep);
    warn("moe_router_force_load_balancing",
         fmt::format("is off: an imbalance of {} is assumed, as the data decides",
                     run().routing.imbalance),
         "--set moe.routing={imbalance: X}, or force_balance");
  }
};

}  // namespace

void import_layout(ImportState& state) { LayoutPart(state).read(); }

}  // namespace moecast
