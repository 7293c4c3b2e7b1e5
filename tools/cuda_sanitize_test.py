#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Tests of tools/cuda_sanitize.py with a sanitizer and a program of tests that are scripts: what
# each test does is its name.

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import cuda_sanitize
from process_test_support import comes_true, is_running

PROGRAM = """#!/usr/bin/env bash
case "$*" in
*--gtest_list_tests*--gtest_filter=Nothing*) ;;
*--gtest_list_tests*--gtest_filter=Broken*) echo "no driver" >&2; exit 4 ;;
*--gtest_filter=-*) [[ -z "${NO_GPU:-}" ]] || { echo "no usable GPU" >&2; exit 1; } ;;
*--gtest_list_tests*) echo "CudaOps."; for t in $TESTS; do echo "  $t  # GetParam() = 1"; done ;;
*Fails*) echo "[  FAILED  ] it"; exit 1 ;;
*Skips*) echo "[  SKIPPED ] it" ;;
*SeesNoGpu*) echo "NO GPU CODE WAS RUN: no driver"; echo "[  SKIPPED ] it" ;;
*HasNoGpuMemory*) echo "weights need 9 bytes of GPU memory; 1 of 8 are free"; exit 1 ;;
*Hangs*) sleep 60 & echo $! > "$PID_FILE"; wait ;;
*DiesAfterRaces*) echo "Race reported"; kill -KILL $$ ;;
*Races*) echo "Race reported" ;;
*RunsOutOfMemory*) kill -KILL $$ ;;
*HasNoKernel*) echo "Nothing instrumented" ;;
*) echo "[       OK ] it" ;;
esac
"""
SANITIZER = """#!/usr/bin/env bash
[[ "$*" == *"--tool racecheck"*"--error-exitcode 9"* ]] || exit 2
[[ "$*" == *"--kernel-name-exclude kns=slow_ "* ]] && echo "but slow ones"
while [[ "$1" != */program ]]; do shift; done
output=$("$@" 2> /dev/null); status=$?
echo "$output"
[[ "$output" == *Nothing* ]] && exit 1
(( status > 128 )) && { echo "========= Error: process didn't terminate successfully"; status=9; }
if [[ "$output" == *Race* ]]; then
  echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"; exit 9
fi
echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
exit $status
"""


class SanitizeTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name)
        for name, text in (("program", PROGRAM), ("sanitizer", SANITIZER)):
            (self.path / name).write_text(text, encoding="utf-8")
            (self.path / name).chmod(0o755)

    def run_tool(self, tests, *more):
        os.environ["TESTS"] = tests
        os.environ["PID_FILE"] = str(self.path / "pid")
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = cuda_sanitize.main(["--program", str(self.path / "program"), "--sanitizer",
                                         str(self.path / "sanitizer"), "--json",
                                         str(self.path / "rows.json"), *more])
        return status, output.getvalue()

    def outcomes(self):
        rows = json.loads((self.path / "rows.json").read_text(encoding="utf-8"))["rows"]
        return {row["test"]: row["outcome"] for row in rows}

    def test_says_what_was_found_of_each(self):
        status, output = self.run_tool("Passes Races Fails Skips")
        self.assertEqual(status, 1)
        self.assertEqual(self.outcomes(), {"CudaOps.Passes": "clean", "CudaOps.Races": "found",
                                           "CudaOps.Fails": "wrong", "CudaOps.Skips": "skipped"})
        self.assertIn("Race reported", output)
        self.assertIn("racecheck: 4 tests: 1 clean, 1 found, 1 skipped, 1 wrong", output)

    def test_a_test_that_fails_is_wrong(self):
        self.assertEqual(self.run_tool("Passes Fails")[0], 1)

    def test_a_test_that_a_sanitizer_breaks_is_excused(self):
        why = (("CudaOps.*BecauseOfClocks", "clocks"),)
        with unittest.mock.patch.object(cuda_sanitize, "EXCUSED", why):
            status, output = self.run_tool("Passes FailsBecauseOfClocks RacesBecauseOfClocks")
            self.assertEqual(status, 1)
            self.assertEqual(self.outcomes(), {"CudaOps.Passes": "clean",
                                               "CudaOps.FailsBecauseOfClocks": "excused",
                                               "CudaOps.RacesBecauseOfClocks": "found"})
            self.assertRegex(output, r"excused .* CudaOps.FailsBecauseOfClocks: clocks\n")
            self.assertIn("[  FAILED  ] it", output)
            rows = json.loads((self.path / "rows.json").read_text(encoding="utf-8"))["rows"]
            self.assertEqual(rows[1]["why"], "clocks")
            self.assertEqual(self.run_tool("FailsBecauseOfClocks")[0], 0)

    def test_a_test_of_which_nothing_is_checked_is_not_clean(self):
        status, output = self.run_tool("HasNoKernel Passes")
        self.assertEqual(status, 3)
        self.assertEqual(self.outcomes(),
                         {"CudaOps.HasNoKernel": "unchecked", "CudaOps.Passes": "clean"})
        self.assertIn("Nothing instrumented", output)

    def test_a_test_that_saw_no_gpu_or_no_memory_is_run_again(self):
        self.assertEqual(self.run_tool("SeesNoGpu HasNoGpuMemory")[0], 3)
        self.assertEqual(self.outcomes(), {"CudaOps.SeesNoGpu": "unchecked",
                                           "CudaOps.HasNoGpuMemory": "died"})
        before = str(self.path / "rows.json")
        output = self.run_tool("SeesNoGpu HasNoGpuMemory", "--after", before)[1]
        self.assertIn("s  CudaOps.SeesNoGpu", output)
        self.assertIn("s  CudaOps.HasNoGpuMemory", output)

    # The sanitizer ends with the status of a finding there, and says that it found nothing.
    def test_a_test_that_was_killed_is_run_again(self):
        status, output = self.run_tool("RunsOutOfMemory Passes")
        self.assertEqual(status, 3)
        self.assertEqual(self.outcomes(),
                         {"CudaOps.RunsOutOfMemory": "died", "CudaOps.Passes": "clean"})
        self.assertIn("didn't terminate successfully", output)
        before = str(self.path / "rows.json")
        status, output = self.run_tool("RunsOutOfMemory Passes", "--after", before)
        self.assertEqual(status, 3)
        self.assertIn("CudaOps.RunsOutOfMemory", output)
        self.assertNotIn("CudaOps.Passes", output)

    def test_what_was_found_before_a_test_was_killed_counts(self):
        self.assertEqual(self.run_tool("DiesAfterRaces")[0], 1)
        self.assertEqual(self.outcomes(), {"CudaOps.DiesAfterRaces": "found"})

    def test_kernels_can_be_left_out(self):
        self.assertNotIn("but slow ones", self.run_tool("Fails")[1])
        self.assertIn("but slow ones", self.run_tool("Fails", "--without", "slow_")[1])
        rows = json.loads((self.path / "rows.json").read_text(encoding="utf-8"))
        self.assertEqual(rows["without"], ["slow_"])
        output = self.run_tool("Fails", "--without", "other_", "--without", "slow_")[1]
        self.assertIn("but slow ones", output)

    def test_what_does_not_end_is_stopped_and_said(self):
        status, _ = self.run_tool("Hangs Passes", "--seconds", "2")
        self.assertEqual(status, 3)
        self.assertEqual(self.outcomes(),
                         {"CudaOps.Hangs": "not ended", "CudaOps.Passes": "clean"})
        self.expect_nothing_runs()

    def expect_nothing_runs(self):
        pid = int((self.path / "pid").read_text(encoding="utf-8"))
        self.assertTrue(comes_true(lambda: not is_running(pid)), "something was left behind")

    # Outcomes are there as soon as tests end, and what runs is ended, in its session of its own.
    def test_a_signal_is_time_that_is_up(self):
        environment = os.environ | {"TESTS": "Passes Hangs", "PID_FILE": str(self.path / "pid")}
        for number in (signal.SIGTERM, signal.SIGINT):
            (self.path / "pid").unlink(missing_ok=True)
            with subprocess.Popen([sys.executable, "-B", cuda_sanitize.__file__, "--program",
                                   str(self.path / "program"), "--sanitizer",
                                   str(self.path / "sanitizer"), "--jobs", "1", "--json",
                                   str(self.path / "rows.json")], env=environment,
                                  stdout=subprocess.DEVNULL) as tool:
                self.assertTrue(comes_true((self.path / "pid").exists))
                known = {"CudaOps.Passes": "clean", "CudaOps.Hangs": "not ended"}
                self.assertTrue(comes_true(lambda: self.outcomes() == known))
                self.assertTrue(comes_true((self.path / "pid").read_text))
                tool.send_signal(number)
                self.assertEqual(tool.wait(10), 3)
            self.assertEqual(self.outcomes(), known)
            self.expect_nothing_runs()
            (self.path / "rows.json").unlink()

    def test_what_takes_minutes_begins_first(self):
        output = self.run_tool("Passes StepsAtFullWidth Later", "--jobs", "1")[1]
        begun = [line.split()[-1] for line in output.splitlines() if line.startswith("clean")]
        self.assertEqual(begun, ["CudaOps.StepsAtFullWidth", "CudaOps.Passes", "CudaOps.Later"])

    def test_time_that_is_up_starts_nothing(self):
        self.assertEqual(self.run_tool("Passes", "--seconds", "0")[0], 3)
        self.assertEqual(self.outcomes(), {"CudaOps.Passes": "not ended"})

    # What ended is not run again; what did not, and what was not asked for before, is.
    def test_goes_on_after_an_earlier_run(self):
        before = str(self.path / "before.json")
        self.assertEqual(self.run_tool("Passes Skips Fails Races")[0], 1)
        os.replace(self.path / "rows.json", before)
        status, output = self.run_tool("Passes Skips Fails Races Later", "--after", before)
        self.assertEqual(status, 1)
        self.assertNotIn("CudaOps.Passes", output)
        self.assertNotIn("CudaOps.Skips", output)
        self.assertIn("CudaOps.Fails", output)
        self.assertIn("CudaOps.Races", output)
        self.assertEqual(self.outcomes(), {"CudaOps.Passes": "clean", "CudaOps.Skips": "skipped",
                                           "CudaOps.Fails": "wrong", "CudaOps.Races": "found",
                                           "CudaOps.Later": "clean"})

    def test_what_does_not_end_keeps_what_was_known_of_it(self):
        self.run_tool("Passes Races Fails")
        before = str(self.path / "rows.json")
        self.assertEqual(self.run_tool("Races Fails", "--after", before, "--seconds", "0")[0], 1)
        self.assertEqual(self.outcomes(), {"CudaOps.Passes": "clean", "CudaOps.Races": "found",
                                           "CudaOps.Fails": "wrong"})

    # Of files from before some tests were excused by their names.
    def test_what_had_only_failed_is_run_again(self):
        self.run_tool("Passes")
        before = self.path / "rows.json"
        text = before.read_text(encoding="utf-8").replace('"clean"', '"failed"')
        before.write_text(text, encoding="utf-8")
        self.assertEqual(self.run_tool("Passes", "--after", str(before))[0], 0)
        self.assertEqual(self.outcomes(), {"CudaOps.Passes": "clean"})

    def test_nothing_is_left_to_do_after_a_run_that_ended(self):
        before = str(self.path / "rows.json")
        self.run_tool("Passes")
        status, output = self.run_tool("Passes", "--after", before)
        self.assertEqual((status, output), (0, "racecheck: 1 tests: 1 clean\n"))

    def test_outcomes_of_something_else_are_refused(self):
        before = str(self.path / "rows.json")
        self.run_tool("Passes")
        self.assertIn("where without was [], not ['slow_']",
                      self.error_of("--after", before, "--without", "slow_"))
        (self.path / "program").write_text(PROGRAM + "# changed", encoding="utf-8")
        self.assertIn("where program_sha256 was ", self.error_of("--after", before))
        for text in ("", "[]", "{}", '{"rows": 1}', '{"rows": [{"test": "a"}]}'):
            Path(before).write_text(text, encoding="utf-8")
            self.assertIn("no outcomes of an earlier run", self.error_of("--after", before))
        self.assertIn("no outcomes of an earlier run",
                      self.error_of("--after", str(self.path / "nowhere")))

    def error_of(self, *options):
        with self.assertRaises(SystemExit) as raised:
            self.run_tool("Passes", *options)
        return str(raised.exception.code)

    def test_what_cannot_run_is_an_error(self):
        self.assertIn("matches 'Nothing*'", self.error_of("--filter", "Nothing*"))
        self.assertIn("ended with status 4: no driver", self.error_of("--filter", "Broken*"))
        with unittest.mock.patch.dict(os.environ, NO_GPU="1"):
            self.assertIn("ended with status 1: no usable GPU", self.error_of())
        nowhere = str(self.path / "nowhere")
        self.assertIn(f"no program {nowhere}", self.error_of("--program", nowhere))
        self.assertIn(f"no program {nowhere}", self.error_of("--sanitizer", nowhere))
        self.assertEqual(self.error_of("--jobs", "0"), "2")
        self.assertEqual(self.error_of("--json", nowhere + "/rows.json"), "2")


if __name__ == "__main__":
    unittest.main()
