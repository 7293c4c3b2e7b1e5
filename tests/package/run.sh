#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs a build to a fresh prefix, builds the consumer project against that, runs its programs,
# and reads their traces with the installed program. One of them is the sample of the README.
#
# usage: run.sh BUILD_DIR WORK_DIR [CMAKE]
set -euo pipefail

if [[ $# -lt 2 || $# -gt 3 ]]; then
  echo "usage: run.sh BUILD_DIR WORK_DIR [CMAKE]" >&2
  exit 2
fi
build=$1
work=$2
cmake=${3:-cmake}
source_dir=$(cd "$(dirname "$0")" && pwd)

complain() {
  echo "package: $*" >&2
  exit 1
}

expect_file() {
  [[ -s $1 ]] || complain "$1 is missing or empty"
}

# A cached value of the build, so that the consumer is compiled and instrumented alike.
cached() {
  sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}

rm -rf "$work"
mkdir -p "$work"
work=$(cd "$work" && pwd)
prefix=$work/prefix
trace=$work/consumer.gapless

"$cmake" --install "$build" --prefix "$prefix" >"$work/install.log" ||
  complain "cmake --install failed: $(tail -n 3 "$work/install.log")"
expect_file "$prefix/bin/gapless"
expect_file "$prefix/include/gapless/trace.h"
expect_file "$prefix/include/gapless/trace_format.h"
expect_file "$prefix/share/bash-completion/completions/gapless"
bash -n "$prefix/share/bash-completion/completions/gapless"

awk '/^```cpp$/ { inside = !seen++; next } /^```$/ { inside = 0 } inside' \
  "$source_dir/../../README.md" >"$work/readme_sample.cc"
expect_file "$work/readme_sample.cc"

"$cmake" -S "$source_dir" -B "$work/build" -G Ninja \
  "-DCMAKE_PREFIX_PATH=$prefix" \
  "-DREADME_SAMPLE=$work/readme_sample.cc" \
  "-DCMAKE_CXX_COMPILER=$(cached CMAKE_CXX_COMPILER)" \
  "-DCMAKE_CXX_FLAGS=$(cached CMAKE_CXX_FLAGS) -Wall -Wextra -Wpedantic -Werror"
"$cmake" --build "$work/build" --parallel 1

found=$(sed -n 's/^gapless_DIR:[A-Z]*=//p' "$work/build/CMakeCache.txt")
[[ $found == "$prefix"/* ]] || complain "the consumer found gapless in $found, not in $prefix"

"$work/build/consumer" "$trace"
expect_file "$trace"
"$prefix/bin/gapless" info "$trace" | tee "$work/info.txt"
[[ -s $work/info.txt ]] || complain "gapless info said nothing about $trace"
"$prefix/bin/gapless" convert "$trace" -o "$work/consumer.json"
rounds=$(grep -o '"round"' "$work/consumer.json" | wc -l)
[[ $rounds -ge 3 ]] || complain "$work/consumer.json names the span 'round' $rounds times, not 3"

sample=$work/readme_sample.gapless
"$prefix/bin/gapless" record -o "$sample" -- "$work/build/readme_sample"
expect_file "$sample"
"$prefix/bin/gapless" info "$sample"
echo "package: the installed program read the traces of the consumer and of the README's sample"
