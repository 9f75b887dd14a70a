# src/calibrate/device is the only code that knows CUDA; everything else builds and is tested without.
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "MOECAST_CUDA=ON needs nvcc, and none was found. Install the CUDA toolkit, or "
                      "name the compiler: CUDACXX=/usr/local/cuda/bin/nvcc cmake --preset cuda")
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
if(EXISTS ${CMAKE_SOURCE_DIR}/src/calibrate/device/CMakeLists.txt)
  add_subdirectory(src/calibrate/device)
else()
  message(STATUS "src/calibrate/device holds no device code yet: MOECAST_CUDA changes nothing")
endif()
