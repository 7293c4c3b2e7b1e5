#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Runs GPU tests under compute-sanitizer, each in a process of its own and several at once, until
# all have ended or time is up, and says of each what was found. Some tests may fail there although
# nothing was found: EXCUSED names them. Any other that fails is wrong.
#
# usage: tools/cuda_sanitize.py [--tool racecheck] [--filter '*OnDevice*'] [--jobs 16]
#                               [--seconds 540] [--without KERNEL]... [--json FILE] [--after FILE]
#                               [--program build/gpu-bundle/gapless-gpu]
#
# --json is written after every test. What does not end in time is gone on with, on another day and
# machine too: --after takes the --json of an earlier run, does not run again what ended there, and
# puts both into one account. SIGTERM and Ctrl-C are time that is up.
#
# Status 0: all ended, and nothing was found. 1: something was found, a test was wrong, or it could
# not run. 2: wrong options. 3: nothing was found, but not all ended, or of some nothing was
# checked, or some were killed.

import argparse
import concurrent.futures
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import cuda_run

ROW = ("test", "outcome", "seconds")  # of a test, in a file of --json; one excused has its "why"
FOUND = 9  # exit status of a sanitizer that found something
# Those that need not run again. "failed", in files from before EXCUSED was, may have been wrong.
ENDED = ("clean", "excused", "skipped")
BAD = ("found", "wrong")
QUIET = ("clean", "skipped", "not ended")  # outcomes that need no look at the output
DIED = "process didn't terminate successfully"
NO_GPU = "NO GPU CODE WAS RUN"  # src/cuda/gpu_test_support.h
# DeviceBuffer::allocate, check_cuda_memory and the name of CUDA's own error.
NO_MEMORY = re.compile(r"bytes of GPU memory; \d+ of \d+ are free|GB are free"
                       r"|cudaErrorMemoryAllocation")
SUMMARY = re.compile(r"(?:RACECHECK|ERROR) SUMMARY: (\d+) (?:hazards?|errors?)")

# What a sanitizer breaks: tests that fail for it, seen (bench/results/issue-8-layer-h200.json,
# "sanitizers") or bound to, since they demand the same. Such a failure could hide a wrong result,
# so what the test says is printed; all of these compare results first.
OVERLAP = "launches do not overlap there"
CLOCKS = "clocks of blocks that were taken off their SM cannot be believed"
EXCUSED = (
    ("*CudaEarlyStart*OnDevice.*Wait*", OVERLAP),
    ("CudaAttentionOnDevice.RecordsItsBlocksAsTasks", CLOCKS),
    ("CudaMatmulOnDevice.LaunchesThatRecordTasks*", CLOCKS),
    ("*OnDevice.Recorded*", CLOCKS),  # matmuls, rows, heads, pairs
    ("CudaRecorderOnGpu.GivesBackWhatEveryBlockRecorded", CLOCKS),
    ("CudaRecorderOnGpu.RecordsReplaysOfAGraph", CLOCKS),
    ("CudaRecorderOnGpu.RecordsStepsOfOneLaunch", CLOCKS),
    ("CudaRecorderOnGpu.CountsStepsThatHaveNoPlace*", CLOCKS),
    ("CudaRecorderOnGpu.KnowsTheHostsTime", "the host waits long for a GPU that is shared"),
    ("CudaProfile.RecordsStepsThatAddUp", CLOCKS),
    ("*CudaDecodeFusions.*ATraceThatAddsUp*", CLOCKS),
)


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"cuda_sanitize: '{' '.join(command)}' ended with status "
                         f"{done.returncode}: {done.stderr.strip()}")
    return done.stdout


# Without a GPU every test would be skipped.
def require_gpu(program):
    output_of([program, "test", "--gtest_filter=-*"])


def list_tests(program, test_filter):
    listed = output_of([program, "test", "--gtest_list_tests", f"--gtest_filter={test_filter}"])
    tests = []
    suite = ""
    for line in listed.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  "):
            tests.append(suite + name.strip())
        elif name.endswith("."):
            suite = name
    return tests


# Those that take minutes begin first, or the last of them would run alone.
def is_short(test):
    return "FullWidth" not in test


def excuse_of(test):
    return next((why for name, why in EXCUSED if fnmatch.fnmatchcase(test, name)), "")


# "clean"; "found"; "wrong" or "excused" (the test failed, where nothing was found); "skipped";
# "died" (killed on its way, by a host without memory for instance, which is an error to the
# sanitizer, too; or the GPU had no memory left); and "unchecked", where the sanitizer had no last
# word or the test saw no GPU.
def outcome_of(test, status, output):
    summary = SUMMARY.search(output)
    found = int(summary.group(1)) if summary else 0
    if status == FOUND and summary and found == 0 and DIED in output:
        return "died"
    if status == FOUND or found > 0:
        return "found"
    if not summary or NO_GPU in output:
        return "unchecked"
    if status != 0 and NO_MEMORY.search(output):
        return "died"
    if status != 0:
        return "excused" if excuse_of(test) else "wrong"
    return "skipped" if "[  SKIPPED ]" in output else "clean"


