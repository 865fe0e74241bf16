"""The kernels of split operands: the scale of each column, the halves, and the sum of the products."""
# ruff: noqa: ANN001, ANN201, N803
# mypy: ignore-errors
# The language is Triton's: arguments carry no Python types, compile-time ones are in capitals.

from __future__ import annotations

import triton
import triton.language as tl

from fastrnns.fused.kernels import power_of_two


@triton.jit(do_not_specialize=["rows"])
def largest(x, found, rows, COLS: tl.constexpr, SEG: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    """The largest magnitude of each column of `x` (rows, COLS), as the bits of an fp32, into `found` (zeros at first)."""
    col = tl.program_id(0) * BC + tl.arange(0, BC)
    most = tl.zeros((BC,), tl.int32)
    for step in range(SEG // BR):
        row = tl.program_id(1) * SEG + step * BR + tl.arange(0, BR)
        at = row.to(tl.int64)[:, None] * COLS + col[None, :]
        v = tl.load(x + at, mask=(row < rows)[:, None] & (col < COLS)[None, :], other=0.0)
        most = tl.maximum(most, tl.max(tl.abs(v).to(tl.int32, bitcast=True), 0))
    tl.atomic_max(found + col, most, mask=col < COLS)  # of whole numbers: the order does not matter


@triton.jit(do_not_specialize=["rows", "padded", "offset"])
def split(
    x, found, high, low, rows, padded, offset, COLS: tl.constexpr, WIDTH: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr
):  # fmt: skip
    """The halves of `x` (rows, COLS), scaled by column, into columns `offset`... of `high` and `low` (padded, WIDTH)."""
    row = tl.program_id(1) * BR + tl.arange(0, BR)
    col = tl.program_id(0) * BC + tl.arange(0, BC)
    at = row.to(tl.int64)[:, None] * COLS + col[None, :]
    v = tl.load(x + at, mask=(row < rows)[:, None] & (col < COLS)[None, :], other=0.0)
    scale = power_of_two(tl.load(found + col, mask=col < COLS, other=0).to(tl.float32, bitcast=True))
    v = v / scale[None, :]
    top = v.to(tl.float16)
    to = row.to(tl.int64)[:, None] * WIDTH + offset + col[None, :]
    ok = (row < padded)[:, None] & (col < COLS)[None, :]
    tl.store(high + to, top, mask=ok)
    tl.store(low + to, (v - top.to(tl.float32)).to(tl.float16), mask=ok)


@triton.jit(do_not_specialize=["offset", "slabs"])
def combine(
    main, cross, left, right, out, slabs, offset,
    M: tl.constexpr, N: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The sum of the slabs and the two cross products, scaled back, into `out` (M, N)."""
    row = tl.program_id(1) * BR + tl.arange(0, BR)
    col = tl.program_id(0) * BC + tl.arange(0, BC)
    ok = (row < M)[:, None] & (col < N)[None, :]
    at = row.to(tl.int64)[:, None] * WIDTH + offset + col[None, :]
    total = tl.load(cross + at, mask=ok, other=0.0) + tl.load(cross + HEIGHT * WIDTH + at, mask=ok, other=0.0)
    for _ in range(slabs):
        total += tl.load(main + at, mask=ok, other=0.0)
        at += HEIGHT * WIDTH
    a = power_of_two(tl.load(left + row, mask=row < M, other=0).to(tl.float32, bitcast=True))
    b = power_of_two(tl.load(right + col, mask=col < N, other=0).to(tl.float32, bitcast=True))
    tl.store(out + row[:, None] * N + col[None, :], total * a[:, None] * b[None, :], mask=ok)
