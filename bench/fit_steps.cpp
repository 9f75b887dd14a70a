// Developer tool: MAP fit of the calibration's priors to measured step times (Huber on log time,
// Gauss-Newton), with the linearised leave-one-group-out error. Every parameter is a log-multiplier
// per GPU family (GEMM efficiencies and host launch cost per system) with its prior's standard
// deviation; nothing is keyed by a model or a row. Usage: fit_steps ROWS.csv [--iterations N] >
// fitted.tsv
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <Eigen/Dense>

#include "estimate/evaluate.hpp"
#include "moecast/validation.hpp"
#include "search/enumerate.hpp"

using namespace moecast;

namespace {

struct Row {
  std::string id, group;
  Problem problem;
  Layout layout;
  double measured = 0;
  double weight = 1;
};

struct Theta {
  std::string scope;  ///< family or system
  int parameter = 0;  ///< index into parameter_table()
  double sd = 0.2, low = -1, high = 1;
};

std::string family_of(const Problem& p) {
  return p.system().gpu.compute_capability < 10 ? "hopper" : "blackwell";
}

bool per_system(const std::string& path) {
  return (path.starts_with("gemm.") && path.ends_with(".efficiency")) || path == "launch.host_us";
}

bool used(const Row& r, const std::string& path) {
  static constexpr const char* kPipes[] = {".bf16.", ".fp8.", ".fp8_blockwise.", ".mxfp8.",
                                           ".nvfp4."};
  const int own = static_cast<int>(pipe_of(r.layout.precision));
  for (int i = 0; i < 5; ++i) {
    if (path.find(kPipes[i]) != std::string::npos) return i == own || i == 0;
  }
  return true;
}

double predict(const Row& r, const Problem& p) {
  Evaluator e(p);
  return e.evaluate(r.layout, Depth::exact).step;
}

void apply(Problem& p, const std::vector<Theta>& thetas, const Eigen::VectorXd& x) {
  for (std::size_t j = 0; j < thetas.size(); ++j) {
    const Theta& t = thetas[j];
    if (t.scope != family_of(p) && t.scope != p.system().name) continue;
    const Parameter& q = parameter_table()[static_cast<std::size_t>(t.parameter)];
    q.in(p.profile.calibration) *= std::exp(x[static_cast<Eigen::Index>(j)]);
  }
}

double huber_weight(double r) { return std::abs(r) <= 1.5 ? 1.0 : 1.5 / std::abs(r); }

void print_errors(const char* name, std::vector<double> errors) {
  std::vector<double> a;
  double sum = 0, bias = 0;
  for (const double e : errors) {
    const double ape = std::abs(std::exp(-e) - 1) * 100;
    a.push_back(ape);
    sum += ape;
    bias += (std::exp(-e) - 1) * 100;
  }
  std::sort(a.begin(), a.end());
  const auto n = static_cast<double>(a.size());
  std::fprintf(stderr, "%-28s n %zu MAPE %.2f median %.2f p90 %.2f bias %+.2f\n", name, a.size(),
               sum / n, a[a.size() / 2], a[a.size() * 9 / 10], bias / n);
}

}  // namespace

