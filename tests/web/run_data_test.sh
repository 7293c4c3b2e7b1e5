#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run_data_test.sh TEST: runs a test of node, which needs nothing else. Exits 77 without node.

set -eu

if ! command -v node >/dev/null; then
  if [ -n "${CI:-}" ]; then
    echo "run_data_test.sh: node is not installed; nothing may be skipped where CI is set" >&2
    exit 1
  fi
  echo "run_data_test.sh: node is not installed; skipped"
  exit 77
fi
exec node --test "${1:?usage: run_data_test.sh TEST}"
