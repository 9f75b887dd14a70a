#include "calibrate/cuda/lt_gemm.hpp"

#include <algorithm>
#include <cstdint>

namespace moecast::cuda {

/// How a recipe of TransformerEngine multiplies: element types, scales and accumulation per pass
/// (forward, dgrad, wgrad; a is the weight or the input, b the input or the gradient).
struct PrecisionTraits {
  const char* name;
  int min_major, below_major;
  cudaDataType_t a_type, b_type, gradient_type;
  int bits;
  int a_scale[3], b_scale[3];
  bool fast_accumulation[3];
};

namespace {

constexpr int kPerTensor = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
constexpr int kVector128 = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
constexpr int kBlock128 = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
constexpr int kMx32 = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
constexpr int kNv16 = CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;

constexpr PrecisionTraits kPrecisions[] = {
    {"bf16", 8, 99, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, 16, {}, {}, {}},
    {"fp8_tensorwise",
     9,
     99,
     CUDA_R_8F_E4M3,
     CUDA_R_8F_E4M3,
     CUDA_R_8F_E5M2,
     8,
     {kPerTensor, kPerTensor, kPerTensor},
     {kPerTensor, kPerTensor, kPerTensor},
     {true, false, false}},
    // cuBLAS has 1x128 and 128x128 scales on Hopper only.
    {"fp8_blockwise",
     9,
     10,
     CUDA_R_8F_E4M3,
     CUDA_R_8F_E4M3,
     CUDA_R_8F_E4M3,
     8,
     {kBlock128, kBlock128, kVector128},
     {kVector128, kVector128, kVector128},
     {}},
    {"mxfp8",
     10,
     99,
     CUDA_R_8F_E4M3,
     CUDA_R_8F_E4M3,
     CUDA_R_8F_E4M3,
     8,
     {kMx32, kMx32, kMx32},
     {kMx32, kMx32, kMx32},
     {}},
    {"nvfp4",
     10,
     99,
     CUDA_R_4F_E2M1,
     CUDA_R_4F_E2M1,
     CUDA_R_4F_E2M1,
     4,
     {kNv16, kNv16, kNv16},
     {kNv16, kNv16, kNv16},
     {}},
};

const PrecisionTraits& traits_of(const std::string& name) {
  const auto* found = std::find_if(std::begin(kPrecisions), std::end(kPrecisions),
                                   [&](const auto& p) { return p.name == name; });
  if (found == std::end(kPrecisions)) throw Unsupported("no GEMM in " + name);
  return *found;
}

bool runs_on(const PrecisionTraits& p, const Gpu& gpu) {
  return gpu.has(p.min_major) && gpu.properties.major < p.below_major;
}

int compare_type(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_8F_E4M3:
      return 1;
    case CUDA_R_8F_E5M2:
      return 2;
    case CUDA_R_4F_E2M1:
      return 4;
    default:
      return 0;
  }
}

template <typename T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)));
}

int blocks(int n, int block) { return (n + block - 1) / block; }
int up(int n, int to) { return blocks(n, to) * to; }

}  // namespace

std::vector<std::string> gemm_precisions(const Gpu& gpu) {
  std::vector<std::string> names;
  for (const auto& p : kPrecisions)
    if (runs_on(p, gpu)) names.emplace_back(p.name);
  return names;
}

// cublasLt is column-major: a row-major [rows, cols] is its cols x rows. With y = x w^T, dx = dy w,
// dw = dy^T x:
//   forward  w^T (n x k) x^T (k x m),  dgrad  w^T (k x n) dy^T (n x m),  wgrad  x^T (k x m) dy (m x
//   n)
// BF16 takes operands as they lie (TN, NN, NT); 8 and 4 bits want both k-major (TN):
// TransformerEngine keeps transposed copies.
LtGemm::LtGemm(Gpu& gpu, const GemmProblem& p) : gpu_(gpu), traits_(&traits_of(p.precision)) {
  if (!runs_on(*traits_, gpu)) throw Unsupported(p.precision + " is not on this GPU");
  const int pass = p.pass == "forward" ? 0 : p.pass == "dgrad" ? 1 : 2;
  is_wgrad_ = pass == 2;
  a_.outer = pass == 0 ? p.n : p.k;
  b_.outer = pass == 2 ? p.n : p.m;
  depth_ = pass == 0 ? p.k : pass == 1 ? p.n : p.m;
  const bool is_bf16 = traits_->bits == 16;
  a_.is_k_major = !is_bf16 || pass == 0;
  b_.is_k_major = !is_bf16 || pass != 2;
  a_.type = traits_->a_type;
  b_.type = pass == 0 ? traits_->b_type : traits_->gradient_type;
  a_.scale_mode = traits_->a_scale[pass];
  b_.scale_mode = traits_->b_scale[pass];
  for (Side* side : {&a_, &b_}) side->compare_type = compare_type(side->type);
  describe_layouts();
  set(desc_.get(), CUBLASLT_MATMUL_DESC_FAST_ACCUM,
      static_cast<std::int8_t>(traits_->fast_accumulation[pass]));
  choose_algorithm();
}

