#include "calibrate/cuda/cudnn_graph.hpp"

namespace moecast::cuda {
namespace {

Dims packed(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

}  // namespace

CudnnGraph::Descriptor CudnnGraph::create(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t d = nullptr;
  check(cudnnBackendCreateDescriptor(type, &d));
  return Descriptor(d);
}

void CudnnGraph::set_tensor(const Descriptor& op, cudnnBackendAttributeName_t name,
                            Tensor t) const {
  set(op, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, tensors_[t].get());
}

CudnnGraph::Tensor CudnnGraph::add_tensor(const Dims& dims, const Dims& strides,
                                          cudnnDataType_t type, bool is_virtual, bool is_by_value) {
  Descriptor t = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const auto count = static_cast<std::int64_t>(dims.size());
  set(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64,
      static_cast<std::int64_t>(tensors_.size() + 1));
  set(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  set(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::int64_t{16});
  check(cudnnBackendSetAttribute(t.get(), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, count,
                                 dims.data()));
  check(cudnnBackendSetAttribute(t.get(), CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, count,
                                 strides.data()));
  set(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
  set(t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, is_by_value);
  finalize(t);
  tensors_.push_back(std::move(t));
  return tensors_.size() - 1;
}

CudnnGraph::Tensor CudnnGraph::input(const Dims& dims, const Dims& strides, cudnnDataType_t type) {
  inputs_.push_back(add_tensor(dims, strides, type, false, false));
  return inputs_.back();
}

CudnnGraph::Tensor CudnnGraph::temporary(const Dims& dims, cudnnDataType_t type, Dims strides) {
  return add_tensor(dims, strides.empty() ? packed(dims) : strides, type, true, false);
}

CudnnGraph::Tensor CudnnGraph::constant(float value) {
  const Tensor t = add_tensor({1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, false, true);
  constants_.emplace_back(t, std::make_unique<float>(value));
  return t;
}

void CudnnGraph::add_operation(Descriptor op) {
  finalize(op);
  operations_.push_back(std::move(op));
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, const std::vector<Tensor>& in, Tensor y,
                           cudnnDataType_t math) {
  Descriptor how = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, math);
  finalize(how);
  Descriptor op = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, how.get());
  constexpr cudnnBackendAttributeName_t kInputs[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                     CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                     CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  for (std::size_t i = 0; i < in.size(); ++i) set_tensor(op, kInputs[i], in[i]);
  set_tensor(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  add_operation(std::move(op));
  helpers_.push_back(std::move(how));
}

void CudnnGraph::index(Tensor x, std::int64_t axis, Tensor y) {
  Descriptor how = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_GEN_INDEX);
  set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_INT32);
  set(how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
  finalize(how);
  Descriptor op = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, how.get());
  set_tensor(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  set_tensor(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  add_operation(std::move(op));
  helpers_.push_back(std::move(how));
}

void CudnnGraph::matmul(Tensor a, Tensor b, Tensor c) {
  Descriptor how = create(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  finalize(how);
  Descriptor op = create(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  set_tensor(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  set_tensor(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  set_tensor(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
  set(op, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, how.get());
  add_operation(std::move(op));
  helpers_.push_back(std::move(how));
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t operation, Tensor x, Tensor y) {
  Descriptor how = create(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  set(how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, operation);
  set(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  finalize(how);
  Descriptor op = create(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  set_tensor(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  set_tensor(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  set(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, how.get());
  add_operation(std::move(op));
  helpers_.push_back(std::move(how));
}

void CudnnGraph::reshape(Tensor x, Tensor y) {
  Descriptor op = create(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  set_tensor(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  set_tensor(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  add_operation(std::move(op));
}

bool CudnnGraph::try_plan(cudnnHandle_t handle, void* engine_config) {
  Descriptor plan = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, engine_config);
  set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
  if (cudnnBackendFinalize(plan.get()) != CUDNN_STATUS_SUCCESS) return false;
  std::int64_t bytes = 0, count = 0;
  check(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &count, &bytes));
  workspace_bytes_ = static_cast<std::size_t>(bytes);
  plan_ = std::move(plan);
  return true;
}

void CudnnGraph::build(cudnnHandle_t handle) {
  std::vector<void*> raw;
  for (const Descriptor& op : operations_) raw.push_back(op.get());
  Descriptor graph = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  check(cudnnBackendSetAttribute(graph.get(), CUDNN_ATTR_OPERATIONGRAPH_OPS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 static_cast<std::int64_t>(raw.size()), raw.data()));
  finalize(graph);
  Descriptor heuristic = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph.get());
  set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  if (cudnnBackendFinalize(heuristic.get()) != CUDNN_STATUS_SUCCESS)
    throw DeviceError("cuDNN: no heuristic for the graph");
  constexpr std::int64_t kMaxConfigs = 8;
  std::vector<void*> found;
  for (std::int64_t i = 0; i < kMaxConfigs; ++i) {
    configs_.push_back(create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    found.push_back(configs_.back().get());
  }
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, kMaxConfigs, &count, found.data()));
  helpers_.push_back(std::move(graph));
  for (std::int64_t i = 0; i < count; ++i)
    if (try_plan(handle, found[static_cast<std::size_t>(i)])) return;
  throw DeviceError("cuDNN: no engine takes the graph (" + std::to_string(count) + " proposed)");
}

void CudnnGraph::run(cudnnHandle_t handle, const std::vector<void*>& pointers,
                     void* workspace) const {
  std::vector<std::int64_t> ids;
  std::vector<void*> data = pointers;
  for (const Tensor t : inputs_) ids.push_back(static_cast<std::int64_t>(t + 1));
  for (const auto& [t, value] : constants_) {
    ids.push_back(static_cast<std::int64_t>(t + 1));
    data.push_back(value.get());
  }
  const Descriptor pack = create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const auto count = static_cast<std::int64_t>(ids.size());
  check(cudnnBackendSetAttribute(pack.get(), CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                 count, ids.data()));
  check(cudnnBackendSetAttribute(pack.get(), CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                 CUDNN_TYPE_VOID_PTR, count, data.data()));
  set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  finalize(pack);
  check(cudnnBackendExecute(handle, plan_.get(), pack.get()));
}

}  // namespace moecast::cuda
