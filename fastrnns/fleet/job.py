"""What runs on a node: one command, its output in the task's folder, signals passed on, its exit code left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from env.lifeline import FOLLOW
from fastrnns.fleet.task import STOP
from fastrnns.measure.process import child_environment

RECORDS, OUTPUT, STORY, OUTCOME, PID = "records", "stdout.txt", "stderr.txt", "outcome.json", "pid"
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Slurm preempts and cancels with SIGTERM; submitit has it send SIGUSR2 before the time is up.
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)


def run(words: tuple[str, ...], folder: str, gpu: int | None, variables: Mapping[str, str | None]) -> int:
    """Run `python WORDS` in the folder until it ends by itself or is asked to; returns its exit code.

    The command gets one SIGTERM for whatever signal arrives here: it is what makes a bench keep its samples and
    put its machine back. Should this process be killed outright, the kernel sends the command that same signal.

    Args:
        words: the command's arguments after the interpreter.
        folder: of this attempt, on a file system that the submitting machine sees too.
        gpu: the index of the one GPU to be used among those that the job may see; None: all of them.
        variables: environment variables to set; None: to take away.
    """
    place = Path(folder)
    asked: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        if child is not None and len(asked) == 1:
            child.send_signal(signal.SIGTERM)

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    started = time.time()
    code: int | None = None
    try:
        # Who stops the fleet writes the file first and signals then: one of the two is seen, whatever the order here.
        if not asked and not (place.parents[1] / STOP).exists():
            with (place / OUTPUT).open("wb") as output, (place / STORY).open("wb") as story:
                child = subprocess.Popen(
                    [sys.executable, *words],
                    cwd=place,
                    env=environment(gpu, variables),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=story,
                    start_new_session=True,  # a terminal's Ctrl-C is for the fleet, which passes it on
                )
                if asked:  # between the question and the start
                    child.send_signal(signal.SIGTERM)
                _write(place / PID, str(child.pid))
                code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    signals = [signal.Signals(number).name for number in asked]
    _write(
        place / OUTCOME,
        json.dumps({"exit_code": code, "signals": signals, "seconds": round(time.time() - started, 3)}),
    )
    return 130 if code is None else code


def outcome(folder: Path) -> dict[str, Any] | None:
    """What an attempt left behind; None where it was killed, or has not ended."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - asks a network file system anew, where a stat is answered from memory
        found = json.loads((folder / OUTCOME).read_bytes()) if OUTCOME in names else None
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def last_words(path: Path) -> str:
    """The last line that was said into a file: what a command is doing, or why it ended."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def environment(gpu: int | None, variables: Mapping[str, str | None]) -> dict[str, str]:
    """The command's variables: this project importable, one GPU visible, ended with this process."""
    made = {key: value for key, value in os.environ.items() if variables.get(key, "") is not None}
    made |= {key: value for key, value in variables.items() if value is not None}
    if gpu is not None:
        seen = [name.strip() for name in made.get(VISIBLE, "").split(",") if name.strip()]
        made[VISIBLE] = seen[gpu] if gpu < len(seen) else str(gpu)
    return child_environment(None, {FOLLOW: "1"}, base=made)


def _write(path: Path, text: str) -> None:
    """A file that appears whole: it is read from another machine."""
    aside = path.with_suffix(".tmp")
    aside.write_text(text, encoding="ascii")
    aside.replace(path)
