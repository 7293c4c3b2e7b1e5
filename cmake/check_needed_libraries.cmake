# SPDX-License-Identifier: Apache-2.0
#
# cmake -D PROGRAM=... -D READELF=... -P check_needed_libraries.cmake
# Fails when the program needs a shared library that is not part of glibc.

cmake_minimum_required(VERSION 3.25)

execute_process(
  COMMAND ${READELF} --dynamic --wide ${PROGRAM}
  OUTPUT_VARIABLE dynamic_section
  COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "\\(NEEDED\\)[^\n]*\\[[^]\n]+\\]" lines "${dynamic_section}")
if(NOT lines)
  message(FATAL_ERROR "${PROGRAM}: readelf lists no needed library; glibc should be one")
endif()
set(glibc "^(lib(c|m|dl|rt|pthread)\\.so\\.[0-9]+|ld-linux[a-z0-9_-]*\\.so\\.[0-9]+)$")
set(others "")
foreach(line ${lines})
  string(REGEX REPLACE ".*\\[([^]]+)\\]$" "\\1" library "${line}")
  if(NOT library MATCHES "${glibc}")
    list(APPEND others ${library})
  endif()
endforeach()
if(others)
  list(JOIN others ", " others)
  message(FATAL_ERROR "${PROGRAM}: needs ${others}; it may need libraries of glibc only")
endif()
