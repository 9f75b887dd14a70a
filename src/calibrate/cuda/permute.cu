// Sorting routed tokens by expert, and moving their rows there and back.
#include "calibrate/cuda/check.hpp"
#include "calibrate/cuda/kernels.hpp"
#include "calibrate/cuda/vec.cuh"

namespace moecast::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWideThreads = 512;  ///< of a block that has its SM to itself
constexpr int kMaxTopk = 16;
constexpr int kSortTokens = 128;  ///< tokens whose pairs one block counts

// Counting sort in three kernels: counts per (block, expert), their offsets in expert-major order,
// places. Stable: a block's pairs keep their order, as Megatron's permute does.
__global__ void count_pairs(const int* expert_of, int* counts, int pairs, int per_block,
                            int experts) {
  extern __shared__ int local[];
  for (int e = threadIdx.x; e < experts; e += blockDim.x) local[e] = 0;
  __syncthreads();
  const int first = static_cast<int>(blockIdx.x) * per_block;
  for (int i = first + static_cast<int>(threadIdx.x); i < min(first + per_block, pairs);
       i += blockDim.x)
    atomicAdd(&local[expert_of[i]], 1);
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += blockDim.x)
    counts[static_cast<std::size_t>(e) * gridDim.x + blockIdx.x] = local[e];
}

/// Exclusive sums of counts[experts][blocks], one block of the GPU; also where each expert starts.
__global__ void __launch_bounds__(1024)
    scan_counts(int* counts, int* offsets, int blocks, int experts) {
  __shared__ int warp_total[32];
  __shared__ int carry;
  if (threadIdx.x == 0) carry = 0;
  __syncthreads();
  const int n = blocks * experts, lane = static_cast<int>(threadIdx.x) % 32,
            warp = static_cast<int>(threadIdx.x) / 32;
  for (int start = 0; start < n; start += 1024) {
    const int i = start + static_cast<int>(threadIdx.x);
    const int mine = i < n ? counts[i] : 0;
    int sum = mine;
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, o);
      if (lane >= o) sum += other;
    }
    if (lane == 31) warp_total[warp] = sum;
    __syncthreads();
    if (warp == 0) {
      int total = warp_total[lane];
#pragma unroll
      for (int o = 1; o < 32; o *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, total, o);
        if (lane >= o) total += other;
      }
      warp_total[lane] = total;
    }
    __syncthreads();
    const int before = carry + (warp > 0 ? warp_total[warp - 1] : 0) + sum - mine;
    if (i < n) {
      counts[i] = before;
      if (i % blocks == 0) offsets[i / blocks] = before;
    }
    __syncthreads();
    if (threadIdx.x == 0) carry += warp_total[31];
    __syncthreads();
  }
}

/// One warp a block, 32 pairs at a time: lanes of one expert take consecutive places.
__global__ void place_pairs(const int* expert_of, const int* counts, int* rank_of, int pairs,
                            int per_block, int experts) {
  extern __shared__ int next[];
  for (int e = threadIdx.x; e < experts; e += 32)
    next[e] = counts[static_cast<std::size_t>(e) * gridDim.x + blockIdx.x];
  __syncwarp();
  const int first = static_cast<int>(blockIdx.x) * per_block, last = min(first + per_block, pairs);
  for (int start = first; start < last; start += 32) {
    const int i = start + static_cast<int>(threadIdx.x);
    const int expert = i < last ? expert_of[i] : -1;
    const unsigned same = __match_any_sync(0xffffffffu, expert);
    if (i < last) rank_of[i] = next[expert] + __popc(same & ((1u << threadIdx.x) - 1u));
    __syncwarp();
    if (i < last && (same >> threadIdx.x) == 1u) next[expert] += __popc(same);
    __syncwarp();
  }
}

__global__ void invert_kernel(const int* rank_of, int* source_of, int pairs, int topk) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < pairs) source_of[rank_of[i]] = i / topk;
}

constexpr int kInFlight = 4;  ///< loads of a thread before its first store

