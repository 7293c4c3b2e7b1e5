#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Runs GPU tests under compute-sanitizer, each in a process of its own and several at once, until
# all have ended or time is up, and says of each what was found. A test may fail and yet be clean:
# clocks and bandwidths are not to be believed under a sanitizer, and tests that look at them fail.
#
# usage: tools/cuda_sanitize.py [--tool racecheck] [--filter '*OnDevice*'] [--jobs 6]
#                               [--seconds 540] [--without KERNEL] [--json FILE]
#                               [--program build/gpu-bundle/gapless-gpu]
#
# Status 0: all ended, and nothing was found. 1: something was found, or it could not run. 2: wrong
# options. 3: nothing was found, but not all ended, or of some nothing was checked.

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

FOUND = 9  # exit status of a sanitizer that found something
SUMMARY = re.compile(r"(?:RACECHECK|ERROR) SUMMARY: (\d+) (?:hazards?|errors?)")


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"cuda_sanitize: '{' '.join(command)}' ended with status "
                         f"{done.returncode}: {done.stderr.strip()}")
    return done.stdout


# Without a GPU every test would fail, and a test that fails may be clean.
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


# "clean", "found", "failed" (the test, where nothing was found), "skipped", and "unchecked", where
# the sanitizer had no last word: the test did not come to the GPU, or the sanitizer could not run.
def outcome_of(status, output):
    summary = SUMMARY.search(output)
    if status == FOUND or (summary and int(summary.group(1)) > 0):
        return "found"
    if not summary:
        return "unchecked"
    if "[  SKIPPED ]" in output:
        return "skipped"
    return "clean" if status == 0 else "failed"


def run_test(arguments, end, test):
    begin = time.monotonic()
    left = end - begin
    result = {"test": test, "outcome": "not ended", "seconds": 0.0, "output": ""}
    if left <= 0:
        return result
    command = [arguments.sanitizer, "--tool", arguments.tool, "--report-api-errors", "no",
               "--error-exitcode", str(FOUND)]
    if arguments.without:
        command += ["--kernel-name-exclude", f"kns={arguments.without}"]
    command += [arguments.program, "test", f"--gtest_filter={test}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=left)
            result["outcome"] = outcome_of(process.returncode, output)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the program under it
            output, _ = process.communicate()
    result["seconds"] = round(time.monotonic() - begin, 1)
    result["output"] = output
    return result


# As they end, so that what is known is there when somebody stops the program.
def run_tests(arguments, tests):
    end = time.monotonic() + arguments.seconds
    results = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        running = [pool.submit(run_test, arguments, end, test) for test in tests]
        for future in concurrent.futures.as_completed(running):
            result = future.result()
            results.append(result)
            print(f"{result['outcome']:<10} {result['seconds']:7.1f} s  {result['test']}",
                  flush=True)
            if result["outcome"] in ("found", "failed", "unchecked"):
                print(result["output"], flush=True)
    return results


def status_of(results):
    outcomes = {result["outcome"] for result in results}
    if "found" in outcomes:
        return 1
    return 3 if outcomes & {"not ended", "unchecked"} else 0


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description="GPU tests under compute-sanitizer, one by one.")
    parser.add_argument("--tool", choices=("memcheck", "racecheck", "initcheck", "synccheck"),
                        default="racecheck")
    parser.add_argument("--filter", help="of GoogleTest",
                        default="*OnDevice*:CudaRecorderOnGpu*:*CudaDecode*:CudaProfile*")
    parser.add_argument("--jobs", type=int, default=6, help="processes at once")
    parser.add_argument("--seconds", type=float, default=540.0, help="for all of them together")
    parser.add_argument("--without", metavar="KERNEL",
                        help="kernels with this in their name run unchecked, like 'fill_', which "
                        "takes most of the time where weights are large and has tests of its own")
    parser.add_argument("--program", default="build/gpu-bundle/gapless-gpu")
    parser.add_argument("--sanitizer", default="compute-sanitizer")
    parser.add_argument("--json", help="where outcomes and seconds of all tests go")
    parsed = parser.parse_args(arguments)
    if parsed.jobs < 1:
        parser.error(f"--jobs {parsed.jobs}: at least one process is needed")
    if parsed.json and not os.path.isdir(os.path.dirname(os.path.abspath(parsed.json))):
        parser.error(f"--json {parsed.json}: there is no such folder")
    return parsed


# To where it was asked for, or not at all.
def write_json(arguments, results):
    rows = [{key: result[key] for key in ("test", "outcome", "seconds")} for result in results]
    new_path = arguments.json + ".new"
    with open(new_path, "w", encoding="utf-8") as file:
        json.dump({"tool": arguments.tool, "without": arguments.without, "rows": rows}, file,
                  indent=1)
    os.replace(new_path, arguments.json)


def main(arguments):
    arguments = parse_arguments(arguments)
    for needed in (arguments.program, arguments.sanitizer):
        if shutil.which(needed) is None:
            raise SystemExit(f"cuda_sanitize: there is no program {needed}")
    tests = list_tests(arguments.program, arguments.filter)
    if not tests:
        raise SystemExit(f"cuda_sanitize: no test of {arguments.program} matches "
                         f"'{arguments.filter}'")
    require_gpu(arguments.program)
    results = run_tests(arguments, tests)
    counts = {}
    for result in results:
        counts[result["outcome"]] = counts.get(result["outcome"], 0) + 1
    print(f"{arguments.tool}: {len(results)} tests: " +
          ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    if arguments.json:
        write_json(arguments, results)
    return status_of(results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
