"""Strikes at random moments of a held machine: every file must be byte for byte as before, after SIGKILL by the next
command, after an interruption by the struck command itself.

    python -m tests.benchmarks.kill_storm [--stroke kill|int|int-twice|term] [--rounds 500] [--real]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from env import machine
from env.errors import MachineError
from env.helper import JOURNALS
from env.hold import hold
from env.journal import Journal
from env.lock import locked
from env.sysfs import Files

VICTIM = """
import sys, time
from env import machine
from env.command import framed
from env.errors import EnvError
from env.hold import hold

def body():
    print("up", flush=True)
    kind, root = sys.argv[1:]
    if kind == "bench":
        with hold("apply", root=root):
            time.sleep(0.02)
    elif kind == "setup":
        machine.setup(root)
    else:
        machine.put_back(root)
    return 0

sys.exit(framed("victim", body, (EnvError,)))
"""
KINDS = ("bench", "setup", "restore")  # what is struck: a bench's hold of the machine, setup_env, restore_env
# How it is struck. A process that was interrupted must have put the machine back itself when it has ended.
STROKES = {
    "kill": (signal.SIGKILL,),
    "int": (signal.SIGINT,),
    "int-twice": (signal.SIGINT, signal.SIGINT),
    "term": (signal.SIGTERM,),
}
ENDED = {0, 130, 143, -signal.SIGINT, -signal.SIGTERM, -signal.SIGKILL}
MOST_CHECKS = 60
SETS = Path("/sys/fs/cgroup/cpuset")


def lay_out(folder: Path, cpus: int) -> None:
    """A machine of cgroup v2 with a policy a CPU and two threads a core."""
    base = folder / "sys/devices/system/cpu"
    files = {
        base / "online": f"0-{cpus - 1}\n",
        base / "smt/active": "1\n",
        base / "smt/control": "on\n",
        base / "cpufreq/boost": "1\n",
        folder / "proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        folder / "proc/sys/kernel/random/boot_id": "7d1c\n",
        folder / "proc/sys/kernel/perf_event_max_sample_rate": "100000\n",
        folder / "proc/irq/default_smp_affinity": f"{(1 << cpus) - 1:x}\n",
        folder / "sys/fs/cgroup/cgroup.controllers": "cpuset cpu memory pids\n",
        folder / "sys/fs/cgroup/cgroup.subtree_control": "cpu memory\n",
        folder / "sys/fs/cgroup/cgroup.procs": "1\n",
    }
    half = cpus // 2
    for cpu in range(cpus):
        policy = base / f"cpufreq/policy{cpu}"
        files |= {
            base / f"cpu{cpu}/topology/thread_siblings_list": f"{cpu % half},{cpu % half + half}\n",
            policy / "scaling_driver": "acpi-cpufreq\n",
            policy / "scaling_governor": ("schedutil", "ondemand", "performance")[cpu % 3] + "\n",
            policy / "scaling_available_governors": "ondemand powersave performance schedutil\n",
            policy / "affected_cpus": f"{cpu}\n",
            policy / "scaling_min_freq": "800000\n",
            policy / "scaling_max_freq": f"{3_000_000 + cpu}\n",
        }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "run").mkdir()


def everything(folder: Path) -> dict[str, str | None]:
    """Every file's bytes and every folder."""
    return {
        str(p.relative_to(folder)): p.read_text() if p.is_file() else None for p in sorted(folder.rglob("*"))
    }


def real() -> dict[str, Any]:
    """The cpusets of this machine, its interrupts, and the mask of every thread that lives throughout."""
    sets = sorted(p.name for p in SETS.iterdir() if p.is_dir()) if SETS.is_dir() else []
    irqs = {str(p): p.read_text() for p in Path("/proc/irq").glob("*/smp_affinity_list")}
    return {"sets": sets, "irqs": irqs, "me": sorted(os.sched_getaffinity(0))}


