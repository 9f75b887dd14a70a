#pragma once
/// One GEMM of a linear layer through cublasLt, as TransformerEngine calls it.
#include <string>

#include "calibrate/cuda/gpu.hpp"
#include "calibrate/cuda/kernels.hpp"

namespace moecast::cuda {

/// m, n, k are those of the layer's forward GEMM in every pass.
struct GemmProblem {
  int m, n, k;
  std::string precision, pass;
};

/// Device addresses of one GEMM: out = a b (forward, dgrad) or out += a b (wgrad, FP32).
struct GemmOperands {
  void *a, *b, *out;
  void *a_scale, *b_scale;  ///< null for BF16
};

struct PrecisionTraits;

class LtGemm {
 public:
  /// Throws Unsupported when this GPU or library does not have it.
  LtGemm(Gpu& gpu, const GemmProblem& problem);
  void run(const GemmOperands& operands, void* workspace, cudaStream_t s) const;
  /// Fresh operands of random data from the arena.
  [[nodiscard]] GemmOperands take(unsigned seed) const;
  [[nodiscard]] std::size_t bytes() const;
  /// One call on `operands` against FP64 sums.
  [[nodiscard]] double verify(const GemmOperands& operands) const;
  /// Of a call that is over; `before` is what `out` held (wgrad adds to it).
  [[nodiscard]] double error_of(const GemmOperands& operands, const void* before) const;
  [[nodiscard]] std::size_t out_bytes() const;

 private:
  struct Delete {
    void operator()(cublasLtMatmulDescOpaque_t* p) const { cublasLtMatmulDescDestroy(p); }
    void operator()(cublasLtMatrixLayoutOpaque_t* p) const { cublasLtMatrixLayoutDestroy(p); }
  };
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Delete>;
  struct Side {
    int outer = 0;  ///< rows of a, columns of b
    bool is_k_major = true;
    cudaDataType_t type = CUDA_R_16BF;
    int compare_type = 0;
    int scale_mode = 0;
  };
  [[nodiscard]] std::size_t side_bytes(const Side& side) const;
  [[nodiscard]] std::size_t scale_bytes(const Side& side) const;
  [[nodiscard]] Strided strided(const Side& side, const void* data, const void* scale) const;
  void fill(const Side& side, void* data, void* scale, unsigned seed) const;
  void describe_layouts();
  void choose_algorithm();

  Gpu& gpu_;
  const PrecisionTraits* traits_;
  Side a_, b_;
  int depth_ = 0;  ///< the summed dimension
  bool is_wgrad_ = false;
  std::unique_ptr<cublasLtMatmulDescOpaque_t, Delete> desc_;
  Layout layout_a_, layout_b_, layout_out_;
  cublasLtMatmulAlgo_t algorithm_{};
};

/// Precisions that this GPU multiplies in.
std::vector<std::string> gemm_precisions(const Gpu& gpu);

}  // namespace moecast::cuda
