"""Ending with the process that started us, so that a killed nox leaves no measurement running behind it."""

from __future__ import annotations

import ctypes
import os
import signal

FOLLOW = "FASTRNNS_FOLLOW_PARENT"
PR_SET_PDEATHSIG = 1  # prctl(2), linux/prctl.h


def follow_parent() -> bool:
    """Ask the kernel for SIGTERM when the parent ends, where the parent asked for that; True if it is set.

    A SIGTERM or SIGKILL to nox ends nox alone: its child would go on measuring, and holding the machine, with
    nobody to read the answer. The request is an environment variable because only a parent that waits for us
    may make it (a shell's background job must survive its shell).
    """
    if os.environ.pop(FOLLOW, None) is None:
        return False
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        return False
    if os.getppid() != parent:  # it ended before the request was made
        os.kill(os.getpid(), signal.SIGTERM)
    return True