def different(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The first names that differ."""
    return sorted(k for k in before | after if before.get(k, 0) != after.get(k, 0))[:5]


def held_by_others(root: str) -> bool:
    """Whether somebody else, alive, has the machine at this moment; then it is not ours to compare."""
    try:
        with locked(Files(root)):
            return False
    except MachineError:
        return True


def start(root: str, kind: str) -> subprocess.Popen[str]:
    """A victim that has said its first word."""
    if kind == "restore":
        machine.setup(root)
    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM, kind, root],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert victim.stdout is not None
    victim.stdout.readline()
    return victim


@dataclass(frozen=True)
class Struck:
    """How one victim ended."""

    alive: bool  # whether it still ran when it was struck
    code: int
    traceback: bool


def one(root: str, kind: str, stroke: tuple[signal.Signals, ...], longest_s: float) -> Struck:
    """Start a victim, strike it at a random moment, and wait for its end."""
    with start(root, kind) as victim:
        time.sleep(random.uniform(0, longest_s))
        alive = victim.poll() is None
        for number in stroke:
            victim.send_signal(number)
            time.sleep(random.uniform(0, 0.05) if len(stroke) > 1 else 0)
        _, said = victim.communicate(timeout=60)
    return Struck(alive, victim.returncode, "Traceback" in said)


def lasted(root: str, kind: str) -> float:
    """How long a victim that is left alone takes from its first word to its end; the machine is put back."""
    with start(root, kind) as victim:
        started = time.monotonic()
        if victim.wait() != 0:
            raise SystemExit(f"{kind} failed by itself")
        took = time.monotonic() - started
    if kind == "setup":
        machine.put_back(root)
    return took


def put_back_by_itself(root: str, kind: str, stroke: str) -> bool:
    """Whether the machine has to be as before without any further command.

    A setup that was struck when it had already ended stands, whole, until restore_env.
    """
    if stroke == "kill" or kind == "restore":
        return False
    journal = Journal.load(Path(Files(root).path(f"{JOURNALS}/{machine.SETUP}")))
    return journal is None or not journal.applied


def main() -> int:
    """Print one JSON object; exit code 1 when a single round left a single difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--cpus", type=int, default=64)
    parser.add_argument("--real", action="store_true", help="on this machine's own cpusets; needs root")
    parser.add_argument("--stroke", choices=tuple(STROKES), default="kill")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    random.seed(args.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "machine"
        if not args.real:
            lay_out(folder, args.cpus)
        root = "/" if args.real else str(folder)
        before = real() if args.real else everything(folder)
        longest_s = {kind: lasted(root, kind) for kind in KINDS}
        bad = again = tracebacks = codes = 0
        alive = dict.fromkeys(KINDS, 0)
        for _ in range(args.rounds):
            kind = random.choice(KINDS)
            struck = one(root, kind, STROKES[args.stroke], longest_s[kind])
            alive[kind] += struck.alive
            tracebacks += struck.traceback
            codes += struck.code not in ENDED
            itself = put_back_by_itself(root, kind, args.stroke)
            for attempt in range(MOST_CHECKS):
                again += attempt > 0
                if itself:
                    pass
                elif kind == "bench":
                    with hold("check", root=root):  # the next command, whichever it is
                        pass
                else:  # one that ended before the kill stands as it should; restore_env undoes either
                    machine.put_back(root)
                after = real() if args.real else everything(folder)
                if after == before:
                    break
                print(f"not yet: {different(before, after)}", file=sys.stderr)
                time.sleep(1.0 if held_by_others(root) else 0.1)  # others use the real machine meanwhile
            if after != before:
                bad += 1
                print(f"not put back: {different(before, after)}", file=sys.stderr)
                break
    print(
        json.dumps(
            {
                "stroke": args.stroke,
                "rounds": args.rounds,
                "struck_alive": alive,
                "not_put_back": bad,
                "checked_again": again,
                "tracebacks": tracebacks,
                "other_exit_codes": codes,
                "real": args.real,
            }
        )
    )
    return 1 if bad or tracebacks or codes else 0


if __name__ == "__main__":
    raise SystemExit(main())
