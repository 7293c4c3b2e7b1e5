#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run_test.sh PROGRAM FOLDER TOKEN_IDS: fetches Qwen3's tokenizer into FOLDER and runs the test
# PROGRAM on it. Exits 77 when it cannot be had (see fetch_tokenizer).

set -eu

program=${1:?usage: run_test.sh PROGRAM FOLDER TOKEN_IDS}
folder=${2:?usage: run_test.sh PROGRAM FOLDER TOKEN_IDS}
token_ids=${3:?usage: run_test.sh PROGRAM FOLDER TOKEN_IDS}
here=$(cd "$(dirname "$0")" && pwd)

"$here/fetch_tokenizer" "$folder"
exec "$program" "$folder" "$token_ids"
