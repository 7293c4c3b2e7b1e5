# SPDX-License-Identifier: Apache-2.0
#
# The few shapes our targets come in. Sources are listed by hand; flags stay on targets.

# Our warnings, for our code only: linked PRIVATE, so that they never reach users.
add_library(gapless_warnings INTERFACE)
target_compile_options(gapless_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wold-style-cast -Werror)

# For what is built with precompiled headers: -fpch-preprocess, or ccache gives up; and g++ 12 takes
# the library in them for our code, of whose inlined strings it warns without cause.
set(gapless_share_flags -fpch-preprocess
  -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
option(GAPLESS_SHARE_HEADERS "Precompile the large headers of tests and of some libraries" OFF)

# gapless_library(<name> [COLD] SOURCES a.cc ... [LINKS targets ...] [HEADERS <a> ...]): COLD says
# that tests do not spend their time here; builds with sanitizers leave out optimization.
# HEADERS are parsed once for the library in builds with GAPLESS_SHARE_HEADERS.
function(gapless_library name)
  cmake_parse_arguments(ARG "COLD" "" "SOURCES;LINKS;HEADERS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  target_link_libraries(${name} PUBLIC ${ARG_LINKS} PRIVATE $<BUILD_INTERFACE:gapless_warnings>)
  if(ARG_COLD)
    target_compile_options(${name} PRIVATE ${GAPLESS_COLD_FLAGS})
  endif()
  if(ARG_HEADERS AND GAPLESS_SHARE_HEADERS)
    target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
    target_compile_options(${name} PRIVATE ${gapless_share_flags})
  endif()
endfunction()

# gapless_share_test_headers(<target>): gtest and the large standard headers, parsed once for all
# tests. A test that misses an include is found only in builds without this.
function(gapless_share_test_headers target)
  if(NOT TARGET gapless_test_headers)
    set(empty_source ${PROJECT_BINARY_DIR}/gapless_test_headers.cc)
    file(CONFIGURE OUTPUT ${empty_source} CONTENT "")
    add_library(gapless_test_headers OBJECT ${empty_source})
    target_link_libraries(gapless_test_headers PRIVATE GTest::gtest_main fmt::fmt gapless_warnings)
    target_compile_options(gapless_test_headers PRIVATE
      ${GAPLESS_TEST_FLAGS} ${gapless_share_flags})
    target_precompile_headers(gapless_test_headers PRIVATE
      <algorithm> <array> <atomic> <cstdint> <functional> <map> <memory> <mutex> <optional> <random>
      <set> <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector>
      <fmt/core.h> <gtest/gtest.h>)
  endif()
  target_precompile_headers(${target} REUSE_FROM gapless_test_headers)
  target_compile_options(${target} PRIVATE ${gapless_share_flags})
endfunction()

# gapless_test(<module> SOURCES a_test.cc ... [LINKS targets ...]): one binary a module, tests named
# <module>/Subject.Sentence.
function(gapless_test module)
  if(NOT GAPLESS_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${module}_test ${ARG_SOURCES})
  target_link_libraries(${module}_test PRIVATE ${ARG_LINKS} GTest::gtest_main gapless_warnings)
  target_compile_options(${module}_test PRIVATE ${GAPLESS_TEST_FLAGS})
  if(GAPLESS_SHARE_HEADERS)
    gapless_share_test_headers(${module}_test)
  endif()
  include(GoogleTest)
  gtest_discover_tests(${module}_test TEST_PREFIX ${module}/ DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT 300 LABELS ${module})
endfunction()

# gapless_benchmark(<name> SOURCES ... [LINKS ...]): built with the tests, run by `make bench` only.
function(gapless_benchmark name)
  if(NOT GAPLESS_TESTS OR NOT GAPLESS_BENCHMARKS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} gapless_warnings)
endfunction()

# gapless_cuda_objects(<name> a.cu ...): device code, for Hopper and, as PTX that the driver
# compiles when a program starts, for all others from Ampere on.
function(gapless_cuda_objects name)
  add_library(${name} OBJECT ${ARGN})
  set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES OFF POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE
    -Werror=all-warnings
    "SHELL:-gencode arch=compute_90a,code=sm_90a"
    "SHELL:-gencode arch=compute_80,code=compute_80")
endfunction()

# gapless_level_sources(<target> a_avx2.cc b_avx512.cc ...): adds files that are compiled for one
# CpuLevel (kernels/cpu_level.h), which the end of the name tells. Left out where the machine is not
# an x86-64.
function(gapless_level_sources target)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    return()
  endif()
  set(avx2 -mavx2 -mfma -mf16c)
  set(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma -mf16c)
  foreach(source ${ARGN})
    if(source MATCHES "_avx2\\.cc$")
      set(flags ${avx2})
    elseif(source MATCHES "_avx2_vnni\\.cc$")
      set(flags ${avx2} -mavxvnni)
    elseif(source MATCHES "_avx512\\.cc$")
      set(flags ${avx512})
    elseif(source MATCHES "_avx512_bf16\\.cc$")
      set(flags ${avx512} -mavx512bf16)
    else()
      message(FATAL_ERROR "${source}: the name does not end in a CPU level")
    endif()
    # The undefined-behaviour sanitizer makes minutes of compile time out of the unrolled loops. The
    # address sanitizer stays.
    list(APPEND flags -fno-sanitize=undefined)
    # GCC 12 warns of the undefined vectors in its own intrinsics (its bug 105593).
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      list(APPEND flags -Wno-maybe-uninitialized -Wno-uninitialized)
    endif()
    # Checks of memory as calls, not inline: half the compile time of unrolled loops.
    if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      list(APPEND flags --param=asan-instrumentation-with-call-threshold=0)
    endif()
    set_source_files_properties(${source} PROPERTIES
      COMPILE_OPTIONS "${flags}" SKIP_PRECOMPILE_HEADERS ON)
    target_sources(${target} PRIVATE ${source})
  endforeach()
endfunction()
