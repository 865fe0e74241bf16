"""Real partitions of cgroup v2, for a machine that has them: built, verified in a worker, refused, put back. Needs root."""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from env import tasks, topology
from env.cpulist import format_list
from env.journal import Journal
from env.owner import Owner
from env.privilege import Privilege
from env.shield import ShieldStep
from env.step import Host, Wanted
from env.sysfs import Files

ROOT = Path("/sys/fs/cgroup")
OTHER = ROOT / "other-partition"
WORKER = """
import sys, threading
sys.stdin.readline()
def work():
    sum(range(3 * 10**7))
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
print("running", flush=True)
sys.stdin.readline()
"""


def hierarchy() -> dict[str, Any]:
    """What must be the same before and after."""
    names = (
        "cgroup.subtree_control",
        "cpuset.cpus.effective",
        "cpuset.cpus.isolated",
        "cpuset.cpus.exclusive.effective",
    )
    files = {name: (ROOT / name).read_text().strip() for name in names if (ROOT / name).exists()}
    return {"groups": sorted(path.name for path in ROOT.iterdir() if path.is_dir()), **files}


def masks() -> dict[str, int]:
    """How many threads have which affinity mask."""
    found: dict[str, int] = {}
    files = Files("/")
    for pid in files.names("/proc"):
        if pid.isdigit():
            for thread in tasks.place(files, int(pid)).threads:
                text = format_list(thread.cpus)
                found[text] = found.get(text, 0) + 1
    return found


@contextlib.contextmanager
def shielded(kind: str, cpus: str | None) -> Iterator[tuple[ShieldStep, Host]]:
    """The step on this machine, and its undoing whatever happens."""
    files = Files("/")
    host = Host(files, Privilege(files), Wanted(cpus=cpus, shield="cgroup2", partition=kind))
    with tempfile.TemporaryDirectory() as folder:
        host.journal = Journal.create(
            Path(folder) / "journal" / "j.jsonl", "hold", Owner.me("cgroup2_real"), ""
        )
        step = ShieldStep(host)
        try:
            yield step, host
        finally:
            drift = step.restore(host.journal.of("shield", operations=True))
            if drift:
                print(f"not put back: {drift}", file=sys.stderr)


def worker_inside(step: ShieldStep, host: Host) -> dict[str, Any]:
    """What the kernel says of a worker with several threads, and of a bystander."""
    with (
        subprocess.Popen(
            [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child,
        subprocess.Popen(["sleep", "60"]) as bystander,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            step.adopt(child.pid)
            child.stdin.write("go\n")
            child.stdin.flush()
            child.stdout.readline()
            time.sleep(0.3)
            place = tasks.place(host.files, child.pid)
            aside = tasks.place(host.files, bystander.pid)
            last = {
                int(
                    (host.files.read(f"/proc/{child.pid}/task/{t.tid}/stat").text or "")
                    .rpartition(")")[2]
                    .split()[36]
                )
                for t in place.threads
            }
            return {
                "group": place.group,
                "threads": len(place.threads),
                "cpus_allowed": sorted({format_list(thread.cpus) for thread in place.threads}),
                "mems_allowed": sorted({format_list(thread.mems) for thread in place.threads}),
                "ran_on": format_list(last),
                "bystander_allowed": sorted({format_list(thread.cpus) for thread in aside.threads}),
                "inside": bool(place.threads) and all(set(t.cpus) <= set(host.bench) for t in place.threads),
            }
        finally:
            child.kill()
            bystander.kill()


def one(kind: str, cpus: str | None) -> dict[str, Any]:
    """Apply, look, adopt, restore, and compare."""
    before, masks_before = hierarchy(), masks()
    found: dict[str, Any] = {"kind": kind}
    with shielded(kind, cpus) as (step, host):
        found["before"] = step.probe().as_dict()
        started = time.monotonic()
        step.apply()
        found["apply_s"] = round(time.monotonic() - started, 4)
        found["state"] = step.probe().as_dict()
        found["notes"] = step.backend().notes
        group = ROOT / "fastrnns-bench"
        found["files"] = {
            path.name: path.read_text().strip()
            for path in sorted(group.glob("cpuset.cpus*"))
            if group.exists()
        }
        found["while_it_stands"] = hierarchy()
        if found["state"]["status"] == "stable":
            found["worker"] = worker_inside(step, host)
        started = time.monotonic()
    found["restore_s"] = round(time.monotonic() - started, 4)
    found["put_back"] = hierarchy() == before
    found["masks_before"], found["masks_after"] = masks_before, masks()
    return found


def conflict(cpus: str | None) -> dict[str, Any]:
    """Another's partition on the same CPUs: seen beforehand; and, with our foresight off, refused by the kernel."""
    before = hierarchy()
    found: dict[str, Any] = {}
    files = Files("/")
    bench = Host(files, Privilege(files), Wanted(cpus=cpus)).bench
    added = "cpuset" not in (ROOT / "cgroup.subtree_control").read_text().split()
    if added:
        (ROOT / "cgroup.subtree_control").write_text("+cpuset")
    OTHER.mkdir()
    try:
        (OTHER / "cpuset.cpus").write_text(format_list(bench[:1]))
        if (OTHER / "cpuset.cpus.exclusive").exists():
            (OTHER / "cpuset.cpus.exclusive").write_text(format_list(bench[:1]))
        (OTHER / "cpuset.cpus.partition").write_text("root")
        found["other"] = (OTHER / "cpuset.cpus.partition").read_text().strip()
        for name in ("foreseen", "kernel"):
            with shielded("root", format_list(bench)) as (step, host):
                # The other partition has taken the CPU from us too; ask for it all the same.
                host.topology = topology.with_allowed(host.topology, host.topology.online)
                if name == "kernel":
                    step.backends["cgroup2"].obstacle = lambda plan: None  # type: ignore[method-assign]
                step.apply()
                found[name] = step.probe().as_dict()
        found["other_after"] = (OTHER / "cpuset.cpus.partition").read_text().strip()
    finally:
        (OTHER / "cpuset.cpus.partition").write_text("member")
        OTHER.rmdir()
        if added:
            (ROOT / "cgroup.subtree_control").write_text("-cpuset")
    found["put_back"] = hierarchy() == before
    return found


def main() -> int:
    """Print one JSON object; exit code 0 when both kinds stood, the conflict was refused and all is as before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpus", help="bench CPUs; the best by topology when left out")
    parser.add_argument("--output", type=Path, help="write the JSON there too")
    args = parser.parse_args()
    files = Files("/")
    why = ShieldStep(Host(files, Privilege(files), Wanted(shield="cgroup2"))).unusable("cgroup2")
    if why is not None:
        print(f"no partitions here: {why}", file=sys.stderr)
        return 3
    found = {
        "root": one("root", args.cpus),
        "isolated": one("isolated", args.cpus),
        "conflict": conflict(args.cpus),
    }
    text = json.dumps(found, indent=2)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")
    good = all(
        found[kind].get("worker", {}).get("inside") and found[kind]["put_back"]
        for kind in ("root", "isolated")
    )
    refused = found["conflict"]["foreseen"]["status"] == found["conflict"]["kernel"]["status"] == "locked"
    return 0 if good and refused and found["conflict"]["put_back"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
