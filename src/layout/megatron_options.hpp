#pragma once
/// How single options become fields: shared by the readers of every kind of input.
#include "layout/megatron_input.hpp"

namespace moecast {

/// Collects options into an input; every problem with its line.
class OptionReader {
 public:
  OptionReader(MegatronInput& input, const std::map<std::string, std::string>& variables)
      : input_(input), variables_(variables) {}

  /// An option of the command line with the words after it: --recompute-modules moe_act layernorm.
  void flag(const std::string& spelling, std::vector<std::string> words, int line);
  /// path=value of Bridge: model.tensor_model_parallel_size=2.
  void assignment(const std::string& path, const std::string& value, int line);
  /// A typed value under a field's name, or a flag's.
  void value(const std::string& spelling, const nlohmann::json& value, int line);
  /// An environment variable, if it can matter.
  void environment(const std::string& name, const std::string& value);

  void set(std::string_view name, const std::string& spelling, const nlohmann::json& value,
           int line);
  void warn(int line, std::string key, std::string message, std::string hint);
  void fail(int line, std::string key, std::string message, std::string hint);

  Diagnostics problems;

 private:
  void drop_open_words(const MegatronField& field, const std::string& spelling,
                       std::vector<std::string>& words, int line);
  void unknown(const std::string& spelling, const std::string& name, int line,
               const std::vector<std::string>& words);

  MegatronInput& input_;
  const std::map<std::string, std::string>& variables_;
};

/// How a flag of Megatron-LM's command line is meant.
struct FlagMeaning {
  const MegatronField* field = nullptr;
  nlohmann::json implied;  ///< the value when no word follows; null = a word must follow
};
FlagMeaning find_flag(std::string_view spelling);

/// The words after a flag as a value of the field's type.
nlohmann::json words_value(const MegatronField& field, const std::vector<std::string>& words);

/// Without effect on time, memory and the rules: data, logging, learning rates, checkpoints.
bool is_silent_option(std::string_view name);
/// Of the shape of a model, though no rule reads it.
bool is_model_option(std::string_view name);

}  // namespace moecast
