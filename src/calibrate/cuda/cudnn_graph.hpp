#pragma once
/// The little of cuDNN's graph API (backend descriptors) that fused attention needs: tensors,
/// pointwise, matmul, reduction, reshape, and a plan for the whole.
#include <cstdint>
#include <memory>
#include <vector>

#include "calibrate/cuda/gpu.hpp"

namespace moecast::cuda {

using Dims = std::vector<std::int64_t>;

class CudnnGraph {
 public:
  /// Index of a tensor of this graph.
  using Tensor = std::size_t;

  /// A tensor in memory, bound when the graph runs.
  Tensor input(const Dims& dims, const Dims& strides, cudnnDataType_t type);
  /// A result of one operation that only others read, packed unless strides are given.
  Tensor temporary(const Dims& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT, Dims strides = {});
  /// An FP32 constant.
  Tensor constant(float value);

  void pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor y,
                 cudnnDataType_t math = CUDNN_DATA_FLOAT) {
    pointwise(mode, std::vector<Tensor>{x}, y, math);
  }
  void pointwise(cudnnPointwiseMode_t mode, const std::vector<Tensor>& in, Tensor y,
                 cudnnDataType_t math = CUDNN_DATA_FLOAT);
  /// y[..., i, ...] = i along `axis`.
  void index(Tensor x, std::int64_t axis, Tensor y);
  void matmul(Tensor a, Tensor b, Tensor c);
  void reduce(cudnnReduceTensorOp_t op, Tensor x, Tensor y);
  void reshape(Tensor x, Tensor y);

  /// Throws Unsupported when no engine takes the graph.
  void build(cudnnHandle_t handle);
  [[nodiscard]] std::size_t workspace_bytes() const { return workspace_bytes_; }
  /// `pointers` are those of the inputs, in the order of the input() calls.
  void run(cudnnHandle_t handle, const std::vector<void*>& pointers, void* workspace) const;

 private:
  struct Delete {
    void operator()(void* descriptor) const { cudnnBackendDestroyDescriptor(descriptor); }
  };
  using Descriptor = std::unique_ptr<void, Delete>;
  static Descriptor create(cudnnBackendDescriptorType_t type);
  static void finalize(const Descriptor& d) { check(cudnnBackendFinalize(d.get())); }
  template <typename T>
  static void set(const Descriptor& d, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, const T& value) {
    check(cudnnBackendSetAttribute(d.get(), name, type, 1, &value));
  }
  void set_tensor(const Descriptor& op, cudnnBackendAttributeName_t name, Tensor t) const;
  Tensor add_tensor(const Dims& dims, const Dims& strides, cudnnDataType_t type, bool is_virtual,
                    bool is_by_value);
  void add_operation(Descriptor op);
  bool try_plan(cudnnHandle_t handle, void* engine_config);

  std::vector<Descriptor> tensors_, helpers_, operations_, configs_;
  std::vector<Tensor> inputs_;
  std::vector<std::pair<Tensor, std::unique_ptr<float>>> constants_;
  Descriptor plan_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace moecast::cuda
