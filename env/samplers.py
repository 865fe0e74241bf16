"""What the watch looks at: each sampler reads a few files and says what changed since it last looked."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from env.cpulist import parse_list

MS_PER_TICK = 1000.0 / os.sysconf("SC_CLK_TCK")
MAX_OPEN_FILES = 256  # a worker may have a thread a CPU; the rest are opened and closed at each look

# One tick of steal is ten milliseconds that a bench CPU did not run: more than an iteration of a small model.
STEAL_MS = MS_PER_TICK
# Of a look's time that a CPU ran or wanted to: below it the worker was not there, and what a tick of the kernel lost to
# the host cost the worker nothing. On a GPU machine a dozen shielded CPUs idle beside the one that launches.
STEAL_DEMAND = 0.1
# A thread that waits for its CPU one per cent of the time moves a median by about as much.
WAIT_SHARE = 0.01
# A kernel's own housekeeping preempts a pinned thread a few times a second; a neighbour, hundreds of times.
INVOLUNTARY_PER_S = 50.0
# CPU time is counted in ticks: below five per cent of one CPU, foreign work and rounding look alike.
FOREIGN_SHARE = 0.05


@dataclass(frozen=True)
class Seen:
    """What one look found since the last: amounts for the timeline, and causes for disbelief."""

    amounts: Mapping[str, float] = field(default_factory=dict)
    causes: tuple[str, ...] = ()
    longer: Mapping[str, float] = field(default_factory=dict)  # causes seen over a longer window: its seconds


class Sampler(Protocol):
    """One thing looked at, every `every_s` seconds at most."""

    name: str
    every_s: float

    def look(self, span_s: float) -> Seen:
        """Read, and compare with the last look, `span_s` seconds ago."""

    def facts(self) -> dict[str, Any]:
        """What the record keeps, in total."""

    def close(self) -> None:
        """Give back what is held open."""


class Files:
    """Small kernel files read again and again; kept open while there is room."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def read(self, path: str) -> bytes:
        """The present content; raises OSError where the file, or its process, is gone."""
        held = self._open.get(path)
        if held is not None:
            return os.pread(held, 1 << 20, 0)
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.pread(opened, 1 << 20, 0)
        except OSError:
            os.close(opened)
            raise
        if len(self._open) < MAX_OPEN_FILES:
            self._open[path] = opened
        else:
            os.close(opened)
        return text

    def forget(self, path: str) -> None:
        """Close one file, if it is held."""
        held = self._open.pop(path, None)
        if held is not None:
            os.close(held)

    def close(self) -> None:
        """Close them all."""
        for path in list(self._open):
            self.forget(path)


