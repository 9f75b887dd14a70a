#include "search/request.hpp"

#include <algorithm>

#include "layout/knobs.hpp"
#include "layout/run_file.hpp"

namespace moecast {
namespace {

/// What a search takes as given; every other knob that is set becomes an axis with one value.
bool belongs_to_base(const Knob& knob) {
  static const std::vector<std::string_view> kBase{"model", "train.seq_length",
                                                   "train.global_batch_size", "model_overrides"};
  return std::find(kBase.begin(), kBase.end(), knob.key) != kBase.end() ||
         knob.section() == "cluster" || knob.section() == "software";
}

}  // namespace

Diagnostics set_knob(SearchRequest& request, const std::string& key, const std::string& value,
                     const std::string& option) {
  Diagnostics problems = apply_set(request.base, key + "=" + value);
  for (Diagnostic& problem : problems) problem.file = option;
  const Knob* knob = knob_of_key(key);
  if (!problems.empty() || knob == nullptr || belongs_to_base(*knob)) return problems;
  const std::string name(knob->key);
  if (name == "precision") {  // an axis of its own
    request.precisions = {request.base.layout.precision};
    return problems;
  }
  if (name == "train.micro_batch_size") request.vary_micro_batch_size = false;
  std::erase_if(request.fix, [&](const auto& fixed) { return fixed.first == name; });
  request.fix.emplace_back(name, knob->get(request.base).dump());  // whole, also of a map's key
  return problems;
}

}  // namespace moecast