/// Calls write(at, value) for the vectors of a row that this thread has.
template <typename Write>
__device__ void for_row(const Vec8* row, int vecs, Write write) {
  for (int start = threadIdx.x; start < vecs; start += kInFlight * blockDim.x) {
    Vec8 v[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      if (start + i * static_cast<int>(blockDim.x) < vecs) v[i] = row[start + i * blockDim.x];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      if (start + i * static_cast<int>(blockDim.x) < vecs) write(start + i * blockDim.x, v[i]);
  }
}

/// A block a token: its row is read once and written to its topk places.
__global__ void permute_kernel(const Vec8* x, const int* rank_of, Vec8* y, int topk, int vecs) {
  __shared__ std::size_t place[kMaxTopk];
  const std::size_t token = blockIdx.x;
  if (threadIdx.x < static_cast<unsigned>(topk))
    place[threadIdx.x] = static_cast<std::size_t>(rank_of[token * topk + threadIdx.x]) * vecs;
  __syncthreads();
  for_row(x + token * vecs, vecs, [&](int at, const Vec8& v) {
    for (int k = 0; k < topk; ++k) y[place[k] + at] = v;
  });
}

/// A block an SM, as HybridEP has them: its rows of threads walk over the tokens.
__global__ void __launch_bounds__(kWideThreads)
    permute_on_some_sms(const Vec8* x, const int* rank_of, Vec8* y, int tokens, int topk,
                        int vecs) {
  for (std::size_t token = blockIdx.x * blockDim.y + threadIdx.y; token < tokens;
       token += gridDim.x * blockDim.y)
    for_row(x + token * vecs, vecs, [&](int at, const Vec8& v) {
      for (int k = 0; k < topk; ++k)
        y[static_cast<std::size_t>(rank_of[token * topk + k]) * vecs + at] = v;
    });
}

__global__ void gather_kernel(const Vec8* x, const int* source_of, Vec8* y, int vecs) {
  const std::size_t row = blockIdx.x, from = source_of[row];
  for_row(x + from * vecs, vecs, [&](int at, const Vec8& v) { y[row * vecs + at] = v; });
}

template <int Topk>
__device__ void unpermute_row(const Vec8* y, const int* rank_of, const float* probs, Vec8* x,
                              int vecs, std::size_t token) {
  const Vec8* rows[Topk];
  float weight[Topk];
#pragma unroll
  for (int k = 0; k < Topk; ++k) {
    rows[k] = y + static_cast<std::size_t>(rank_of[token * Topk + k]) * vecs;
    weight[k] = probs[token * Topk + k];
  }
  for (int at = threadIdx.x; at < vecs; at += blockDim.x) {
    Vec8 v[Topk];
#pragma unroll
    for (int k = 0; k < Topk; ++k) v[k] = rows[k][at];
    float sum[kVec] = {};
#pragma unroll
    for (int k = 0; k < Topk; ++k) {
      float f[kVec];
      unpack(v[k], f);
#pragma unroll
      for (int j = 0; j < kVec; ++j) sum[j] += weight[k] * f[j];
    }
    x[token * vecs + at] = pack(sum);
  }
}

template <int Topk>
__global__ void unpermute_kernel(const Vec8* y, const int* rank_of, const float* probs, Vec8* x,
                                 int, int vecs) {
  unpermute_row<Topk>(y, rank_of, probs, x, vecs, blockIdx.x);
}

template <int Topk>
__global__ void __launch_bounds__(kWideThreads)
    unpermute_on_some_sms(const Vec8* y, const int* rank_of, const float* probs, Vec8* x,
                          int tokens, int vecs) {
  for (std::size_t token = blockIdx.x * blockDim.y + threadIdx.y; token < tokens;
       token += gridDim.x * blockDim.y)
    unpermute_row<Topk>(y, rank_of, probs, x, vecs, token);
}

__global__ void scale_rows(const Vec8* y, const float* row_probs, Vec8* out, int vecs) {
  const std::size_t row = blockIdx.x;
  const float weight = row_probs[row];
  for (int at = threadIdx.x; at < vecs; at += blockDim.x) {
    float f[kVec];
    unpack(y[row * vecs + at], f);
#pragma unroll
    for (float& e : f) e *= weight;
    out[row * vecs + at] = pack(f);
  }
}

__global__ void add_rows(const Vec8* y, const int* source_of, float* sums, int vecs) {
  const std::size_t row = blockIdx.x, to = source_of[row];
  for (int at = threadIdx.x; at < vecs; at += blockDim.x) {
    float f[kVec];
    unpack(y[row * vecs + at], f);
    auto* out = reinterpret_cast<float4*>(sums + (to * vecs + at) * kVec);
    atomicAdd(out, make_float4(f[0], f[1], f[2], f[3]));
    atomicAdd(out + 1, make_float4(f[4], f[5], f[6], f[7]));
  }
}

__global__ void round_rows(const float4* sums, Vec8* x, std::size_t n) {
  const std::size_t at = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
  if (at >= n) return;
  const float4 a = sums[2 * at], b = sums[2 * at + 1];
  const float f[kVec] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  x[at] = pack(f);
}

unsigned row_threads(int cols) {
  return static_cast<unsigned>(std::min(kThreads, (cols / kVec + 31) / 32 * 32));
}
dim3 rows_of_threads(int cols) { return {row_threads(cols), kWideThreads / row_threads(cols)}; }
const Vec8* vec(const bf16* p) { return reinterpret_cast<const Vec8*>(p); }
Vec8* vec(bf16* p) { return reinterpret_cast<Vec8*>(p); }
int sort_blocks(int tokens) { return (tokens + kSortTokens - 1) / kSortTokens; }

}  // namespace

