# SPDX-License-Identifier: Apache-2.0
#
# For tests of what ends programs: whether a process still runs, and waiting for what comes true.

import contextlib
import time
from pathlib import Path

WAIT_S = 10.0
POLL_S = 0.05


def is_running(pid):
    """A process that has ended and that nobody has waited for runs no more."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split()[2] != "Z"
    return False


def comes_true(condition):
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(POLL_S)
    return False
