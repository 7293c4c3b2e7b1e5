# SPDX-License-Identifier: Apache-2.0
#
# cmake -D SOURCE_DIR=... -D OUTPUT=... -P write_commit.cmake
# Writes the commit that is being built, with "+changes" when the tree differs from it. Run at every
# build; the file changes only when the answer does, so nothing is compiled in vain.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty=+changes --match=
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define GAPLESS_COMMIT \"@commit@\"\n" @ONLY)