int main(int argc, char** argv) {
  int iterations = 4;
  for (int i = 2; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--iterations") == 0) iterations = std::atoi(argv[i + 1]);
  }
  auto read = read_measured_rows(
      argv[1], {"task=pretrain", "config_confidence=exact", "family=moe", "status=ok"});
  if (!read) return 2;
  std::vector<Row> rows;
  std::map<std::string, int> sizes;
  for (const MeasuredRow& m : read.value()) {
    if (!m.run || !m.tflops_per_gpu) continue;
    auto problem = make_problem(*m.run);
    if (!problem) continue;
    Row r{m.id, m.run->model + " / " + m.run->system, problem.take(), m.run->layout, 0, 1};
    const double flops = model_flops_per_token(r.problem.model, r.problem.seq_length, r.layout.tp);
    r.measured = flops * r.problem.seq_length * r.problem.global_batch_size /
                 (*m.tflops_per_gpu * 1e12 * r.problem.world);
    if (predict(r, r.problem) <= 0) continue;
    ++sizes[r.group];
    rows.push_back(std::move(r));
  }
  for (Row& r : rows) r.weight = std::pow(sizes[r.group], -0.5);
  const auto& table = parameter_table();
  std::vector<Theta> thetas;
  const auto add = [&](const std::string& scope, std::size_t q, const Problem& p) {
    const double value = table[q].in(p.profile.calibration);
    const auto found = p.profile.values.find(table[q].path);
    if (value <= 0 || found == p.profile.values.end()) return;
    const double sd = found->second.sd;
    thetas.push_back({scope, static_cast<int>(q), sd,
                      std::max(-3 * sd, std::log(std::max(table[q].low, 1e-9) / value)),
                      std::min(3 * sd, std::log(table[q].high / value))});
  };
  for (std::size_t q = 0; q < table.size(); ++q) {
    std::map<std::string, const Problem*> scopes;
    for (const Row& r : rows) {
      if (used(r, table[q].path))
        scopes.emplace(per_system(table[q].path) ? r.problem.system().name : family_of(r.problem),
                       &r.problem);
    }
    for (const auto& [scope, p] : scopes) add(scope, q, *p);
  }
  const auto n = static_cast<Eigen::Index>(rows.size()),
             k = static_cast<Eigen::Index>(thetas.size());
  std::fprintf(stderr, "%td rows, %td parameters\n", n, k);
  constexpr double kSigma = 0.05;
  Eigen::VectorXd x = Eigen::VectorXd::Zero(k), r(n);
  Eigen::MatrixXd J = Eigen::MatrixXd::Zero(n, k);
  const auto residuals = [&](const Eigen::VectorXd& at, Eigen::VectorXd& out) {
    parallel_for(rows.size(), 2, [&](int, std::size_t i) {
      Problem p = rows[i].problem;
      apply(p, thetas, at);
      out[static_cast<Eigen::Index>(i)] = std::log(predict(rows[i], p) / rows[i].measured);
    });
  };
  const auto cost = [&](const Eigen::VectorXd& at, const Eigen::VectorXd& res) {
    double c = 0;
    for (Eigen::Index i = 0; i < n; ++i) {
      const double z = std::abs(res[i] / kSigma);
      c += rows[static_cast<std::size_t>(i)].weight * (z <= 1.5 ? 0.5 * z * z : 1.5 * (z - 0.75));
    }
    for (Eigen::Index j = 0; j < k; ++j)
      c += 0.5 * std::pow(at[j] / thetas[static_cast<std::size_t>(j)].sd, 2);
    return c;
  };
  residuals(x, r);
  print_errors("priors", {r.data(), r.data() + n});
  Eigen::MatrixXd A;
  const auto solve = [&](const Eigen::VectorXd& at, const Eigen::VectorXd& res,
                         const std::string& without) {
    Eigen::MatrixXd H = Eigen::MatrixXd::Zero(k, k);
    Eigen::VectorXd g = Eigen::VectorXd::Zero(k);
    for (Eigen::Index i = 0; i < n; ++i) {
      const Row& row = rows[static_cast<std::size_t>(i)];
      if (row.group == without) continue;
      const double w = row.weight * huber_weight(res[i] / kSigma) / (kSigma * kSigma);
      H.noalias() += w * J.row(i).transpose() * J.row(i);
      g.noalias() += w * res[i] * J.row(i).transpose();
    }
    for (Eigen::Index j = 0; j < k; ++j) {
      const double p = 1 / std::pow(thetas[static_cast<std::size_t>(j)].sd, 2);
      H(j, j) += p;
      g[j] += p * at[j];
    }
    Eigen::VectorXd next = at - H.ldlt().solve(g);
    for (Eigen::Index j = 0; j < k; ++j) {
      const Theta& t = thetas[static_cast<std::size_t>(j)];
      next[j] = std::clamp(next[j], t.low, t.high);
    }
    return next;
  };
  for (int iteration = 0; iteration < iterations; ++iteration) {
    parallel_for(rows.size(), 2, [&](int, std::size_t i) {
      Problem p = rows[i].problem;
      apply(p, thetas, x);
      const double base = std::log(predict(rows[i], p));
      for (std::size_t j = 0; j < thetas.size(); ++j) {
        const Theta& t = thetas[j];
        double& cell = J(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j));
        cell = 0;
        const Parameter& q = table[static_cast<std::size_t>(t.parameter)];
        if ((t.scope != family_of(p) && t.scope != p.system().name) || !used(rows[i], q.path))
          continue;
        double& value = q.in(p.profile.calibration);
        const double kept = value;
        value *= std::exp(0.05);
        cell = (std::log(predict(rows[i], p)) - base) / 0.05;
        value = kept;
      }
    });
    const double before = cost(x, r);
    const Eigen::VectorXd full = solve(x, r, "") - x;
    for (double step = 1; step > 0.1; step /= 2) {
      Eigen::VectorXd trial = x + step * full, res(n);
      residuals(trial, res);
      if (cost(trial, res) < before) {
        x = trial;
        r = res;
        break;
      }
    }
    char label[32];
    std::snprintf(label, sizeof label, "iteration %d", iteration + 1);
    print_errors(label, {r.data(), r.data() + n});
  }
  // leave-one-group-out, linearised at the solution: re-solve without the group, three reweighted
  // rounds
  std::vector<double> left;
  for (const auto& [group, size] : sizes) {
    Eigen::VectorXd at = x, res = r;
    for (int round = 0; round < 3; ++round) {
      at = solve(at, res, group);
      res = r + J * (at - x);
    }
    for (Eigen::Index i = 0; i < n; ++i) {
      if (rows[static_cast<std::size_t>(i)].group == group) left.push_back(res[i]);
    }
  }
  print_errors("leave-one-group-out (lin.)", left);
  for (Eigen::Index j = 0; j < k; ++j) {
    const Theta& t = thetas[static_cast<std::size_t>(j)];
    std::printf("P\t%s\t%s\t%.6g\t%.3f\n", t.scope.c_str(),
                table[static_cast<std::size_t>(t.parameter)].path.c_str(), std::exp(x[j]),
                x[j] / t.sd);
  }
  for (Eigen::Index i = 0; i < n; ++i) {
    std::printf("R\t%s\t%s\t%.1f\n", rows[static_cast<std::size_t>(i)].id.c_str(),
                rows[static_cast<std::size_t>(i)].group.c_str(), 100 * (std::exp(-r[i]) - 1));
  }
  return 0;
}
