"""The command line of the verification, and its checks, before anything is started. No torch."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastrnns import device as devices
from fastrnns import options as command_line
from fastrnns import runner, sizes
from fastrnns.machine_flags import MachineFlags, add_machine_flags, machine_from
from fastrnns.sizes import Problem
from fastrnns.sweep import Point

DEFAULT = ("jit_premul", "jit")  # upstream's
# What a network is given: how many images, and their size. Float64 and TorchScript take minutes on upstream's 32 of
# 224, and these hold more relu inputs within rounding of zero, whose slopes differ beside float64.
IMAGES = (4, 64)

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True)
class VerifyOptions:
    """One verification, every flag with its effective value."""

    argv: tuple[str, ...]
    models: tuple[str, ...]
    unsupported: tuple[tuple[str, str], ...]  # models that were not named and cannot run this, and why
    problem: Problem
    device: devices.Device
    dtype: str
    tf32: bool
    seed: int
    check_grad: bool
    verbose: bool
    fuser: str
    executor: str | None
    cuda_pointwise: dict[str, int | None]
    machine: MachineFlags
    archive: Path | None
    json: bool

    def job(self) -> dict[str, Any]:
        """What a worker is told, but for its models."""
        images, image_size = IMAGES
        return {
            "problem": self.problem.as_dict(),
            "device": str(self.device),
            "dtype": self.dtype,
            "tf32": self.tf32,
            "seed": self.seed,
            "check_grad": self.check_grad,
            "verbose": self.verbose,
            "fuser": self.fuser,
            "executor": self.executor,
            "cuda_pointwise": self.cuda_pointwise,
            "images": images,
            "image_size": image_size,
        }

    def recorded(self) -> dict[str, Any]:
        """The options as the record holds them."""
        images, image_size = IMAGES
        return {
            "device": str(self.device),
            "dtype": self.dtype,
            "tf32": self.tf32,
            "seed": self.seed,
            "check_grad": self.check_grad,
            "fuser": self.fuser,
            "executor": self.executor,
            "cuda_pointwise": self.cuda_pointwise,
            "models": list(self.models),
            "images": images,
            "image_size": image_size,
            **self.machine.recorded(),
        }


def truth(text: str) -> bool:
    """A flag's value as a truth value: `--check-grad False` is false."""
    word = text.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")


def parser() -> argparse.ArgumentParser:
    """Build the command's parser; it answers --help without looking at the machine."""
    made = argparse.ArgumentParser(
        prog="python -m fastrnns.test",
        description="Check models' outputs, states and gradients beside a control and beside float64.",
        allow_abbrev=False,
    )
    models = made.add_argument_group("the models")
    models.add_argument("--rnns", nargs="*", metavar="NAME", help=f"default: {' '.join(DEFAULT)}")
    models.add_argument("--cnns", nargs="*", metavar="NAME", help="default: none")
    models.add_argument("--all", action="store_true", help="every model that can run the problem")
    models.add_argument(
        *command_line.spellings("variable-lstms"),
        action="store_true",
        help=f"adds {' '.join(runner.VARIABLE)}",
    )
    sizes.add_problem_flags(made)
    command_line.add_run_flags(made)
    checks = made.add_argument_group("what is checked")
    checks.add_argument(
        *command_line.spellings("check-grad"),
        type=truth,
        nargs="?",
        const=True,
        default=True,
        metavar="true|false",
        help="compare gradients too (default: true)",
    )
    checks.add_argument(
        "--verbose",
        type=truth,
        nargs="?",
        const=True,
        default=False,
        metavar="true|false",
        help="print the graph that TorchScript ran, on stderr (default: false)",
    )
    add_machine_flags(made)
    made.add_argument_group("the answer").add_argument(
        "--json", action="store_true", help="print the record alone on stdout; the table goes to stderr"
    )
    return made


def verify_options(argv: Sequence[str], args: argparse.Namespace) -> VerifyOptions:
    """Check the whole command line; raise UsageError that says what is possible."""
    problem = sizes.problem_from(args)
    chosen, named = chosen_models(args)
    device = devices.resolve(args.device)
    dtype, tf32 = command_line.dtype_from(args, device.type)
    able, unable = command_line.supported(chosen, named, [Point(problem)], device.type, dtype)
    machine = machine_from(args, device.type)
    command_line.check_archive(args.archive)
    return VerifyOptions(
        argv=("python", "-m", "fastrnns.test", *argv),
        models=able,
        unsupported=unable,
        problem=problem,
        device=device,
        dtype=dtype,
        tf32=tf32,
        seed=command_line.seed_from(args),
        check_grad=args.check_grad,
        verbose=args.verbose,
        fuser=args.fuser,
        executor=args.executor,
        cuda_pointwise=command_line.pointwise_from(args),
        machine=machine,
        archive=args.archive,
        json=args.json,
    )


def chosen_models(args: argparse.Namespace) -> tuple[list[str], set[str]]:
    """The models to check, in order and once each, and which of them were asked for by name."""
    named = [
        runner.lookup(name, group).name for group in ("rnns", "cnns") for name in getattr(args, group) or ()
    ]
    chosen = list(runner.REGISTRY) if args.all else named
    if not chosen and not args.variable_lstms:
        chosen = list(DEFAULT)
    if args.variable_lstms:
        chosen = [*chosen, *runner.VARIABLE]
    return list(dict.fromkeys(chosen)), set(named)