void LtGemm::describe_layouts() {
  cublasLtMatmulDesc_t desc = nullptr;
  check(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  desc_.reset(desc);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, a_.is_k_major ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSB, b_.is_k_major ? CUBLAS_OP_N : CUBLAS_OP_T);
  const auto layout = [](cudaDataType_t type, int rows, int cols) {
    cublasLtMatrixLayout_t out = nullptr;
    check(cublasLtMatrixLayoutCreate(&out, type, static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(cols), rows));
    return Layout(out);
  };
  const auto layout_of = [&](const Side& side) {
    return side.is_k_major ? layout(side.type, depth_, side.outer)
                           : layout(side.type, side.outer, depth_);
  };
  layout_a_ = layout_of(a_);
  layout_b_ = layout_of(b_);
  layout_out_ = layout(is_wgrad_ ? CUDA_R_32F : CUDA_R_16BF, a_.outer, b_.outer);
  if (traits_->bits == 16) return;
  set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, static_cast<std::int32_t>(a_.scale_mode));
  set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, static_cast<std::int32_t>(b_.scale_mode));
  // The heuristic wants to see scales; every call sets its own.
  set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, gpu_.workspace[0]);
  set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, gpu_.workspace[0]);
}

void LtGemm::choose_algorithm() {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference));
  const std::uint64_t bytes = kWorkspaceBytes;
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &bytes, sizeof(bytes)));
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      gpu_.lt, desc_.get(), layout_a_.get(), layout_b_.get(), layout_out_.get(), layout_out_.get(),
      preference, 1, &result, &found);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0))
    throw Unsupported(std::string("cublasLt has no such GEMM in ") + traits_->name);
  check(status);
  algorithm_ = result.algo;
}

void LtGemm::run(const GemmOperands& o, void* workspace, cudaStream_t s) const {
  if (traits_->bits != 16) {
    set(desc_.get(), CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, o.a_scale);
    set(desc_.get(), CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, o.b_scale);
  }
  const float alpha = 1, beta = is_wgrad_ ? 1 : 0;
  check(cublasLtMatmul(gpu_.lt, desc_.get(), &alpha, o.a, layout_a_.get(), o.b, layout_b_.get(),
                       &beta, o.out, layout_out_.get(), o.out, layout_out_.get(), &algorithm_,
                       workspace, kWorkspaceBytes, s));
}

std::size_t LtGemm::side_bytes(const Side& side) const {
  return static_cast<std::size_t>(side.outer) * static_cast<std::size_t>(depth_) * traits_->bits /
         8;
}

// Sizes and strides of scales: cuBLAS documentation, "Scaling Factors Layouts".
std::size_t LtGemm::scale_bytes(const Side& side) const {
  const auto outer = static_cast<std::size_t>(up(side.outer, 128));
  switch (side.scale_mode) {
    case kVector128:
      return sizeof(float) * up(side.outer, 4) * blocks(depth_, 128);
    case kBlock128:
      return sizeof(float) * up(blocks(depth_, 128), 4) * blocks(side.outer, 128);
    case kMx32:
      return outer * up(blocks(depth_, 32), 4);
    case kNv16:
      return outer * up(blocks(depth_, 16), 4);
    default:
      return sizeof(float);
  }
}

std::size_t LtGemm::bytes() const { return side_bytes(a_) + side_bytes(b_) + out_bytes(); }

