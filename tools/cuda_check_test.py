#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Tests of tools/cuda_check.py and tools/cuda_run.py with a gapless-gpu, a sanitizer and an
# nvidia-smi that are scripts. What these are to do otherwise is said by files beside them.

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
from pathlib import Path

import cuda_check
import cuda_run
from process_test_support import comes_true, is_running

PROGRAM = """#!/usr/bin/env bash
here=$(dirname "$0")
echo "$*" >> "$here/calls"
case "$*" in
--version) echo "gapless 0.1" ;;
"test --gtest_filter=-*")
  [[ ! -e $here/no_gpu ]] || { echo "no usable GPU"; exit 1; }
  if [[ -e $here/small_blocks && ${GAPLESS_CUDA_SHARED_KIB:-0} -gt 163 ]]; then
    echo "NO GPU CODE WAS RUN: a variable: A100 has 1 to 163 KiB of shared memory a block"
    exit 1
  fi ;;
*--gtest_list_tests*) echo "CudaOps."; echo "  Adds"; echo "  Subtracts" ;;
"test --gtest_brief=1"*)
  echo "shared ${GAPLESS_CUDA_SHARED_KIB:-all}, ptx ${CUDA_FORCE_PTX_JIT:-0}"
  echo "data $GAPLESS_TEST_DATA"
  [[ ! -e $here/skips ]] || echo "[  SKIPPED ] 3 tests."
  [[ ! -e $here/broken ]] || exit 1 ;;
test*) ;;
bench\\ attention*) cp "$here/rows" "${!#}" ;;
bench*)
  [[ ! -e $here/gives_rows ]] || cp "$here/rows" "${!#}"
  [[ ! -e $here/hangs ]] || { sleep 60 & echo $! > "$here/pid"; wait; } ;;
*) echo "did $*" ;;
esac
"""
SANITIZER = """#!/usr/bin/env bash
here=$(dirname "$0")
while [[ "$1" != */program ]]; do shift; done
[[ "$*" != *Subtracts* || ! -e $here/hangs ]] || sleep 60
[[ "$*" != *Adds* || ! -e $here/races ]] || { echo "RACECHECK SUMMARY: 1 hazard"; exit 9; }
"$@" && echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
"""
NVIDIA_SMI = """#!/usr/bin/env bash
here=$(dirname "$0")
echo "$*" >> "$here/smi_calls"
[[ ! -e $here/no_smi ]] || exit 9
echo "NVIDIA H200, 580.1, $(cat "$here/mib"), 1980, 3201"
"""
# What a machine with PyTorch and no GPU has.
TORCH = """class cuda:
    is_available = staticmethod(lambda: False)
"""
GOALS = {"what": "b16", "median_us": 63.0, "goals": [{"goal": "<= 66.00 us", "met": True},
                                                    {"goal": ">= 95 %", "met": False}]}
ROWS = {"gpu": "H200", "rows": [{"what": "a read", "median_us": 2.0}, GOALS]}
TWO = ("--only", "tests", "--only", "attention")


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name)
        (self.path / "out").mkdir()
        self.write("rows", json.dumps(ROWS))
        self.write("mib", "143771")
        for name, text in (("program", PROGRAM), ("compute-sanitizer", SANITIZER),
                           ("nvidia-smi", NVIDIA_SMI)):
            self.write(name, text)
            (self.path / name).chmod(0o755)
        self.program = str(self.path / "program")
        environment = {name: value for name, value in os.environ.items() if name not in
                       ("GAPLESS_TEST_DATA", "GAPLESS_CUDA_SHARED_KIB", "CUDA_VISIBLE_DEVICES")}
        environment["PATH"] = f"{folder.name}:{os.environ['PATH']}"
        patch = unittest.mock.patch.dict(os.environ, environment, clear=True)
        patch.start()
        self.addCleanup(patch.stop)
        cuda_run.lacks.cache_clear()

    def write(self, name, text):
        (self.path / name).write_text(text, encoding="utf-8")

    def read(self, name):
        return (self.path / name).read_text(encoding="utf-8")


