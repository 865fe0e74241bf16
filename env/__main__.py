"""The command: `python -m env check | apply | restore | run -- CMD | fingerprint`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from env import flags
from env.command import framed
from env.errors import EnvError, UsageError
from env.lifeline import follow_parent
from env.step import Wanted

SCHEMA = 1
DONE, BAD, MACHINE = 0, 1, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, call, print; the exit code."""
    follow_parent()
    args = parser().parse_args(argv)
    return framed("env", lambda: answer(args), (EnvError,))


def answer(args: argparse.Namespace) -> int:
    """Do what the command line asks."""
    if not Path(args.root).is_dir():
        raise UsageError(f"--root {args.root}: there is no such folder")
    command: Callable[[argparse.Namespace], int] = args.command
    return command(args)


def check(args: argparse.Namespace) -> int:
    """Read every step and say what it means; change nothing."""
    from env import machine

    outcome = machine.check(args.root, wanted(args))
    show(outcome.after, args.json)
    say(outcome)
    return MACHINE if args.strict and machine.amiss(outcome.after) else DONE


def apply(args: argparse.Namespace) -> int:
    """Bring the machine into its stable state until `restore` or a reboot."""
    from env import machine

    if args.dry_run:
        found = machine.intentions(args.root, wanted(args))
        if args.json:
            print(
                json.dumps(
                    {"schema": SCHEMA, "plan": [{"step": s, "would": what} for s, what in found]}, indent=1
                )
            )
        else:
            print(
                "\n".join(f"{step}: {what}" for step, what in found)
                or "nothing: there is nothing that apply may do"
            )
        return DONE
    outcome = machine.setup(args.root, wanted(args))
    show(outcome.after, args.json)
    say(outcome)
    refused = [
        row for row in outcome.after if row["status"] == "unstable" and row["name"] not in machine.HELD_ONLY
    ]
    if args.strict and machine.amiss(outcome.after):
        return MACHINE
    return BAD if refused else DONE


def restore(args: argparse.Namespace) -> int:
    """Put the machine back as it was before `apply`, or before a command that was killed."""
    from env import machine

    outcome = machine.put_back(args.root)
    if args.json:
        show(outcome.after, args.json)
    elif not outcome.notes and not outcome.left:
        print("the machine is as it was before `apply`")
    say(outcome)
    return BAD if outcome.left else DONE


def run(args: argparse.Namespace) -> int:
    """Run a command inside the stable, shielded machine; its exit code is ours."""
    from env.run import run_held

    options = {name: value for name, value in vars(wanted(args)).items() if name != "cpus"}
    return run_held(args.argv, strict=args.strict, root=args.root, cpus=args.cpus, **options)


def fingerprint(args: argparse.Namespace) -> int:
    """Print what this machine and its software are."""
    from env import fingerprint as facts

    found = facts.fingerprint(args.root)
    print(json.dumps(found, indent=1) if args.json else facts.explain(found))
    return DONE


def show(states: list[dict[str, Any]], as_json: bool) -> None:
    """The steps on stdout, for a program or for a person."""
    from env import explain, machine

    if as_json:
        print(json.dumps({"schema": SCHEMA, "overall": machine.overall(states), "steps": states}, indent=1))
    else:
        print(explain.table(states))


def say(outcome: Any) -> None:
    """What could not be done, and what there is to know, on stderr."""
    for sentence in [*outcome.notes, *outcome.left]:
        print(f"env: {sentence}", file=sys.stderr)


def wanted(args: argparse.Namespace) -> Wanted:
    """What the flags ask of the machine; UsageError for what no machine can do."""
    from env import cpulist

    clocks = flags.clocks_from(args.lock_gpu_clocks)
    if clocks is not None and args.gpu is None:
        raise UsageError("--lock-gpu-clocks needs a GPU to lock; name it with --gpu N")
    if args.cpus is not None:
        cpulist.parse_request(args.cpus)
    return Wanted(
        cpus=args.cpus,
        skip=flags.skip_from(args.skip),
        gpu=args.gpu,
        shield=args.shield,
        partition=args.partition,
        thp=args.thp,
        numa_balancing=args.numa_balancing,
        swappiness=None if args.swappiness is None else str(args.swappiness),
        cap_frequency=args.cap_frequency,
        gpu_clocks=clocks,
    )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m env",
        description="Bring the machine into a stable state for measuring, watch it, and put it back.",
    )
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for command in (check, apply, restore, run, fingerprint):
        one = commands.add_parser(command.__name__, help=command.__doc__, description=command.__doc__)
        one.set_defaults(command=command)
        one.add_argument("--root", default="/", metavar="DIR", help="a machine tree to work on in place of /")
        if command is not run:
            one.add_argument("--json", action="store_true", help="print JSON")
        if command in {check, apply, run}:
            add_wanted(one)
            one.add_argument("--strict", action="store_true", help="exit 3 when the machine is not stable")
        if command is apply:
            one.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
        if command is run:
            one.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- CMD ARGS", help="the command")
            one.set_defaults(command=_after_dashes)
    return top


def _after_dashes(args: argparse.Namespace) -> int:
    if args.argv[:1] == ["--"]:  # argparse keeps the dashes that end our own flags
        args.argv = args.argv[1:]
    return run(args)


def add_wanted(one: argparse.ArgumentParser) -> None:
    """The flags that say what is asked of the machine."""
    one.add_argument(
        "--cpus", metavar="LIST", help="the CPUs to measure on, e.g. 2-5 (default: the best by topology)"
    )
    one.add_argument("--gpu", type=int, metavar="N", help="choose CPUs near this GPU")
    flags.add_choices(one)
    one.add_argument(
        "--shield", choices=("cset", "cgroup2", "systemd", "affinity"), help="this backend, no other"
    )
    one.add_argument(
        "--partition", choices=("root", "isolated"), default="root",
        help="kind of cgroup v2 partition; isolated has no load balancing: one thread, or bound threads",
    )  # fmt: skip
    one.add_argument("--thp", choices=("always", "madvise", "never"), help="set transparent huge pages")
    one.add_argument("--numa-balancing", choices=("0", "1", "2", "3"), help="set NUMA balancing")
    one.add_argument(
        "--swappiness", type=int, choices=range(201), metavar="0..200", help="set the swap eagerness"
    )
    one.add_argument(
        "--cap-frequency", action="store_true", help="cap the clock at its base where no turbo switch is"
    )


if __name__ == "__main__":
    sys.exit(main())
