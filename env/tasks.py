"""Processes and threads as the kernel shows them: where each may run, and moving one's own among CPUs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from env.cpulist import parse_list
from env.sysfs import Files


@dataclass(frozen=True)
class Thread:
    """Where one thread may run, from /proc/PID/task/TID/status."""

    tid: int
    cpus: frozenset[int]
    mems: frozenset[int]


@dataclass(frozen=True)
class Place:
    """Where a process is: its group in the hierarchy that carries cpusets, and each of its threads."""

    pid: int
    group: str | None  # the cpuset (v1) or the cgroup (v2); None where the kernel shows neither
    threads: tuple[Thread, ...]


def threads_of(files: Files, pid: int) -> list[int]:
    """The thread ids of a process; empty when it is gone."""
    return [int(name) for name in files.names(f"/proc/{pid}/task") if name.isdigit()]


def place(files: Files, pid: int) -> Place:
    """Read where a process is now."""
    found = []
    for tid in threads_of(files, pid):
        thread = _thread(files.read(f"/proc/{pid}/task/{tid}/status").text, tid)
        if thread is not None:
            found.append(thread)
    return Place(pid, group_of(files, pid), tuple(found))


def group_of(files: Files, pid: int) -> str | None:
    """The cpuset of a process; under cgroup v2 both files name the cgroup."""
    cpuset = files.read(f"/proc/{pid}/cpuset").value
    lines = (files.read(f"/proc/{pid}/cgroup").text or "").splitlines()
    unified = next((line[3:] for line in lines if line.startswith("0::")), None)
    v1 = next((line.split(":", 2)[2] for line in lines if _controllers(line) & {"cpuset"}), None)
    return v1 or unified or cpuset


def _controllers(line: str) -> set[str]:
    parts = line.split(":", 2)
    return set(parts[1].split(",")) if len(parts) == 3 else set()


def _thread(text: str | None, tid: int) -> Thread | None:
    if text is None:
        return None
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        return Thread(
            tid,
            parse_list(fields.get("Cpus_allowed_list", "")),
            parse_list(fields.get("Mems_allowed_list", "")),
        )
    except ValueError:
        return None


def pin(pid: int, cpus: Iterable[int]) -> list[str]:
    """Pin every thread of a process, and those it makes meanwhile; returns what was refused, in sentences."""
    wanted = frozenset(cpus)
    done: set[int] = set()
    problems: list[str] = []
    for _ in range(4):  # a thread born while we walk inherits the mask of one we did or did not reach
        fresh = set(threads_of(Files("/"), pid)) - done
        if not fresh:
            break
        for tid in fresh:
            try:
                os.sched_setaffinity(tid, wanted)
            except ProcessLookupError:
                pass
            except OSError as error:
                problems.append(f"thread {tid} could not be pinned: {os.strerror(error.errno or 0)}")
        done |= fresh
    return problems
