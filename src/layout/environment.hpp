#pragma once

#include <map>
#include <string>
#include <string_view>

namespace moecast {

using Environment = std::map<std::string, std::string>;

/// What a variable of the training run's environment says; empty when it is not set.
inline std::string_view environment_of(const Environment& env, const std::string& name) {
  const auto found = env.find(name);
  return found == env.end() ? std::string_view() : found->second;
}

/// Settings of PyTorch's CUDA allocator. PYTORCH_ALLOC_CONF, the newer name, counts where the older
/// one is not set (torch 2.11: with both set and at odds, the older one held).
inline std::string_view allocator_settings(const Environment& env) {
  const std::string_view older = environment_of(env, "PYTORCH_CUDA_ALLOC_CONF");
  return older.empty() ? environment_of(env, "PYTORCH_ALLOC_CONF") : older;
}

inline bool allocator_says(const Environment& env, std::string_view setting) {
  return allocator_settings(env).find(setting) != std::string_view::npos;
}
/// Settings are stated, and blocks that two streams used are not among what a capture reuses. An
/// allocator of which nothing is said counts as the recipes' one, as for expandable segments.
inline bool captures_without_reuse(const Environment& env) {
  return !allocator_settings(env).empty() &&
         !allocator_says(env, "graph_capture_record_stream_reuse:True");
}

}  // namespace moecast
