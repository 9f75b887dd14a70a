#include "estimate/stage_seconds.hpp"

#include <algorithm>

#include "estimate/tables.hpp"

namespace moecast {

IssuedSet::IssuedSet(const Problem& p, const ShardTables& shard, const IssueFlags& flags, bool full,
                     int block_layers)
    : p_(p), flags_(flags), block_layers_(block_layers), classes_(shard.classes.size()) {
  for (const bool recompute_all : {full, false}) {
    IssueFlags own = flags;
    own.recompute_all = recompute_all;
    if (block_layers < 0 && layers_.size() == classes_) break;  // all layers alike
    for (const ClassTable& c : shard.classes) layers_.push_back(issue(p, c.ops, own));
  }
  IssueFlags ends = flags;
  ends.recompute = 0;
  ends_ = layers_.size();
  for (const LayerOps* end : {&shard.embedding, &shard.head, &shard.mtp_extra})
    layers_.push_back(issue(p, *end, ends));
  for (const IssuedLayer& layer : layers_) {
    forward_.push_back(queue_map(p, layer.forward, flags.shared_overlap));
    backward_.push_back(queue_map(p, layer.backward, flags.shared_overlap));
  }
}

void IssuedSet::forget_operations() {
  if (flags_.overlap) pair_seconds_ = std::make_unique<PairSeconds>(p_, flags_, layers_);
  layers_ = {};
}

std::uint64_t issue_key(const IssueFlags& f, bool full, int block_layers) {
  std::uint64_t key = f.recompute;
  for (const bool b : {f.full_graph, f.overlap, f.delay_wgrad, f.shared_overlap, full})
    key = key << 1 | (b ? 1u : 0u);
  return (key << 8 | f.graph) << 16 | static_cast<std::uint16_t>(block_layers);
}

std::vector<IssuedRun> IssuedSet::sequence(const StageCounts& stage) const {
  std::vector<IssuedRun> runs;
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

IssuedStage IssuedSet::stage(const StageCounts& stage) const {
  IssuedStage list;
  for (const IssuedRun& run : sequence(stage))
    list.insert(list.end(), static_cast<std::size_t>(run.count), &layers_[run.layer]);
  return list;
}

StageSeconds IssuedSet::one_stream(const StageCounts& stage, bool drained) const {
  const std::vector<IssuedRun> runs = sequence(stage);
  QueueClocks at;
  StageSeconds s;
  for (int round = 0; round < (drained ? 1 : 2); ++round) {
    double began = at.gpu;
    for (const IssuedRun& run : runs) {
      for (int i = 0; i < run.count; ++i) at = forward_[run.layer].after(at);
    }
    s.forward = at.gpu - began;
    if (drained) at.host = at.gpu = std::max(at.host, at.gpu);
    began = at.gpu;
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
      for (int i = 0; i < run->count; ++i) at = backward_[run->layer].after(at);
    }
    s.backward = at.gpu - began;
    at.host = std::max(at.host, began);
  }
  return s;
}

const StageSeconds& IssuedSet::seconds(int content, const StageCounts& stage, bool drained) {
  const auto i = static_cast<std::size_t>(content);
  if (i >= stages_.size()) stages_.resize(i + 1);
  Known& known = stages_[i];
  if (!known.known[drained]) {
    known.seconds[drained] = one_stream(stage, drained);
    known.known[drained] = true;
  }
  return known.seconds[drained];
}

double IssuedSet::pair_seconds(int forward, const StageCounts& f, int backward,
                               const StageCounts& b) {
  const auto [at, fresh] =
      pairs_.try_emplace(std::uint64_t{static_cast<std::uint32_t>(forward)} << 32 |
                             static_cast<std::uint32_t>(backward),
                         0.0);
  if (!fresh) return at->second;
  if (!pair_seconds_) pair_seconds_ = std::make_unique<PairSeconds>(p_, flags_, layers_);
  return at->second = pair_seconds_->seconds(sequence(f), sequence(b));
}

}  // namespace moecast
