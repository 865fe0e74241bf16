"""A process that follows its parent ends when the parent is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil

from env import lifeline

CHILD = (
    "import os, signal, sys, time; from env.lifeline import follow_parent\n"
    "followed = follow_parent()\n"
    "signal.signal(signal.SIGTERM, lambda *_: (open(sys.argv[1], 'w').write('restored'), sys.exit(0)))\n"
    "print(os.getpid(), followed, flush=True)\n"
    "time.sleep(60)\n"
)
PARENT = (
    "import os, subprocess, sys, time\n"
    "subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[2]], env={**os.environ, **eval(sys.argv[3])})\n"
    "time.sleep(60)\n"
)


def start(target: str, environment: dict[str, str]) -> tuple[subprocess.Popen[str], int]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD, target, repr(environment)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid, followed = parent.stdout.readline().split()
    assert followed == str(lifeline.FOLLOW in environment)
    parent.stdout.close()
    return parent, int(pid)


def test_a_sigkill_to_the_parent_gives_the_child_the_chance_to_put_the_machine_back(tmp_path) -> None:
    target = tmp_path / "ended"
    parent, child = start(str(target), {lifeline.FOLLOW: "1"})
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    while psutil.pid_exists(child) and not target.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert target.read_text() == "restored"


def test_without_the_request_the_child_outlives_its_parent(tmp_path) -> None:
    parent, child = start(str(tmp_path / "ended"), {})
    parent.kill()
    parent.wait()
    time.sleep(0.3)
    assert psutil.pid_exists(child)
    os.kill(child, signal.SIGKILL)
