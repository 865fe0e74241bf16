"""Weight gradients as accurate as fp32 on matrix units that multiply 16-bit numbers.

dW = G' X sums over all rows (steps and sequences). Each column of G and X is scaled by a power of two and split into a
high and a low half of 11 bits each (fp16); the three leading products are summed in fp32. Matrix units cut off what
their fp32 sum cannot hold, so an error grows with the length of a sum: the leading product is cut into slabs of rows,
which are added afterwards (docs/fused.md has what that gains).
(Split operands: Ootomo and Yokota, IJHPCA 36(4), 2022, doi 10.1177/10943420221090256.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from fastrnns.fused import split_kernels as kernels
from fastrnns.fused.kept import Kept
from fastrnns.fused.plan import ceil_div

SLAB_ROWS = 256  # rows that one sum of the leading product runs over ...
SLAB_BYTES = 104 * 2**20  # ... or more, where that many slabs would not fit
ROWS, COLUMNS = 32, 128  # of the tile that a program reads at once
SEGMENT = 512  # rows that one program looks through for the largest


def _up(n: int, to: int = 8) -> int:
    return ceil_div(n, to) * to


def slabs(rows: int, height: int, width: int) -> tuple[int, int]:
    """(number of slabs, rows each): a multiple of 8 that covers `rows`, within SLAB_BYTES of fp32 results."""
    count = min(ceil_div(rows, SLAB_ROWS), max(1, SLAB_BYTES // (4 * height * width)))
    return count, _up(ceil_div(rows, count))


def weight_gradients(kept: Kept, g: Tensor, xs: list[Tensor]) -> list[Tensor]:
    """G' X for each X: g (rows, M) and xs of (rows, N), contiguous fp32, to (M, N) each."""
    rows, m = g.shape
    height, width = _up(m), _up(sum(x.shape[1] for x in xs))
    count, slab = slabs(rows, height, width)
    padded = count * slab
    found = torch.zeros(sum(_up(x.shape[1]) for x in (g, *xs)), dtype=torch.int32, device=g.device)
    gs = g.new_empty((2, padded, height), dtype=torch.float16)  # high, low
    both = g.new_empty((2, padded, width), dtype=torch.float16)  # low, high: the cross products are one batch
    marks, begin, offset = [], 0, 0
    for number, x in enumerate((g, *xs)):
        cols = x.shape[1]
        high, low = (gs[0], gs[1]) if number == 0 else (both[1], both[0])
        mark = found[begin : begin + cols]  # at a multiple of 32 bytes
        wide = ceil_div(cols, COLUMNS)
        kept.start(
            kernels.largest, (wide, ceil_div(rows, SEGMENT)), (x, mark, rows), (cols, SEGMENT, ROWS, COLUMNS)
        )
        kept.start(
            kernels.split, (wide, ceil_div(padded, ROWS)), (x, mark, high, low, rows, padded, offset),
            (cols, high.shape[1], ROWS, COLUMNS),
        )  # fmt: skip
        marks.append(mark)
        begin += _up(cols)
        offset += cols if number else 0
    main = _products(gs[0].view(count, slab, height).transpose(1, 2), both[1].view(count, slab, width))
    cross = _products(gs.transpose(1, 2), both)
    results, offset = [], 0
    for x, mark in zip(xs, marks[1:], strict=True):
        cols = x.shape[1]
        out = g.new_empty((m, cols))
        kept.start(
            kernels.combine, (ceil_div(cols, COLUMNS), ceil_div(m, ROWS)),
            (main, cross, marks[0], mark, out, count, offset), (m, cols, height, width, ROWS, COLUMNS),
        )  # fmt: skip
        results.append(out)
        offset += cols
    return results


def _products(a: Tensor, b: Tensor) -> Tensor:
    """Batched products of fp16, summed and kept in fp32."""
    if a.device.type == "cuda":
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.bmm(a.float(), b.float())
