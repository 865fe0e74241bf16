"""Holding the machine for the length of one command: check or apply, shield, watch, and put back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from env import machine, suspicion, tasks, watching
from env.cpulist import format_list
from env.errors import MachineError
from env.shield import ShieldStep
from env.shields.affinity import Affinity
from env.shields.backend import BENCH
from env.shields.cgroup2 import Cgroup2
from env.step import Wanted
from env.sysfs import Files
from env.watch import Watch

Mode = Literal["ignore", "check", "apply"]


@dataclass
class Held:
    """One machine under a command: what it was, what shields it, what was seen, what it is afterwards."""

    mode: Mode
    step: ShieldStep | None = None
    cpus: tuple[int, ...] = ()
    housekeeping: tuple[int, ...] = ()
    before: list[dict[str, Any]] = field(default_factory=list)
    after: list[dict[str, Any]] = field(default_factory=list)
    drift: list[dict[str, Any]] = field(default_factory=list)
    shield: dict[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)  # why the command's results are to be believed less
    watches: list[Watch] = field(default_factory=list)

    def adopt(self, pid: int) -> None:
        """Put a waiting child onto the bench CPUs, inside the shield where one stands."""
        if self.step is None:
            return
        self.step.adopt(pid)
        if self.step.host.files.real:
            found = self.verify(pid)
            self.shield["verified"] = found["ok"]
            self.shield["worker"] = {key: found[key] for key in ("cpus_allowed", "mems_allowed", "group")}
            for problem in found["problems"]:
                self._doubt(problem)

    def verify(self, pid: int) -> dict[str, Any]:
        """Where the kernel says that a child may run, thread by thread; `ok` when all are inside."""
        place = tasks.place(Files("/"), pid)
        wanted = frozenset(self.cpus)
        problems = [
            f"thread {thread.tid} of the worker may run on CPU {format_list(thread.cpus)}"
            for thread in place.threads
            if wanted and not thread.cpus <= wanted
        ]
        if not place.threads:
            problems.append("the worker is gone")
        elif self._inside is not None and place.group is not None and self._inside not in place.group:
            problems.append(f"the worker is in {place.group}, outside the shield")
        return {
            "ok": not problems and bool(self.cpus),
            "threads": len(place.threads),
            "cpus_allowed": sorted({format_list(thread.cpus) for thread in place.threads}),
            "mems_allowed": sorted({format_list(thread.mems) for thread in place.threads}),
            "group": place.group,
            "problems": problems,
        }

    @property
    def _inside(self) -> str | None:
        """The group that the worker must be in, where there is a shield."""
        return BENCH if self.shield.get("shielded") else None

    def watch(self, pid: int) -> Watch:
        """A watch of one child, to be started and stopped; in mode `ignore` it looks at nothing."""
        if self.step is None:
            return Watch([])
        host = self.step.host
        partition = Cgroup2(host).partition_file if self.shield.get("backend") == Cgroup2.name else None
        made = watching.build(
            host.files,
            pid,
            self.cpus,
            housekeeping=self.housekeeping,
            gpu=host.wanted.gpu,
            partition=partition,
            journal=host.standing or host.journal,
        )
        self.watches.append(made)
        return made

    def environment(self) -> dict[str, str]:
        """Variables for a child that computes: threads that fit, unless the user chose their number."""
        if not self.cpus:
            return {}
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
        return {name: str(len(self.cpus)) for name in names if name not in os.environ}

    def _doubt(self, reason: str) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)


@contextlib.contextmanager
def hold(
    mode: Mode,
    *,
    cpus: str | None = None,
    root: str = "/",
    strict: bool = False,
    gpu: int | None = None,
    command: str = "bench",
    **options: Any,
) -> Iterator[Held]:
    """Hold the machine while the body runs.

    `ignore` looks at nothing and pins nothing. `check` writes nothing: it reads every step, chooses
    CPUs and pins the children that are adopted. `apply` brings the machine into its stable state too,
    unless `env apply` already did, and puts it back. `strict` refuses a machine that is not stable
    before the body runs; one that drifted is for the caller to answer, by `drift`, after it has kept
    what it measured. `options` are the other fields of `env.step.Wanted`.
    """
    if mode == "ignore":
        none = {"backend": "none", "cpus": "", "verified": False, "reason": "--env ignore"}
        yield Held(mode, shield=none)
        return
    wanted = Wanted(cpus=cpus, gpu=gpu, **options)
    with machine.opened(root, wanted, mode=mode, command=command) as opened:
        step = opened.shield()
        choice = opened.host.choice
        held = Held(mode, step, choice.cpus, choice.housekeeping, before=opened.states())
        held.shield = described(step, held.before)
        if opened.holder is not None:
            held.reasons.append(f"measured beside another command that holds the machine: {opened.holder}")
        if strict:
            refuse_unstable(held)
        with _aside(held.housekeeping if opened.host.files.real else ()):
            yield held
        held.after = opened.states()
        held.drift = drift_between(held.before, held.after)
        _conclude(held)
    held.drift += [{"step": "restore", "reason": sentence} for sentence in opened.left]
    for item in opened.left:
        held.reasons.append(f"not put back: {item}")


def described(step: ShieldStep, before: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The shield as the record holds it; `verified` only when a worker is inside."""
    inside = step.usable()
    shielded = inside is not None
    backend = inside[0] if inside is not None else step.backends[Affinity.name]
    reason = next((row["reason"] for row in before if row["name"] == step.name), "")
    choice = step.host.choice
    return {
        "backend": backend.name,
        "shielded": shielded,
        "cpus": choice.text,
        "housekeeping": format_list(choice.housekeeping),
        "mems": format_list(choice.mems),
        "classes": sorted(set(choice.classes)),
        "kind": step.host.wanted.partition if backend.name == Cgroup2.name else None,
        "verified": False,
        "reason": "" if shielded else reason or "pinned, not shielded",
        "warnings": [*choice.warnings, *backend.notes],
    }


