"""What one profile is told: the models, the problem, and how the tool is to run them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastrnns.profiling.tools import Choice
from fastrnns.runner import REGISTRY, Model
from fastrnns.sizes import Problem

DEFAULT_MODELS = ("cudnn", "aten", "jit")  # upstream's
NLOOPS = 5
WARMUP = 5  # TorchScript specialises in its first runs; a profile needs it done, not steady to a percent
# Kernels that ncu looks at: it runs each several times, 0.26 s in all on an H200. cuDNN's LSTM of the default size
# has 200 forward and 310 backward.
LAUNCHES = 600
SLEEP_SECONDS = 1.0
SEED = 17
SILENCE_S = 300.0  # between two events of a worker


@dataclass(frozen=True)
class Plan:
    """One profile, complete: nothing else decides what runs."""

    models: tuple[str, ...]
    problem: Problem
    choice: Choice
    device: str = "cpu"
    dtype: str = "fp32"
    tf32: bool = False
    fuser: str = "te"
    executor: str | None = None
    seed: int = SEED
    warmup: int = WARMUP
    nloops: int = NLOOPS
    sleep_s: float = SLEEP_SECONDS
    threads: int | None = None
    launches: int = LAUNCHES
    timeout_s: float = 600.0

    @property
    def device_type(self) -> str:
        """The device without its index."""
        return self.device.partition(":")[0]

    @property
    def rate(self) -> str:
        """The matrix rate that limits the products: TF32 where it is on, else the dtype's own."""
        return "tf32" if self.tf32 and self.dtype in {"fp32", "tf32"} else self.dtype

    def job(self, model: str, folder: str) -> dict[str, Any]:
        """What a worker is sent."""
        return {
            "model": model,
            "folder": folder,
            "problem": self.problem.as_dict(),
            "device": self.device,
            "dtype": self.dtype,
            "tf32": self.tf32,
            "fuser": self.fuser,
            "executor": self.executor,
            "seed": self.seed,
            "warmup": self.warmup,
            "nloops": self.nloops,
            "threads": self.threads,
        }

    @property
    def nloops_of_tool(self) -> int:
        """Iterations that the tool sees: ncu itself repeats each kernel, so it is given one."""
        return 1 if self.choice.tool == "ncu" else self.nloops

    def options(self) -> dict[str, Any]:
        """What a record holds of it."""
        return {
            "device": self.device,
            "dtype": self.dtype,
            "tf32": self.tf32,
            "fuser": self.fuser,
            "executor": self.executor,
            "seed": self.seed,
            "threads": self.threads,
            "processes": 1,
            "warmup": self.warmup,
            "nloops": self.nloops_of_tool,
            **({"launches": self.launches} if self.choice.tool == "ncu" else {}),
            "tool": self.choice.tool,
            "sleep_between_seconds": self.sleep_s,
        }

    def internal_run(self, model: str) -> list[str]:
        """The arguments of the profiled child: one model, as this plan says, no profiler of its own."""
        sizes = self.problem
        words = [
            "-m", "fastrnns.profile", "--internal-run", f"--{REGISTRY[model].group}", model,
            "--seqLength", str(sizes.seq_length), "--numLayers", str(sizes.num_layers),
            "--inputSize", str(sizes.input_size), "--hiddenSize", str(sizes.hidden_size),
            "--miniBatch", str(sizes.mini_batch), "--device", self.device, "--dtype", self.dtype,
            "--tf32", "on" if self.tf32 else "off", "--fuser", self.fuser, "--seed", str(self.seed),
            "--warmup", str(self.warmup), "--nloops", str(self.nloops_of_tool),
        ]  # fmt: skip
        words += ["--executor", self.executor] if self.executor else []
        return words + (["--threads", str(self.threads)] if self.threads else [])


def steps_of(model: Model, problem: Problem, lengths: list[int] | None) -> int | None:
    """The time steps that one iteration makes one after the other; None for what has none."""
    if model.group != "rnns":
        return None
    if not lengths:
        return problem.seq_length
    return (
        max(lengths) if model.name == "vl_cudnn" else sum(lengths)
    )  # the loops take one sample after the other
