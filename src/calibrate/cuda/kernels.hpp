#pragma once
/// Launchers of our own kernels, for code that the C++ compiler compiles. Matrices are row-major.
#include <cstddef>
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace moecast::cuda {

using bf16 = __nv_bfloat16;

/// How a quantised tensor is scaled.
enum class Scaling { per_tensor, block128, mx32 };
enum class Fp8 { e4m3, e5m2 };

// fill.cu: random data, so that clocks and power are those of training
void fill_normal(bf16* out, std::size_t n, unsigned seed, cudaStream_t s, float sigma = 1.f);
void fill_normal(float* out, std::size_t n, unsigned seed, cudaStream_t s, float sigma = 1.f);
void fill_normal_fp8(void* out, Fp8 type, std::size_t n, unsigned seed, cudaStream_t s);
/// Powers of two from 1/4 to 2.
void fill_scales(float* out, std::size_t n, unsigned seed, cudaStream_t s);
void fill_int(int* out, std::size_t n, int below, unsigned seed, cudaStream_t s);
/// Occupies the stream until *flag (mapped host memory) is not 0: work behind it starts together.
void hold(const volatile int* flag, cudaStream_t s);
void empty_kernel(cudaStream_t s);

// norm.cu
void rms_norm(const bf16* x, const bf16* weight, bf16* y, float* rstd, int rows, int cols,
              cudaStream_t s);
/// `partial` holds rms_norm_blocks() x cols floats.
void rms_norm_backward(const bf16* dy, const bf16* x, const bf16* weight, const float* rstd,
                       bf16* dx, float* partial, float* dweight, int rows, int cols,
                       cudaStream_t s);
int rms_norm_blocks();

// activation.cu: x = [gate | up] of 2 cols; probs may be null
void swiglu(const bf16* x, const float* probs, bf16* y, int rows, int cols, cudaStream_t s);
void swiglu_backward(const bf16* dy, const bf16* x, const float* probs, bf16* dx, float* dprobs,
                     int rows, int cols, cudaStream_t s);

// elementwise.cu
void copy(const bf16* x, bf16* y, std::size_t n, cudaStream_t s);
void residual(const bf16* x, const bf16* y, bf16* z, std::size_t n, cudaStream_t s);
/// BF16 times *scale to FP8 (e4m3).
void cast(const bf16* x, const float* scale, void* y, std::size_t n, cudaStream_t s);
/// Heads of 128, halves rotated; cos_sin is [rows][64] of (cos, sin).
void rope(const bf16* x, const float2* cos_sin, bf16* y, int rows, int cols, cudaStream_t s);
/// FP32 gradient, master, moments; writes the BF16 weight.
void adam(const float* grad, float* master, float* m, float* v, bf16* weight, std::size_t n,
          cudaStream_t s);
/// Copies with `sms` blocks of one SM each.
void copy_on_sms(const void* x, void* y, std::size_t bytes, int sms, cudaStream_t s);

// loss.cu
/// Softmax over experts, then top-k; dense probabilities and map, as Megatron's router returns
/// them.
void router(const float* logits, float* probs, std::uint8_t* map, int rows, int experts, int topk,
            cudaStream_t s);
/// Loss and gradient in one kernel; the gradient replaces nothing (dlogits is another buffer).
void cross_entropy(const bf16* logits, const int* target, float* loss, bf16* dlogits, int rows,
                   int vocab, cudaStream_t s);

// quantize.cu: rowwise and columnwise copies in one pass (columnwise is transposed but for mx32)
void quantize(Scaling scaling, const bf16* x, void* rowwise, void* columnwise, float* row_scales,
              float* col_scales, const float* tensor_scale, float* amax, int rows, int cols,
              cudaStream_t s);
void amax(const bf16* x, float* out, std::size_t n, cudaStream_t s);

// permute.cu
/// Sorts the (token, slot) pairs by expert: rank_of[token][slot] is the row in expert order,
/// offsets[experts] where each expert's rows start. `counts` is scratch of sort_scratch() ints.
void sort_by_expert(const int* expert_of, int* rank_of, int* offsets, int* scratch, int tokens,
                    int topk, int experts, cudaStream_t s);
std::size_t sort_scratch(int tokens, int topk, int experts);
/// source_of[row] = token, the index of the unfused permute.
void invert_rows(const int* rank_of, int* source_of, int tokens, int topk, cudaStream_t s);
/// `sms`: of as many blocks, one an SM; 0 = as many as there are tokens.
void permute_fused(const bf16* x, const int* rank_of, bf16* y, int tokens, int topk, int cols,
                   int sms, cudaStream_t s);
void permute_gather(const bf16* x, const int* source_of, bf16* y, int rows, int cols,
                    cudaStream_t s);
void unpermute_fused(const bf16* y, const int* rank_of, const float* probs, bf16* x, int tokens,
                     int topk, int cols, int sms, cudaStream_t s);
/// The unfused unpermute: multiply by probabilities, clear, add row by row into FP32, round.
void unpermute_scatter(const bf16* y, const int* source_of, const float* row_probs, bf16* scaled,
                       float* sums, bf16* x, int rows, int tokens, int cols, cudaStream_t s);

// compare.cu
struct Strided {
  const void* data;
  int type;                           ///< 0 bf16, 1 e4m3, 2 e5m2, 3 float, 4 e2m1
  std::int64_t row, col;              ///< elements from one row (column) to the next
  const float* scales;                ///< may be null
  int scale_rows, scale_cols;         ///< block that shares a scale
  std::int64_t scale_row, scale_col;  ///< scales from one block to the next
};
/// Sum over sampled (i, j) of (out - base - a b)^2 and of (base + a b)^2, in result[0..1]: a is m x
/// k, b is n x k, out and base (may be null) m x n. NaN in `out` makes it NaN.
void compare_gemm(const Strided& a, const Strided& b, const Strided& out, const Strided& base,
                  int m, int n, int k, int samples, double* result, cudaStream_t s);
/// The same sums for two arrays.
void compare(const Strided& out, const Strided& reference, std::size_t n, double* result,
             cudaStream_t s);

// attention_reference.cu: FP32, quadratic; the layout is [batch][head][seq][dim]
struct AttentionShape {
  int batch, seq, heads, kv_heads, qk_dim, v_dim;
};
void attention_reference(const AttentionShape& shape, const bf16* q, const bf16* k, const bf16* v,
                         float* p, float* o, cudaStream_t s);
void attention_reference_backward(const AttentionShape& shape, const bf16* q, const bf16* k,
                                  const bf16* v, const float* p, const float* o, const bf16* d_o,
                                  float* dp, float* dq, float* dk, float* dv, cudaStream_t s);

}  // namespace moecast::cuda
