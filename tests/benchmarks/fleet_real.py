"""Fleets on a real Slurm of three virtual nodes of this machine: one job killed, a fleet interrupted, a slow node planted.

    python -m tests.benchmarks.fleet_real                 three parts; needs slurm-wlm and munge (Debian)
    python -m tests.benchmarks.fleet_real --env apply     the same while every job sets this machine up and puts it back

The Slurm is started below a temporary folder and taken down at the end. Its nodes are one machine, so that of jobs that
apply the environment one is under way at a time (--parallel 1), and the planted slowdown is measured like that too: on
node n2, and nowhere else, an LSTM computes some of its time steps once more (as in bisect_real).

Exit code 0 where all held: every record in one archive without a finding, the killed job tried again, nothing left
running, the machine's settings as before, and the slow node, alone, called odd. The last line is JSON.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fastrnns.archive import checking
from tests import slurm
from tests.benchmarks import bisect_real, kill_storm, runs

NODES = 3
SLOW = "n2"
PLANTED = """
import os
if os.environ.get("SLURMD_NODENAME") == "{node}":
    exec(compile({source!r}, "planted", "exec"))
"""


def started(
    cluster: slurm.Cluster, folder: Path, words: list[str], bench: list[str], **more: str
) -> slurm.Fleet:
    """A fleet on all nodes."""
    folder.mkdir()
    return slurm.Fleet(folder, ["--partition", "debug", *words], bench, {**cluster.environment, **more})


def killed(cluster: slurm.Cluster, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """A fleet whose second job is killed outright in the middle: bench, workers and submitit's process."""
    begun = time.monotonic()
    fleet = started(cluster, folder, parallel(args), runs.argv(args, processes=3))
    fleet.strike(2)
    code = fleet.end()
    seconds = time.monotonic() - begun
    report = checking.check([fleet.archive])
    nodes = fleet.answer["nodes"]
    print(fleet.story, end="", flush=True)
    return {
        "exit_code": code,
        "attempts": [len(node["attempts"]) for node in nodes],
        "records": report.records,
        "findings": len(report.bad),
        "left_running": len(fleet.left_running()),
        "seconds": round(seconds, 1),
        "held": code == 0 and len(nodes) == NODES and report.records == NODES and not report.bad
        and len(nodes[1]["attempts"]) == 2 and not fleet.left_running(),
    }  # fmt: skip


def interrupted(cluster: slurm.Cluster, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """A fleet that a Ctrl-C ends while its jobs measure."""
    fleet = started(cluster, folder, parallel(args), runs.argv(args, processes=20))
    measuring = range(1, 2 if args.env == "apply" else NODES + 1)
    for number in measuring:
        fleet.measuring(number)
    seconds = fleet.interrupt()
    report = checking.check([fleet.archive])
    queued = cluster.ask("squeue", "--noheader")
    code = fleet.process.returncode
    print(fleet.story, end="", flush=True)
    return {
        "exit_code": code,
        "jobs": len(measuring),
        "seconds": round(seconds, 1),
        "partial_records": report.records,
        "left_running": len(fleet.left_running()),
        "held": code == 130 and not queued and not fleet.left_running() and report.records == len(measuring),
    }


def odd(cluster: slurm.Cluster, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """A fleet of which one node is slower by a planted share; which nodes it calls odd."""
    planted = folder.with_name("planted")
    planted.mkdir()
    source = bisect_real.PLANTED.replace("{share}", repr(args.share))
    (planted / "sitecustomize.py").write_text(PLANTED.format(node=SLOW, source=source))
    words = ["--parallel", "1"]
    fleet = started(
        cluster, folder, words, runs.argv(args, processes=args.processes or 5), PYTHONPATH=str(planted)
    )
    code = fleet.end()
    answer = fleet.answer
    readings = [each for group in answer["groups"] for each in group["readings"]]
    named = sorted({node for group in answer["groups"] for node in group["odd"]})
    for each in readings:
        print(
            f"node {each['node']} {each['model']} {each['phase']}: {each['median_ms']:.4g} ms,"
            f" {each['ratio']:.3f} of the median, {shown('z', each['z'])}, {shown('p', each['p'])}"
            f"{' odd' * each['odd']}",
            flush=True,
        )
    slow = [each["ratio"] for each in readings if each["node"] == 2]
    return {
        "exit_code": code,
        "planted": 2,
        "odd": named,
        "slow_node_ratios": [round(ratio, 3) for ratio in slow],
        "notes": [note for group in answer["groups"] for note in group["notes"]],
        "held": code == 0 and named == [2],
    }


def shown(name: str, value: float | None) -> str:
    """A figure that two nodes, or too few processes, have not."""
    return f"no {name}" if value is None else f"{name} {value:.2g}"


def parallel(args: argparse.Namespace) -> list[str]:
    """How many jobs at once: one, where each has the machine to itself."""
    return ["--parallel", "1"] if args.env == "apply" else []


def main() -> int:
    """Run the three parts and print what came of each; the last line is JSON."""
    parser = runs.flags(__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the time steps, computed once more")
    parser.set_defaults(env="ignore")  # on a busy machine a watch would find its records invalid
    args = parser.parse_args()
    if why := slurm.lacking():
        raise SystemExit(why)
    before = kill_storm.real()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="fastrnns-fleet-") as folder, slurm.cluster(NODES) as cluster:
        version = cluster.ask("sinfo", "--version").strip()
        for part in (killed, interrupted, odd):
            print(f"{part.__name__}:", flush=True)
            found[part.__name__] = part(cluster, Path(folder) / part.__name__, args)
    changed = kill_storm.different(before, kill_storm.real())
    held = not changed and all(each["held"] for each in found.values())
    summary = {
        "benchmark": "fleet_real", "slurm": version, "nodes": NODES, "env": args.env, **found,
        "machine_changed": changed, "held": held,
    }  # fmt: skip
    runs.save(args.json, summary, {})
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
