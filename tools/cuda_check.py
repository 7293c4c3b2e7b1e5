#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# All that a GPU has to show of build/gpu-bundle/gapless-gpu, one step after the other: tests,
# benchmarks with their goals, PyTorch beside them, profiles of the model, the code for older
# devices, the tests under compute-sanitizer, sweeps. What was said goes to FOLDER/cuda_check.log;
# outcomes, figures and commands to FOLDER/cuda_check.json, after every step; recordings of two
# layers beside them.
#
# usage: tools/cuda_check.py --out FOLDER [--seconds 1500] [--only STEP]... [--skip STEP]...
#                            [--after FILE] [--jobs 16] [--program build/gpu-bundle/gapless-gpu]
#        tools/cuda_check.py --list
#
# STEP may be a pattern: --skip 'sweep-*'. Where time is up, the step that runs is ended, keeps the
# figures that it has, and the others are not begun. --after takes the cuda_check.json of an earlier
# call with the same program, on another machine if need be: steps that passed there are not run
# again, and a sanitizer goes on with the tests that had not ended.
#
# Status 0: all steps passed, or were left out and it says why. 1: one failed, or it could not run.
# 2: wrong options. 3: none failed, but not all ended. 130, 143: stopped by Ctrl-C or SIGTERM. A
# goal that is missed is a figure, and no step that fails.

import argparse
import datetime
import fnmatch
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import cuda_run
import cuda_sanitize

TOOLS = Path(__file__).resolve().parent
DATA = "GAPLESS_TEST_DATA"
SHARED_KIB = "GAPLESS_CUDA_SHARED_KIB"
NO_TESTS = ["test", "--gtest_filter=-*"]  # passes where tests can run
WIDTH_GIB = 15  # of the host's memory: what a test of CudaDecodeAtFullWidth takes under racecheck
# Time for a sanitizer: what it must have to be begun, and how much before the end it is to end.
LEAST_S = 60.0
MARGIN_S = 30.0
GRACE_S = 15.0  # from SIGTERM, when time is up, to SIGKILL
NOT_ENDED = 3  # exit status of tools/cuda_sanitize.py that has found nothing so far
SKIPPED = re.compile(r"^\[  SKIPPED \] (\d+) tests?", re.MULTILINE)
TOO_MUCH_SHARED = re.compile(r"[^:]* has 1 to \d+ KiB of shared memory a block")


# ---- What is to be done.

@dataclass
class Step:
    name: str
    about: str
    command: list  # {json} in it: a file whose contents are kept; {out}: the FOLDER
    environment: dict = field(default_factory=dict)
    needs: tuple = ()  # programs and modules of Python
    gpu_gib: int = 0  # of the GPU's memory
    goes_on: bool = False  # takes --after and --seconds, as cuda_sanitize.py does


# Where tests read data: beside the tools, unless somebody said otherwise or it is not there. Then
# the program knows where it was at build time, or skips tests and says so.
def test_data():
    data = TOOLS.parent / "tests/data"
    return {} if DATA in os.environ or not (data / "qwen3").is_dir() else {DATA: str(data)}


def bench(name, about, program, *options, **more):
    return Step(name, about, [program, "bench", *options, "--json", "{json}"], **more)


def peer(name, about, kind, *options, needs=("torch",), **more):
    command = [sys.executable, str(TOOLS / f"cuda_{kind}_peer.py"), *options]
    return Step(name, about, [*command, "--json", "{json}"], needs=needs, **more)


# Ours and then PyTorch's, so that both ran on one machine and close together. What transformers has
# is apart: not every machine with PyTorch has that.
def benchmark_steps(program):
    yield bench("matmul", "matmuls, with goals", program, "matmul", "--main")
    yield peer("matmul-peer", "PyTorch's matmuls", "matmul")
    yield bench("attention", "attention, with goals", program, "attention", "--main")
    yield peer("attention-peer", "PyTorch's attention", "attention")
    yield bench("layer", "a layer and 40 with the head, with goals", program, "layer", "--main",
                "--whole")
    yield peer("layer-peer", "the layer in PyTorch", "layer", "--variant", "ops", "ops-flash",
               "compiled", "s8", "s8-compiled")
    yield peer("layer-peer-transformers", "the layer of transformers", "layer", "--variant",
               "transformers", "transformers-compiled", needs=("torch", "transformers"))