class CheckTest(Scripts):
    def run_tool(self, *options):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = cuda_check.main(["--program", self.program, "--out",
                                      str(self.path / "out"), "--jobs", "2", *options])
        return status, output.getvalue()

    def steps(self):
        return {row["step"]: row for row in json.loads(self.read("out/cuda_check.json"))["steps"]}

    def outcomes(self):
        return {name: row["outcome"] for name, row in self.steps().items()}

    # What the last call left, for --after; calls are counted anew.
    def take_outcomes(self):
        before = self.path / "before.json"
        os.replace(self.path / "out/cuda_check.json", before)
        (self.path / "calls").unlink()
        return str(before)

    def expect_nothing_runs(self):
        pid = int(self.read("pid"))
        self.assertTrue(comes_true(lambda: not is_running(pid)), "something was left behind")

    # ---- Steps.

    def test_runs_every_step_and_keeps_what_was_said(self):
        status, output = self.run_tool()
        self.assertEqual(status, 0, output)
        steps = cuda_check.all_steps(self.program, 2)
        self.assertEqual(list(self.outcomes()), [step.name for step in steps])
        for step in steps:
            row = self.steps()[step.name]
            lacks = any(cuda_run.lacks(need) for need in step.needs)
            self.assertEqual(row["outcome"], "left out" if lacks else "passed", step.name)
            self.assertEqual(row["machine"]["gpu"]["name"], "NVIDIA H200")
        log = self.read("out/cuda_check.log")
        data = cuda_check.TOOLS.parent / "tests/data"
        for shared, ptx in (("all", 0), ("227", 1), ("163", 1), ("99", 1)):
            self.assertIn(f"shared {shared}, ptx {ptx}\ndata {data}\n", log)
        self.assertIn(f"did profile --device cuda --batch 16 --ctx 4096 --dtype bf16 -o "
                      f"{self.path}/out/profile-bf16.gapless\n", log)
        self.assertEqual(self.steps()["attention"]["figures"], ROWS)
        self.assertEqual([row["outcome"] for row in
                          self.steps()["racecheck-inputs"]["figures"]["rows"]], ["clean", "clean"])
        self.assertEqual(json.loads(self.read("out/cuda_check.json"))["version"], "gapless 0.1")

    # What cuda_sanitize.py takes by default, each test in one step of racecheck. The patterns of
    # each filter: what is taken, and what is not.
    def test_racecheck_has_every_test_once(self):
        tests = {"CudaMatmulOnDevice.Adds": 0, "CudaEarlyStartOnDevice.Waits": 0,
                 "Some/CudaRowsOnDevice.Norm/4": 0, "CudaRecorderOnGpu.Records": 0,
                 "CudaWeightsOnDevice.AreTheSame": 1, "CudaDecode.TakesTheLargestLogits": 1,
                 "Fusions/CudaDecodeFusions.GivesTheSameBits/s8": 1, "CudaProfile.AddsUp": 1,
                 "First/CudaDecodeAtFullWidth.GivesTheSameBits/s8Input0": 1,
                 "Long/CudaDecodeOfLongSequences.GivesTheSameBits/s8": 1,
                 "Long/CudaDecodeOfLongSequences.GivesTheSameBitsAtFullWidth/s8": 2,
                 "Others/CudaDecodeAtFullWidth.GivesTheSameBits/s8Input7": 3,
                 "CudaMatmulConfig.NeedsNoGpu": None}
        filters = [step.command[step.command.index("--filter") + 1] for step in
                   cuda_check.all_steps(self.program, 2) if step.name.startswith("racecheck-")]
        self.assertEqual(len(filters), 4)
        for test, expected in tests.items():
            taken = []
            for i, text in enumerate(filters):
                positive, _, negative = text.partition("-")
                if cuda_check.is_in(test, positive.split(":")) and \
                        not cuda_check.is_in(test, negative.split(":")):
                    taken.append(i)
            self.assertEqual(taken, [] if expected is None else [expected], test)

    def test_counts_goals(self):
        status, output = self.run_tool("--only", "attention")
        self.assertEqual(status, 0, "a goal is a figure, and no step that fails")
        self.assertIn("1 of 2 goals met", output)
        self.assertRegex(output, r"met +<= 66.00 us +attention: b16\n")
        self.assertRegex(output, r"MISSED +>= 95 % +attention: b16\n")

    def test_counts_skipped_tests(self):
        (self.path / "skips").touch()
        self.assertIn("skipped tests: 3", self.run_tool("--only", "tests")[1])

    def test_goes_on_after_a_step_that_fails(self):
        (self.path / "broken").touch()
        self.assertEqual(self.run_tool(*TWO)[0], 1)
        self.assertEqual(self.outcomes(), {"tests": "failed", "attention": "passed"})

    def test_a_finding_fails_its_step(self):
        (self.path / "races").touch()
        status, output = self.run_tool("--only", "racecheck-kernels")
        self.assertEqual(status, 1)
        self.assertRegex(output, r"failed .* racecheck-kernels +1 clean, 1 found\n")

    # ---- What cannot run here.

    def remove_sanitizer(self):
        (self.path / "compute-sanitizer").unlink()
        os.environ["PATH"] = f"{self.path}:/usr/bin:/bin"
        cuda_run.lacks.cache_clear()

    def test_leaves_out_what_needs_more_memory(self):
        self.write("mib", "24564")
        status, output = self.run_tool("--only", "model-*")
        self.assertEqual(status, 0)
        self.assertEqual(set(self.outcomes().values()), {"left out"})
        self.assertIn("needs 40 GiB of GPU memory; there are 24.0", output)
        self.assertEqual(self.run_tool("--only", "generate-a8w8")[0], 0)
        self.assertEqual(self.outcomes(), {"generate-a8w8": "passed"})

    def test_leaves_out_blocks_larger_than_the_gpus(self):
        (self.path / "small_blocks").touch()
        status, output = self.run_tool("--only", "sm80-*")
        self.assertEqual(status, 0)
        self.assertEqual(self.outcomes(), {"sm80-227": "left out", "sm80-163": "passed",
                                           "sm80-99": "passed"})
        self.assertIn("has 1 to 163 KiB of shared memory a block", output)

    def test_leaves_out_what_needs_a_program_that_is_not_there(self):
        self.remove_sanitizer()
        status, output = self.run_tool("--only", "memcheck")
        self.assertEqual(status, 0)
        self.assertRegex(output, r"left out .* memcheck +no compute-sanitizer here\n")

    def test_leaves_out_what_needs_pytorch(self):
        (self.path / "python").mkdir()
        self.write("python/torch.py", TORCH)
        with unittest.mock.patch.dict(os.environ, PYTHONPATH=str(self.path / "python")):
            self.assertEqual(self.run_tool("--only", "matmul-peer")[0], 0)
            self.assertEqual(self.steps()["matmul-peer"]["why"], "torch sees no GPU here")
            cuda_run.lacks.cache_clear()
            self.write("python/torch.py", "raise ImportError")
            self.run_tool("--only", "matmul-peer")
        self.assertEqual(self.steps()["matmul-peer"]["why"], "no torch here")

    # ---- Time that is up, and signals.

    def test_ends_what_runs_when_time_is_up(self):
        (self.path / "hangs").touch()
        (self.path / "gives_rows").touch()
        status, _ = self.run_tool("--only", "tests", "--only", "matmul", "--only", "attention",
                                  "--seconds", "2")
        self.assertEqual(status, 3)
        self.assertEqual(self.outcomes(), {"tests": "passed", "matmul": "not ended",
                                           "attention": "not ended"})
        self.assertEqual(self.steps()["matmul"]["figures"], ROWS, "what it had is kept")
        self.assertEqual(self.steps()["attention"]["seconds"], 0.0)
        self.expect_nothing_runs()

    def test_a_signal_ends_what_runs(self):
        (self.path / "hangs").touch()
        for number in (signal.SIGTERM, signal.SIGINT):
            with subprocess.Popen([sys.executable, "-B", cuda_check.__file__, "--program",
                                   self.program, "--out", str(self.path / "out"), "--only", "tests",
                                   "--only", "matmul", "--only", "attention"],
                                  stdout=subprocess.DEVNULL) as tool:
                pid = self.path / "pid"
                self.assertTrue(comes_true(lambda: pid.exists() and pid.read_text()))
                tool.send_signal(number)
                self.assertEqual(tool.wait(30), 128 + number)
            self.assertEqual(self.outcomes(), {"tests": "passed", "matmul": "not ended",
                                               "attention": "not ended"})
            self.expect_nothing_runs()
            pid.unlink()

    def test_a_sanitizer_is_not_begun_without_time_for_it(self):
        self.assertEqual(self.run_tool("--only", "memcheck", "--seconds", "50")[0], 3)
        self.assertEqual(self.outcomes(), {"memcheck": "not ended"})
        self.assertNotIn("--gtest_list_tests", self.read("calls"))

    # ---- After an earlier call.

    # What passed is not run again; what failed, and what was not asked for before, is.
    def test_goes_on_after_an_earlier_call(self):
        (self.path / "broken").touch()
        self.assertEqual(self.run_tool(*TWO)[0], 1)
        (self.path / "broken").unlink()
        before = self.take_outcomes()
        status, output = self.run_tool(*TWO, "--only", "check", "--after", before)
        self.assertEqual(status, 0)
        self.assertEqual(self.outcomes(), {"tests": "passed", "attention": "passed",
                                           "check": "passed"})
        self.assertNotIn("bench attention", self.read("calls"))
        self.assertIn("test --gtest_brief=1", self.read("calls"))
        self.assertIn("1 of 2 goals met", output)

    def test_a_sanitizer_goes_on_with_the_tests_that_had_not_ended(self):
        (self.path / "hangs").touch()
        with unittest.mock.patch.multiple(cuda_check, LEAST_S=1.0, MARGIN_S=2.0):
            status, output = self.run_tool("--only", "racecheck-kernels", "--seconds", "6")
        self.assertEqual(status, 3)
        self.assertRegex(output, r"not ended .* racecheck-kernels +1 clean, 1 not ended\n")
        before = self.take_outcomes()
        (self.path / "hangs").unlink()
        self.assertEqual(self.run_tool("--only", "racecheck-kernels", "--after", before)[0], 0)
        row = self.steps()["racecheck-kernels"]
        self.assertEqual({test["test"]: test["outcome"] for test in row["figures"]["rows"]},
                         {"CudaOps.Adds": "clean", "CudaOps.Subtracts": "clean"})
        self.assertNotIn("--gtest_filter=CudaOps.Adds", self.read("calls"))
        self.assertEqual(len(row["went_on_after"]), 1)
        self.assertGreater(row["went_on_after"][0]["seconds"], 1.0)

    # A call that had no time for a step says less of it than the call before.
    def test_what_is_not_begun_keeps_what_was_known_of_it(self):
        (self.path / "broken").touch()
        (self.path / "races").touch()
        names = ("--only", "tests", "--only", "racecheck-steps")
        self.assertEqual(self.run_tool(*names)[0], 1)
        known = self.steps()
        status, _ = self.run_tool(*names, "--after", self.take_outcomes(), "--seconds", "0")
        self.assertEqual(status, 1)
        self.assertEqual(self.steps(), known)

    def test_what_cannot_run_here_keeps_what_was_known_of_it(self):
        self.assertEqual(self.run_tool("--only", "memcheck")[0], 0)
        text = self.read("out/cuda_check.json").replace('"outcome": "passed"',
                                                        '"outcome": "not ended"')
        self.write("out/cuda_check.json", text)
        before = self.take_outcomes()
        self.remove_sanitizer()
        status, output = self.run_tool("--only", "memcheck", "--after", before)
        self.assertEqual(status, 3, output)
        self.assertEqual(len(self.steps()["memcheck"]["figures"]["rows"]), 2)

    # ---- What cannot be asked for.

    def error_of(self, *options):
        with self.assertRaises(SystemExit) as raised:
            self.run_tool(*options)
        return str(raised.exception.code)

    def test_what_cannot_run_is_an_error(self):
        self.assertEqual(self.error_of("--only", "everything"), "2")
        self.assertEqual(self.error_of("--skip", "sweeps-*"), "2")
        self.assertEqual(self.error_of("--jobs", "0"), "2")
        self.assertEqual(self.error_of("--out", str(self.path / "nowhere")), "2")
        nowhere = str(self.path / "nowhere")
        self.assertIn(f"no program {nowhere}", self.error_of("--program", nowhere))
        (self.path / "no_gpu").touch()
        self.assertIn("cannot run tests: no usable GPU", self.error_of())

    def test_outcomes_of_something_else_are_refused(self):
        self.run_tool("--only", "tests")
        before = self.take_outcomes()
        self.write("program", PROGRAM + "# changed")
        self.assertIn("outcomes where program_sha256 was", self.error_of("--after", before))
        for text in ("", "[]", "{}", '{"program_sha256": "a", "steps": 1}',
                     '{"program_sha256": "a", "steps": [{"step": "tests"}]}'):
            self.write("before.json", text)
            self.assertIn("no outcomes of an earlier run", self.error_of("--after", before))

    def test_lists_its_steps(self):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            self.assertEqual(cuda_check.main(["--list", "--skip", "tests"]), 0)
        self.assertNotRegex(output.getvalue(), r"(?m)^tests ")
        self.assertRegex(output.getvalue(),
                         r"(?m)^racecheck-steps +weights and whole steps under racecheck$")


