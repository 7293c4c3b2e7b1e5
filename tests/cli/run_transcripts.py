#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Runs transcripts: commands with the exact output that they must give.
#
#   # A comment: why this is here.
#   $ gapless info missing.gapless
#   gapless info: error: missing.gapless: No such file or directory
#   [exit 1]
#
# Each command runs in bash; a line "> more" after it continues it. All commands of a file share one
# fresh folder. Output is stdout and stderr together; blank lines at its end do not count. Without
# an [exit N] line the exit status must be 0. In the output {...} stands for any text within a line,
# and a line ... for any number of lines. An output line that starts with $, #, [exit or a backslash
# is written with a backslash before it. $GAPLESS_DATA is the folder of test data.
#
# usage: run_transcripts.py [--update] [--bin DIR]... [--data DIR] FILE...

import argparse
import difflib
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

TIMEOUT_S = 120
EXIT_LINE = re.compile(r"\[exit (-?\d+)\]")
NEEDS_ESCAPE = ("$ ", "#", "[exit ", "\\")


@dataclass
class Step:
    """One command: the comments before it, what it is, and what must come out."""
    before: list
    command: list
    output: list = field(default_factory=list)
    exit_status: int = 0


def strip_blank_end(lines):
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def parse_transcript(text, name):
    """The steps of a transcript, and the comment lines after the last one."""
    steps, aside = [], []
    in_output = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("$ "):
            steps.append(Step(before=aside, command=[line[2:]]))
            aside, in_output = [], True
        elif line.startswith("#") or (not in_output and not line.strip()):
            aside.append(line)
            in_output = False
        elif not in_output:
            raise ValueError(f"{name}:{number}: output without a command before it: {line}")
        elif line.startswith("> ") and not steps[-1].output:
            steps[-1].command.append(line[2:])
        elif EXIT_LINE.fullmatch(line):
            steps[-1].exit_status = int(EXIT_LINE.fullmatch(line).group(1))
            in_output = False
        else:
            steps[-1].output.append(line[1:] if line.startswith("\\") else line)
    if not steps:
        raise ValueError(f"{name}: has no command; one starts with '$ '")
    for step in steps:
        strip_blank_end(step.output)
    return steps, aside


def format_transcript(steps, aside):
    lines = []
    for index, step in enumerate(steps):
        before = step.before
        if index > 0 and not (before and not before[0].strip()):
            before = [""] + before
        lines += before
        lines += [("> " if position else "$ ") + line
                  for position, line in enumerate(step.command)]
        lines += ["\\" + line if line.startswith(NEEDS_ESCAPE) else line for line in step.output]
        if step.exit_status != 0:
            lines.append(f"[exit {step.exit_status}]")
    return "\n".join(lines + aside) + "\n"


def line_pattern(line):
    return r"[^\n]*".join(re.escape(part) for part in line.split("{...}"))


def matches(expected, actual):
    pattern = "".join(r"(?:[^\n]*\n)*" if line == "..." else line_pattern(line) + r"\n"
                      for line in expected)
    return re.fullmatch(pattern, "".join(line + "\n" for line in actual)) is not None


def merge_output(expected, actual):
    """The actual lines, with each expected line kept where it still matches. Finds the alignment
    that keeps most: a match counts 1, a replaced line 0.6, a line that ... takes up 0.5."""
    rows, columns = len(expected), len(actual)
    best = [[(0.0, None)] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows, -1, -1):
        for j in range(columns, -1, -1):
            choices = [(0.0, None)] if i == rows and j == columns else []
            if i < rows:
                gap = expected[i] == "..."
                choices.append((best[i + 1][j][0], "keep" if gap else "drop"))
                if j < columns and gap:
                    choices.append((best[i][j + 1][0] + 0.5, "take up"))
                elif j < columns:
                    same = re.fullmatch(line_pattern(expected[i]), actual[j])
                    choices.append((best[i + 1][j + 1][0] + (1.0 if same else 0.6),
                                    "match" if same else "replace"))
            if j < columns:
                choices.append((best[i][j + 1][0], "insert"))
            best[i][j] = max(choices, key=lambda choice: choice[0])
    merged, i, j = [], 0, 0
    while i < rows or j < columns:
        move = best[i][j][1]
        if move in ("match", "keep"):
            merged.append(expected[i])
        elif move in ("replace", "insert"):
            merged.append(actual[j])
        i += move in ("match", "keep", "drop", "replace")
        j += move in ("match", "take up", "replace", "insert")
    return merged


def run_command(command, folder, environment):
    """(output lines, exit status) of a command; one that is too slow or is killed says so."""
    process = subprocess.Popen(["bash", "-c", command], cwd=folder, env=environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output, status = process.communicate(timeout=TIMEOUT_S)[0], process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with its children, which hold the pipe open
        output, status = process.communicate()[0], f"none after {TIMEOUT_S} s"
    lines = output.decode("utf-8", errors="backslashreplace").split("\n")
    return strip_blank_end(lines), status


def make_environment(bins, data, home):
    """The caller's environment without our own variables, in one language and one time zone."""
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith("GAPLESS_")}
    search_path = [str(Path(folder).resolve()) for folder in bins] + [os.environ.get("PATH", "")]
    environment.update({"PATH": os.pathsep.join(search_path), "LC_ALL": "C.UTF-8", "TZ": "UTC",
                        "HOME": home, "GAPLESS_DATA": str(Path(data).resolve())})
    return environment


def describe_difference(step, expected, actual):
    difference = difflib.unified_diff(expected, actual, "expected", "got", lineterm="")
    return "\n".join(["  $ " + "\n  > ".join(step.command)] + ["  " + line for line in difference])


def run_transcript(path, bins, data, update=False):
    """True when all of a transcript's commands gave what it says (or it was rewritten)."""
    text = path.read_text(encoding="utf-8")
    steps, aside = parse_transcript(text, path.name)
    failures = []
    with tempfile.TemporaryDirectory(prefix="transcript.") as folder:
        environment = make_environment(bins, data, folder)
        for step in steps:
            output, status = run_command("\n".join(step.command), folder, environment)
            if matches(step.output, output) and status == step.exit_status:
                continue
            # Lines that match are shown as the transcript has them, so that only the others differ.
            merged = step.output
            if not matches(step.output, output):
                merged = merge_output(step.output, output)
            failures.append(describe_difference(step, step.output + [f"[exit {step.exit_status}]"],
                                                merged + [f"[exit {status}]"]))
            step.output, step.exit_status = merged, status
    if not failures:
        print(f"{path.name}: {len(steps)} commands passed")
        return True
    if update and all(isinstance(step.exit_status, int) for step in steps):
        path.write_text(format_transcript(steps, aside), encoding="utf-8")
        print(f"{path.name}: rewrote the output of {len(failures)} of {len(steps)} commands")
        return True
    print(f"{path.name}: {len(failures)} of {len(steps)} commands failed")
    print("\n".join(failures))
    return False


def main():
    parser = argparse.ArgumentParser(description="Runs command-line transcripts.")
    parser.add_argument("--update", action="store_true", help="rewrite the outputs that differ")
    parser.add_argument("--bin", action="append", default=[], help="folder to put first on PATH")
    parser.add_argument("--data", default=Path(__file__).resolve().parent.parent / "data")
    parser.add_argument("files", nargs="+", type=Path)
    arguments = parser.parse_args()
    passed = True
    for path in arguments.files:
        try:
            passed &= run_transcript(path, arguments.bin, arguments.data, arguments.update)
        except (OSError, ValueError) as error:
            print(f"run_transcripts.py: {error}", file=sys.stderr)
            passed = False
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
