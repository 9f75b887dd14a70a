#include "random_layouts.hpp"

#include "estimate/legal.hpp"
#include "layout/run_file.hpp"
#include "problem_of.hpp"

namespace moecast::test {
namespace {

template <typename T>
T pick(std::mt19937& random, std::initializer_list<T> values) {
  return *(values.begin() +
           std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random));
}
bool chance(std::mt19937& random, double p) { return std::bernoulli_distribution(p)(random); }

/// GQA and MLA, softmax and sigmoid routers, shared experts, MTP, linear attention, Mamba, a dense
/// model; NVLink domains of 8 and 72.
const std::vector<Problem>& problems() {
  static const std::vector<Problem> all = [] {
    const auto made = [](const char* model, const char* system, int gpus, int layers) {
      Run run = run_of(model, system, gpus);
      if (layers > 0) run.model_overrides["num_hidden_layers"] = layers;
      return problem_of(run);
    };
    return std::vector<Problem>{made("qwen3-30b-a3b", "dgx-h100", 32, 8),
                                made("deepseek-v3", "gb200-nvl72", 64, 8),
                                made("mixtral-8x7b", "dgx-h200", 16, 4),
                                made("moonlight-16b-a3b", "dgx-b200", 16, 8),
                                made("qwen3-next-80b-a3b", "dgx-b300", 32, 8),
                                made("nemotron-3-nano-30b-a3b", "dgx-h100", 16, 0),
                                made("llama3-8b", "dgx-b200", 16, 8)};
  }();
  return all;
}

void draw_experts(std::mt19937& r, Layout& l) {
  l.ep = pick(r, {1, 2, 4, 8, 16});
  l.etp = pick(r, {1, 1, 2});
  l.dispatcher = pick(r, {Dispatcher::alltoall, Dispatcher::alltoall, Dispatcher::allgather,
                          Dispatcher::deepep, Dispatcher::hybridep});
  l.overlap_moe_expert_parallel_comm = chance(r, 0.4);
  l.delay_wgrad_compute = l.overlap_moe_expert_parallel_comm && chance(r, 0.5);
  l.moe_shared_expert_overlap = chance(r, 0.1);
}

void draw_recompute(std::mt19937& r, Layout& l) {
  l.recompute_granularity = pick(r, {RecomputeGranularity::none, RecomputeGranularity::selective,
                                     RecomputeGranularity::selective, RecomputeGranularity::full});
  if (l.recompute_granularity == RecomputeGranularity::full) {
    l.recompute_method = pick(r, {RecomputeMethod::uniform, RecomputeMethod::block});
    l.recompute_num_layers = pick(r, {1, 2});
  }
  if (l.recompute_granularity != RecomputeGranularity::selective) return;
  for (int m = 0; m < static_cast<int>(RecomputeModule::count); ++m) {
    if (chance(r, 0.25)) l.recompute_modules.add(static_cast<RecomputeModule>(m));
  }
}

void draw_graphs(std::mt19937& r, Layout& l) {
  l.cuda_graph_impl = pick(r, {CudaGraphImpl::none, CudaGraphImpl::none,
                               CudaGraphImpl::transformer_engine, CudaGraphImpl::full_iteration});
  if (l.cuda_graph_impl != CudaGraphImpl::transformer_engine) return;
  l.cuda_graph_scope.add(GraphModule::attn);
  if (chance(r, 0.5)) l.cuda_graph_scope.add(GraphModule::moe_router);
}

}  // namespace

Layout LegalLayouts::draw(const Problem& p) {
  Layout l;
  l.tp = pick(random_, {1, 1, 2, 4});
  l.pp = pick(random_, {1, 2, 4});
  l.vpp = l.pp > 1 ? pick(random_, {1, 2}) : 1;
  l.cp = pick(random_, {1, 1, 2});
  l.micro_batch_size = pick(random_, {1, 2});
  l.precision = pick(
      random_, {Precision::bf16, Precision::bf16, Precision::fp8_tensorwise, Precision::mxfp8});
  l.cp_comm_type = pick(random_, {CpCommType::p2p, CpCommType::all_gather, CpCommType::a2a});
  l.distributed_optimizer = chance(random_, 0.8);
  l.grad_dtype = pick(random_, {DType::fp32, DType::bf16});
  l.overlap_grad_reduce = l.overlap_param_gather = l.distributed_optimizer && chance(random_, 0.7);
  l.tp_comm_overlap = l.tp > 1 && chance(random_, 0.4);
  if (p.model.moe.num_moe_experts > 0) draw_experts(random_, l);
  draw_recompute(random_, l);
  draw_graphs(random_, l);
  return l;
}

Sample LegalLayouts::next() {
  while (true) {
    const auto which =
        std::uniform_int_distribution<std::size_t>(0, problems().size() - 1)(random_);
    Layout l = draw(problems()[which]);
    const int microbatches = pick(random_, {1, 2, 4, 8, 12}),
              seq_length = pick(random_, {2048, 4096});
    if (problems()[which].world % (l.tp * l.cp * l.pp) != 0) continue;
    Sample s{problems()[which], l, ""};
    Problem& p = s.problem;
    p.seq_length = p.run.seq_length = seq_length;
    p.global_batch_size = p.run.global_batch_size =
        microbatches * l.micro_batch_size * l.dp(p.world);
    p.run.layout = l;
    if (!is_legal(p, l) ||
        Evaluator(p).evaluate(l, Depth::bound).status == Outcome::Status::no_plan)
      continue;
    s.words = "seed " + std::to_string(seed_) + ", sample " + std::to_string(number_++) + ": " +
              run_to_json(p.run).dump();
    return s;
  }
}

bool is_legal(const Problem& p, const Layout& l) { return Legality(p).first_broken(l) < 0; }

Forecast forecast(const Problem& p, const Layout& l) {
  Forecast f;
  f.outcome = Evaluator(p).evaluate(l, Depth::exact, &f.estimate);
  return f;
}

}  // namespace moecast::test
