#include "search/split.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "estimate/legal.hpp"
#include "layout/pipeline_plan.hpp"

namespace moecast {
namespace {

/// Decoder layers of every stage in the order of the string, and the stage of the MTP layers.
struct Cut {
  std::vector<int> layers;
  int mtp = 0;
  auto operator<=>(const Cut&) const = default;
};

Cut cut_of(const PipelinePlan& plan) {
  Cut cut;
  cut.mtp = static_cast<int>(plan.stages.size()) - 1;
  for (const Stage& stage : plan.stages) {
    if (stage.mtp) cut.mtp = static_cast<int>(cut.layers.size());
    cut.layers.push_back(static_cast<int>(stage.layers.size()));
  }
  return cut;
}

PipelinePlan plan_of(const PipelinePlan& like, const Cut& cut) {
  PipelinePlan plan = like;
  int layer = 0;
  for (std::size_t i = 0; i < cut.layers.size(); ++i) {
    Stage& stage = plan.stages[i];
    stage.layers.resize(static_cast<std::size_t>(cut.layers[i]));
    std::iota(stage.layers.begin(), stage.layers.end(), layer);
    layer += cut.layers[i];
    stage.mtp = like.mtp_num_layers > 0 && static_cast<int>(i) == cut.mtp;
  }
  plan.layout_string = to_layout_string(plan);
  return plan;
}

/// GPU seconds of what stages are made of, forward and backward: a guide where to put layers; what
/// counts is the exact step.
struct Weights {
  double layer = 0, embedding = 0, mtp = 0, head = 0;
};
Weights weights_of(const Problem& p, const Layout& l, const ShardTables& s) {
  const auto sum = [&](const OpSums& a, const OpSums& b) {
    const double exchange = l.overlap_moe_expert_parallel_comm ? 0 : a.ep + b.ep;
    return a.compute + a.side + a.shared + a.other + b.compute + b.side + b.shared + b.other +
           exchange;
  };
  const auto of_class = [&](int cls) {
    const ClassTable& c = s.classes[static_cast<std::size_t>(cls)];
    return sum(c.forward, c.backward);
  };
  Weights w;
  for (const int cls : p.class_of_layer)
    w.layer += of_class(cls) / static_cast<double>(p.class_of_layer.size());
  w.embedding = sum(s.embedding_forward, s.embedding_backward);
  w.head = sum(s.head_forward, s.head_backward);
  double depth = sum(s.mtp_forward, s.mtp_backward) + w.head;
  for (const int cls : p.mtp_classes) depth += of_class(cls);
  w.mtp = p.model.mtp_num_layers * depth;
  return w;
}

/// Bytes over what may be reserved, then seconds.
using Cost = std::pair<double, double>;
struct Walked {
  Cost cost;
  Cut cut;
  auto operator<=>(const Walked&) const = default;
};

class SplitSearch {
 public:
  SplitSearch(const Problem& p, const Layout& l, double room, int tries)
      : p_(p), l_(l), evaluator_(p), room_(room), tries_(tries) {}

  std::optional<Split> run(const Outcome& automatic) {
    const MeshTables* mesh = evaluator_.mesh(l_);
    if (mesh == nullptr) return std::nullopt;
    like_ = mesh->plan();
    w_ = weights_of(p_, l_, evaluator_.shard(l_));
    best_ = cost(automatic);
    std::vector<Walked> starts{{best_, cut_of(like_)}};
    seen_.insert(starts.front().cut);
    for (const Cut& cut : seeds())
      if (const auto walked = consider(cut)) starts.push_back(*walked);
    std::sort(starts.begin(), starts.end());
    for (Walked& start : starts) {
      while (improve(start)) {
      }
    }
    return found_;
  }

 private:
  [[nodiscard]] Cost cost(const Outcome& o) const {
    return {std::max(0.0, o.reserved - room_), o.step};
  }

  [[nodiscard]] bool possible(const Cut& cut) const {
    if (*std::min_element(cut.layers.begin(), cut.layers.end()) < 0) return false;
    const auto after_mtp = cut.layers.begin() + cut.mtp + 1;
    return like_.mtp_num_layers == 0 ||
           std::all_of(after_mtp, cut.layers.end(), [](int n) { return n == 0; });
  }

  /// Nothing for what is known, impossible, refused, or beyond the tries.
  std::optional<Walked> consider(const Cut& cut) {
    if (tries_ <= 0 || !possible(cut) || !seen_.insert(cut).second) return std::nullopt;
    --tries_;
    PipelinePlan plan = plan_of(like_, cut);
    const Outcome o = evaluator_.evaluate(l_, plan);
    if (o.status == Outcome::Status::no_plan) return std::nullopt;
    const Walked walked{cost(o), cut};
    if (walked.cost < best_) {
      if (!is_legal(plan)) return std::nullopt;
      best_ = walked.cost;
      if (best_.first == 0) found_ = Split{std::move(plan.layout_string), o};
    }
    return walked;
  }

  [[nodiscard]] bool is_legal(const PipelinePlan& plan) const {
    Problem own = p_;
    own.run.pipeline_model_parallel_layout = plan.layout_string;
    Layout l = l_;
    l.pipeline_split = PipelineSplit::explicit_string;
    return Legality(own).first_broken(l) < 0;
  }

