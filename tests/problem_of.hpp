#pragma once
/// Runs and problems from shipped models and systems, for the suites that test forecasts.
#include <stdexcept>
#include <string>

#include "estimate/problem.hpp"

namespace moecast::test {

/// 4096 tokens, 8 micro batches of one sequence, everything else at its default.
inline Run run_of(const std::string& model, const std::string& system, int gpus,
                  const Layout& layout = {}) {
  Run run;
  run.model = model;
  run.system = system;
  run.gpus = gpus;
  run.seq_length = 4096;
  run.layout = layout;
  run.global_batch_size = 8 * layout.dp(gpus) * layout.micro_batch_size;
  return run;
}

template <typename T>
T must(Result<T> result) {
  if (result.ok()) return result.take();
  std::string text;
  for (const Diagnostic& d : result.problems()) text += to_string(d) + "\n";
  throw std::runtime_error(text);
}

inline Problem problem_of(const Run& run) { return must(make_problem(run)); }
inline Problem problem_of(const std::string& model, const std::string& system, int gpus) {
  return problem_of(run_of(model, system, gpus));
}

}  // namespace moecast::test