# GiB of the attention are two sets of 64 x 32768 tokens, of layers three.
def sweep_steps(program):
    yield peer("model-peer", "40 layers and the head in PyTorch", "layer", "--whole", "--variant",
               "ops", "compiled", "s8", "s8-compiled", gpu_gib=48)
    yield bench("sweep-matmul", "matmuls of 1 to 64 tokens", program, "matmul")
    yield bench("sweep-attention", "attention of all batches and lengths", program, "attention",
                gpu_gib=24)
    yield peer("sweep-attention-peer", "the same in PyTorch", "attention", "--all", gpu_gib=24)
    yield bench("sweep-layer", "layers of all batches and lengths", program, "layer")
    yield peer("sweep-layer-peer", "the same in PyTorch", "layer", "--variant", "ops", "s8",
               "--batch", "1", "4", "16", "64", "--context", "512", "4096", "32768", gpu_gib=40)


# All of 14B, in GiB: weights and, in profiles, 10 of keys and values. The first layer is checked
# against double precision. Layers leave a recording and the same for Perfetto, models would leave
# too much: a machine may give back few files, of some MiB (docs/gpu_bundle.md).
def model_steps(program):
    profile = [program, "profile", "--device", "cuda", "--batch", "16", "--ctx", "4096", "--dtype"]
    tokens = ["qwen3-14b", "--device", "cuda", "--tokens", "1,2,3,4,5,6,7,8"]
    for dtype in ("a8w8", "bf16"):
        yield Step(f"profile-{dtype}", f"a layer in {dtype}, checked and recorded",
                   [*profile, dtype, "-o", f"{{out}}/profile-{dtype}.gapless"])
    for dtype, gib in (("a8w8", 28), ("bf16", 40)):
        yield Step(f"model-{dtype}", f"40 layers and the head in {dtype}, checked",
                   [*profile, dtype, "--whole", "--no-trace"], gpu_gib=gib)
    for dtype, gib in (("a8w8", 18), ("bf16", 31)):
        yield Step(f"generate-{dtype}", f"gapless generate of 14B in {dtype}",
                   [program, "generate", *tokens, "--dtype", dtype], gpu_gib=gib)
    yield Step("check", "gapless check of 14B: A8W8 against bf16", [program, "check", *tokens],
               gpu_gib=46)


def sm80_steps(program):
    for kib, devices in ((227, "sm_90's memory"), (163, "an A100's"), (99, "sm_86, 89 and 120's")):
        yield Step(f"sm80-{kib}", f"tests with the code for sm_80 in {devices}",
                   [program, "test", "--gtest_brief=1",
                    "--gtest_filter=-CudaExpiredWait*:CudaCeiling*"],
                   test_data() | {"CUDA_FORCE_PTX_JIT": "1", SHARED_KIB: str(kib)})


