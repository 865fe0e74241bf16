"""Holding the machine for the length of one command: check or apply, shield, watch, and put back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from env import tasks, topology
from env.cpulist import format_list
from env.errors import MachineError
from env.sysfs import Files

Mode = Literal["ignore", "check", "apply"]


@dataclass
class Held:
    """One machine under a command: what it was, what shields it, what was seen, what it is afterwards."""

    mode: Mode
    root: str = "/"
    cpus: tuple[int, ...] = ()
    housekeeping: tuple[int, ...] = ()
    mems: tuple[int, ...] = ()
    before: list[dict[str, Any]] = field(default_factory=list)
    after: list[dict[str, Any]] = field(default_factory=list)
    drift: list[dict[str, Any]] = field(default_factory=list)
    shield: dict[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def adopt(self, pid: int) -> None:
        """Put a waiting child onto the bench CPUs."""
        if self.mode == "ignore":
            return
        problems = tasks.pin(pid, self.cpus)
        if problems:
            raise MachineError(f"{problems[0]}; choose other CPUs with --cpus")
        self.shield["verified"] = self.verify(pid)["ok"]

    def verify(self, pid: int) -> dict[str, Any]:
        """Where the kernel says that a child may run, thread by thread."""
        place = tasks.place(Files("/"), pid)
        wanted = frozenset(self.cpus)
        problems = [
            f"thread {thread.tid} may run on CPU {format_list(thread.cpus)}"
            for thread in place.threads
            if wanted and not thread.cpus <= wanted
        ]
        if not place.threads:
            problems.append("the process is gone")
        return {
            "ok": not problems and self.mode != "ignore",
            "threads": len(place.threads),
            "cpus_allowed": sorted({format_list(thread.cpus) for thread in place.threads}),
            "mems_allowed": sorted({format_list(thread.mems) for thread in place.threads}),
            "group": place.group,
            "problems": problems,
        }


@contextlib.contextmanager
def hold(
    mode: Mode,
    *,
    cpus: str | None = None,
    root: str = "/",
    strict: bool = False,
    gpu: int | None = None,
    **options: Any,
) -> Iterator[Held]:
    """Hold the machine while the body runs.

    `ignore` looks at nothing and pins nothing. `check` writes nothing: it reads every step, chooses
    CPUs and pins the children that are adopted. `apply` brings the machine into its stable state too,
    and puts it back.
    """
    held = Held(mode=mode, root=root)
    if mode == "ignore":
        held.shield = {"backend": "none", "cpus": "", "verified": False, "reason": "not asked for (--env ignore)"}
        yield held
        return
    choice = topology.choose(topology.read(Files(root)), cpus)
    held.cpus, held.housekeeping, held.mems = choice.cpus, choice.housekeeping, choice.mems
    held.shield = {
        "backend": "affinity",
        "cpus": choice.text,
        "verified": False,
        "housekeeping": format_list(choice.housekeeping),
        "reason": "pinned, not shielded",
    }
    with _aside(choice.housekeeping if root == "/" else ()):
        yield held


@contextlib.contextmanager
def _aside(housekeeping: Sequence[int]) -> Iterator[None]:
    """Keep this process off the bench CPUs meanwhile."""
    before = {tid: os.sched_getaffinity(tid) for tid in tasks.threads_of(Files("/"), os.getpid())}
    if housekeeping:
        tasks.pin(os.getpid(), housekeeping)
    try:
        yield
    finally:
        for tid in tasks.threads_of(Files("/"), os.getpid()):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(tid, before.get(tid, before[os.getpid()]))
