"""Partitions of cgroup v2: a group whose CPUs the kernel takes away from everybody else, and gives back."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Any

from env import tasks
from env.cpulist import format_list, parse_list
from env.errors import MachineError
from env.shields import masks
from env.shields.backend import BENCH, STEP, Plan, Present
from env.shields.cset import mounts
from env.step import Host
from env.sysfs import Failure, Files

RUN = "run"  # the tasks live one level below: a group that governs others may hold none itself
KINDS = ("root", "isolated")
ROUNDS = 20  # a group is empty only some milliseconds after its last process was killed
PAUSE_S = 0.01

_INVALID = re.compile(r"invalid(?:\s*\((.*)\))?")


def mount(files: Files) -> str | None:
    """Where cgroup v2 is mounted with the cpuset controller to give; /sys/fs/cgroup if there is a choice."""
    found = [where for kind, where, _ in mounts(files) if kind == "cgroup2"]
    usable = [where for where in found if "cpuset" in _words(files, f"{where}/cgroup.controllers")]
    return min(usable, key=lambda where: (where != "/sys/fs/cgroup", where), default=None)


def _words(files: Files, path: str) -> list[str]:
    return (files.read(path).text or "").split()


def _cpus(files: Files, path: str) -> frozenset[int]:
    try:
        return parse_list(files.read(path).text or "")
    except ValueError:
        return frozenset()


class Cgroup2:
    """A partition at the top of the hierarchy: exclusive by the kernel's rules; no other task is moved."""

    name = "cgroup2"
    shields = True

    def __init__(self, host: Host) -> None:
        self.host = host
        self.files = host.files
        self.notes: list[str] = []

    def unusable(self) -> str | None:
        """Told by files, never by the kernel's version: distributions carry these features back."""
        where = mount(self.files)
        if where is None:
            if any(kind == "cgroup2" for kind, _, _ in mounts(self.files)):
                return "cgroup v2 has no cpuset controller here: cgroup v1 holds it, or the kernel lacks it"
            return "cgroup v2 is not mounted"
        if self.files.exists(f"{where}/cgroup.type"):  # every group has one but the root of the hierarchy
            return "blocked by the container: partitions are not delegated to it; do this on the host"
        failure = self.host.unwritable(f"{where}/cgroup.subtree_control")
        if failure is not None:
            return f"{where}: {failure.reason}"
        return None

    @property
    def group(self) -> str:
        """The folder of our group."""
        return f"{mount(self.files) or '/sys/fs/cgroup'}/{BENCH}"

    @property
    def partition_file(self) -> str:
        """The file in which the kernel says whether the partition stands."""
        return f"{self.group}/cpuset.cpus.partition"

    def obstacle(self, plan: Plan) -> str | None:
        """A partition of somebody else that already holds some of these CPUs."""
        where = mount(self.files)
        for name in self.files.names(where) if where else ():
            if name == BENCH or not self.files.is_dir(f"{where}/{name}"):
                continue
            state = self.files.read(f"{where}/{name}/cpuset.cpus.partition").value or "member"
            taken = _cpus(self.files, f"{where}/{name}/cpuset.cpus") & set(plan.cpus)
            if state.split(maxsplit=1)[0] in KINDS and "invalid" not in state and taken:
                return (
                    f"cgroup /{name} is a partition ({state}) that holds CPU {format_list(taken)}"
                    " and is not ours; it is left alone."
                    " Choose other CPUs with --cpus, or have it removed by who made it"
                )
        return None

    def present(self) -> Present | None:
        """Our group as the kernel shows it."""
        if not self.files.is_dir(self.group):
            return None
        state = self.files.read(self.partition_file).value or "no partition"
        cpus = _cpus(self.files, f"{self.group}/cpuset.cpus")
        effective = f"{self.group}/cpuset.cpus.effective"
        problems = []
        if "invalid" in state or state.split(maxsplit=1)[0] not in KINDS:
            problems.append(f"the partition is {state}")
        if self.files.exists(effective) and _cpus(self.files, effective) != cpus:
            problems.append(f"its effective CPUs are {self.files.read(effective).value or 'none'}")
        return Present(tuple(sorted(cpus)), f"partition {state}", tuple(problems))

    def build(self, plan: Plan) -> None:
        """Make the group, make it a partition, and read back: a write that succeeded proves nothing."""
        where = mount(self.files)
        if where is None or plan.kind not in KINDS:
            raise MachineError(self.unusable() or f"a partition is {' or '.join(KINDS)}, not {plan.kind}")
        obstacle = self.obstacle(plan)
        if obstacle:
            raise MachineError(obstacle)
        if self.files.exists(self.group):
            raise MachineError(
                f"{self.group} stands without a journal of ours; see what runs in it, remove it with rmdir,"
                " then run this again"
            )
        enabled = "cpuset" in _words(self.files, f"{where}/cgroup.subtree_control")
        if self.host.journal is not None:
            self.host.journal.operation(
                STEP,
                self.name,
                cpus=list(plan.cpus),
                rest=list(plan.housekeeping),
                kind=plan.kind,
                subtree=not enabled,
                home=tasks.group_of(self.files, os.getpid()) or "/",
                masks=masks.snapshot(self.files),
            )
        if not enabled:
            self._must(f"{where}/cgroup.subtree_control", "+cpuset")
        failure = self.host.privilege.mkdir(self.group)
        if failure is not None:
            raise MachineError(f"{self.group} could not be made: {failure.reason}")
        if not self.files.exists(self.partition_file):
            raise MachineError("this kernel has no cpuset partitions (cpuset.cpus.partition is missing)")
        self._must(f"{self.group}/cpuset.cpus", plan.text)
        self._must(f"{self.group}/cpuset.mems", format_list(plan.mems))
        if self.files.exists(f"{self.group}/cpuset.cpus.exclusive"):
            self._must(f"{self.group}/cpuset.cpus.exclusive", plan.text)
        self._must(self.partition_file, plan.kind)
        self._confirm(plan)
        # With the controller on below us, nobody can switch it off above us while the shield stands.
        self.host.write(f"{self.group}/cgroup.subtree_control", "+cpuset")
        failure = self.host.privilege.mkdir(f"{self.group}/{RUN}")
        if failure is not None:
            raise MachineError(f"{self.group}/{RUN} could not be made: {failure.reason}")
        self.notes = []
        if plan.kind == "isolated" and len(plan.cpus) > 1:
            self.notes.append("an isolated partition does not balance threads: bind each thread, or use one")

    def _confirm(self, plan: Plan) -> None:
        state = self.files.read(self.partition_file).value or ""
        invalid = _INVALID.search(state)
        if invalid:
            raise MachineError(
                f"the kernel refuses the {plan.kind} partition of CPU {plan.text}: "
                f"{invalid.group(1) or state}; choose other CPUs with --cpus, or pin with --shield affinity"
            )
        present = self.present()
        if state != plan.kind or present is None or present.problems or present.cpus != plan.cpus:
            detail = present.problems[0] if present and present.problems else f"it reads {state or 'nothing'}"
            raise MachineError(f"the {plan.kind} partition of CPU {plan.text} does not stand: {detail}")

    def _must(self, path: str, value: str) -> None:
        failure = self.host.write(path, value)
        if failure is not None:
            raise MachineError(f"writing {value} to {path}: {failure.reason}")

    def adopt(self, pid: int, plan: Plan) -> None:
        """Put a process with all its threads into the group of the tasks."""
        failure = self.host.privilege.write(f"{self.group}/{RUN}/cgroup.procs", str(pid))
        if failure is not None:
            raise MachineError(
                f"the worker could not be put into the partition of CPU {plan.text}: {failure.reason}"
            )

    def teardown(self, data: Mapping[str, Any]) -> list[str]:
        """Tasks out, then `member`, then the groups, then the controller where we had switched it on."""
        where = mount(self.files)
        if where is None:
            return ["cgroup v2 is no longer mounted"]
        drift: list[str] = []
        home = str(data.get("home") or "/").strip("/")
        home = f"{where}/{home}" if home and self.files.exists(f"{where}/{home}/cgroup.procs") else where
        if self.files.is_dir(self.group):
            for folder in (f"{self.group}/{RUN}", self.group):
                failure = self._empty_and_remove(folder, home, where)
                if failure is not None:
                    drift.append(f"{folder} could not be removed: {failure.reason}")
        if data.get("subtree"):
            failure = self.host.privilege.write(f"{where}/cgroup.subtree_control", "-cpuset")
            if failure is not None:
                drift.append(
                    "the cpuset controller stays on below the root group: another group has begun to use it"
                )
        ours = [frozenset(data.get("cpus", ())), frozenset(data.get("rest", ()))]
        return drift + masks.put_back(self.files, self.host.privilege, data.get("masks", {}), ours)

    def _empty_and_remove(self, folder: str, home: str, where: str) -> Failure | None:
        failure: Failure | None = None
        for attempt in range(ROUNDS):
            if not self.files.is_dir(folder):
                return None
            if attempt:
                time.sleep(PAUSE_S)
            for pid in _words(self.files, f"{folder}/cgroup.procs") if self.files.real else ():
                if self.host.privilege.write(f"{home}/cgroup.procs", pid) is not None and home != where:
                    self.host.privilege.write(f"{where}/cgroup.procs", pid)
            if folder == self.group and self.files.exists(self.partition_file):
                self.host.privilege.write(self.partition_file, "member")
            failure = self.host.privilege.rmdir(folder)
        return failure if self.files.is_dir(folder) else None
