"""Runs the persistent kernels over one layer: buffers, launches, and compiled kernels kept for the next call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastrnns.fused import kernels
from fastrnns.fused.plan import EXCHANGE_BYTES, Plan, ceil_div, words

# Under TRITON_INTERPRET=1 the kernels are interpreted, program after program: one step a launch.
INTERPRETED = not isinstance(kernels.lstm_forward, triton.runtime.JITFunction)
# Polls after which a debug build traps instead of waiting for ever; 0 leaves the check out.
DEBUG_SPINS = 0


@dataclass(frozen=True)
class Precision:
    """How one layer's numbers are kept: the recurrent product's operands, and the time-parallel products."""

    name: str
    operand: Any  # Triton's type of the recurrent operands
    parts: int
    scaled: bool
    tf32: bool


PRECISIONS = {
    "bf16": Precision("bf16", tl.bfloat16, 1, False, False),
    "fp16": Precision("fp16", tl.float16, 1, False, False),
    "tf32": Precision("tf32", tl.float16, 1, True, True),
    "fp32": Precision("fp32", tl.float16, 2, True, False),
}


@dataclass(frozen=True)
class Steps:
    """The time axis: how many steps, how many rows each; for packed rows also where each step starts."""

    length: int
    batch: int
    rows: int  # of all steps together
    lengths: Tensor | None = None  # (batch,) int32, longest first
    offsets: Tensor | None = None  # (length,) int32


@dataclass(frozen=True)
class Saved:
    """What the backward pass needs of the forward pass."""

    gates: Tensor  # (rows, 4H)
    cells: Tensor  # (rows, H) fp32
    h_prev: Tensor  # (rows, H): the state that each step started from


@lru_cache(maxsize=8)
def processors(index: int) -> int:
    """Streaming multiprocessors of a device."""
    return int(torch.cuda.get_device_properties(index).multi_processor_count)


@contextmanager
def matmul_precision(tf32: bool | None) -> Iterator[None]:
    """Time-parallel fp32 products at TF32 or IEEE; what was set is put back."""
    switch = torch.backends.cuda.matmul
    wanted = "tf32" if tf32 else "ieee"
    before = switch.fp32_precision
    if before == wanted:
        yield
        return
    switch.fp32_precision = wanted
    try:
        yield
    finally:
        switch.fp32_precision = before


# (kernel, constants, which pointers are absent or unaligned) -> the compiled kernel
_compiled: dict[tuple[Any, ...], Any] = {}


def _launch(
    kernel: Any, grid: int, args: tuple[Any, ...], constants: tuple[Any, ...], warps: int, device: int
) -> None:
    """Launch through the kept compiled kernel; the first call of a kind goes through Triton's own path."""
    if INTERPRETED:
        kernel[(grid,)](*args, *constants)
        return
    # What Triton specialises on: types, and whether an address is a multiple of 16. Whole numbers are not specialised.
    kind = tuple((a.dtype, a.data_ptr() & 15 == 0) if isinstance(a, Tensor) else a is None for a in args)
    key = (kernel, device, warps, constants, kind)
    compiled = _compiled.get(key)
    if compiled is None:
        _compiled[key] = kernel[(grid,)](
            *args,
            *constants,
            num_warps=warps,
            num_stages=1,
            launch_cooperative_grid=True,
            debug=DEBUG_SPINS > 0,
        )
        return
    compiled[(grid, 1, 1)](*args, *constants)


def _groups(tiles: int, at_once: int) -> Iterator[tuple[int, int]]:
    """(first batch tile, number of them) of each launch."""
    for first in range(0, tiles, at_once):
        yield first, min(at_once, tiles - first)


