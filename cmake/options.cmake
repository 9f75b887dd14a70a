# Flags that every target of ours shares.
add_library(moecast_options INTERFACE)
target_include_directories(moecast_options INTERFACE ${CMAKE_SOURCE_DIR}/include)
# Flags of the C++ compiler; nvcc has its own.
function(moecast_cxx_options)
  target_compile_options(moecast_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${ARGN}>")
endfunction()
moecast_cxx_options(-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
if(MOECAST_WERROR)
  moecast_cxx_options(-Werror)
endif()
# g++ 12 warns of its own standard library under optimisation and sanitizers (GCC PR 105562, 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  moecast_cxx_options(-Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-stringop-overread)
endif()
# One estimate is one number on every machine: no contraction into fused multiply-add.
moecast_cxx_options(-ffp-contract=off)

# Rounding and counting bits are one instruction since 2009; without this they are calls.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" AND CMAKE_BUILD_TYPE STREQUAL "Release")
  moecast_cxx_options(-march=x86-64-v2)
  # A few hundred bytes are cleared and copied in registers: the string instructions that g++ takes
  # otherwise need longer to start than the copy takes (about a tenth of a search's time).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(inline_copies vector_loop:512:noalign,libcall:-1:noalign)
    moecast_cxx_options(-mmemcpy-strategy=${inline_copies} -mmemset-strategy=${inline_copies})
  endif()
endif()

if(MOECAST_SANITIZE AND MOECAST_TSAN)
  message(FATAL_ERROR "MOECAST_SANITIZE and MOECAST_TSAN exclude each other")
endif()
set(sanitizers "")
if(MOECAST_SANITIZE)
  # Without the four checks of pointers (a null one crashes under ASan all the same) g++ compiles twice as fast.
  set(sanitizers -fsanitize=address,undefined -fno-sanitize=null,alignment,object-size,vptr -fno-sanitize-recover=all)
elseif(MOECAST_TSAN)
  set(sanitizers -fsanitize=thread)
endif()
if(sanitizers)
  moecast_cxx_options(${sanitizers} -fno-omit-frame-pointer)
  target_link_options(moecast_options INTERFACE ${sanitizers})
endif()

# ccache is used where it is installed: its sloppiness is what precompiled headers need, the base
# directory makes a second checkout find what the first compiled.
find_program(MOECAST_CCACHE ccache)
if(MOECAST_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${MOECAST_CCACHE})
endif()