void LtGemm::fill(const Side& side, void* data, void* scale, unsigned seed) const {
  const auto n = static_cast<std::size_t>(side.outer) * static_cast<std::size_t>(depth_);
  switch (side.type) {
    case CUDA_R_16BF:
      return fill_normal(static_cast<bf16*>(data), n, seed, gpu_.stream);
    case CUDA_R_8F_E4M3:
      fill_normal_fp8(data, Fp8::e4m3, n, seed, gpu_.stream);
      break;
    case CUDA_R_8F_E5M2:
      fill_normal_fp8(data, Fp8::e5m2, n, seed, gpu_.stream);
      break;
    default:
      fill_int(static_cast<int*>(data), n / 8, 1 << 30, seed, gpu_.stream);
  }
  // Mx and nv scales are swizzled: all one (E8M0 127, E4M3 0x38), which needs no order.
  if (side.scale_mode == kMx32 || side.scale_mode == kNv16)
    check(cudaMemsetAsync(scale, side.scale_mode == kMx32 ? 127 : 0x38, scale_bytes(side),
                          gpu_.stream));
  else
    fill_scales(static_cast<float*>(scale), scale_bytes(side) / sizeof(float), seed + 7,
                gpu_.stream);
}

GemmOperands LtGemm::take(unsigned seed) const {
  GemmOperands o{};
  o.a = gpu_.arena->take(side_bytes(a_));
  o.b = gpu_.arena->take(side_bytes(b_));
  o.out = gpu_.arena->take(out_bytes());
  if (traits_->bits != 16) {
    o.a_scale = gpu_.arena->take(scale_bytes(a_));
    o.b_scale = gpu_.arena->take(scale_bytes(b_));
  }
  fill(a_, o.a, o.a_scale, seed);
  fill(b_, o.b, o.b_scale, seed + 1);
  if (is_wgrad_)
    fill_normal(static_cast<float*>(o.out), out_bytes() / sizeof(float), seed + 2, gpu_.stream);
  else
    check(
        cudaMemsetAsync(o.out, 0xff, out_bytes(), gpu_.stream));  // NaN: what is not written shows
  return o;
}

Strided LtGemm::strided(const Side& side, const void* data, const void* scale) const {
  Strided t{data,
            side.compare_type,
            side.is_k_major ? depth_ : 1,
            side.is_k_major ? 1 : side.outer,
            nullptr,
            1,
            1,
            0,
            0};
  if (traits_->bits == 16 || side.scale_mode == kMx32 || side.scale_mode == kNv16) return t;
  t.scales = static_cast<const float*>(scale);
  t.scale_rows = side.scale_mode == kVector128 ? 1 : 128;
  t.scale_cols = 128;
  if (side.scale_mode == kVector128) {
    t.scale_row = 1;
    t.scale_col = up(side.outer, 4);
  } else if (side.scale_mode == kBlock128) {
    t.scale_row = up(blocks(depth_, 128), 4);
    t.scale_col = 1;
  }
  return t;
}

std::size_t LtGemm::out_bytes() const {
  return static_cast<std::size_t>(a_.outer) * static_cast<std::size_t>(b_.outer) *
         (is_wgrad_ ? 4 : 2);
}

double LtGemm::error_of(const GemmOperands& o, const void* before) const {
  constexpr int kSamples = 1024;
  const Strided out{o.out, is_wgrad_ ? 3 : 0, 1, a_.outer, nullptr, 1, 1, 0, 0};
  Strided base = out;
  base.data = is_wgrad_ ? before : nullptr;
  compare_gemm(strided(a_, o.a, o.a_scale), strided(b_, o.b, o.b_scale), out, base, a_.outer,
               b_.outer, depth_, kSamples, gpu_.error_sums, gpu_.stream);
  return gpu_.relative_error();
}

double LtGemm::verify(const GemmOperands& o) const {
  void* before = is_wgrad_ ? gpu_.arena->take(out_bytes()) : nullptr;
  if (is_wgrad_)
    check(cudaMemcpyAsync(before, o.out, out_bytes(), cudaMemcpyDeviceToDevice, gpu_.stream));
  run(o, gpu_.workspace[0], gpu_.stream);
  return error_of(o, before);
}

}  // namespace moecast::cuda