  /// Fills the least loaded rank first, and its least loaded chunk; ties go to the first or last.
  [[nodiscard]] Cut balanced(int mtp, bool last_rank, bool last_chunk) const {
    const auto stages = static_cast<int>(like_.stages.size());
    const int usable = like_.mtp_num_layers > 0 ? mtp + 1 : stages;
    std::vector<double> stage(like_.stages.size(), 0), rank(static_cast<std::size_t>(l_.pp), 0);
    const auto add = [&](int at, double seconds) {
      stage[static_cast<std::size_t>(at)] += seconds;
      rank[static_cast<std::size_t>(at % l_.pp)] += seconds;
    };
    add(0, w_.embedding);
    add(stages - 1, w_.head);
    add(mtp, w_.mtp);
    Cut cut{std::vector<int>(like_.stages.size(), 0), mtp};
    for (std::size_t left = p_.model.layers.size(); left > 0; --left) {
      int best = -1;
      for (int i = 0; i < usable; ++i) {
        const auto before = [&](const std::vector<double>& load, int a, int b, bool last) {
          const double x = load[static_cast<std::size_t>(a)], y = load[static_cast<std::size_t>(b)];
          const double same = 1e-9 * (x + y);
          return x < y - same ? 1 : x > y + same ? -1 : a == b ? 0 : (a > b) == last ? 1 : -1;
        };
        if (best < 0) best = i;
        const int by_rank = before(rank, i % l_.pp, best % l_.pp, last_rank);
        if (by_rank > 0 || (by_rank == 0 && before(stage, i, best, last_chunk) > 0)) best = i;
      }
      add(best, w_.layer);
      ++cut.layers[static_cast<std::size_t>(best)];
    }
    return cut;
  }

  [[nodiscard]] std::vector<Cut> seeds() const {
    const int last = static_cast<int>(like_.stages.size()) - 1;
    std::vector<Cut> cuts;
    for (int mtp = last; mtp >= std::max(last - 1, l_.pp * (l_.vpp - 1)); --mtp) {
      for (const int ties : {0, 1, 2, 3}) cuts.push_back(balanced(mtp, ties & 1, ties & 2));
      if (like_.mtp_num_layers == 0) break;
    }
    return cuts;
  }

  /// Seconds of the ranks, roughly.
  [[nodiscard]] std::vector<double> loads(const Cut& cut) const {
    std::vector<double> rank(static_cast<std::size_t>(l_.pp), 0);
    for (std::size_t i = 0; i < cut.layers.size(); ++i)
      rank[i % rank.size()] += cut.layers[i] * w_.layer;
    rank.front() += w_.embedding;
    rank.back() += w_.head;
    rank[static_cast<std::size_t>(cut.mtp % l_.pp)] += w_.mtp;
    return rank;
  }

  /// Moves of one layer to any other stage (with many stages: from the busiest rank, or to a
  /// neighbour), of the MTP layers by a stage, or of both.
  [[nodiscard]] std::vector<Cut> moves(const Cut& at) const {
    constexpr std::size_t kFew = 24;
    const std::vector<double> rank = loads(at);
    const auto busiest =
        static_cast<std::size_t>(std::max_element(rank.begin(), rank.end()) - rank.begin());
    std::vector<Cut> cuts;
    const auto add_layers = [&](const Cut& like) {
      for (std::size_t from = 0; from < like.layers.size(); ++from) {
        for (std::size_t to = 0; to < like.layers.size(); ++to) {
          const bool near = from + 1 == to || to + 1 == from;
          const bool asked = like.layers.size() <= kFew || near || from % rank.size() == busiest;
          if (from == to || !asked) continue;
          Cut& cut = cuts.emplace_back(like);
          --cut.layers[from];
          ++cut.layers[to];
        }
      }
    };
    add_layers(at);
    for (const int mtp : {at.mtp - 1, at.mtp + 1}) {
      if (like_.mtp_num_layers == 0 || mtp < l_.pp * (l_.vpp - 1) ||
          mtp >= static_cast<int>(at.layers.size()))
        continue;
      Cut moved = at;
      moved.mtp = mtp;
      cuts.push_back(moved);
      add_layers(moved);
    }
    return cuts;
  }

  /// Takes the first move that helps, of the most promising ones first.
  bool improve(Walked& at) {
    std::vector<std::pair<double, Cut>> sorted;
    for (Cut& cut : moves(at.cut)) {
      if (!possible(cut) || seen_.contains(cut)) continue;
      const std::vector<double> rank = loads(cut);
      sorted.emplace_back(*std::max_element(rank.begin(), rank.end()), std::move(cut));
    }
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [busy, cut] : sorted) {
      const auto walked = consider(cut);
      if (!walked || !(walked->cost < at.cost)) continue;
      at = *walked;
      return true;
    }
    return false;
  }

  const Problem& p_;
  const Layout& l_;
  Evaluator evaluator_;
  double room_;
  int tries_;
  PipelinePlan like_;
  Weights w_;
  Cost best_;
  std::set<Cut> seen_;
  std::optional<Split> found_;
};

}  // namespace

std::optional<Split> better_split(const Problem& p, const Layout& l, const Outcome& automatic,
                                  double room, int tries) {
  if (l.pp == 1 || l.pipeline_split != PipelineSplit::automatic) return std::nullopt;
  return SplitSearch(p, l, room, tries).run(automatic);
}

}  // namespace moecast
