"""Cpusets of cgroup v1, by the `cset` tool: our two sets, their tasks, and what the kernel says."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from env.cpulist import format_list, parse_list
from env.errors import MachineError
from env.shields import masks
from env.shields.backend import BENCH, STEP, SYSTEM, Plan, Present
from env.step import Host
from env.sysfs import Failure, Files

SETS = (BENCH, SYSTEM)
NAMES = (f"--userset=/{BENCH}", f"--sysset=/{SYSTEM}")
ROUNDS = 20  # tasks fork while they are moved; each round finds fewer, unless somebody moves them back
TOOL_SECONDS = 10.0  # cset moves some thousand tasks a second
PAUSE_S = 0.02

_KTHREAD = 0x00200000  # PF_KTHREAD in field 9 of /proc/TID/stat
_MISSING_MODULE = re.compile(r"(?:ModuleNotFoundError|ImportError): (.+)")


@dataclass(frozen=True)
class Hierarchy:
    """Where cpusets of cgroup v1 are mounted, and how their files are called there."""

    mount: str
    prefix: str  # "cpuset." or "": the old file system of its own has bare names

    def file(self, group: str, name: str) -> str:
        """A file of a set; the root set is the empty name."""
        folder = f"{self.mount}/{group}" if group else self.mount
        return f"{folder}/{self.prefix}{name}"

    def folder(self, group: str) -> str:
        """The folder of a set."""
        return f"{self.mount}/{group}" if group else self.mount


def mounts(files: Files) -> Iterator[tuple[str, str, list[str]]]:
    """(file system, where, options) of everything mounted."""
    for line in (files.read("/proc/mounts").text or "").splitlines():
        fields = line.split()
        if len(fields) >= 4:
            yield fields[2], fields[1], fields[3].split(",")


def hierarchy(files: Files) -> Hierarchy | None:
    """The mounted cpuset hierarchy of cgroup v1, if there is one."""
    for kind, where, options in mounts(files):
        if kind == "cpuset" or (kind == "cgroup" and "cpuset" in options):
            return Hierarchy(where, "cpuset." if files.exists(f"{where}/cpuset.cpus") else "")
    return None


@dataclass(frozen=True)
class Foreign:
    """A set that is not ours."""

    name: str
    cpus: frozenset[int]
    tasks: int

    def __str__(self) -> str:
        return f"cpuset /{self.name} (CPU {format_list(self.cpus)}, {self.tasks} tasks)"


def foreign_sets(files: Files, tree: Hierarchy) -> list[Foreign]:
    """Sets of others that hold CPUs; only the top level matters, for it bounds what lies below."""
    found = []
    for name in files.names(tree.mount):
        if name in SETS or not files.is_dir(tree.folder(name)):
            continue
        cpus = _cpus(files, tree, name)
        if cpus:
            found.append(Foreign(name, cpus, len(_tasks(files, tree, name))))
    return found


def _cpus(files: Files, tree: Hierarchy, group: str) -> frozenset[int]:
    try:
        return parse_list(files.read(tree.file(group, "cpus")).text or "")
    except ValueError:
        return frozenset()


def _tasks(files: Files, tree: Hierarchy, group: str) -> list[str]:
    return (files.read(f"{tree.folder(group)}/tasks").text or "").split()


class Cset:
    """A shield of two exclusive cpusets: one for the bench CPUs, one for everybody else."""

    name = "cset"
    shields = True

    def __init__(self, host: Host) -> None:
        self.host = host
        self.files = host.files
        self._broken: str | None = None
        self.notes: list[str] = []

    def unusable(self) -> str | None:
        """No v1 hierarchy, no tool, or one that cannot start: told apart before it is asked."""
        if hierarchy(self.files) is None:
            if any(kind == "cgroup2" for kind, _, _ in mounts(self.files)):
                return "cgroup-v2: cset cannot work, it knows only cgroup v1"
            return "no cpuset hierarchy of cgroup v1 is mounted"
        if self.files.which("cset") is None:
            return "cset is not installed (Debian and Ubuntu: apt install cpuset)"
        if self._broken is None:
            self._broken = self._cannot_start()
        return self._broken or None

    def _cannot_start(self) -> str:
        done = self.host.privilege.run("cset", ["--version"], root=False)
        if done.returncode == 0:
            return ""
        missing = _MISSING_MODULE.search(done.stderr + done.stdout)
        why = missing.group(1) if missing else done.message
        return f"cset is installed but broken: {why}"

    def obstacle(self, plan: Plan) -> str | None:
        """A set of somebody else where ours would be: never destroyed, so it is named."""
        tree = hierarchy(self.files)
        if tree is None:
            return None
        for foreign in foreign_sets(self.files, tree):
            if foreign.cpus & {*plan.cpus, *plan.housekeeping}:
                return (
                    f"{foreign} is not ours and overlaps the shield; it is left alone. Remove it if"
                    " nobody needs it (`cset shield --reset`, or stop the containers),"
                    " or pin only with --shield affinity"
                )
        return None

    def present(self) -> Present | None:
        """Our two sets as the kernel shows them."""
        tree = hierarchy(self.files)
        if tree is None or not any(self.files.is_dir(tree.folder(name)) for name in SETS):
            return None
        bench, rest = _cpus(self.files, tree, BENCH), _cpus(self.files, tree, SYSTEM)
        problems = []
        for name in SETS:
            if not self.files.is_dir(tree.folder(name)):
                problems.append(f"cpuset /{name} is missing")
            elif self.files.read(tree.file(name, "cpu_exclusive")).value == "0":
                problems.append(f"cpuset /{name} is not exclusive")
        if bench & rest:
            problems.append(f"cpusets /{BENCH} and /{SYSTEM} share CPU {format_list(bench & rest)}")
        stray = self._strays(tree)
        if stray:
            problems.append(f"{len(stray)} tasks are in neither set and may run on the bench CPUs")
        return Present(tuple(sorted(bench)), f"cpusets /{BENCH} and /{SYSTEM}", tuple(problems))

    def _strays(self, tree: Hierarchy) -> list[str]:
        """Threads left in the root set that are not the kernel's own."""
        return (
            [tid for tid in _tasks(self.files, tree, "") if not self._of_kernel(tid)]
            if self.files.real
            else []
        )

    def _of_kernel(self, tid: str) -> bool:
        text = self.files.read(f"/proc/{tid}/stat").text
        if text is None:
            return True  # gone
        fields = text.rpartition(")")[2].split()
        return len(fields) > 6 and bool(int(fields[6]) & _KTHREAD)

    def build(self, plan: Plan) -> None:
        """Build the sets with cset, then believe only what the kernel says."""
        tree = hierarchy(self.files)
        if tree is None:
            raise MachineError(self.unusable() or "no cpuset hierarchy of cgroup v1 is mounted")
        obstacle = self.obstacle(plan)
        if obstacle:
            raise MachineError(obstacle)
        if self.present() is not None:
            raise MachineError(
                f"cpusets /{BENCH} or /{SYSTEM} stand without a journal of ours; remove them with"
                f" `cset shield --reset {' '.join(NAMES)}`, then run this again"
            )
        if self.host.journal is not None:
            self.host.journal.operation(
                STEP,
                self.name,
                cpus=list(plan.cpus),
                rest=list(plan.housekeeping),
                masks=masks.snapshot(self.files),
            )
        done = self.host.privilege.run("cset", ["shield", f"--cpu={plan.text}", "--kthread=on", *NAMES])
        self._finish(tree, plan)
        present = self.present()
        wrong = self._wrong(present, plan)
        if wrong:
            said = f"; cset says: {done.message}" if done.returncode or done.failure else ""
            raise MachineError(f"cset did not build the shield: {wrong}{said}")
        fixed = sum(
            self.files.exists(f"/proc/{tid}/stat") and self._of_kernel(tid)
            for tid in _tasks(self.files, tree, "")
        )
        if fixed:
            self.notes = [f"{fixed} kernel threads cannot be moved; they are bound to their CPUs"]

    def _finish(self, tree: Hierarchy, plan: Plan) -> None:
        """What cset leaves undone: memory nodes (it always writes 0), and tasks born meanwhile."""
        if not all(self.files.is_dir(tree.folder(name)) for name in SETS):
            return
        every = self.files.read(tree.file("", "mems")).value or "0"
        for name, mems in ((BENCH, format_list(plan.mems)), (SYSTEM, every)):
            if self.files.read(tree.file(name, "mems")).value != mems:
                self.host.privilege.write(tree.file(name, "mems"), mems)
        for _ in range(ROUNDS):
            strays = self._strays(tree)
            if not strays:
                break
            for tid in strays:
                self._move(tree, SYSTEM, tid)

    @staticmethod
    def _wrong(present: Present | None, plan: Plan) -> str | None:
        if present is None:
            return "there are no sets"
        if present.cpus != plan.cpus:
            return f"its set has CPU {present.text or 'none'} in place of {plan.text}"
        return present.problems[0] if present.problems else None

    def _move(self, tree: Hierarchy, group: str, tid: str, *, whole: bool = False) -> Failure | None:
        name = (
            "cgroup.procs" if whole and self.files.exists(f"{tree.folder(group)}/cgroup.procs") else "tasks"
        )
        return self.host.privilege.write(f"{tree.folder(group)}/{name}", tid)

    def adopt(self, pid: int, plan: Plan) -> None:
        """Put a process into the bench set, thread by thread where the hierarchy is old."""
        tree = hierarchy(self.files)
        if tree is None:
            raise MachineError("the cpuset hierarchy was unmounted; run this again")
        failure = self._move(tree, BENCH, str(pid), whole=True)
        for tid in self.files.names(f"/proc/{pid}/task"):
            if failure is None and tid not in _tasks(self.files, tree, BENCH) and self.files.real:
                failure = self._move(tree, BENCH, tid)
        if failure is not None:
            raise MachineError(f"the worker could not be put into cpuset /{BENCH}: {failure.reason}")
        del plan

    def teardown(self, data: Mapping[str, Any]) -> list[str]:
        """Reset our shield, finish by hand what is half undone, and give threads their masks again."""
        self._let_finish()
        tree = hierarchy(self.files)
        drift: list[str] = []
        if tree is None:
            drift.append("the cpuset hierarchy is no longer mounted")
        else:
            standing = [name for name in SETS if self.files.is_dir(tree.folder(name))]
            if len(standing) == len(SETS):
                self.host.privilege.run("cset", ["shield", "--reset", *NAMES])
            for name in SETS:
                drift += self._remove(tree, name)
        ours = [frozenset(data.get("cpus", ())), frozenset(data.get("rest", ()))]
        drift += masks.put_back(self.files, self.host.privilege, data.get("masks", {}), ours)
        return drift

    def _let_finish(self) -> None:
        """Wait for a cset that a killed run of ours had started: it goes on alone, and would build after us."""
        deadline = time.monotonic() + TOOL_SECONDS
        while self.files.real and time.monotonic() < deadline:
            if not any(self._is_ours(pid) for pid in self.files.names("/proc") if pid.isdigit()):
                return
            time.sleep(PAUSE_S)

    def _is_ours(self, pid: str) -> bool:
        words = (self.files.read(f"/proc/{pid}/cmdline").text or "").split("\0")
        return NAMES[0] in words and "shield" in words

    def _remove(self, tree: Hierarchy, name: str) -> list[str]:
        failure: Failure | None = None
        for _ in range(ROUNDS):
            if not self.files.is_dir(tree.folder(name)):
                return []
            if self.files.real:
                for tid in _tasks(self.files, tree, name):
                    self._move(tree, "", tid)
            failure = self.host.privilege.rmdir(tree.folder(name))
        if failure is None or not self.files.is_dir(tree.folder(name)):
            return []
        return [f"cpuset /{name} could not be removed: {failure.reason}"]
