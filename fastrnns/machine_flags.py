"""How a command that runs models holds the machine: its flags, their checks, and the hold itself."""

from __future__ import annotations

import argparse
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from env import flags
from env.cpulist import parse_request
from fastrnns.errors import UsageError

if TYPE_CHECKING:
    from env.hold import Held

Mode = Literal["ignore", "check", "apply"]


@dataclass(frozen=True)
class MachineFlags:
    """The flags as they take effect."""

    env: Mode = "check"
    strict: bool = False
    cpus: str | None = None
    skip: frozenset[str] = frozenset()
    lock_gpu_clocks: str | None = None

    def recorded(self) -> dict[str, Any]:
        """The flags as the record holds them."""
        return {
            "env": self.env,
            "strict": self.strict,
            "cpus": self.cpus,
            "skip": sorted(self.skip),
            "lock_gpu_clocks": self.lock_gpu_clocks,
        }

    def held(self, *, gpu: int | None, command: str, sampling: bool = False) -> AbstractContextManager[Held]:
        """The machine as these flags ask for it, for a profiler that samples or for a clock; see `env.hold.hold`."""
        from env.hold import hold

        return hold(
            self.env,
            cpus=self.cpus,
            strict=self.strict,
            gpu=gpu,
            command=command,
            skip=self.skip,
            sampling=sampling,
            gpu_clocks=self.lock_gpu_clocks,
        )


def add_machine_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what every command that holds the machine has."""
    group = parser.add_argument_group("the machine and the archive")
    group.add_argument(
        "--env",
        choices=("ignore", "check", "apply"),
        default="check",
        help="the machine: look at it and pin the workers (check, the default), make it stable"
        " and put it back (apply), or neither (ignore)",
    )
    group.add_argument("--strict", action="store_true", help="exit 3 when the machine is not stable")
    group.add_argument("--cpus", metavar="LIST", help="CPUs of the workers, such as 2-5 (default: chosen)")
    flags.add_choices(group)
    group.add_argument("--archive", type=Path, metavar="DIR", help="write a record below DIR (default: none)")


def machine_from(args: argparse.Namespace, device_type: str, *, elsewhere: bool = False) -> MachineFlags:
    """Check the flags; raise UsageError for what no machine, or not this device (here, or `elsewhere`), can do."""
    if args.cpus is not None:
        parse_request(args.cpus, None if elsewhere else os.sched_getaffinity(0))
    clocks = flags.clocks_from(args.lock_gpu_clocks)
    if clocks is not None and device_type != "cuda":
        raise UsageError(f"--lock-gpu-clocks has no clock to lock on {device_type}; add --device cuda")
    if clocks is not None and args.env != "apply":
        raise UsageError("--lock-gpu-clocks changes the machine; add --env apply")
    return MachineFlags(args.env, args.strict, args.cpus, flags.skip_from(args.skip), clocks)
