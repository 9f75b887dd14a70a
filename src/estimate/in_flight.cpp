// How many microbatch-chunks a rank holds: from the walked order, not from an average.
#include <algorithm>

#include "estimate/schedule.hpp"

namespace moecast {
namespace {

bool dominates(const std::vector<int>& a, const std::vector<int>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] < b[i]) return false;
  }
  return true;
}

void keep_maximal(std::vector<std::vector<int>>& kept, const std::vector<int>& v) {
  for (const auto& k : kept) {
    if (dominates(k, v)) return;
  }
  std::erase_if(kept, [&](const auto& k) { return dominates(v, k); });
  kept.push_back(v);
}

}  // namespace

std::vector<std::vector<int>> alive_vectors(const ScheduleShape& s, int rank) {
  std::vector<int> alive(static_cast<std::size_t>(s.vpp), 0);
  std::vector<std::vector<int>> kept;
  for (const ScheduleOp& op : rank_order(s, rank)) {
    // in a combined step the backward frees layer by layer what the forward fills: the two trade
    // places
    if (op.kind == ScheduleOp::Kind::both) --alive[static_cast<std::size_t>(op.backward_chunk)];
    if (op.kind != ScheduleOp::Kind::backward) {
      ++alive[static_cast<std::size_t>(op.forward_chunk)];
      keep_maximal(kept, alive);
    }
    if (op.kind == ScheduleOp::Kind::backward) --alive[static_cast<std::size_t>(op.backward_chunk)];
  }
  return kept;
}

int alive_closed_form(const ScheduleShape& s, int rank) {
  const int total = s.microbatches * s.vpp;
  if (s.pp == 1) return 1;
  if (s.vpp == 1) return std::min(s.microbatches, s.pp - rank);
  const int warmup = warmup_count(s, rank);
  return std::min(total, warmup + (s.overlap ? 0 : 1));
}

}  // namespace moecast
