// Expert GEMM: one cublasLt call per expert over four streams, as TransformerEngine's default, and
// one launch for all experts (cuBLAS grouped batched).
#include <map>

#include "calibrate/cuda/lt_gemm.hpp"
#include "calibrate/cuda/sections.hpp"
#include "calibrate/shapes.hpp"

namespace moecast::cuda {
namespace {

struct GroupedProblem {
  std::vector<int> rows;  ///< of each expert
  int n, k;
  std::string precision, pass;
};

/// Addresses of every expert's operands in one set of buffers.
class GroupedOperands {
 public:
  GroupedOperands(Gpu& gpu, const GroupedProblem& p, unsigned seed);
  std::vector<GemmOperands> of_expert;
};

int bits_of(const std::string& precision) {
  return precision == "bf16" ? 16 : precision == "nvfp4" ? 4 : 8;
}

void fill_bits(Gpu& gpu, void* data, int bits, std::size_t n, unsigned seed) {
  if (bits == 16)
    fill_normal(static_cast<bf16*>(data), n, seed, gpu.stream);
  else if (bits == 8)
    fill_normal_fp8(data, Fp8::e4m3, n, seed, gpu.stream);
  else
    fill_int(static_cast<int*>(data), n / 8, 1 << 30, seed, gpu.stream);
}

/// Weights [experts][n][k], tokens [rows][k] and [rows][n], weight gradients FP32; scales are
/// shared.
GroupedOperands::GroupedOperands(Gpu& gpu, const GroupedProblem& p, unsigned seed) {
  const int bits = bits_of(p.precision);
  std::size_t tokens = 0;
  for (const int r : p.rows) tokens += static_cast<std::size_t>(r);
  const std::size_t n = static_cast<std::size_t>(p.n), k = static_cast<std::size_t>(p.k),
                    weight = n * k;
  const bool is_wgrad = p.pass == "wgrad", is_forward = p.pass == "forward";
  const std::size_t a_elements = is_wgrad ? tokens * k : p.rows.size() * weight;
  const std::size_t b_width = is_forward ? k : n, out_width = is_forward ? n : k;
  auto* a = static_cast<char*>(gpu.arena->take(a_elements * bits / 8));
  auto* b = static_cast<char*>(gpu.arena->take(tokens * b_width * bits / 8));
  fill_bits(gpu, a, bits, a_elements, seed);
  fill_bits(gpu, b, bits, tokens * b_width, seed + 1);
  const std::size_t out_bytes = is_wgrad ? p.rows.size() * weight * 4 : tokens * out_width * 2;
  auto* out = static_cast<char*>(gpu.arena->take(out_bytes));
  check(cudaMemsetAsync(out, is_wgrad ? 0 : 0xff, out_bytes, gpu.stream));
  float* scales = nullptr;
  if (bits != 16) {
    const std::size_t count =
        (std::max(tokens, n) + 128) * (std::max(tokens, std::max(n, k)) / 128 + 4);
    scales = gpu.arena->take<float>(count);
    if (p.precision.starts_with("fp8"))
      fill_scales(scales, count, seed + 2, gpu.stream);
    else
      check(cudaMemsetAsync(scales, p.precision == "mxfp8" ? 127 : 0x38, count * sizeof(float),
                            gpu.stream));
  }
  std::size_t row = 0;
  for (std::size_t e = 0; e < p.rows.size(); ++e) {
    GemmOperands o{};
    o.a = a + (is_wgrad ? row * k : e * weight) * bits / 8;
    o.b = b + row * b_width * bits / 8;
    o.out = out + (is_wgrad ? e * weight * 4 : row * out_width * 2);
    o.a_scale = o.b_scale = scales;
    of_expert.push_back(o);
    row += static_cast<std::size_t>(p.rows[e]);
  }
}

std::size_t bytes_of(const GroupedProblem& p) {
  std::size_t tokens = 0;
  for (const int r : p.rows) tokens += static_cast<std::size_t>(r);
  const auto n = static_cast<std::size_t>(p.n), k = static_cast<std::size_t>(p.k);
  const std::size_t weight_bytes = p.pass == "wgrad" ? 4 : bits_of(p.precision) / 8 + 1;
  return p.rows.size() * n * k * weight_bytes + tokens * (n + k) * 2;
}

/// One plan per distinct number of rows; experts in turn over the side streams.
class MultiStream {
 public:
  MultiStream(Gpu& gpu, const GroupedProblem& p) : gpu_(gpu) {
    for (const int rows : p.rows) {
      auto& plan = by_rows_[rows];
      if (plan == nullptr)
        plan = std::make_unique<LtGemm>(gpu, GemmProblem{rows, p.n, p.k, p.precision, p.pass});
      plans_.push_back(plan.get());
    }
  }
  void run(const std::vector<GemmOperands>& experts, cudaStream_t s) const {
    check(cudaEventRecord(gpu_.fork, s));
    for (cudaStream_t side : gpu_.side) check(cudaStreamWaitEvent(side, gpu_.fork, 0));
    for (std::size_t e = 0; e < experts.size(); ++e) {
      const std::size_t lane = e % kSideStreams;
      plans_[e]->run(experts[e], gpu_.workspace[lane + 1], gpu_.side[lane]);
    }
    for (std::size_t i = 0; i < kSideStreams; ++i) {
      check(cudaEventRecord(gpu_.join[i], gpu_.side[i]));
      check(cudaStreamWaitEvent(s, gpu_.join[i], 0));
    }
  }
  [[nodiscard]] const LtGemm& plan(std::size_t expert) const { return *plans_[expert]; }