std::size_t sort_scratch(int tokens, int, int experts) {
  return static_cast<std::size_t>(sort_blocks(tokens)) * experts;
}

void sort_by_expert(const int* expert_of, int* rank_of, int* offsets, int* scratch, int tokens,
                    int topk, int experts, cudaStream_t s) {
  const int pairs = tokens * topk, blocks = sort_blocks(tokens), per_block = kSortTokens * topk;
  const std::size_t shared = sizeof(int) * experts;
  count_pairs<<<static_cast<unsigned>(blocks), kThreads, shared, s>>>(expert_of, scratch, pairs,
                                                                      per_block, experts);
  scan_counts<<<1, 1024, 0, s>>>(scratch, offsets, blocks, experts);
  place_pairs<<<static_cast<unsigned>(blocks), 32, shared, s>>>(expert_of, scratch, rank_of, pairs,
                                                                per_block, experts);
  check(cudaGetLastError());
}

void invert_rows(const int* rank_of, int* source_of, int tokens, int topk, cudaStream_t s) {
  const int pairs = tokens * topk;
  invert_kernel<<<static_cast<unsigned>((pairs + kThreads - 1) / kThreads), kThreads, 0, s>>>(
      rank_of, source_of, pairs, topk);
  check(cudaGetLastError());
}

void permute_fused(const bf16* x, const int* rank_of, bf16* y, int tokens, int topk, int cols,
                   int sms, cudaStream_t s) {
  if (topk > kMaxTopk) throw Unsupported("top-k above 16");
  if (sms > 0) {
    permute_on_some_sms<<<static_cast<unsigned>(sms), rows_of_threads(cols), 0, s>>>(
        vec(x), rank_of, vec(y), tokens, topk, cols / kVec);
  } else {
    permute_kernel<<<static_cast<unsigned>(tokens), row_threads(cols), 0, s>>>(
        vec(x), rank_of, vec(y), topk, cols / kVec);
  }
  check(cudaGetLastError());
}

void permute_gather(const bf16* x, const int* source_of, bf16* y, int rows, int cols,
                    cudaStream_t s) {
  gather_kernel<<<static_cast<unsigned>(rows), row_threads(cols), 0, s>>>(vec(x), source_of, vec(y),
                                                                          cols / kVec);
  check(cudaGetLastError());
}

void unpermute_fused(const bf16* y, const int* rank_of, const float* probs, bf16* x, int tokens,
                     int topk, int cols, int sms, cudaStream_t s) {
  const auto blocks = static_cast<unsigned>(sms > 0 ? sms : tokens);
  const dim3 threads = sms > 0 ? rows_of_threads(cols) : dim3(row_threads(cols));
  const auto run = [&](auto kernel, auto on_some_sms) {
    (sms > 0 ? on_some_sms : kernel)<<<blocks, threads, 0, s>>>(vec(y), rank_of, probs, vec(x),
                                                                tokens, cols / kVec);
  };
  switch (topk) {
    case 1:
      run(unpermute_kernel<1>, unpermute_on_some_sms<1>);
      break;
    case 2:
      run(unpermute_kernel<2>, unpermute_on_some_sms<2>);
      break;
    case 4:
      run(unpermute_kernel<4>, unpermute_on_some_sms<4>);
      break;
    case 6:
      run(unpermute_kernel<6>, unpermute_on_some_sms<6>);
      break;
    case 8:
      run(unpermute_kernel<8>, unpermute_on_some_sms<8>);
      break;
    default:
      throw Unsupported("top-k other than 1, 2, 4, 6, 8");
  }
  check(cudaGetLastError());
}

void unpermute_scatter(const bf16* y, const int* source_of, const float* row_probs, bf16* scaled,
                       float* sums, bf16* x, int rows, int tokens, int cols, cudaStream_t s) {
  const unsigned threads = row_threads(cols);
  const std::size_t n = static_cast<std::size_t>(tokens) * cols;
  scale_rows<<<static_cast<unsigned>(rows), threads, 0, s>>>(vec(y), row_probs, vec(scaled),
                                                             cols / kVec);
  check(cudaMemsetAsync(sums, 0, n * sizeof(float), s));
  add_rows<<<static_cast<unsigned>(rows), threads, 0, s>>>(vec(scaled), source_of, sums,
                                                           cols / kVec);
  round_rows<<<static_cast<unsigned>((n / kVec + kThreads - 1) / kThreads), kThreads, 0, s>>>(
      reinterpret_cast<const float4*>(sums), vec(x), n / kVec);
  check(cudaGetLastError());
}

}  // namespace moecast::cuda
