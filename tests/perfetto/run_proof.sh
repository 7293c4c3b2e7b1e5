#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run_proof.sh MAKE_TRACES FOLDER [FILTER]: Perfetto's own trace processor reads what we write and
# finds in it exactly what the trace holds. FILTER: only files whose name has it in it. Exits 77
# when the trace processor cannot be had (see fetch_trace_processor).

set -eu

make_traces=${1:?usage: run_proof.sh MAKE_TRACES FOLDER [FILTER]}
folder=${2:?usage: run_proof.sh MAKE_TRACES FOLDER [FILTER]}
filter=${3:-}
here=$(cd "$(dirname "$0")" && pwd)

"$here/fetch_trace_processor" "$folder/trace_processor"
traces=$folder/traces
rm -rf "$traces"
names=$("$make_traces" "$traces")

failed=0
for name in $names; do
  for extension in json pftrace fxt; do
    file=$name.$extension
    case $file in *"$filter"*) ;; *) continue ;; esac
    if node "$here/check.mjs" "$folder/trace_processor" "$traces/$file" \
      "$traces/$name.expected.json" >"$traces/$file.log" 2>&1; then
      echo "passed  $file"
    else
      echo "FAILED  $file"
      grep -v -e 'unsupported syscall' -e 'Unexpected QueryResult' -e '^$' \
        "$traces/$file.log" || true
      failed=$((failed + 1))
    fi
  done
done
[ "$failed" -eq 0 ] || { echo "$failed files are not what the trace processor expects"; exit 1; }
rm -rf "$traces"