 private:
  Gpu& gpu_;
  std::map<int, std::unique_ptr<LtGemm>> by_rows_;
  std::vector<const LtGemm*> plans_;
};

/// cublasGemmGroupedBatchedEx with one group per expert. BF16 only.
class SingleLaunch {
 public:
  SingleLaunch(Gpu& gpu, const GroupedProblem& p) : gpu_(gpu), is_wgrad_(p.pass == "wgrad") {
    if (p.precision != "bf16") throw Unsupported("grouped batched GEMM is BF16 only");
    const bool is_forward = p.pass == "forward";
    for (const int rows : p.rows) {
      const int outer_a = is_forward ? p.n : p.k, outer_b = is_wgrad_ ? p.n : rows;
      const int depth = is_forward ? p.k : is_wgrad_ ? rows : p.n;
      m_.push_back(outer_a);
      n_.push_back(outer_b);
      k_.push_back(depth);
      lda_.push_back(is_forward ? depth : outer_a);
      ldb_.push_back(is_wgrad_ ? outer_b : depth);
      ldc_.push_back(outer_a);
    }
    const std::size_t groups = p.rows.size();
    op_a_.assign(groups, is_forward ? CUBLAS_OP_T : CUBLAS_OP_N);
    op_b_.assign(groups, is_wgrad_ ? CUBLAS_OP_T : CUBLAS_OP_N);
    alpha_.assign(groups, 1.f);
    beta_.assign(groups, is_wgrad_ ? 1.f : 0.f);
    size_.assign(groups, 1);
  }
  /// Device copies of the operands' addresses.
  [[nodiscard]] std::array<void**, 3> upload(const std::vector<GemmOperands>& experts) const {
    std::array<std::vector<void*>, 3> host;
    for (const GemmOperands& o : experts) {
      host[0].push_back(o.a);
      host[1].push_back(o.b);
      host[2].push_back(o.out);
    }
    std::array<void**, 3> device{};
    for (std::size_t i = 0; i < 3; ++i) {
      device[i] = gpu_.arena->take<void*>(experts.size());
      gpu_.upload(device[i], host[i].data(), experts.size() * sizeof(void*));
    }
    return device;
  }
  void run(const std::array<void**, 3>& address, cudaStream_t s) const {
    check(cublasSetStream(gpu_.cublas, s));
    check(cublasSetWorkspace(gpu_.cublas, gpu_.workspace[0], kWorkspaceBytes));
    const cublasStatus_t status = cublasGemmGroupedBatchedEx(
        gpu_.cublas, op_a_.data(), op_b_.data(), m_.data(), n_.data(), k_.data(), alpha_.data(),
        address[0], CUDA_R_16BF, lda_.data(), address[1], CUDA_R_16BF, ldb_.data(), beta_.data(),
        address[2], is_wgrad_ ? CUDA_R_32F : CUDA_R_16BF, ldc_.data(),
        static_cast<int>(size_.size()), size_.data(), CUBLAS_COMPUTE_32F);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
      throw Unsupported("cuBLAS grouped batched GEMM");
    check(status);
  }

