"""The problem: the sizes a model runs at, and the flags that choose them. No torch."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, fields

from fastrnns.errors import UsageError

LARGEST_SIZE = 1_000_000  # no single size of a real problem is larger
BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}  # of one number
LARGEST_BYTES = 2**40  # gates and states of every step in fp32: past this nothing can hold the problem


@dataclass(frozen=True)
class Problem:
    """The sizes a model runs at; the defaults are upstream's."""

    seq_length: int = 100  # time steps
    num_layers: int = 1
    input_size: int = 512  # features of one time step
    hidden_size: int = 512
    mini_batch: int = 64  # sequences at once

    def as_dict(self) -> dict[str, int]:
        """The sizes by name, as a record holds them."""
        return asdict(self)


_FLAGS = {  # field: (upstream's spelling, what it is)
    "seq_length": ("seqLength", "time steps"),
    "num_layers": ("numLayers", "layers of the RNN"),
    "input_size": ("inputSize", "features of one time step"),
    "hidden_size": ("hiddenSize", "hidden units"),
    "mini_batch": ("miniBatch", "sequences at once"),
}


def flag(field: str) -> str:
    """The flag of a size, in upstream's spelling: `num_layers` gives `--numLayers`."""
    return f"--{_FLAGS[field][0]}"


def add_problem_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Declare the five sizes, in upstream's spelling, with dashes and with underscores; returns their group."""
    group = parser.add_argument_group("the problem")
    for field in fields(Problem):
        upstream, meaning = _FLAGS[field.name]
        dashed = field.name.replace("_", "-")
        group.add_argument(
            f"--{upstream}",
            f"--{dashed}",
            f"--{field.name}",
            dest=field.name,
            type=int,
            default=field.default,
            metavar="N",
            help=f"{meaning} (default: {field.default})",
        )
    return group


def problem_from(args: argparse.Namespace) -> Problem:
    """The problem that a parsed command line names; refuses sizes that nothing can run."""
    problem = Problem(**{field.name: getattr(args, field.name) for field in fields(Problem)})
    check(problem)
    return problem


def check(problem: Problem) -> None:
    """Refuse sizes that nothing can run."""
    for name, size in problem.as_dict().items():
        if size < 1:
            raise UsageError(f"{flag(name)} is {size}; it must be at least 1")
        if size > LARGEST_SIZE:
            raise UsageError(f"{flag(name)} is {size}; the largest size that can be run is {LARGEST_SIZE}")
    if 4 * elements(problem) > LARGEST_BYTES:
        gigabytes = 4 * elements(problem) // 2**30
        raise UsageError(f"the problem needs about {gigabytes} GiB in fp32; choose smaller sizes")


def elements(problem: Problem) -> int:
    """Numbers that a training step of an LSTM holds at least: weights and gradients, gates and states of every step.

    The first layer reads I features and each further one H; 4 gates, a cell and an output a step and layer.
    """
    hidden, layers = problem.hidden_size, problem.num_layers
    weights = 4 * hidden * (problem.input_size + hidden + (layers - 1) * 2 * hidden)
    steps = problem.seq_length * problem.mini_batch
    return 2 * weights + steps * (problem.input_size + 6 * layers * hidden)