class MachineTest(Scripts):
    def test_is_that_of_the_gpu_that_programs_take(self):
        machine = cuda_run.describe_machine()
        self.assertEqual(machine["gpu"]["memory.total"], "143771")
        self.assertGreater(machine["memory_gib"], 0)
        self.assertNotIn("-i", self.read("smi_calls"))
        with unittest.mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES="3,1"):
            self.assertEqual(cuda_run.describe_machine()["visible_devices"], "3,1")
        self.assertIn("-i 3 ", self.read("smi_calls"))

    def test_is_unknown_where_nobody_says(self):
        (self.path / "no_smi").touch()
        self.assertEqual(cuda_run.describe_machine()["gpu"], {"name": "unknown"})


# Stands for tools/cuda_peer_timing.py, which needs PyTorch.
def peer_of(written):
    def write_rows(rows, path):
        written.append([row["what"] for row in rows])
        Path(path).write_text(json.dumps(rows), encoding="utf-8")

    return types.SimpleNamespace(
        measure_rows=lambda measure, cases: [row for case in cases for row in measure(*case)],
        write_rows=write_rows)


class PeerTest(Scripts):
    def test_rows_are_written_after_each_case(self):
        written = []
        path = self.path / "peer.json"
        status = cuda_run.measure_each(peer_of(written), lambda name: [{"what": name}],
                                       [("a",), ("b",)], str(path))
        self.assertEqual(status, 0)
        self.assertEqual(written, [["a"], ["a", "b"]])
        self.assertEqual(json.loads(path.read_text(encoding="utf-8")), [{"what": "a"},
                                                                        {"what": "b"}])

    def test_a_case_that_gives_nothing_is_not_passed_over(self):
        written = []
        status = cuda_run.measure_each(
            peer_of(written), lambda name: [] if name == "a" else [{"what": name}],
            [("a",), ("b",)], str(self.path / "peer.json"))
        self.assertEqual(status, 1)
        self.assertEqual(written[-1], ["b"])


if __name__ == "__main__":
    unittest.main()
