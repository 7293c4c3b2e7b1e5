#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Says why tests were skipped: each reason once, with the number of its tests, out of the log of
# ctest. A reason is what GoogleTest writes below ": Skipped", or what a script says before
# "; skipped". Those of the GPU come last, at the end of `make test`.
#
# usage: tools/skipped_tests.py LOG   the log is Testing/Temporary/LastTest.log of a build folder

import re
import sys
from collections import Counter
from pathlib import Path

OUTPUT = re.compile(r"^Output:\n-+\n(.*?)^<end of output>$", re.DOTALL | re.MULTILINE)
OF_GOOGLETEST = re.compile(r"^\S.*:\d+: Skipped\n(.*)$", re.MULTILINE)
OF_SCRIPT = re.compile(r"^(?:[\w.]+: )?(.*); skipped$", re.MULTILINE)


def reason_of(output):
    """Why the test with this output was skipped; None if it was not."""
    match = OF_GOOGLETEST.search(output) or OF_SCRIPT.search(output)
    if match is None:
        return None
    reason = match.group(1)
    return "no reason is given" if not reason or reason.startswith("[  SKIPPED ]") else reason


def count_reasons(log):
    """(reason, number of tests), the largest number and then the GPU at the end."""
    reasons = Counter(map(reason_of, OUTPUT.findall(log)))
    del reasons[None]
    return sorted(reasons.items(), key=lambda item: ("GPU" in item[0], item[1], item[0]))


def main(arguments):
    if len(arguments) != 1:
        print("usage: tools/skipped_tests.py LOG", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    if not path.exists():  # as after `ctest -N`
        return 0
    counts = count_reasons(path.read_text(encoding="utf-8", errors="replace"))
    if counts:
        print("\nTests that were skipped, and why:")
    for reason, count in counts:
        print(f"{count:6}  {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