def run_test(arguments, runner, end, test):
    command = [arguments.sanitizer, "--tool", arguments.tool, "--report-api-errors", "no",
               "--error-exitcode", str(FOUND)]
    for kernel in arguments.without:
        command += ["--kernel-name-exclude", f"kns={kernel}"]
    command += [arguments.program, "test", f"--gtest_filter={test}"]
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
        status = runner.run(command, file, end)
        file.seek(0)
        output = file.read()
    outcome = "not ended" if status is None else outcome_of(test, status, output)
    row = {"test": test, "outcome": outcome, "seconds": round(time.monotonic() - begin, 1)}
    return row | ({"why": excuse_of(test)} if outcome == "excused" else {}), output


# What the outcomes in a file of --json are of: they say nothing about another program or tool.
def subject_of(arguments):
    return {"tool": arguments.tool, "without": arguments.without,
            "program_sha256": cuda_run.digest_of(arguments.program)}


# Into `rows`, as they end, and into the file.
def run_tests(arguments, rows, tests, keep):
    end = time.monotonic() + arguments.seconds
    runner = cuda_run.Runner()
    with runner.stops_on_signals(), \
            concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        running = [pool.submit(run_test, arguments, runner, end, test) for test in tests]
        for future in concurrent.futures.as_completed(running):
            row, output = future.result()
            print(f"{row['outcome']:<10} {row['seconds']:7.1f} s  {row['test']}"
                  f"{': ' + row['why'] if 'why' in row else ''}", flush=True)
            if row["outcome"] not in QUIET:
                print(output, flush=True)
            known = rows[row["test"]]["outcome"]
            if row["outcome"] != "not ended" or known == "not ended":  # else it says less
                rows[row["test"]] = row
                keep()


def status_of(outcomes):
    if any(outcome in BAD for outcome in outcomes):
        return 1
    return 0 if all(outcome in ENDED for outcome in outcomes) else 3


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description="GPU tests under compute-sanitizer, one by one.")
    parser.add_argument("--tool", choices=("memcheck", "racecheck", "initcheck", "synccheck"),
                        default="racecheck")
    parser.add_argument("--filter", help="of GoogleTest",
                        default="*OnDevice*:CudaRecorderOnGpu*:*CudaDecode*:CudaProfile*")
    parser.add_argument("--jobs", type=int, default=min(16, cuda_run.usable_cores()),
                        help="processes at once; as many as there are cores, up to 16")
    parser.add_argument("--seconds", type=float, default=540.0, help="for all of them together")
    parser.add_argument("--without", metavar="KERNEL", action="append", default=[],
                        help="kernels with this in their name run unchecked, like 'fill_', which "
                        "takes most of the time where weights are large and has tests of its own; "
                        "may be given several times")
    parser.add_argument("--program", default="build/gpu-bundle/gapless-gpu")
    parser.add_argument("--sanitizer", default="compute-sanitizer")
    parser.add_argument("--json", help="where outcomes and seconds of all tests go")
    parser.add_argument("--after", metavar="FILE",
                        help="--json of an earlier run of the same program with the same tool: "
                        "what ended there without a finding is not run again")
    parsed = parser.parse_args(arguments)
    if parsed.jobs < 1:
        parser.error(f"--jobs {parsed.jobs}: at least one process is needed")
    if parsed.json and not os.path.isdir(os.path.dirname(os.path.abspath(parsed.json))):
        parser.error(f"--json {parsed.json}: there is no such folder")
    return parsed


def main(arguments):
    arguments = parse_arguments(arguments)
    for needed in (arguments.program, arguments.sanitizer):
        if shutil.which(needed) is None:
            raise SystemExit(f"cuda_sanitize: there is no program {needed}")
    tests = sorted(list_tests(arguments.program, arguments.filter), key=is_short)
    if not tests:
        raise SystemExit(f"cuda_sanitize: no test of {arguments.program} matches "
                         f"'{arguments.filter}'")
    require_gpu(arguments.program)
    subject = subject_of(arguments)
    try:
        earlier = cuda_run.read_earlier(arguments.after, subject, "rows", ROW)
    except ValueError as error:
        raise SystemExit(f"cuda_sanitize: {error}") from error
    rows = {test: dict(zip(ROW, (test, "not ended", 0.0))) for test in tests} | earlier

    def keep():
        if arguments.json:
            cuda_run.write_json(arguments.json, {**subject, "rows": list(rows.values())})

    keep()
    run_tests(arguments, rows, [test for test in tests if rows[test]["outcome"] not in ENDED], keep)
    outcomes = [row["outcome"] for row in rows.values()]
    print(f"{arguments.tool}: {len(rows)} tests: " +
          ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in sorted(set(outcomes))))
    return status_of(outcomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
