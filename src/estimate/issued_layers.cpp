#include "estimate/issued_layers.hpp"

#include "estimate/tables.hpp"

namespace moecast {

const LayerOps& operations_of(const ShardTables& shard, std::size_t layer) {
  if (layer < shard.classes.size()) return shard.classes[layer].ops;
  const LayerOps* const ends[kStageEnds] = {&shard.embedding, &shard.head, &shard.mtp_extra};
  return *ends[layer - shard.classes.size()];
}

const IssuedMaps& IssuedLayers::maps(const Problem& p, const ShardTables& shard, std::size_t layer,
                                     const IssueFlags& flags) {
  if (reads_.empty()) {
    for (std::size_t i = 0; i < shard.classes.size() + kStageEnds; ++i) {
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
  }
  const Reads& reads = reads_[layer];
  IssueFlags own = flags;
  own.recompute &= reads.recompute;
  own.graph &= reads.graph;
  own.shared_overlap = flags.shared_overlap && reads.shared;
  own.delay_wgrad = flags.delay_wgrad && flags.overlap;
  std::uint64_t key = layer << 16 | own.recompute;
  for (const bool b :
       {own.full_graph, own.overlap, own.delay_wgrad, own.shared_overlap, own.recompute_all})
    key = key << 1 | (b ? 1u : 0u);
  const auto [at, fresh] = known_.try_emplace(key << 8 | own.graph);
  if (!fresh) return at->second;
  const IssuedLayer issued = issue(p, operations_of(shard, layer), own);
  IssuedMaps& maps = at->second;
  maps.forward = queue_map(p, issued.forward, own.shared_overlap);
  maps.backward = queue_map(p, issued.backward, own.shared_overlap);
  if (own.overlap) {
    const PairRules rules(p, own);
    maps.pair = std::make_unique<const IssuedMaps::Pair>(
        IssuedMaps::Pair{PairDirection(rules, issued.forward, false),
                         PairDirection(rules, issued.backward, true)});
  }
  return maps;
}

}  // namespace moecast
