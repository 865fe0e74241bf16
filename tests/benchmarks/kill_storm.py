"""SIGKILL at random moments of a held machine: after the next command every file must be byte for byte as before."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from env import machine
from env.errors import MachineError
from env.hold import hold
from env.lock import locked
from env.sysfs import Files

VICTIMS = {  # what is killed: a bench's hold of the machine, setup_env, restore_env
    "bench": """
import sys, time
from env.hold import hold
print("up", flush=True)
with hold("apply", root=sys.argv[1]):
    time.sleep(0.02)
""",
    "setup": """
import sys
from env import machine
print("up", flush=True)
machine.setup(sys.argv[1])
""",
    "restore": """
import sys
from env import machine
print("up", flush=True)
machine.put_back(sys.argv[1])
""",
}
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


def real() -> dict[str, object]:
    """The cpusets of this machine, its interrupts, and the mask of every thread that lives throughout."""
    sets = sorted(p.name for p in SETS.iterdir() if p.is_dir()) if SETS.is_dir() else []
    irqs = {str(p): p.read_text() for p in Path("/proc/irq").glob("*/smp_affinity_list")}
    return {"sets": sets, "irqs": irqs, "me": sorted(os.sched_getaffinity(0))}


def held_by_others(root: str) -> bool:
    """Whether somebody else, alive, has the machine at this moment; then it is not ours to compare."""
    try:
        with locked(Files(root)):
            return False
    except MachineError:
        return True


def one(root: str, kind: str, longest_s: float) -> bool:
    """Start a victim, kill it at a random moment; whether it was still alive then."""
    if kind == "restore":
        machine.setup(root)
    with subprocess.Popen([sys.executable, "-c", VICTIMS[kind], root], stdout=subprocess.PIPE) as victim:
        assert victim.stdout is not None
        victim.stdout.readline()
        time.sleep(random.uniform(0, longest_s))
        alive = victim.poll() is None
        victim.kill()
    return alive


def lasted(root: str, kind: str) -> float:
    """How long a victim that is left alone takes from its first word to its end; the machine is put back."""
    if kind == "restore":
        machine.setup(root)
    with subprocess.Popen([sys.executable, "-c", VICTIMS[kind], root], stdout=subprocess.PIPE) as victim:
        assert victim.stdout is not None
        victim.stdout.readline()
        started = time.monotonic()
        if victim.wait() != 0:
            raise SystemExit(f"{kind} failed by itself")
        took = time.monotonic() - started
    if kind == "setup":
        machine.put_back(root)
    return took


def main() -> int:
    """Print one JSON object; exit code 1 when a single round left a single difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--cpus", type=int, default=64)
    parser.add_argument("--real", action="store_true", help="on this machine's own cpusets; needs root")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    random.seed(args.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "machine"
        if not args.real:
            lay_out(folder, args.cpus)
        root = "/" if args.real else str(folder)
        before = real() if args.real else everything(folder)
        longest_s = {kind: lasted(root, kind) for kind in VICTIMS}
        bad = again = 0
        killed = dict.fromkeys(VICTIMS, 0)
        for _ in range(args.rounds):
            kind = random.choice(tuple(VICTIMS))
            killed[kind] += one(root, kind, longest_s[kind])
            for attempt in range(MOST_CHECKS):
                again += attempt > 0
                if kind == "bench":
                    with hold("check", root=root):  # the next command, whichever it is
                        pass
                else:  # one that ended before the kill stands as it should; restore_env undoes either
                    machine.put_back(root)
                after = real() if args.real else everything(folder)
                if after == before:
                    break
                print(
                    f"not yet: {sorted(k for k in before | after if before.get(k, 0) != after.get(k, 0))[:5]}",
                    file=sys.stderr,
                )
                time.sleep(1.0 if held_by_others(root) else 0.1)  # others use the real machine meanwhile
            if after != before:
                bad += 1
                print(
                    {
                        k: (before.get(k), after.get(k))
                        for k in before | after
                        if before.get(k, 0) != after.get(k, 0)
                    }
                )
                break
    print(
        json.dumps(
            {
                "rounds": args.rounds,
                "killed_alive": killed,
                "not_put_back": bad,
                "checked_again": again,
                "real": args.real,
            }
        )
    )
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
