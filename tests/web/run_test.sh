#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run_test.sh FOLDER [PAGE [DIFF_PAGE [STREAMS_PAGE]]]: tests the report page in a headless Chromium
# that playwright-core, fetched into FOLDER, drives. Without pages it makes some up. Exits 77 when
# there is no browser, no node or no playwright-core (see fetch_playwright). CHROMIUM names another.

set -eu

folder=${1:?usage: run_test.sh FOLDER [PAGE [DIFF_PAGE [STREAMS_PAGE]]]}
shift
here=$(cd "$(dirname "$0")" && pwd)

skip() {
  if [ -n "${CI:-}" ]; then
    echo "run_test.sh: $1; nothing may be skipped where CI is set" >&2
    exit 1
  fi
  echo "run_test.sh: $1; skipped"
  exit 77
}

command -v node >/dev/null || skip "node is not installed"
browser=${CHROMIUM:-}
for name in chromium chromium-browser google-chrome; do
  if [ -z "$browser" ]; then browser=$(command -v "$name" || true); fi
done
if [ -z "$browser" ]; then skip "Chromium is not installed"; fi

"$here/fetch_playwright" "$folder"
exec node "$here/page_test.mjs" "$folder" "$browser" "$@"