class Processors:
    """The bench CPUs as the scheduler accounts for them: steal, and work that is not the worker's."""

    name = "processors"
    every_s = 0.0

    def __init__(self, root: Path, cpus: Iterable[int], worker: Worker) -> None:
        self.path = str(root / "proc/stat")
        self.labels = {f"cpu{cpu}".encode(): cpu for cpu in cpus}
        self.worker = worker
        self.files = Files()
        self.last: dict[int, tuple[int, int]] = {}
        self.busy_share: dict[int, float] = {}
        self.window_s = 0.0
        self.window_busy_ms = 0.0
        self.total = {"steal_ms": 0.0, "busy_ms": 0.0, "foreign_ms": 0.0}

    def _read(self) -> dict[int, tuple[int, int]]:
        found = {}
        for line in self.files.read(self.path).split(b"\n"):
            label, _, rest = line.partition(b" ")
            cpu = self.labels.get(label)
            if cpu is not None:
                # user nice system idle iowait irq softirq steal
                ticks = [int(word) for word in rest.split()[:8]]
                found[cpu] = (
                    ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6],
                    ticks[7] if len(ticks) > 7 else 0,
                )
            elif found and not label.startswith(b"cpu"):
                break
        return found

    def look(self, span_s: float) -> Seen:
        """Differences of /proc/stat on the bench CPUs."""
        now = self._read()
        before, self.last = self.last, now
        if not before or span_s <= 0:
            self.worker.taken_ms()
            return Seen()
        causes = []
        steal = busy = 0.0
        for cpu, (busy_ticks, steal_ticks) in now.items():
            last_busy, last_steal = before.get(cpu, (busy_ticks, steal_ticks))
            stolen = (steal_ticks - last_steal) * MS_PER_TICK
            used = (busy_ticks - last_busy) * MS_PER_TICK
            self.busy_share[cpu] = used / (span_s * 1000)
            steal += stolen
            busy += used
            if stolen >= STEAL_MS and used + stolen >= STEAL_DEMAND * span_s * 1000:
                causes.append("steal")
        self.total["steal_ms"] += steal
        self.total["busy_ms"] += busy
        amounts = {"steal_ms": steal}
        longer: dict[str, float] = {}
        self.window_s += span_s
        self.window_busy_ms += busy
        if self.window_s >= 1.0:
            foreign = max(0.0, self.window_busy_ms - self.worker.taken_ms())
            window_s, window_ms = self.window_s, self.window_s * 1000
            self.window_s = self.window_busy_ms = 0.0
            if foreign >= FOREIGN_SHARE * window_ms:
                self.total["foreign_ms"] += foreign
                amounts["foreign_ms"] = foreign
                longer["foreign threads on the bench CPUs"] = window_s
        return Seen(amounts, tuple(dict.fromkeys(causes)), longer)

    def facts(self) -> dict[str, Any]:
        """Totals in milliseconds."""
        return {key: round(value, 1) for key, value in self.total.items()}

    def close(self) -> None:
        """Close /proc/stat."""
        self.files.close()


