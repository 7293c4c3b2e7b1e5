#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Tests of tools/skipped_tests.py on logs as ctest writes them.

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import skipped_tests


def log_of(*outputs):
    """A log of tests with these outputs."""
    line = "-" * 58
    blocks = [f"{number}/9 Testing: cuda/A.B\n{number}/9 Test: cuda/A.B\nCommand: \"a\"\n"
              f"Directory: /b\nOutput:\n{line}\n{output}<end of output>\nTest time =   0.02 sec\n"
              f"{line}\nTest Passed.\n{line}\n\n" for number, output in enumerate(outputs, 1)]
    return f"Start testing: Nov 16 23:50 UTC\n{line}\n" + "".join(blocks)


def googletest(reason):
    return (f"[ RUN      ] A.B\n/work/a_test.cc:20: Skipped\n{reason}"
            "[  SKIPPED ] A.B (0 ms)\n[  PASSED  ] 0 tests.\n[  SKIPPED ] 1 test, listed below:\n")


class SkippedTestsTest(unittest.TestCase):
    def test_counts_each_reason_once_with_the_gpu_at_the_end(self):
        log = log_of(googletest("NO GPU CODE WAS RUN: a: b (c)\n"), "[       OK ] A.B (0 ms)\n",
                     *[googletest("needs two cores\n")] * 3, "run_test.sh: no node; skipped\n",
                     googletest("NO GPU CODE WAS RUN: a: b (c)\n"))
        self.assertEqual(skipped_tests.count_reasons(log),
                         [("no node", 1), ("needs two cores", 3),
                          ("NO GPU CODE WAS RUN: a: b (c)", 2)])

    def test_counts_a_test_without_a_reason(self):
        self.assertEqual(skipped_tests.count_reasons(log_of(googletest("\n"), googletest(""))),
                         [("no reason is given", 2)])

    def test_what_only_speaks_of_skipping_was_not_skipped(self):
        log = log_of("3 tasks were skipped\n", "Skipped\nthis\n", "")
        self.assertEqual(skipped_tests.count_reasons(log), [])

    def run_tool(self, *arguments):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = skipped_tests.main(list(arguments))
        return status, output.getvalue()

    def test_prints_nothing_where_nothing_was_skipped(self):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "LastTest.log"
            self.assertEqual(self.run_tool(str(log)), (0, ""))
            log.write_text(log_of("[       OK ] A.B\n"), encoding="utf-8")
            self.assertEqual(self.run_tool(str(log)), (0, ""))
            log.write_text(log_of(googletest("no /dev/full\n")), encoding="utf-8")
            self.assertEqual(self.run_tool(str(log)),
                             (0, "\nTests that were skipped, and why:\n     1  no /dev/full\n"))
        self.assertEqual(self.run_tool(), (2, "usage: tools/skipped_tests.py LOG\n"))


if __name__ == "__main__":
    unittest.main()
