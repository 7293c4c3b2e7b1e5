# SPDX-License-Identifier: Apache-2.0
#
# The few shapes our targets come in. Sources are listed by hand; flags stay on targets.

# Our warnings, for our code only: linked PRIVATE, so that they never reach users.
add_library(gapless_warnings INTERFACE)
target_compile_options(gapless_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wold-style-cast -Werror)

# gapless_library(<name> SOURCES a.cc ... [LINKS targets ...])
function(gapless_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  target_link_libraries(${name} PUBLIC ${ARG_LINKS} PRIVATE $<BUILD_INTERFACE:gapless_warnings>)
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
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${flags}")
    target_sources(${target} PRIVATE ${source})
  endforeach()
endfunction()