def forward(
    x_gates: Tensor,
    w_hh: Tensor,
    b_hh: Tensor | None,
    h0: Tensor | None,
    c0: Tensor | None,
    steps: Steps,
    plan: Plan,
    precision: Precision,
    train: bool,
) -> tuple[Tensor, Tensor, Tensor, Saved | None]:
    """One layer over all steps from x W_ih' + b_ih (rows, 4H), which becomes the gates where `train`."""
    hidden = w_hh.shape[1]
    batch = steps.batch
    varlen = steps.lengths is not None
    tiles = plan.forward
    units = ceil_div(hidden, tiles.hidden)
    batch_tiles = ceil_div(batch, tiles.batch)
    width = words(hidden, tiles.hidden, plan.parts)
    new = x_gates.new_empty
    y_all = new((steps.rows + (batch if train and not varlen else 0), hidden))
    y = y_all[batch:] if train and not varlen else y_all
    h_prev = new((steps.rows, hidden)) if train and varlen else y_all
    cells = new((steps.rows, hidden), dtype=torch.float32) if train else None
    h_n, c_n = new((batch, hidden)), new((batch, hidden))

    slot = batch_tiles * tiles.batch * width
    at_once = 1 if INTERPRETED else max(1, EXCHANGE_BYTES // (4 * slot))
    spans = [(t, min(t + at_once, steps.length)) for t in range(0, steps.length, at_once)]
    carry: tuple[Tensor, Tensor] | None = None
    h_in, c_in = h0, c0
    device = x_gates.get_device()
    for begin, end in spans:
        last = end == steps.length
        if not last and carry is None:
            carry = (new((batch, hidden), dtype=torch.float32), new((batch, hidden), dtype=torch.float32))
        h_out, c_out = (h_n, c_n) if last or carry is None else carry
        exchange = new((end - begin, slot), dtype=torch.int32).fill_(-1)
        constants = (
            batch, hidden, width, units, batch_tiles, tiles.batch, tiles.hidden, tiles.chunk, ceil_div(width, tiles.chunk),
            precision.operand, plan.parts, precision.scaled, tiles.swap,
            b_hh is not None, h_in is not None, c_in is not None, train, varlen,
        )  # fmt: skip
        for first, count in _groups(batch_tiles, plan.groups_forward):
            args = (x_gates, w_hh, b_hh, h_in, c_in, h_out, c_out, y, h_prev if train else None, cells, exchange,
                    steps.lengths, steps.offsets, begin, end, first)  # fmt: skip
            for phase in (1, 2) if INTERPRETED else (0,):
                _launch(
                    kernels.lstm_forward,
                    count * units,
                    args,
                    (*constants, phase, DEBUG_SPINS),
                    tiles.warps,
                    device,
                )
        h_in, c_in = h_out, c_out
    saved = Saved(x_gates, cells, h_prev[: steps.rows]) if cells is not None else None
    return y, h_n, c_n, saved


def backward(
    saved: Saved,
    w_hh: Tensor,
    c0: Tensor | None,
    dy: Tensor | None,
    dh_n: Tensor | None,
    dc_n: Tensor | None,
    steps: Steps,
    plan: Plan,
    precision: Precision,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of one layer: of the gates before their activation (rows, 4H), of the biases, and of h0 and c0."""
    hidden = w_hh.shape[1]
    batch = steps.batch
    tiles = plan.backward
    units = ceil_div(hidden, tiles.hidden)
    batch_tiles = ceil_div(batch, tiles.batch)
    new = saved.gates.new_empty
    d_gates = new(saved.gates.shape)
    size = (batch_tiles, 4 * hidden)
    d_bias = saved.cells.new_zeros(size) if INTERPRETED else saved.cells.new_empty(size)
    state_type = torch.float32 if INTERPRETED else saved.gates.dtype
    dh_0, dc_0 = new((batch, hidden), dtype=state_type), new((batch, hidden), dtype=state_type)
    inboxes = saved.gates.new_zeros(
        (2 * batch_tiles * units * units * tiles.batch * tiles.hidden,), dtype=torch.int32
    )
    device = saved.gates.get_device()
    length = steps.length
    for begin, end in [(t, t + 1) for t in reversed(range(length))] if INTERPRETED else [(0, length)]:
        for first, count in _groups(batch_tiles, plan.groups_backward):
            for phase in (1, 2) if INTERPRETED else (0,):
                constants = (
                    batch, hidden, units, batch_tiles, tiles.batch, tiles.hidden,
                    tiles.chunk, ceil_div(units * tiles.hidden, tiles.chunk), tiles.makers, ceil_div(units, tiles.makers),
                    max(1, tiles.batch * tiles.hidden // (32 * tiles.warps)),
                    precision.operand, plan.parts, precision.scaled, tiles.swap,
                    c0 is not None, dy is not None, dh_n is not None, dc_n is not None, steps.lengths is not None,
                    phase, DEBUG_SPINS,
                )  # fmt: skip
                args = (saved.gates, saved.cells, c0, dy, dh_n, dc_n, dh_0, dc_0, w_hh, d_gates, d_bias, inboxes,
                        steps.lengths, steps.offsets, begin, end, length, first)  # fmt: skip
                _launch(kernels.lstm_backward, count * units, args, constants, tiles.warps, device)
                if INTERPRETED:
                    dh_n, dc_n = dh_0, dc_0
    return d_gates, d_bias, dh_0, dc_0
