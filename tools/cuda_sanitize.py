#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Runs GPU tests under compute-sanitizer, each in a process of its own and several at once, until
# all have ended or time is up, and says of each what was found. A test may fail and yet be clean:
# clocks and bandwidths are not to be believed under a sanitizer, and tests that look at them fail.
#
# usage: tools/cuda_sanitize.py [--tool racecheck] [--filter '*OnDevice*'] [--jobs 6]
#                               [--seconds 540] [--without KERNEL]... [--json FILE] [--after FILE]
#                               [--program build/gpu-bundle/gapless-gpu]
#
# What does not end in time is gone on with, on another day and machine too: --after takes the
# --json of an earlier run, does not run again what ended there, and puts both into one account.
#
# Status 0: all ended, and nothing was found. 1: something was found, or it could not run. 2: wrong
# options. 3: nothing was found, but not all ended, or of some nothing was checked, or some were
# killed.

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

ROW = ("test", "outcome", "seconds")  # of a test, in a file of --json
FOUND = 9  # exit status of a sanitizer that found something
ENDED = ("clean", "failed", "skipped")
QUIET = ("clean", "skipped", "not ended")  # outcomes that need no look at the output
DIED = "process didn't terminate successfully"
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


# "clean", "found", "failed" (the test, where nothing was found), "skipped", "died" (killed on its
# way, by a host without memory for instance, which is an error to the sanitizer, too), and
# "unchecked", where the sanitizer had no last word: the test did not come to the GPU, or the
# sanitizer could not run.
def outcome_of(status, output):
    summary = SUMMARY.search(output)
    found = int(summary.group(1)) if summary else 0
    if status == FOUND and summary and found == 0 and DIED in output:
        return "died"
    if status == FOUND or found > 0:
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
    for kernel in arguments.without:
        command += ["--kernel-name-exclude", f"kns={kernel}"]
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


# What the outcomes in a file of --json are of: they say nothing about another program or tool.
def subject_of(arguments):
    with open(arguments.program, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    return {"tool": arguments.tool, "without": arguments.without, "program_sha256": digest}


def read_rows(path, subject):
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        rows = {row["test"]: {key: row[key] for key in ROW} for row in document["rows"]}
        of = {key: document[key] for key in subject}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"cuda_sanitize: --after {path}: no outcomes of an earlier run: "
                         f"{error!r}") from error
    for key, value in subject.items():
        if of[key] != value:
            raise SystemExit(f"cuda_sanitize: --after {path}: outcomes where {key} was {of[key]}, "
                             f"not {value}")
    return rows


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
            if result["outcome"] not in QUIET:
                print(result["output"], flush=True)
    return results


def status_of(outcomes):
    if "found" in outcomes:
        return 1
    return 0 if all(outcome in ENDED for outcome in outcomes) else 3


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description="GPU tests under compute-sanitizer, one by one.")
    parser.add_argument("--tool", choices=("memcheck", "racecheck", "initcheck", "synccheck"),
                        default="racecheck")
    parser.add_argument("--filter", help="of GoogleTest",
                        default="*OnDevice*:CudaRecorderOnGpu*:*CudaDecode*:CudaProfile*")
    parser.add_argument("--jobs", type=int, default=6, help="processes at once")
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


# To where it was asked for, or not at all.
def write_json(path, subject, rows):
    new_path = path + ".new"
    with open(new_path, "w", encoding="utf-8") as file:
        json.dump({**subject, "rows": rows}, file, indent=1)
    os.replace(new_path, path)


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
    subject = subject_of(arguments)
    rows = read_rows(arguments.after, subject) if arguments.after else {}
    ended = {test for test, row in rows.items() if row["outcome"] in ENDED}
    for result in run_tests(arguments, [test for test in tests if test not in ended]):
        rows[result["test"]] = {key: result[key] for key in ROW}
    outcomes = [row["outcome"] for row in rows.values()]
    print(f"{arguments.tool}: {len(rows)} tests: " +
          ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in sorted(set(outcomes))))
    if arguments.json:
        write_json(arguments.json, subject, list(rows.values()))
    return status_of(outcomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
