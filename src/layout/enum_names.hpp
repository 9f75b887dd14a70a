#pragma once
/// The one place where an enum of a layout or a run has a spelling: the one of run files, which is
/// Megatron's where Megatron has it.
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moecast/layout.hpp"
#include "moecast/run.hpp"

namespace moecast {

template <typename E>
struct EnumName {
  E value;
  std::string_view text;
};

/// Specialised for every enum: an array of EnumName<E> in the enum's order.
template <typename E>
inline constexpr std::nullptr_t kEnumNames = nullptr;

template <>
inline constexpr std::array kEnumNames<Precision> = std::to_array<EnumName<Precision>>({
    {Precision::bf16, "bf16"},
    {Precision::fp8_delayed, "fp8_delayed"},
    {Precision::fp8_tensorwise, "fp8_tensorwise"},
    {Precision::fp8_blockwise, "fp8_blockwise"},
    {Precision::mxfp8, "mxfp8"},
    {Precision::nvfp4, "nvfp4"},
});
template <>
inline constexpr std::array kEnumNames<Dispatcher> = std::to_array<EnumName<Dispatcher>>({
    {Dispatcher::alltoall, "alltoall"},
    {Dispatcher::allgather, "allgather"},
    {Dispatcher::deepep, "deepep"},
    {Dispatcher::hybridep, "hybridep"},
});
template <>
inline constexpr std::array kEnumNames<Tristate> = std::to_array<EnumName<Tristate>>({
    {Tristate::automatic, "auto"},
    {Tristate::off, "false"},
    {Tristate::on, "true"},
});
template <>
inline constexpr std::array kEnumNames<DType> = std::to_array<EnumName<DType>>({
    {DType::fp32, "fp32"},
    {DType::bf16, "bf16"},
    {DType::fp16, "fp16"},
    {DType::fp8, "fp8"},
});
template <>
inline constexpr std::array kEnumNames<RecomputeGranularity> =
    std::to_array<EnumName<RecomputeGranularity>>({
        {RecomputeGranularity::none, "none"},
        {RecomputeGranularity::selective, "selective"},
        {RecomputeGranularity::full, "full"},
    });
template <>
inline constexpr std::array kEnumNames<RecomputeMethod> = std::to_array<EnumName<RecomputeMethod>>({
    {RecomputeMethod::none, "null"},
    {RecomputeMethod::uniform, "uniform"},
    {RecomputeMethod::block, "block"},
});
template <>
inline constexpr std::array kEnumNames<CudaGraphImpl> = std::to_array<EnumName<CudaGraphImpl>>({
    {CudaGraphImpl::none, "none"},
    {CudaGraphImpl::local, "local"},
    {CudaGraphImpl::transformer_engine, "transformer_engine"},
    {CudaGraphImpl::full_iteration, "full_iteration"},
});
template <>
inline constexpr std::array kEnumNames<PipelineSplit> = std::to_array<EnumName<PipelineSplit>>({
    {PipelineSplit::automatic, "auto"},
    {PipelineSplit::megatron, "null"},
    {PipelineSplit::explicit_string, "string"},
});
template <>
inline constexpr std::array kEnumNames<CpCommType> = std::to_array<EnumName<CpCommType>>({
    {CpCommType::p2p, "p2p"},
    {CpCommType::all_gather, "all_gather"},
    {CpCommType::a2a, "a2a"},
    {CpCommType::a2a_p2p, "a2a+p2p"},
});
template <>
inline constexpr std::array kEnumNames<FsdpSharding> = std::to_array<EnumName<FsdpSharding>>({
    {FsdpSharding::none, "null"},
    {FsdpSharding::optim_grads_params, "optim_grads_params"},
});
template <>
inline constexpr std::array kEnumNames<Routing::Kind> = std::to_array<EnumName<Routing::Kind>>({
    {Routing::Kind::force_balance, "force_balance"},
    {Routing::Kind::imbalance, "imbalance"},
    {Routing::Kind::tokens_per_expert, "tokens_per_expert"},
});
template <>
inline constexpr std::array kEnumNames<RecomputeModule> = std::to_array<EnumName<RecomputeModule>>({
    {RecomputeModule::core_attn, "core_attn"},
    {RecomputeModule::moe_act, "moe_act"},
    {RecomputeModule::layernorm, "layernorm"},
    {RecomputeModule::mla_up_proj, "mla_up_proj"},
    {RecomputeModule::mlp, "mlp"},
    {RecomputeModule::moe, "moe"},
    {RecomputeModule::shared_experts, "shared_experts"},
    {RecomputeModule::gdn_norm_out, "gdn_norm_out"},
    {RecomputeModule::mhc, "mhc"},
});
template <>
inline constexpr std::array kEnumNames<OffloadModule> = std::to_array<EnumName<OffloadModule>>({
    {OffloadModule::core_attn, "core_attn"},
    {OffloadModule::attn_proj, "attn_proj"},
    {OffloadModule::expert_fc1, "expert_fc1"},
    {OffloadModule::fused_group_mlp, "fused_group_mlp"},
    {OffloadModule::moe_act, "moe_act"},
    {OffloadModule::attn_norm, "attn_norm"},
    {OffloadModule::mlp_norm, "mlp_norm"},
    {OffloadModule::qkv_linear, "qkv_linear"},
});
template <>
inline constexpr std::array kEnumNames<GraphModule> = std::to_array<EnumName<GraphModule>>({
    {GraphModule::attn, "attn"},
    {GraphModule::mlp, "mlp"},
    {GraphModule::moe, "moe"},
    {GraphModule::moe_router, "moe_router"},
    {GraphModule::moe_preprocess, "moe_preprocess"},
    {GraphModule::mamba, "mamba"},
});

/// The spelling; empty for a value outside the enum.
template <typename E>
std::string_view enum_text(E value) {
  for (const auto& name : kEnumNames<E>) {
    if (name.value == value) return name.text;
  }
  return {};
}

template <typename E>
std::optional<E> enum_from_text(std::string_view text) {
  for (const auto& name : kEnumNames<E>) {
    if (name.text == text) return name.value;
  }
  return std::nullopt;
}

/// Every spelling, in the enum's order.
template <typename E>
std::vector<std::string> enum_choices() {
  std::vector<std::string> choices;
  for (const auto& name : kEnumNames<E>) choices.emplace_back(name.text);
  return choices;
}

/// The names of a set's modules, in the enum's order.
template <typename E>
std::vector<std::string> module_names(ModuleSet<E> set) {
  std::vector<std::string> names;
  for (const auto& name : kEnumNames<E>) {
    if (set.has(name.value)) names.emplace_back(name.text);
  }
  return names;
}

}  // namespace moecast
