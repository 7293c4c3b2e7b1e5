#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: compare.sh OBJDUMP NM INSTRUMENTED.o [PLAIN.o]
# Fails when the first object names a symbol of ours or its code differs from the second's.
set -euo pipefail
objdump=$1 nm=$2 instrumented=$3 plain=${4-}

if "$nm" -C "$instrumented" | grep -i -E 'gapless|tracr'; then
  echo "compiled_out: the object names symbols of the recorder (above)" >&2
  exit 1
fi
[[ -n $plain ]] || exit 0
code() { "$objdump" -d --no-show-raw-insn "$1" | tail -n +4; }
[[ -n $(code "$plain") ]] || { echo "compiled_out: no code in $plain" >&2; exit 1; }
diff <(code "$instrumented") <(code "$plain") || {
  echo "compiled_out: the instrumented code is not the plain code" >&2
  exit 1
}