 private:
  Gpu& gpu_;
  bool is_wgrad_;
  std::vector<cublasOperation_t> op_a_, op_b_;
  std::vector<int> m_, n_, k_, lda_, ldb_, ldc_, size_;
  std::vector<float> alpha_, beta_;
};

/// Experts 0, the middle and the last, after one run into outputs that held 0 (wgrad) or NaN.
double verify(Gpu& gpu, const MultiStream& plans, const std::vector<GemmOperands>& experts,
              double bound) {
  double worst = 0;
  for (const std::size_t e : {std::size_t{0}, experts.size() / 2, experts.size() - 1}) {
    void* zeros = gpu.arena->take(plans.plan(e).out_bytes());
    check(cudaMemsetAsync(zeros, 0, plans.plan(e).out_bytes(), gpu.stream));
    worst = std::max(worst, require_error_below(plans.plan(e).error_of(experts[e], zeros), bound));
  }
  return worst;
}

Work prepare(Gpu& gpu, const GroupedProblem& problem, bool is_single_launch) {
  const double bound = problem.precision == "bf16" ? 5e-3 : 2e-2;
  Work work;
  work.copies = gpu.copies_beyond_l2(bytes_of(problem));
  const auto multi = std::make_shared<MultiStream>(gpu, problem);
  std::vector<std::vector<GemmOperands>> sets;
  for (int i = 0; i < work.copies; ++i)
    sets.push_back(GroupedOperands(gpu, problem, static_cast<unsigned>(5 * i + 1)).of_expert);
  if (is_single_launch) {
    const auto single = std::make_shared<SingleLaunch>(gpu, problem);
    std::vector<std::array<void**, 3>> addresses;
    for (const auto& set : sets) addresses.push_back(single->upload(set));
    single->run(addresses[0], gpu.stream);
    work.launch = [single, addresses](cudaStream_t s, int copy) {
      single->run(addresses[static_cast<std::size_t>(copy)], s);
    };
  } else {
    multi->run(sets[0], gpu.stream);
    work.launch = [multi, sets](cudaStream_t s, int copy) {
      multi->run(sets[static_cast<std::size_t>(copy)], s);
    };
  }
  work.rel_error = verify(gpu, *multi, sets[0], bound);
  return work;
}

/// Where one launch can win over one per expert; cuBLAS has no FP32 result (wgrad) for it.
bool is_single_launch_shape(const GroupedShape& shape) {
  return (shape.experts == 8 || shape.experts == 32) && shape.tokens_per_expert <= 1024;
}

}  // namespace

void measure_grouped(Bench& bench) {
  for (const std::string& precision : gemm_precisions(bench.gpu)) {
    for (const GroupedShape& shape : grouped_shapes(bench.grid)) {
      if (precision != "bf16" && !shape.is_core) continue;
      const std::vector<int> rows =
          rows_per_expert(shape.experts, shape.tokens_per_expert, shape.is_skewed);
      for (const char* pass : {"forward", "dgrad", "wgrad"}) {
        const GroupedProblem problem{rows, shape.n, shape.k, precision, pass};
        KernelKeys keys{{"tokens", double(shape.experts) * shape.tokens_per_expert},
                        {"experts", double(shape.experts)},
                        {"n", double(shape.n)},
                        {"k", double(shape.k)},
                        {"precision", precision},
                        {"pass", pass},
                        {"skew", rounded(skew_of(rows))}};
        bench.measure({"grouped_gemm", keys, "cublaslt_multistream"}, {Mode::sustained},
                      [&] { return prepare(bench.gpu, problem, false); });
        if (precision == "bf16" && pass != std::string("wgrad") && is_single_launch_shape(shape))
          bench.measure({"grouped_gemm", keys, "cublas_grouped"}, {Mode::sustained},
                        [&] { return prepare(bench.gpu, problem, true); });
      }
    }
  }
}

}  // namespace moecast::cuda
