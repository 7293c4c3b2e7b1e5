# SPDX-License-Identifier: Apache-2.0
#
# What cuda_check.py, cuda_sanitize.py and the peers in PyTorch share: programs that are ended with
# all that they started, outcomes in files that are there whole or not at all, and what this machine
# has. tools/cuda_check_test.py and tools/cuda_sanitize_test.py test it.

import contextlib
import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL_S = 0.1  # how late it is seen that time is up
ANSWER_S = 120.0  # for a question to a program: PyTorch takes long to load the first time
GPU_FIELDS = ("name", "driver_version", "memory.total", "clocks.max.sm", "clocks.max.memory")


class Runner:
    """Runs programs until they end, time is up, or this process gets SIGINT or SIGTERM."""

    def __init__(self, grace_s=0.0):
        self.grace_s = grace_s  # what a program has to end in before it is killed
        self.stopped_by = 0  # the signal

    @contextlib.contextmanager
    def stops_on_signals(self):
        """The signals are only noted: who runs something looks, and the rest is as at its end."""
        def note(number, _):
            self.stopped_by = number

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self, command, output, end, environment=None):
        """Its exit status; None where it was ended, or was not begun."""
        if self.stopped_by or time.monotonic() >= end:
            return None
        # A session, so that one signal reaches all that it starts, and Ctrl-C none of it.
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output,
                              stderr=subprocess.STDOUT, start_new_session=True,
                              env=os.environ | (environment or {})) as process:
            try:
                while not self.stopped_by and time.monotonic() < end:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        return process.wait(POLL_S)
                return process.poll()
            finally:
                self._end(process)

    def _end(self, process):
        if process.poll() is None and self.grace_s > 0:
            send_to_group(process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.grace_s)
        send_to_group(process, signal.SIGKILL)  # also what it left behind


def send_to_group(process, number):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


# ---- Files.

def digest_of(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def read_json(path):
    """None where there is no such file, or not a whole one."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def write_json(path, document):
    """To where it was asked for, or not at all."""
    new_path = f"{path}.new"
    with open(new_path, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    os.replace(new_path, path)


def read_earlier(path, subject, rows, keys):
    """Of an earlier run's file the list `rows` by the first of `keys`, all of which each must have.
    A ValueError says why that cannot be taken: outcomes of another `subject` say nothing here."""
    if not path:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        for key in [key for row in document[rows] for key in keys if key not in row]:
            raise KeyError(key)
        found = {row[keys[0]]: row for row in document[rows]}
        of = {key: document[key] for key in subject}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"--after {path}: no outcomes of an earlier run: {error!r}") from error
    for key, value in subject.items():
        if of[key] != value:
            raise ValueError(f"--after {path}: outcomes where {key} was {of[key]}, not {value}")
    return found


# ---- Machine.

def ask(command, environment=None):
    """Exit status and all that was said; a program that cannot run or does not answer fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              timeout=ANSWER_S, env=os.environ | (environment or {}))
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, (done.stdout + done.stderr).strip()


@functools.cache
def lacks(need):
    """Why a module of Python or a program cannot be used here; an empty text where it can."""
    if need not in ("torch", "transformers"):
        return "" if shutil.which(need) else f"no {need} here"
    asks = f"import {need}"
    if need == "torch":
        asks += "; assert torch.cuda.is_available(), 'no GPU'"
    status, said = ask([sys.executable, "-c", asks])
    if status == 0:
        return ""
    return f"{need} sees no GPU here" if said.endswith("no GPU") else f"no {need} here"


def describe_machine():
    """With the GPU that programs take, the first that CUDA shows them. By nvidia-smi's numbers,
    which are CUDA's where all GPUs are of one kind."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    which = ["-i", visible.split(",")[0]] if visible else []
    status, said = ask(["nvidia-smi", *which, f"--query-gpu={','.join(GPU_FIELDS)}",
                        "--format=csv,noheader,nounits"])
    values = [value.strip() for value in said.split("\n")[0].split(",")]
    gpu = dict(zip(GPU_FIELDS, values)) if status == 0 else {"name": "unknown"}
    return {"gpu": gpu, "visible_devices": visible, "cores": usable_cores(),
            "memory_gib": host_gib()}


def usable_cores():
    return len(os.sched_getaffinity(0))


def host_gib():
    """Memory of the machine, or of the container that this runs in."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # "max" where there is no limit
            sizes.append(int(Path("/sys/fs/cgroup", path).read_text(encoding="utf-8")))
    return min(sizes) >> 30


# ---- Peers.

def measure_each(peer, measure, cases, path):
    """Rows of tools/cuda_peer_timing.py, `peer`, written after each case, so that they are there
    when somebody ends the program. 1 where a case gave none: it did not run, or gave wrong values.
    """
    rows = []
    status = 0
    for case in cases:
        found = peer.measure_rows(measure, [case])
        rows += found
        status = status if found else 1
        if path:
            peer.write_rows(rows, f"{path}.new")
            os.replace(f"{path}.new", path)
    return status
