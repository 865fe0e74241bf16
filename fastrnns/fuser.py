"""The JIT's process-wide switches as one context manager: set on entry, put back on exit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import Any

from fastrnns.errors import UsageError

FUSERS = ("te", "old", "none", "default")
EXECUTORS = ("profiling", "simple", "legacy", "default")


@dataclass(frozen=True)
class CudaPointwise:
    """TensorExpr's knobs for pointwise CUDA kernels; None leaves a knob alone."""

    loop_level: int | None = None
    block_count: int | None = None
    block_size: int | None = None


@dataclass(frozen=True)
class Switches:
    """What the JIT is set to; None leaves a switch alone."""

    profiling_executor: bool | None = None
    profiling_mode: bool | None = None
    gpu_fusion: bool | None = None
    cpu_fusion: bool | None = None
    tensor_expressions: bool | None = None
    pointwise_loop_level: int | None = None
    pointwise_block_count: int | None = None
    pointwise_block_size: int | None = None


_FUSER_SWITCHES: dict[str, dict[str, bool]] = {
    "te": {
        "profiling_executor": True,
        "profiling_mode": True,
        "gpu_fusion": True,
        "cpu_fusion": False,
        "tensor_expressions": True,
    },
    "old": {
        "profiling_executor": False,
        "profiling_mode": False,
        "gpu_fusion": True,
        "tensor_expressions": False,
    },
    "none": {
        "profiling_executor": False,
        "profiling_mode": False,
        "gpu_fusion": False,
        "cpu_fusion": False,
        "tensor_expressions": False,
    },
    "default": {},
}

_EXECUTOR_SWITCHES: dict[str, dict[str, bool]] = {
    "profiling": {"profiling_executor": True, "profiling_mode": True},
    "simple": {"profiling_executor": True, "profiling_mode": False},
    "legacy": {"profiling_executor": False, "profiling_mode": False},
    "default": {},
}


def switches(
    fuser: str = "default", executor: str | None = None, cuda_pointwise: CudaPointwise | None = None
) -> Switches:
    """The switches that a fuser and an executor stand for; the executor is applied over the fuser."""
    executor = executor or "default"
    if fuser not in _FUSER_SWITCHES:
        raise UsageError(f"no fuser is named {fuser!r}; choose one of {', '.join(FUSERS)}")
    if executor not in _EXECUTOR_SWITCHES:
        raise UsageError(f"no executor is named {executor!r}; choose one of {', '.join(EXECUTORS)}")
    level, count, size = astuple(cuda_pointwise or CudaPointwise())
    return Switches(
        **{**_FUSER_SWITCHES[fuser], **_EXECUTOR_SWITCHES[executor]},
        pointwise_loop_level=level,
        pointwise_block_count=count,
        pointwise_block_size=size,
    )


def _jit() -> Any:
    import torch

    return torch._C  # noqa: SLF001  these switches have no public name


def current() -> Switches:
    """What the JIT is set to now."""
    jit = _jit()
    # These two setters answer with the old value and have no getter: read by setting, and set back.
    executor = jit._jit_set_profiling_executor(True)  # noqa: SLF001
    jit._jit_set_profiling_executor(executor)  # noqa: SLF001
    mode = jit._jit_set_profiling_mode(True)  # noqa: SLF001
    jit._jit_set_profiling_mode(mode)  # noqa: SLF001
    return Switches(
        profiling_executor=executor,
        profiling_mode=mode,
        gpu_fusion=jit._jit_can_fuse_on_gpu(),  # noqa: SLF001
        cpu_fusion=jit._jit_can_fuse_on_cpu(),  # noqa: SLF001
        tensor_expressions=jit._jit_texpr_fuser_enabled(),  # noqa: SLF001
        pointwise_loop_level=jit._jit_get_te_cuda_pointwise_loop_levels(),  # noqa: SLF001
        pointwise_block_count=jit._jit_get_te_cuda_pointwise_block_count(),  # noqa: SLF001
        pointwise_block_size=jit._jit_get_te_cuda_pointwise_block_size(),  # noqa: SLF001
    )


def _apply(wanted: Switches) -> None:
    jit = _jit()
    setters = (
        jit._jit_set_profiling_executor,  # noqa: SLF001
        jit._jit_set_profiling_mode,  # noqa: SLF001
        jit._jit_override_can_fuse_on_gpu,  # noqa: SLF001
        jit._jit_override_can_fuse_on_cpu,  # noqa: SLF001
        jit._jit_set_texpr_fuser_enabled,  # noqa: SLF001
        jit._jit_set_te_cuda_pointwise_loop_levels,  # noqa: SLF001
        jit._jit_set_te_cuda_pointwise_block_count,  # noqa: SLF001
        jit._jit_set_te_cuda_pointwise_block_size,  # noqa: SLF001
    )
    for setter, value in zip(setters, astuple(wanted), strict=True):
        if value is not None:
            setter(value)


@contextmanager
def fusers_and_executor(
    fuser: str = "default", executor: str | None = None, cuda_pointwise: CudaPointwise | None = None
) -> Iterator[Switches]:
    """Run a block under a fuser and an executor; the JIT is afterwards as it was before."""
    wanted = switches(fuser, executor, cuda_pointwise)
    before = current()
    try:
        _apply(wanted)
        yield current()
    finally:
        _apply(before)


def describe() -> str:
    """The JIT's setting in a few words, for a result's backend."""
    now = current()
    fuses = now.gpu_fusion or now.cpu_fusion
    fuser = "no fuser" if not fuses else "TensorExpr fuser" if now.tensor_expressions else "old fuser"
    if not now.profiling_executor:
        return f"{fuser}, legacy executor"
    return f"{fuser}, {'profiling' if now.profiling_mode else 'simple'} executor"
