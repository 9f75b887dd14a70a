#include "estimate/stage_seconds.hpp"

#include <algorithm>
#include <cstdint>

#include "estimate/tables.hpp"

namespace moecast {

IssuedSet::IssuedSet(const Problem& p, const ShardTables& shard, const IssueFlags& flags, bool full,
                     int block_layers)
    : p_(p),
      shard_(shard),
      flags_(flags),
      full_(full),
      block_layers_(block_layers),
      classes_(shard.classes.size()),
      ends_(block_layers < 0 ? classes_ : 2 * classes_),
      rules_(p, flags) {
  forward_.reserve(ends_ + kStageEnds);
  backward_.reserve(ends_ + kStageEnds);
  for (std::size_t i = 0; i < ends_ + kStageEnds; ++i) {
    forward_.push_back(&shard.issued_layers.forward(p, shard, layer_of(i), flags_of(i)));
    backward_.push_back(&shard.issued_layers.backward(p, shard, layer_of(i), flags_of(i)));
  }
}

/// Of the shard's layers.
std::size_t IssuedSet::layer_of(std::size_t i) const {
  return i >= ends_ ? classes_ + (i - ends_) : i % classes_;
}

IssueFlags IssuedSet::flags_of(std::size_t i) const {
  IssueFlags own = flags_;
  own.recompute_all = full_ && i < classes_;
  if (i >= ends_) own.recompute = 0;
  return own;
}

std::uint64_t issue_key(const IssueFlags& f, bool full, int block_layers) {
  std::uint64_t key = f.recompute;
  for (const bool b : {f.full_graph, f.overlap, f.delay_wgrad, f.shared_overlap, full})
    key = key << 1 | (b ? 1u : 0u);
  return (key << 8 | f.graph) << 16 | static_cast<std::uint16_t>(block_layers);
}

/// Where all layers of a class are treated alike, it is the same for all flags.
const IssuedSet::Sequence& IssuedSet::sequence(int content, const StageCounts& stage) {
  if (block_layers_ >= 0) return runs_ = make_sequence(stage);
  const auto number = static_cast<std::size_t>(content);
  auto& known = shard_.sequences;
  if (number >= known.size()) known.resize(number + 1);
  if (known[number].empty()) known[number] = make_sequence(stage);
  return known[number];
}

IssuedSet::Sequence IssuedSet::make_sequence(const StageCounts& stage) const {
  Sequence runs;
  if (stage.embedding) runs.push_back({ends_ + kEmbedding, 1});
  const int per_depth = static_cast<int>(p_.mtp_classes.size());
  const int decoder = stage.total - stage.mtp_depths * per_depth;
  int at = 0;
  for (const LayerRun& run : stage.runs) {
    for (int left = run.count; left > 0;) {  // cut where recomputation ends or an MTP depth begins
      int count = left;
      if (at < block_layers_) count = std::min(count, block_layers_ - at);
      if (at < decoder) count = std::min(count, decoder - at);
      if (at >= decoder) {
        if ((at - decoder) % std::max(1, per_depth) == 0) runs.push_back({ends_ + kMtpExtra, 1});
        count = 1;
      }
      const bool plain = block_layers_ >= 0 && at >= block_layers_;
      runs.push_back({static_cast<std::size_t>(run.cls) + (plain ? classes_ : 0), count});
      at += count;
      left -= count;
    }
  }
  const int heads = stage.mtp_depths + (stage.loss ? 1 : 0);
  if (heads > 0) runs.push_back({ends_ + kHead, heads});
  return runs;
}

IssuedStage IssuedSet::stage(const StageCounts& stage) {
  for (std::size_t i = layers_.size(); i < forward_.size(); ++i) {
    layers_.reserve(forward_.size());
    layers_.push_back(issue(p_, operations_of(shard_, layer_of(i)), flags_of(i)));
  }
  IssuedStage list;
  for (const StageRun& run : make_sequence(stage))
    list.insert(list.end(), static_cast<std::size_t>(run.count), &layers_[run.layer]);
  return list;
}

StageSeconds IssuedSet::one_stream(const Sequence& runs, bool drained) const {
  QueueClocks at;
  StageSeconds s;
  for (int round = 0; round < (drained ? 1 : 2); ++round) {
    double began = at.gpu;
    for (const StageRun& run : runs) {
      for (int i = 0; i < run.count; ++i) at = forward_[run.layer]->alone.after(at);
    }
    s.forward = at.gpu - began;
    if (drained) at.host = at.gpu = std::max(at.host, at.gpu);
    began = at.gpu;
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
      for (int i = 0; i < run->count; ++i) at = backward_[run->layer]->alone.after(at);
    }
    s.backward = at.gpu - began;
    at.host = std::max(at.host, began);
  }
  return s;
}

StageSeconds IssuedSet::seconds(int content, const StageCounts& stage, bool drained) {
  const auto [known, fresh] = stages_.at(2 * static_cast<std::uint64_t>(content) + drained);
  if (fresh) known = one_stream(sequence(content, stage), drained);
  return known;
}

double IssuedSet::pair_seconds(int forward, const StageCounts& f, int backward,
                               const StageCounts& b) {
  const auto [known, fresh] = pairs_.at(std::uint64_t{static_cast<std::uint32_t>(forward)} << 32 |
                                        static_cast<std::uint32_t>(backward));
  if (!fresh) return known;
  pair_forward_.clear();
  pair_backward_.clear();
  for (const StageRun& run : sequence(forward, f))
    pair_forward_.push_back({forward_[run.layer]->pair.get(), run.count});
  for (const StageRun& run : sequence(backward, b))
    pair_backward_.push_back({backward_[run.layer]->pair.get(), run.count});
  std::reverse(pair_backward_.begin(), pair_backward_.end());
  return known = moecast::pair_seconds(rules_, pair_forward_, pair_backward_);
}

}  // namespace moecast
