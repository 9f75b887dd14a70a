#include "calibrate/fit/least_squares.hpp"

#include <algorithm>
#include <cmath>

#include <Eigen/Dense>

namespace moecast {
namespace {

using Vector = Eigen::VectorXd;
using Matrix = Eigen::MatrixXd;
using Index = Eigen::Index;

constexpr double kHuber = 1.5;       // in standard deviations
constexpr double kStep = 1e-4;       // of the finite differences
constexpr double kMinScale = 0.004;  // timings are not better than this
constexpr double kMaxScale = 0.10;
constexpr int kIterations = 40;
constexpr int kRounds = 4;  // of the residuals' scale

/// One variable's scale: u = log v, or u = v / unit.
struct Coordinate {
  bool log = false;
  double unit = 1, low = 0, high = 0, prior = 0, prior_sd = 1;

  explicit Coordinate(const FitVariable& v) : log(v.low > 0) {
    unit = log ? 1 : std::max(std::abs(v.start), 0.02 * v.high);
    low = to_u(v.low);
    high = to_u(v.high);
    prior = to_u(v.start);
    prior_sd = std::max(v.prior_sd, 1e-3);
  }
  [[nodiscard]] double to_u(double v) const { return log ? std::log(v) : v / unit; }
  [[nodiscard]] double to_v(double u) const { return log ? std::exp(u) : u * unit; }
};

class Solver {
 public:
  Solver(const std::vector<FitVariable>& variables, std::size_t points, const Residuals& f)
      : f_(f), n_(points) {
    for (const FitVariable& v : variables) at_.emplace_back(v);
  }

  FitSolution run() {
    Vector u(size());
    for (Index j = 0; j < size(); ++j) u[j] = std::clamp(c(j).prior, c(j).low, c(j).high);
    scale_ = kMaxScale;
    for (int round = 0; round < kRounds; ++round) {
      descend(u);
      std::vector<double> absolute;
      for (const double r : residuals(u)) absolute.push_back(std::abs(r));
      scale_ = std::clamp(1.4826 * quantile(absolute, 0.5), kMinScale, kMaxScale);
    }
    return solution(u);
  }

 private:
  [[nodiscard]] Index size() const { return static_cast<Index>(at_.size()); }
  [[nodiscard]] const Coordinate& c(Index j) const { return at_[static_cast<std::size_t>(j)]; }

  [[nodiscard]] std::vector<double> values(const Vector& u) const {
    std::vector<double> v;
    for (Index j = 0; j < size(); ++j) v.push_back(c(j).to_v(u[j]));
    return v;
  }
  [[nodiscard]] std::vector<double> residuals(const Vector& u) const {
    std::vector<double> r(n_);
    f_(values(u), r);
    return r;
  }
  [[nodiscard]] double weight(double r) const {
    const double z = std::abs(r / scale_);
    return z <= kHuber ? 1 : kHuber / z;
  }
  [[nodiscard]] double cost(const Vector& u, const std::vector<double>& r) const {
    double sum = 0;
    for (const double x : r) {
      const double z = std::abs(x / scale_);
      sum += z <= kHuber ? 0.5 * z * z : kHuber * (z - 0.5 * kHuber);
    }
    for (Index j = 0; j < size(); ++j)
      sum += 0.5 * std::pow((u[j] - c(j).prior) / c(j).prior_sd, 2);
    return sum;
  }

  /// Gauss-Newton matrix and gradient of the cost.
  void linearise(const Vector& u, const std::vector<double>& r, Matrix& h, Vector& g) const {
    Matrix jacobian(static_cast<Index>(n_), size());
    for (Index j = 0; j < size(); ++j) {
      Vector moved = u;
      const double step = u[j] + kStep > c(j).high ? -kStep : kStep;
      moved[j] += step;
      const std::vector<double> there = residuals(moved);
      for (std::size_t i = 0; i < n_; ++i)
        jacobian(static_cast<Index>(i), j) = (there[i] - r[i]) / step;
    }
    h = Matrix::Zero(size(), size());
    g = Vector::Zero(size());
    for (Index i = 0; i < static_cast<Index>(n_); ++i) {
      const double x = r[static_cast<std::size_t>(i)];
      const double w = weight(x) / (scale_ * scale_);
      h.noalias() += w * jacobian.row(i).transpose() * jacobian.row(i);
      g.noalias() += w * x * jacobian.row(i).transpose();
    }
    for (Index j = 0; j < size(); ++j) {
      h(j, j) += 1 / (c(j).prior_sd * c(j).prior_sd);
      g[j] += (u[j] - c(j).prior) / (c(j).prior_sd * c(j).prior_sd);
    }
  }

  /// A damped step; variables at a bound that the gradient pushes outwards stay there.
  [[nodiscard]] Vector step(const Vector& u, Matrix h, Vector g, double damping) const {
    for (Index j = 0; j < size(); ++j) {
      h(j, j) *= 1 + damping;
      if ((u[j] <= c(j).low && g[j] > 0) || (u[j] >= c(j).high && g[j] < 0)) {
        h.row(j).setZero();
        h.col(j).setZero();
        h(j, j) = 1;
        g[j] = 0;
      }
    }
    Vector next = u - h.ldlt().solve(g);
    for (Index j = 0; j < size(); ++j) next[j] = std::clamp(next[j], c(j).low, c(j).high);
    return next;
  }

  void descend(Vector& u) const {
    std::vector<double> r = residuals(u);
    double best = cost(u, r), damping = 1e-3;
    Matrix h;
    Vector g;
    for (int i = 0; i < kIterations; ++i) {
      linearise(u, r, h, g);
      bool moved = false;
      for (; damping < 1e6 && !moved; damping *= moved ? 1 : 8) {
        const Vector trial = step(u, h, g, damping);
        const std::vector<double> there = residuals(trial);
        const double value = cost(trial, there);
        if (!(value < best)) continue;
        moved = best - value > 1e-9 * best;
        u = trial;
        r = there;
        best = value;
        damping = std::max(damping / 8, 1e-7);
        break;
      }
      if (!moved) return;
    }
  }

  [[nodiscard]] FitSolution solution(const Vector& u) const {
    Matrix h;
    Vector g;
    linearise(u, residuals(u), h, g);
    const Matrix covariance = h.ldlt().solve(Matrix::Identity(size(), size()));
    FitSolution out{values(u), {}, scale_};
    for (Index j = 0; j < size(); ++j) {
      const double sd = std::sqrt(std::max(covariance(j, j), 0.0));
      const double value = std::abs(out.values[static_cast<std::size_t>(j)]);
      out.sds.push_back(c(j).log ? sd : value > 0 ? sd * c(j).unit / value : 1);
    }
    return out;
  }

  const Residuals& f_;
  std::size_t n_;
  std::vector<Coordinate> at_;
  double scale_ = kMaxScale;
};

}  // namespace

FitSolution fit_robust(const std::vector<FitVariable>& variables, std::size_t points,
                       const Residuals& residuals) {
  return Solver(variables, points, residuals).run();
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::size_t>(std::lround(q * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

}  // namespace moecast
