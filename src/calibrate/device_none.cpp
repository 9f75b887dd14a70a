#ifndef MOECAST_HAS_CUDA
#include "calibrate/device.hpp"

namespace moecast {

bool has_device_code() { return false; }

Result<Samples> run_calibration(const CalibrationRequest&, const CalibrationSink&) {
  return Diagnostic{
      "",
      0,
      0,
      "calibrate",
      "this moecast was built without CUDA and can't measure",
      "build it where the GPUs are: cmake --workflow --preset cuda (needs nvcc, cuBLAS, "
      "cuDNN 9 and NCCL); `calibrate --fit SAMPLES` works without a GPU"};
}

}  // namespace moecast
#endif