class Worker:
    """The worker's threads: how long they waited, how often they were moved, where they may run."""

    name = "worker"
    every_s = 0.0
    DETAIL_EVERY_S = 1.0

    def __init__(self, root: Path, pid: int, cpus: Iterable[int]) -> None:
        self.base = f"{root / 'proc' / str(pid)}"
        self.cpus = frozenset(cpus)
        self.files = Files()
        self.run_wait: dict[str, tuple[int, int]] = {}
        self.detail: dict[str, tuple[int, int]] = {}
        self.moved_since: set[str] = set()
        self.since_detail_s = self.DETAIL_EVERY_S
        self.total: dict[str, float] = {"cpu_ms": 0.0, "wait_ms": 0.0, "involuntary": 0, "migrations": 0}
        self.threads_max = 0
        self.allowed: set[str] = set()
        self.cpuset: bytes | None = None
        self.outside = 0
        self.alive = True
        self._taken_ms: float | None = None

    def taken_ms(self) -> float:
        """CPU time of the whole process since this was last asked."""
        try:
            text = self.files.read(f"{self.base}/stat")
        except OSError:
            return 0.0
        words = text[text.rfind(b")") + 2 :].split()
        now = (
            sum(int(word) for word in words[11:15]) * MS_PER_TICK
        )  # own and reaped children, user and system
        before, self._taken_ms = self._taken_ms, now
        return 0.0 if before is None else now - before

    def look(self, span_s: float) -> Seen:
        """Run and wait times of every thread; once a second the costlier files, of threads that ran."""
        try:
            threads = [entry.name for entry in os.scandir(f"{self.base}/task")]
        except OSError:
            self.alive = False
            return Seen()
        self.threads_max = max(self.threads_max, len(threads))
        wait_ns = longest_ns = run_ns = 0
        for tid in threads:
            try:
                words = self.files.read(f"{self.base}/task/{tid}/schedstat").split()
            except OSError:
                continue  # the thread ended, or this kernel keeps no schedstat
            now = (int(words[0]), int(words[1]))
            before = self.run_wait.get(tid)
            self.run_wait[tid] = now
            if before is None:
                self.moved_since.add(tid)
            elif now != before:
                self.moved_since.add(tid)
                run_ns += now[0] - before[0]
                wait_ns += now[1] - before[1]
                longest_ns = max(longest_ns, now[1] - before[1])
        for tid in self.run_wait.keys() - set(threads):
            self.run_wait.pop(tid)
            self.detail.pop(tid, None)
            self.files.forget(f"{self.base}/task/{tid}/schedstat")
        self.total["wait_ms"] += wait_ns / 1e6
        self.total["cpu_ms"] += run_ns / 1e6
        amounts: dict[str, float] = {"wait_ms": wait_ns / 1e6}
        causes = []
        if span_s > 0 and longest_ns / 1e9 >= WAIT_SHARE * span_s:
            causes.append("the worker waited for a CPU")
        self.since_detail_s += span_s
        longer: dict[str, float] = {}
        if self.since_detail_s >= self.DETAIL_EVERY_S:
            longer = dict.fromkeys(self._details(amounts, self.since_detail_s), self.since_detail_s)
            self.since_detail_s = 0.0
        return Seen(amounts, tuple(causes), longer)

    def _details(self, amounts: dict[str, float], span_s: float) -> list[str]:
        causes = []
        involuntary = migrations = 0
        for tid in self.moved_since:
            base = f"{self.base}/task/{tid}"
            try:
                switches, allowed = _status(read_once(f"{base}/status"))
            except OSError:
                continue
            moves = _migrations(f"{base}/sched")
            before = self.detail.get(tid)
            self.detail[tid] = (switches, moves)
            if before is not None:
                involuntary += switches - before[0]
                migrations += moves - before[1]
            self.allowed.add(allowed)
            if not _within(allowed, self.cpus):
                self.outside += 1
                causes.append("a worker thread may run outside the bench CPUs")
        self.moved_since.clear()
        with contextlib.suppress(OSError):  # no cpusets in this kernel
            cpuset = read_once(f"{self.base}/cpuset")
            if self.cpuset not in (None, cpuset):
                causes.append("the worker was moved to another cpuset")
            self.cpuset = cpuset
        amounts["involuntary"] = involuntary
        amounts["migrations"] = migrations
        self.total["involuntary"] += involuntary
        self.total["migrations"] += migrations
        if involuntary >= INVOLUNTARY_PER_S * span_s * max(1, len(self.cpus)):
            causes.append("involuntary context switches")
        return list(dict.fromkeys(causes))

    def facts(self) -> dict[str, Any]:
        """Totals, and the sets of CPUs its threads were allowed."""
        return {
            **{key: round(value, 1) for key, value in self.total.items()},
            "threads_max": self.threads_max,
            "cpus_allowed": sorted(self.allowed),
            "outside": self.outside,
        }

    def close(self) -> None:
        """Close the files of its threads."""
        self.files.close()


def read_once(path: str) -> bytes:
    """The content of a small file that is not read often enough to be kept open."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(opened, 1 << 16)
    finally:
        os.close(opened)


def _status(text: bytes) -> tuple[int, str]:
    switches, allowed = 0, ""
    for line in text.split(b"\n"):
        if line.startswith(b"Cpus_allowed_list:"):
            allowed = line.partition(b":")[2].decode(errors="replace").strip()
        elif line.startswith(b"nonvoluntary_ctxt_switches:"):
            switches = int(line.partition(b":")[2])
    return switches, allowed


def _migrations(path: str) -> int:
    try:
        text = read_once(path)
    except OSError:
        return 0  # a kernel without scheduler debugging
    start = text.find(b"nr_migrations")
    if start < 0:
        return 0
    try:
        return int(text[start : text.find(b"\n", start)].partition(b":")[2])
    except ValueError:
        return 0


def _within(allowed: str, cpus: frozenset[int]) -> bool:
    try:
        return not allowed or not cpus or frozenset(parse_list(allowed)) <= cpus
    except ValueError:
        return False