# The filters of racecheck name all that cuda_sanitize.py takes by default, each once. Whole steps
# run without the kernel that makes weights, which has tests of its own and takes most of the time,
# and steps of long sequences at full width without matmuls: with them they do not end in 575 s.
# Other inputs than the first take the same ways through the kernels, and come last.
def sanitizer_steps(program, jobs):
    def sanitize(name, about, *options, jobs=jobs):
        return Step(name, about, [sys.executable, str(TOOLS / "cuda_sanitize.py"), "--program",
                                  program, "--json", "{json}", "--jobs", str(jobs), *options],
                    test_data(), needs=("compute-sanitizer",), goes_on=True)

    yield sanitize("memcheck", "the tests under memcheck", "--tool", "memcheck")
    yield sanitize("racecheck-kernels", "kernels under racecheck", "--filter",
                   "*OnDevice*:CudaRecorderOnGpu*-CudaWeightsOnDevice*")
    yield sanitize("racecheck-steps", "weights and whole steps under racecheck", "--without",
                   "fill_", "--filter", "CudaWeightsOnDevice*:*CudaDecode*:CudaProfile*"
                   "-*CudaDecodeOfLong*FullWidth*:Others/*")
    yield sanitize("racecheck-long", "long sequences at full width under racecheck", "--without",
                   "fill_", "--without", "matmul", "--filter",
                   "*CudaDecodeOfLong*FullWidth*")
    yield sanitize("racecheck-inputs", "more inputs at full width under racecheck", "--without",
                   "fill_", "--filter", "Others/CudaDecodeAtFullWidth*",
                   jobs=max(min(jobs, cuda_run.host_gib() // WIDTH_GIB), 1))


# In the order of what is worth most: what takes long comes late.
def all_steps(program, jobs):
    return [Step("tests", "all GPU tests", [program, "test", "--gtest_brief=1"], test_data()),
            *benchmark_steps(program), *model_steps(program), *sm80_steps(program),
            *sanitizer_steps(program, jobs), *sweep_steps(program)]


# ---- A step.

@dataclass
class Call:
    """What all steps of this call share."""
    program: str
    out: Path
    end: float
    runner: cuda_run.Runner
    log: IO[str]
    machine: dict


# Why the step cannot run here; an empty text where it can.
def why_not(step, call):
    why = next(filter(None, map(cuda_run.lacks, step.needs)), "")
    if why:
        return why
    mib = call.machine["gpu"].get("memory.total", "")
    if mib.isdigit() and int(mib) < step.gpu_gib << 10:
        return f"needs {step.gpu_gib} GiB of GPU memory; there are {int(mib) / 1024:.1f}"
    if SHARED_KIB not in step.environment:
        return ""
    status, said = cuda_run.ask([call.program, *NO_TESTS], step.environment)
    refused = TOO_MUCH_SHARED.search(said)
    return refused.group().strip() if status != 0 and refused else ""


def rows_of(row):
    rows = row.get("figures", {}).get("rows", [])
    return [figure for figure in rows if isinstance(figure, dict)]


def outcome_of(step, status):
    if status is None or (step.goes_on and status == NOT_ENDED):
        return "not ended"
    return "passed" if status == 0 else "failed"


# Its outcome and seconds, and what it gave.
def run_command(step, before, call, folder):
    path = os.path.join(folder, "figures.json")
    command = [word.replace("{json}", path).replace("{out}", str(call.out))
               for word in step.command]
    begin = time.monotonic()
    if step.goes_on:
        command += ["--seconds", str(max(int(call.end - begin - MARGIN_S), 1))]
        if before:
            earlier = os.path.join(folder, "before.json")
            cuda_run.write_json(earlier, before)
            command += ["--after", earlier]
    call.log.write(f"==== {step.name}: {' '.join(command)}\n")
    call.log.flush()
    place = os.fstat(call.log.fileno()).st_size
    status = call.runner.run(command, call.log, call.end, step.environment)
    row = {"outcome": outcome_of(step, status), "seconds": round(time.monotonic() - begin, 1)}
    said = Path(call.log.name).read_bytes()[place:].decode(errors="replace")
    skipped = SKIPPED.search(said)
    if skipped and not step.goes_on:  # which says so of each test
        row["skipped_tests"] = int(skipped.group(1))
    figures = cuda_run.read_json(path) or before
    return row | ({"figures": figures} if figures else {})


# Its row, after the one that an earlier call left, if any: that stays where it says more.
def run_step(step, earlier, call):
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    row = {"step": step.name, "outcome": "not ended", "command": " ".join(step.command),
           "environment": step.environment, "seconds": 0.0, "date": now, "machine": call.machine}
    left = call.end - time.monotonic()
    if call.runner.stopped_by or left < (LEAST_S if step.goes_on else 0.0):
        return earlier or row
    why = why_not(step, call)
    if call.runner.stopped_by:  # perhaps it was no answer
        return earlier or row
    if why:  # also of what ran elsewhere, and has not ended
        return earlier if earlier.get("seconds") else row | {"outcome": "left out", "why": why}
    before = earlier.get("figures") if step.goes_on else None
    if before:
        row["went_on_after"] = earlier.get("went_on_after", []) + [
            {key: earlier[key] for key in ("date", "seconds", "machine")}]
    with tempfile.TemporaryDirectory() as folder:
        row |= run_command(step, before, call, folder)
    if row["outcome"] != "not ended":
        return row
    if any(figure.get("outcome") in cuda_sanitize.BAD for figure in rows_of(row)):
        return row | {"outcome": "failed"}
    had_more = earlier.get("outcome") == "failed" or len(rows_of(row)) < len(rows_of(earlier))
    return earlier if had_more and not step.goes_on else row


# ---- What is said of them.

def goals_of(row):
    return [(figure.get("what", ""), goal["goal"], goal["met"])
            for figure in rows_of(row) for goal in figure.get("goals", [])]


def line_of(row):
    notes = [row["why"]] if "why" in row else []
    outcomes = Counter(figure["outcome"] for figure in rows_of(row) if "outcome" in figure)
    notes += [f"{count} {outcome}" for outcome, count in sorted(outcomes.items())]
    goals = [met for _, _, met in goals_of(row)]
    notes += [f"{sum(goals)} of {len(goals)} goals met"] if goals else []
    notes += [f"skipped tests: {row['skipped_tests']}"] if "skipped_tests" in row else []
    return (f"{row['outcome']:<10}{row['seconds']:8.1f} s  {row['date'][:16]}  "
            f"{row['step']:<24}  {', '.join(notes)}").rstrip()


def print_summary(rows):
    goals = [(row["step"], *goal) for row in rows for goal in goals_of(row)]
    if goals:
        print()
    for step, what, goal, met in goals:
        print(f"{'met' if met else 'MISSED':<8} {goal:<28} {step}: {what}")
    print()
    for row in rows:
        print(line_of(row))
    outcomes = Counter(row["outcome"] for row in rows)
    print(f"{len(rows)} steps: " +
          ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())))
    if goals:
        print(f"{sum(met for *_, met in goals)} of {len(goals)} goals met")


# ---- All of them.

def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description="All that a GPU has to show, step by step.")
    parser.add_argument("--out", metavar="FOLDER", help="where the log and the outcomes go")
    parser.add_argument("--seconds", type=float, default=1500.0, help="for all steps together")
    parser.add_argument("--only", metavar="STEP", action="append", default=[])
    parser.add_argument("--skip", metavar="STEP", action="append", default=[])
    parser.add_argument("--after", metavar="FILE", help="cuda_check.json of an earlier call")
    parser.add_argument("--jobs", type=int, default=min(16, cuda_run.usable_cores()),
                        help="sanitizers at once")
    parser.add_argument("--program", default="build/gpu-bundle/gapless-gpu")
    parser.add_argument("--list", action="store_true", help="say what steps there are")
    parsed = parser.parse_args(arguments)
    names = [step.name for step in all_steps(parsed.program, 1)]
    for name in parsed.only + parsed.skip:
        if not fnmatch.filter(names, name):
            parser.error(f"no step {name}; there are {', '.join(names)}")
    if not parsed.list and not (parsed.out and os.path.isdir(parsed.out)):
        parser.error(f"--out {parsed.out}: there is no such folder" if parsed.out else
                     "--out FOLDER is needed")
    if parsed.jobs < 1:
        parser.error(f"--jobs {parsed.jobs}: at least one process is needed")
    return parsed


