/// Rules of pipeline_model_parallel_layout.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

constexpr std::string_view kString = "pipeline_model_parallel_layout";
#define READS_STRING "pipeline_model_parallel_layout"

const LayoutScan& s(In in) { return in.at.layout; }
bool readable(In in) { return s(in).given && s(in).expandable; }

}  // namespace

std::vector<Rule> layout_string_rules() {
  return {
      error("PIPELINE-LAYOUT-LETTERS", kString,
            "a layout string is made of E (embedding), t (decoder), m (MTP), L (loss), '|' between "
            "stages, x*n and (..)*n without nesting",
            "correct the string", kLayoutString,
            WHEN(s(in).given && (!s(in).expandable || !s(in).known_letters))),
      error("PIPELINE-LAYOUT-STAGES", READS_STRING " pipeline_model_parallel_size",
            "the stages of a layout string are a multiple of PP", "write PP * VPP stages",
            kLayoutString, WHEN(readable(in) && s(in).stages % c.pipeline_model_parallel_size != 0))
          .says([](In in) {
            return fmt::format("{} stages are not a multiple of PP {}", s(in).stages,
                               in.c.pipeline_model_parallel_size);
          }),
      error("PIPELINE-LAYOUT-VPP",
            READS_STRING " pipeline_model_parallel_size num_virtual_stages_per_pipeline_rank",
            "a stated VPP agrees with the layout string", "set VPP to stages / PP", kLayoutString,
            WHEN(readable(in) && in.asked.num_virtual_stages_per_pipeline_rank.has_value() &&
                 s(in).stages % c.pipeline_model_parallel_size == 0 &&
                 *in.asked.num_virtual_stages_per_pipeline_rank !=
                     s(in).stages / c.pipeline_model_parallel_size &&
                 !(at.run_file && *in.asked.num_virtual_stages_per_pipeline_rank == 1)))
          .says([](In in) {
            return fmt::format("{} stages over PP {} mean VPP {}, but VPP {} is stated",
                               s(in).stages, in.c.pipeline_model_parallel_size,
                               s(in).stages / in.c.pipeline_model_parallel_size,
                               *in.asked.num_virtual_stages_per_pipeline_rank);
          }),
      error("PIPELINE-LAYOUT-ENDS", kString,
            "a layout string begins with its only E and ends with its only L",
            "begin with E and end with L", kLayoutString,
            WHEN(readable(in) && (!s(in).begins_with_embedding || !s(in).ends_with_loss ||
                                  s(in).embeddings != 1 || s(in).losses != 1))),
      error("PIPELINE-LAYOUT-DECODERS", READS_STRING " num_layers",
            "a layout string has one t per decoder layer", "add or remove t", kLayoutString,
            WHEN(readable(in) && s(in).decoders != c.num_layers))
          .says([](In in) {
            return fmt::format("{} decoder layers (t) found, the model has {}", s(in).decoders,
                               in.c.num_layers);
          }),
      error("PIPELINE-LAYOUT-MTP", READS_STRING " mtp_num_layers",
            "a layout string has one m per MTP layer", "add or remove m", kLayoutString,
            WHEN(readable(in) && s(in).mtp != c.mtp_num_layers.value_or(0)))
          .says([](In in) {
            return fmt::format("{} MTP layers (m) found, the model has {}", s(in).mtp,
                               in.c.mtp_num_layers.value_or(0));
          }),
      error("PIPELINE-LAYOUT-ORDER", kString, "every t stands before the first m",
            "put the MTP layers behind the decoder", kLayoutString,
            WHEN(readable(in) && s(in).decoder_behind_mtp)),
      error("PIPELINE-LAYOUT-MTP-STAGE", READS_STRING " pipeline_model_parallel_size",
            "all m lie in one stage, in the last chunk of its rank (the last chunk of rank 0 "
            "passes)",
            "move the MTP layers to the last stage", kLayoutString,
            WHEN(readable(in) && s(in).mtp > 0 &&
                 (s(in).first_mtp_stage != s(in).last_mtp_stage ||
                  s(in).first_mtp_stage + c.pipeline_model_parallel_size < s(in).stages))),
  };
}

}  // namespace moecast::rules
