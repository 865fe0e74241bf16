"""Runs the persistent kernels over one layer: buffers, launches, and compiled kernels kept for the next call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, overload

import torch
import triton.language as tl
from torch import Tensor

from fastrnns.fused import kernels
from fastrnns.fused.kept import INTERPRETED, Kept
from fastrnns.fused.plan import EXCHANGE_BYTES, Plan, ceil_div, words

# Interpreted programs run one after another and cannot wait for each other: one step a launch, in two phases.
PHASES = (1, 2) if INTERPRETED else (0,)
# Polls after which a debug build traps instead of waiting for ever; 0 leaves the check out.
DEBUG_SPINS = 0
SUM_BLOCK = 512


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


@overload
def aligned(tensor: Tensor) -> Tensor: ...
@overload
def aligned(tensor: None) -> None: ...
@overload
def aligned(tensor: Tensor | None) -> Tensor | None: ...
def aligned(tensor: Tensor | None) -> Tensor | None:
    """The tensor as the kernels count on it: contiguous, and at a multiple of 16 bytes."""
    if tensor is None:
        return None
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() & 15 else tensor


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer at one batch size, type and device: what its launches always are, and their compiled kernels.

    All tensors given must be `aligned`: Triton compiles another kernel for an address that is no multiple of 16.
    """

    hidden: int
    batch: int
    plan: Plan
    precision: Precision
    varlen: bool
    kept: Kept = field(default_factory=Kept)
    _fixed: dict[tuple[Any, ...], tuple[Any, ...]] = field(default_factory=dict)

    @cached_property
    def name(self) -> str:
        """What a result says of how it ran."""
        return f"fused ({self.precision.name})"

    def _launch(
        self, kernel: Any, args: tuple[Any, ...], flags: tuple[bool, ...], count: int, phase: int
    ) -> None:
        """Launch `count` batch tiles of a persistent kernel: all on the chip at once, or an error."""
        ahead = kernel is kernels.lstm_forward
        tiles = self.plan.forward if ahead else self.plan.backward
        constants = self._fixed.get((ahead, flags, phase))
        if constants is None:
            constants = self._fixed[ahead, flags, phase] = self._constants(kernel, flags, phase)
        self.kept.start(
            kernel, (count * ceil_div(self.hidden, tiles.hidden),), args, constants,
            num_warps=tiles.warps, num_stages=1, launch_cooperative_grid=True, debug=DEBUG_SPINS > 0,
        )  # fmt: skip

    def bias_gradients(self, parts: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The sums over batch tiles (tiles, 4H) of fp32, in the tiles' order and rounded once: for either bias."""
        tiles, count = parts.shape
        both = parts.new_empty((2, count), dtype=dtype)
        self.kept.start(
            kernels.sum_rows, (ceil_div(count, SUM_BLOCK),), (parts, both, tiles, count), (SUM_BLOCK,)
        )
        return both[0], both[1]

    def _constants(self, kernel: Any, flags: tuple[bool, ...], phase: int) -> tuple[Any, ...]:
        """The kernel's compile-time arguments, in its order."""
        plan, how = self.plan, self.precision
        if kernel is kernels.lstm_forward:
            tiles = plan.forward
            width = words(self.hidden, tiles.hidden, plan.parts)
            return (
                self.batch, self.hidden, width, ceil_div(self.hidden, tiles.hidden), ceil_div(self.batch, tiles.batch),
                tiles.batch, tiles.hidden, tiles.chunk, ceil_div(width, tiles.chunk),
                how.operand, plan.parts, how.scaled, tiles.swap, *flags, self.varlen, phase, DEBUG_SPINS,
            )  # fmt: skip
        tiles = plan.backward
        units = ceil_div(self.hidden, tiles.hidden)
        return (
            self.batch, self.hidden, units, ceil_div(self.batch, tiles.batch),
            tiles.batch, tiles.hidden, tiles.chunk, ceil_div(units * tiles.hidden, tiles.chunk),
            tiles.makers, ceil_div(units, tiles.makers), max(1, tiles.batch * tiles.hidden // (32 * tiles.warps)),
            how.operand, plan.parts, how.scaled, tiles.swap, *flags, self.varlen, phase, DEBUG_SPINS,
        )  # fmt: skip

    def forward(
        self,
        x_gates: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None,
        b_hh: Tensor | None,
        h0: Tensor | None,
        c0: Tensor | None,
        steps: Steps,
        train: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Saved | None]:
        """All steps from x W_ih' (rows, 4H), which becomes the gates where `train`: y, h_n, c_n, what is kept.

        y is (rows, H); h_n and c_n are (1, batch, H).
        """
        hidden, batch, tiles = self.hidden, self.batch, self.plan.forward
        batch_tiles = ceil_div(batch, tiles.batch)
        slot = batch_tiles * tiles.batch * words(hidden, tiles.hidden, self.plan.parts)
        new = x_gates.new_empty
        ahead = batch if train and not self.varlen else 0  # h0 lies before y: together they are h_prev
        y_all = new((steps.rows + ahead, hidden))
        y = y_all[ahead:] if ahead else y_all
        h_prev = new((steps.rows, hidden)) if train and self.varlen else y_all
        cells = new((steps.rows, hidden), dtype=torch.float32) if train else None
        h_n, c_n = new((1, batch, hidden)), new((1, batch, hidden))
        carry: tuple[Tensor, Tensor] | None = None
        h_in, c_in = h0, c0
        for begin, end in self._spans(steps.length, slot):
            last = end == steps.length
            if not last and carry is None:
                carry = (
                    new((batch, hidden), dtype=torch.float32),
                    new((batch, hidden), dtype=torch.float32),
                )
            h_out, c_out = (h_n, c_n) if last or carry is None else carry
            exchange = torch.full((end - begin, slot), -1, dtype=torch.int32, device=x_gates.device)
            flags = (b_hh is not None, h_in is not None, c_in is not None, train)
            for first, count in _groups(batch_tiles, self.plan.groups_forward):
                args = (x_gates, w_hh, b_ih, b_hh, h_in, c_in, h_out, c_out, y, h_prev if train else None, cells, exchange,
                        steps.lengths, steps.offsets, begin, end, first)  # fmt: skip
                for phase in PHASES:
                    self._launch(kernels.lstm_forward, args, flags, count, phase)
            h_in, c_in = h_out, c_out
        saved = Saved(x_gates, cells, h_prev[: steps.rows]) if cells is not None else None
        return y, h_n, c_n, saved

    @staticmethod
    def _spans(length: int, slot: int) -> list[tuple[int, int]]:
        """The steps of each forward launch; `slot` is the words that one step exchanges."""
        at_once = 1 if INTERPRETED else max(1, EXCHANGE_BYTES // (4 * slot))
        return [(t, min(t + at_once, length)) for t in range(0, length, at_once)]

    def backward(
        self,
        saved: Saved,
        w_hh: Tensor,
        c0: Tensor | None,
        dy: Tensor | None,
        dh_n: Tensor | None,
        dc_n: Tensor | None,
        steps: Steps,
        want_h: bool,
        want_c: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Gradients of the gates before their activation (rows, 4H), of the biases by batch tile, of h0 and c0.

        The last two are (1, batch, H), and None where they are not wanted.
        """
        hidden, batch, tiles = self.hidden, self.batch, self.plan.backward
        units = ceil_div(hidden, tiles.hidden)
        batch_tiles = ceil_div(batch, tiles.batch)
        device = saved.gates.device
        inboxes = torch.zeros(
            2 * batch_tiles * units * units * tiles.batch * tiles.hidden, dtype=torch.int32, device=device
        )
        new = saved.gates.new_empty
        d_gates = new(saved.gates.shape)
        size = (batch_tiles, 4 * hidden)
        d_bias = saved.cells.new_zeros(size) if INTERPRETED else saved.cells.new_empty(size)
        if INTERPRETED:  # a launch hands them to the next
            want_h = want_c = True
        state_type = torch.float32 if INTERPRETED else saved.gates.dtype
        dh_0 = new((1, batch, hidden), dtype=state_type) if want_h else None
        dc_0 = new((1, batch, hidden), dtype=state_type) if want_c else None
        length = steps.length
        for begin, end in [(t, t + 1) for t in reversed(range(length))] if INTERPRETED else [(0, length)]:
            for first, count in _groups(batch_tiles, self.plan.groups_backward):
                for phase in PHASES:
                    flags = (
                        c0 is not None,
                        dy is not None,
                        dh_n is not None,
                        dc_n is not None,
                        want_h,
                        want_c,
                    )
                    args = (saved.gates, saved.cells, c0, dy, dh_n, dc_n, dh_0, dc_0, w_hh, d_gates, d_bias, inboxes,
                            steps.lengths, steps.offsets, begin, end, length, first)  # fmt: skip
                    self._launch(kernels.lstm_backward, args, flags, count, phase)
                    if INTERPRETED:  # what the next phase or step starts from
                        dh_n, dc_n = dh_0, dc_0
        return d_gates, d_bias, dh_0, dc_0


def _groups(tiles: int, at_once: int) -> Iterator[tuple[int, int]]:
    """(first batch tile, number of them) of each launch; interpreted programs need not be on the chip together."""
    if INTERPRETED:
        at_once = tiles
    for first in range(0, tiles, at_once):
        yield first, min(at_once, tiles - first)
