#include "estimate/issued_layers.hpp"

#include "estimate/tables.hpp"

namespace moecast {

const LayerOps& operations_of(const ShardTables& shard, std::size_t layer) {
  if (layer < shard.classes.size()) return shard.classes[layer].ops;
  const LayerOps* const ends[kStageEnds] = {&shard.embedding, &shard.head, &shard.mtp_extra};
  return *ends[layer - shard.classes.size()];
}

/// The flags that this layer reads.
IssueFlags IssuedLayers::read(const ShardTables& shard, std::size_t layer,
                              const IssueFlags& flags) {
  for (std::size_t i = reads_.size(); i < shard.classes.size() + kStageEnds; ++i) {
    Reads& reads = reads_.emplace_back();
    const LayerOps& ops = operations_of(shard, i);
    for (const auto* list : {&ops.forward, &ops.backward}) {
      for (const Op& op : *list) {
        reads.recompute |= op.recompute;
        reads.graph |= op.graph;
        reads.shared = reads.shared || op.shared;
      }
    }
    // recomputing the whole MoE block changes the order of what other layers recompute
    if (reads.recompute != 0) reads.recompute |= mask(RecomputeModule::moe);
  }
  const Reads& reads = reads_[layer];
  IssueFlags own = flags;
  own.recompute &= reads.recompute;
  own.graph &= reads.graph;
  own.shared_overlap = flags.shared_overlap && reads.shared;
  own.delay_wgrad = flags.delay_wgrad && flags.overlap;
  return own;
}

const IssuedMaps& IssuedLayers::maps(const Problem& p, const ShardTables& shard, std::size_t layer,
                                     const IssueFlags& flags, bool backward) {
  std::uint64_t key = layer << 16 | flags.recompute;
  for (const bool b : {flags.full_graph, flags.overlap, flags.delay_wgrad, flags.shared_overlap,
                       flags.recompute_all, backward})
    key = key << 1 | (b ? 1u : 0u);
  const auto [at, fresh] = known_.try_emplace(key << 8 | flags.graph);
  if (!fresh) return at->second;
  const LayerOps& ops = operations_of(shard, layer);
  backward ? issue_backward(p, ops, flags, issued_) : issue_forward(p, ops, flags, issued_);
  at->second.alone = queue_map(p, issued_, flags.shared_overlap);
  if (flags.overlap) {
    at->second.pair =
        std::make_unique<const PairDirection>(PairRules(p, flags), issued_, backward, *nodes_);
  }
  return at->second;
}

const IssuedMaps& IssuedLayers::forward(const Problem& p, const ShardTables& shard,
                                        std::size_t layer, const IssueFlags& flags) {
  IssueFlags own = read(shard, layer, flags);
  own.recompute = 0;
  own.recompute_all = own.delay_wgrad = false;
  return maps(p, shard, layer, own, false);
}

const IssuedMaps& IssuedLayers::backward(const Problem& p, const ShardTables& shard,
                                         std::size_t layer, const IssueFlags& flags) {
  return maps(p, shard, layer, read(shard, layer, flags), true);
}

}  // namespace moecast