def refuse_unstable(held: Held) -> None:
    """End before anything is measured on a machine that is not stable."""
    wrong = machine.amiss(held.before)
    if wrong:
        named = ", ".join(f"{row['name']} {row['status']}" for row in wrong[:4])
        raise MachineError(
            f"--strict: the machine is not stable ({named}); `python -m env check` says what to do"
        )


def drift_between(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps that read otherwise after the body than before it."""
    later = {row["name"]: row for row in after}
    found = []
    for row in before:
        now = later.get(row["name"], {"status": "unknown", "current": None})
        if (row["status"], row["current"]) != (now["status"], now["current"]):
            found.append(
                {
                    "step": row["name"],
                    "before": row["current"],
                    "after": now["current"],
                    "reason": f"{row['name']} was {row['current']} ({row['status']}) before"
                    f" and {now['current']} ({now['status']}) after",
                }
            )
    return found


def _conclude(held: Held) -> None:
    """What the watches and the second look add to the doubts."""
    for item in held.drift:
        held.reasons.append(f"the machine drifted: {item['reason']}")
    for watch in held.watches:
        watch.stop()
        for row in watch.disturbances():  # how much was disturbed is judged over the samples, by who has them
            if suspicion.is_grave(row["cause"]) and row["cause"] not in held.reasons:
                held.reasons.append(row["cause"])


@contextlib.contextmanager
def _aside(housekeeping: Sequence[int]) -> Iterator[None]:
    """Keep this process off the bench CPUs meanwhile."""
    me = os.getpid()
    before = {tid: os.sched_getaffinity(tid) for tid in tasks.threads_of(Files("/"), me)}
    if housekeeping:
        tasks.pin(me, housekeeping)
    try:
        yield
    finally:
        if housekeeping:
            for tid in tasks.threads_of(Files("/"), me):
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(tid, before.get(tid, before[me]))