def is_in(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def chosen_steps(parsed):
    return [step for step in all_steps(parsed.program, parsed.jobs)
            if is_in(step.name, parsed.only or ["*"]) and not is_in(step.name, parsed.skip)]


def run_steps(parsed, runner):
    subject = {"program_sha256": cuda_run.digest_of(parsed.program)}
    try:
        rows = cuda_run.read_earlier(parsed.after, subject, "steps",
                                     ("step", "outcome", "seconds", "date", "machine"))
    except ValueError as error:
        raise SystemExit(f"cuda_check: {error}") from error
    document = {"version": cuda_run.ask([parsed.program, "--version"])[1]} | subject

    def keep():
        cuda_run.write_json(Path(parsed.out, "cuda_check.json"),
                            document | {"steps": list(rows.values())})

    keep()
    with open(Path(parsed.out, "cuda_check.log"), "a", encoding="utf-8") as log:
        call = Call(parsed.program, Path(parsed.out), time.monotonic() + parsed.seconds, runner,
                    log, cuda_run.describe_machine())
        for step in chosen_steps(parsed):
            earlier = rows.get(step.name, {})
            if earlier.get("outcome") == "passed":
                continue
            rows[step.name] = run_step(step, earlier, call)
            print(line_of(rows[step.name]), flush=True)
            keep()
    return list(rows.values())


def main(arguments):
    parsed = parse_arguments(arguments)
    if parsed.list:
        for step in chosen_steps(parsed):
            print(f"{step.name:<24} {step.about}")
        return 0
    if shutil.which(parsed.program) is None:
        raise SystemExit(f"cuda_check: there is no program {parsed.program}; make gpu-bundle")
    # Without a GPU every step would fail.
    status, said = cuda_run.ask([parsed.program, *NO_TESTS], test_data())
    if status != 0:
        raise SystemExit(f"cuda_check: {parsed.program} cannot run tests: {said}")
    runner = cuda_run.Runner(GRACE_S)
    with runner.stops_on_signals():
        rows = run_steps(parsed, runner)
    print_summary(rows)
    if runner.stopped_by:
        return 128 + runner.stopped_by
    outcomes = [row["outcome"] for row in rows]
    if "failed" in outcomes:
        return 1
    return 3 if "not ended" in outcomes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
