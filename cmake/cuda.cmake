# src/calibrate/cuda is the only code that knows CUDA; everything else builds and is tested without.
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "MOECAST_CUDA=ON needs nvcc, and none was found. Install the CUDA toolkit, or "
                      "name the compiler: CUDACXX=/usr/local/cuda/bin/nvcc cmake --preset cuda")
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "90-real;100-real;103-real;90-virtual")
endif()
enable_language(CUDA)
# CMake 3.25 does not know every nvcc's flag for the standard that the targets ask for.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit 12.9 REQUIRED)

# cuDNN and NCCL come with the toolkit, from their own packages, or as Python wheels (MOECAST_CUDA_ROOT).
set(MOECAST_CUDA_ROOT "" CACHE PATH "Where else to look for cudnn.h, nccl.h and their libraries")
foreach(name cudnn nccl)
  string(TOUPPER ${name} upper)
  find_path(${upper}_INCLUDE ${name}.h HINTS ${MOECAST_CUDA_ROOT} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include REQUIRED)
  find_library(${upper}_LIBRARY NAMES ${name} lib${name}.so.9 lib${name}.so.2
               HINTS ${MOECAST_CUDA_ROOT} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64 REQUIRED)
endforeach()

file(GLOB device_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/calibrate/cuda/*.cpp ${CMAKE_SOURCE_DIR}/src/calibrate/cuda/*.cu)
set_source_files_properties(${device_sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
# An object library of its own, so that what has no device can still compile it: ./dev cuda
add_library(moecast_device OBJECT ${device_sources})
target_compile_options(moecast_device PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda;--expt-relaxed-constexpr>")
target_compile_definitions(moecast_device PRIVATE MOECAST_HAS_CUDA)
target_include_directories(moecast_device PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_include_directories(moecast_device SYSTEM PRIVATE ${CUDNN_INCLUDE} ${NCCL_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(moecast_device PRIVATE moecast_topology moecast_core Eigen3::Eigen)
target_compile_definitions(moecast_calibrate PUBLIC MOECAST_HAS_CUDA)
target_link_libraries(moecast_calibrate PRIVATE moecast_device CUDA::cublasLt CUDA::cublas CUDA::cudart_static
                      ${CUDNN_LIBRARY} ${NCCL_LIBRARY} ${CMAKE_DL_LIBS} Threads::Threads)
