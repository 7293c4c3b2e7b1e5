# SPDX-License-Identifier: Apache-2.0
#
# gapless-gpu: tests, benchmarks and commands in one program for a machine that has an NVIDIA driver
# and nothing else of ours. glibc stays shared: the static CUDA runtime loads the driver's library
# at run time, which a fully static program cannot do. The rest is static, and a step of the build
# fails where it is not.

# Archives in place of shared libraries, by the target that our libraries link.
set(bundled_ZLIB::ZLIB libz.a)
set(bundled_SQLite::SQLite3 libsqlite3.a)
set(bundled_PkgConfig::zstd libzstd.a)
set(bundled_PkgConfig::pcre2 libpcre2-8.a)
set(bundled_PkgConfig::utf8proc libutf8proc.a)
set(bundled_fmt::fmt bundled)  # compiled from its headers: Debian has no archive of it

# gapless_link_closure(<result> <item>...): the items and all that they link, each once.
function(gapless_link_closure result)
  set(pending ${ARGN})
  set(closure "")
  while(pending)
    list(POP_FRONT pending item)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" item "${item}")
    if(item IN_LIST closure OR item MATCHES "^(\\$<BUILD_INTERFACE:gapless_warnings>|::@.*)$")
      continue()
    endif()
    list(APPEND closure "${item}")
    if(TARGET ${item})
      get_target_property(links ${item} INTERFACE_LINK_LIBRARIES)
      if(links)
        list(APPEND pending ${links})
      endif()
    endif()
  endwhile()
  set(${result} ${closure} PARENT_SCOPE)
endfunction()

# gapless_static_items(<result> <missing> <item>...): what to give to the linker for the items, and
# the archives that this machine lacks.
function(gapless_static_items result missing)
  set(items "")
  set(lacks "")
  foreach(item ${ARGN})
    set(kind "")
    if(TARGET ${item})
      get_target_property(kind ${item} TYPE)
    endif()
    if(DEFINED bundled_${item})
      set(archive ${bundled_${item}})
      if(NOT archive STREQUAL bundled)
        find_library(GAPLESS_ARCHIVE_${archive} NAMES ${archive})
        mark_as_advanced(GAPLESS_ARCHIVE_${archive})
        if(GAPLESS_ARCHIVE_${archive})
          list(APPEND items ${GAPLESS_ARCHIVE_${archive}})
        else()
          list(APPEND lacks ${archive})
        endif()
      endif()
    elseif(NOT kind)  # dl, rt
      list(APPEND items ${item})
    elseif(NOT kind STREQUAL "INTERFACE_LIBRARY")
      list(APPEND items $<TARGET_FILE:${item}>)
    endif()
  endforeach()
  set(${result} ${items} PARENT_SCOPE)
  set(${missing} ${lacks} PARENT_SCOPE)
endfunction()

# Says why there is no bundle: one sentence, which `make gpu-bundle` prints.
function(gapless_no_gpu_bundle sentence)
  message(STATUS "No gapless-gpu: ${sentence}")
  file(WRITE ${PROJECT_BINARY_DIR}/gpu_bundle/missing.txt "gpu-bundle: ${sentence}\n")
endfunction()

# gapless_gpu_bundle(SOURCES a.cc ... TESTS programs ... BENCHMARKS programs ... LINKS targets ...):
# TESTS are programs of gapless_test(), whose objects are taken as they are; BENCHMARKS are compiled
# once more with main() as <name>_main(). What they link comes with them.
function(gapless_gpu_bundle)
  cmake_parse_arguments(ARG "" "" "SOURCES;TESTS;BENCHMARKS;LINKS" ${ARGN})
  file(REMOVE ${PROJECT_BINARY_DIR}/gpu_bundle/missing.txt)
  foreach(program ${ARG_TESTS} ${ARG_BENCHMARKS})
    get_target_property(links ${program} LINK_LIBRARIES)
    list(APPEND ARG_LINKS ${links})
  endforeach()
  gapless_link_closure(closure ${ARG_LINKS})
  gapless_static_items(items missing ${closure})
  if(missing)
    list(JOIN missing ", " missing)
    gapless_no_gpu_bundle("needs the static libraries ${missing}")
    return()
  endif()

  add_executable(gapless_gpu ${ARG_SOURCES})
  set_target_properties(gapless_gpu PROPERTIES
    OUTPUT_NAME gapless-gpu
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/gpu_bundle)
  target_include_directories(gapless_gpu PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  foreach(test ${ARG_TESTS})
    target_sources(gapless_gpu PRIVATE $<TARGET_OBJECTS:${test}>)
  endforeach()
  foreach(benchmark ${ARG_BENCHMARKS})
    get_target_property(sources ${benchmark} SOURCES)
    get_target_property(links ${benchmark} LINK_LIBRARIES)
    add_library(${benchmark}_objects OBJECT ${sources})
    target_compile_definitions(${benchmark}_objects PRIVATE main=${benchmark}_main)
    target_link_libraries(${benchmark}_objects PRIVATE ${links})
    target_sources(gapless_gpu PRIVATE $<TARGET_OBJECTS:${benchmark}_objects>)
  endforeach()
  target_link_libraries(gapless_gpu PRIVATE
    gapless_warnings
    -Wl,--start-group ${items} -Wl,--end-group
    Threads::Threads ${CMAKE_DL_LIBS} rt m)
  target_link_options(gapless_gpu PRIVATE -static-libstdc++ -static-libgcc -s)
  add_custom_command(TARGET gapless_gpu POST_BUILD
    COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:gapless_gpu> -D READELF=${CMAKE_READELF}
      -P ${PROJECT_SOURCE_DIR}/cmake/check_needed_libraries.cmake
    VERBATIM)

  # That all three parts are in it, and what it says without a GPU.
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME gpu_bundle/gpu_bundle.test
    COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/cli/run_transcripts.py
      --bin $<TARGET_FILE_DIR:gapless_gpu> --data ${PROJECT_SOURCE_DIR}/tests/data
      ${CMAKE_CURRENT_SOURCE_DIR}/gpu_bundle.test)
endfunction()
