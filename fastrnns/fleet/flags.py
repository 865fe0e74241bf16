"""The command line of a fleet, and its checks, before anything is submitted."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from fastrnns import device as devices
from fastrnns import options as command_line
from fastrnns.archive.store import Archive
from fastrnns.errors import UsageError
from fastrnns.fleet import executor, slurm
from fastrnns.fleet.drive import Rules
from fastrnns.fleet.slurm import Host
from fastrnns.fleet.task import Node
from fastrnns.options import BenchOptions

RETRIES = 1
MINUTES = 60
EPILOG = (
    "What follows -- is for fastrnns.bench, and runs on every node: models, sizes, --env apply, ... "
    "exit codes: 0 every node gave its record; 1 some gave none, or a model failed on one; 2 the command line; "
    "3 machines refused under --strict; 130 interrupted, after every node put itself back."
)
FOLDER = ".fleet"


@dataclass(frozen=True)
class FleetOptions:
    """One fleet command, checked."""

    cluster: executor.Slurm | executor.Local
    nodes: tuple[Node, ...]
    left_out: tuple[str, ...]  # nodes of the partition that cannot be used now
    rules: Rules
    bench: BenchOptions
    archive: Archive
    json: bool


def parser() -> argparse.ArgumentParser:
    """Build the command's parser."""
    made = argparse.ArgumentParser(
        prog="python -m fastrnns.fleet",
        usage="python -m fastrnns.fleet (--partition NAME | --hosts LIST | --local) [flags] -- BENCH ARGS",
        description="Run the same bench on many nodes through Slurm, one job alone on each, and gather their records"
        " into one archive; without Slurm, on this machine. Shows the nodes side by side, and the odd one out.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    where = made.add_argument_group("where")
    where.add_argument("--hosts", metavar="LIST", help="nodes by name, as Slurm writes them: n[1-3],m7")
    where.add_argument(
        "--partition", metavar="NAME", help="the partition to submit to; without --hosts, all of its nodes"
    )
    where.add_argument(
        "--local", action="store_true", help="this machine, without Slurm (the default where there is none)"
    )
    where.add_argument(
        "--per",
        choices=("node", "gpu"),
        default="node",
        help="a job a node (the default), or one for each GPU of a node, one after the other: a machine has one owner",
    )
    where.add_argument("--account", metavar="NAME", help="Slurm's account")
    where.add_argument("--qos", metavar="NAME", help="Slurm's quality of service")
    how = made.add_argument_group("how")
    how.add_argument(
        "--retries",
        type=int,
        default=RETRIES,
        metavar="N",
        help="how often a node is tried again whose job failed, was killed or preempted (default: %(default)s)",
    )
    how.add_argument(
        "--time", type=int, default=MINUTES, metavar="MIN", help="of one job at most (default: %(default)s)"
    )
    how.add_argument(
        "--wait",
        type=float,
        metavar="MIN",
        help="give a job up that has not begun after that (default: never)",
    )
    how.add_argument(
        "--parallel", type=int, metavar="N", help="jobs submitted at once (default: all; on this machine one)"
    )
    how.add_argument(
        "--folder",
        type=Path,
        metavar="DIR",
        help="where jobs write, on a file system that all nodes share (default: .fleet beside the archive)",
    )
    how.add_argument(
        "--archive",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="gets all records (default: results)",
    )
    made.add_argument("--json", action="store_true", help="the answer as JSON on stdout; it names no host")
    return made


def fleet_options(args: argparse.Namespace, bench_argv: Sequence[str]) -> FleetOptions:
    """Check everything; raise UsageError that says what is possible."""
    _check_numbers(args)
    words = tuple(bench_argv)
    if args.per == "gpu" and not _given(words, "--device"):
        words += ("--device", "cuda")
    bench = bench_options(words)
    if args.per == "gpu" and str(bench.device) != "cuda:0":
        raise UsageError(
            f"--per gpu shows each job one GPU, --device cuda; leave --device {bench.device} out"
        )
    executor.refuse_missing()
    archive = Archive(args.archive)
    archive.preflight()
    local = args.local or (not slurm.present() and args.hosts is None and args.partition is None)
    nodes, left_out = _here(args) if local else _there(args)
    folder = _folder(args, archive)
    cluster: executor.Slurm | executor.Local
    if local:
        cluster = executor.Local(folder / "jobs", args.time)
    else:
        cluster = executor.Slurm(folder / "jobs", args.time, args.partition, args.account, args.qos)
        cluster.check(str(nodes[0].host))
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise UsageError(
            f"--folder {folder.parent} cannot be written ({error.strerror}); give another"
        ) from None
    rules = Rules(
        words=("-m", "fastrnns.bench", *words),
        folder=folder,
        retries=args.retries,
        parallel=args.parallel or (1 if local else len(nodes)),
        wait_s=None if args.wait is None else args.wait * 60,
        strict=bench.machine.strict,
        applies=bench.machine.env == "apply",
    )
    return FleetOptions(cluster, tuple(nodes), tuple(left_out), rules, bench, archive, args.json)


def bench_options(words: Sequence[str]) -> BenchOptions:
    """Bench's own options, checked as far as that can be done on another machine than the one that will run it."""
    args = command_line.parser().parse_args(words)
    for flag, given, remedy in (
        ("--list", args.list, "use python -m fastrnns.bench --list"),
        ("--print-json", args.print_json, "the fleet's own --json stands before the --"),
        ("--archive", args.archive, "the fleet's own --archive, before the --, gets all records"),
        ("--against", args.against, "compare the records afterwards with python -m fastrnns.compare"),
        ("--ab", args.ab, "environments of a node are not known here"),
    ):
        if given:
            raise UsageError(f"{flag} is not for the bench of a fleet; leave it out: {remedy}")
    return command_line.bench_options(words, args, elsewhere=True)


def _given(words: Sequence[str], flag: str) -> bool:
    return any(word == flag or word.startswith(f"{flag}=") for word in words)


def _check_numbers(args: argparse.Namespace) -> None:
    for flag, value, least, most in (
        ("--retries", args.retries, 0, 10),
        ("--time", args.time, 1, 7 * 24 * 60),
        ("--wait", args.wait, 0, 7 * 24 * 60),
        ("--parallel", args.parallel, 1, 100_000),
    ):
        if value is not None and not least <= value <= most:
            raise UsageError(f"{flag} is {value}; it must be from {least} to {most}")


def _here(args: argparse.Namespace) -> tuple[list[Node], list[str]]:
    """This machine, as one place or as its GPUs."""
    for flag in ("hosts", "partition", "account", "qos"):
        if getattr(args, flag) is not None:
            raise UsageError(f"--{flag} is Slurm's; leave it out with --local")
    if args.per == "node":
        return [Node(1)], []
    gpus = devices.visible_gpus()
    if not gpus.count:
        raise UsageError(f"--per gpu: {gpus.reason}; leave it out")
    return [Node(1 + index, None, index, gpus.count) for index in range(gpus.count)], []


def _there(args: argparse.Namespace) -> tuple[list[Node], list[str]]:
    """The nodes of the cluster, each as one place or as its GPUs."""
    if not slurm.present():
        flag = "--hosts" if args.hosts is not None else "--partition"
        raise UsageError(
            f"{flag}: there is no Slurm here (no sinfo and sbatch); leave it out to use this machine"
        )
    known = slurm.hosts()
    if args.hosts is None and args.partition is None:
        partitions = sorted({name for host in known.values() for name in host.partitions})
        raise UsageError(f"say where: --partition ({slurm.some(partitions)}), --hosts LIST, or --local")
    named = slurm.expand(args.hosts) if args.hosts is not None else []
    chosen, unable = slurm.choose(known, named, args.partition)
    return _places(chosen, args.per), [host.trouble for host in unable]


def _places(hosts: Sequence[Host], per: str) -> list[Node]:
    if per == "node":
        return [Node(number, host.name, None, host.gpus) for number, host in enumerate(hosts, start=1)]
    without = [host.name for host in hosts if not host.gpus]
    if without:
        raise UsageError(
            f"--per gpu: Slurm knows no GPU (Gres) of {slurm.some(without)}; leave them or --per gpu out"
        )
    every = [(host, index) for index in range(max(host.gpus for host in hosts)) for host in hosts]
    there = [
        (host, index) for host, index in every if index < host.gpus
    ]  # first GPUs first: all nodes at once
    return [Node(number, host.name, index, host.gpus) for number, (host, index) in enumerate(there, start=1)]


def _folder(args: argparse.Namespace, archive: Archive) -> Path:
    base = args.folder or archive.folder.absolute().parent / FOLDER
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    folder: Path = base.absolute() / f"{stamp}-{secrets.token_hex(3)}"
    if any(mark in str(folder) for mark in "%\n"):
        raise UsageError(f"--folder {base}: Slurm reads % in a path as a pattern; give another")
    return folder
