#pragma once
/// Calls of CUDA, cuBLAS, cuDNN and NCCL that must succeed.
#include <source_location>
#include <stdexcept>
#include <string>

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <nccl.h>

namespace moecast::cuda {

/// Thrown when a library refuses a call; says which, and where.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// This GPU or library version does not have the kernel: left out, not a failure.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// The kernel's result differs from the reference.
struct WrongResult : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Where = std::source_location;

[[noreturn]] inline void fail_call(const char* library, const char* text, const Where& at) {
  const std::string file = at.file_name();
  throw DeviceError(std::string(library) + ": " + text + " (" + file.substr(file.rfind('/') + 1) +
                    ":" + std::to_string(at.line()) + ")");
}
inline void check(cudaError_t status, const Where& at = Where::current()) {
  if (status != cudaSuccess) fail_call("CUDA", cudaGetErrorString(status), at);
}
inline void check(cublasStatus_t status, const Where& at = Where::current()) {
  if (status != CUBLAS_STATUS_SUCCESS) fail_call("cuBLAS", cublasGetStatusString(status), at);
}
inline void check(cudnnStatus_t status, const Where& at = Where::current()) {
  if (status != CUDNN_STATUS_SUCCESS) fail_call("cuDNN", cudnnGetErrorString(status), at);
}
inline void check(ncclResult_t status, const Where& at = Where::current()) {
  if (status != ncclSuccess) fail_call("NCCL", ncclGetErrorString(status), at);
}

}  // namespace moecast::cuda
