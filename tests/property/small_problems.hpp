#pragma once
/// Small problems of a search, at random.
#include <random>
#include <string>
#include <vector>

#include "moecast/search.hpp"
#include "problem_of.hpp"

namespace moecast::test {

struct SmallProblem {
  Problem problem;
  SearchRequest request;
  std::string words;
};

/// Small models on few GPUs: some axes searched, the others at a random value; memory is short in
/// most of them.
class SmallProblems {
 public:
  explicit SmallProblems(unsigned seed) : random_(seed) {}

  SmallProblem next(bool tiny) {
    const auto& all = problems();
    SmallProblem s{all[any(all.size())], {}, ""};
    SearchRequest& r = s.request;
    r.threads = 1;
    r.top = static_cast<int>(1 + any(4));
    r.objective =
        any(4) == 0 ? SearchRequest::Objective::memory : SearchRequest::Objective::step_time;
    Problem& p = s.problem;
    r.base = p.run;
    p.seq_length = r.base.seq_length = any(2) == 0 ? 2048 : 4096;
    p.global_batch_size = r.base.global_batch_size = 16 << any(3);
    r.precisions = {any(2) == 0 ? Precision::bf16 : Precision::fp8_tensorwise};
    r.vary_micro_batch_size = false;
    Layout& l = r.base.layout;
    l.micro_batch_size = 1 << any(2);
    l.tp = 1 << any(2);
    r.fix = {{"layout.context_parallel_size", ""},
             {"layout.expert_tensor_parallel_size", ""},
             {"layout.tensor_model_parallel_size", ""},
             {"train.micro_batch_size", ""}};
    const auto keep = [&](std::size_t one_in, const char* key) {
      if (any(one_in) != 0) r.fix.emplace_back(key, "");
    };
    if (tiny) {
      l.ep = p.model.moe.num_moe_experts > 0 ? 1 << any(3) : 1;
      r.fix.emplace_back("layout.expert_model_parallel_size", "");
    }
    keep(tiny ? 4 : 2, "cuda_graph.impl");
    keep(tiny ? 4 : 2, "offload.activation_modules");
    keep(2, "moe.dispatcher");
    r.min_headroom_gib =
        any(3) == 0 ? 0
                    : 0.01 * static_cast<double>(any(100)) * in_gib(p.system().gpu.hbm_capacity);
    s.words = p.model.name + " on " + std::to_string(p.world) + " " + p.system().name +
              ", number " + std::to_string(number_++);
    return s;
  }

 private:
  static const std::vector<Problem>& problems() {
    static const std::vector<Problem> all = [] {
      const auto made = [](const char* model, const char* system, int gpus, int layers) {
        Run run = run_of(model, system, gpus);
        run.model_overrides["num_hidden_layers"] = layers;
        return problem_of(run);
      };
      return std::vector<Problem>{
          made("qwen3-30b-a3b", "dgx-h100", 8, 6), made("moonlight-16b-a3b", "dgx-b200", 8, 5),
          made("deepseek-v3", "gb200-nvl72", 16, 5), made("mixtral-8x7b", "dgx-h200", 16, 4),
          made("llama3-8b", "dgx-b200", 8, 8)};
    }();
    return all;
  }
  std::size_t any(std::size_t below) {
    return std::uniform_int_distribution<std::size_t>(0, below - 1)(random_);
  }
  std::mt19937 random_;
  int number_ = 0;
};

}  // namespace moecast::test
