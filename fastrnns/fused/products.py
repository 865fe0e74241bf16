"""The products over all time steps at once: the input's gates, and the gradients of the weights and of the input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from fastrnns.fused import split
from fastrnns.fused.launch import Layer, Precision, aligned


@contextmanager
def _matmul_precision(tf32: bool) -> Iterator[None]:
    """fp32 products at TF32 or IEEE; what was set is put back."""
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


def _at(precision: Precision) -> AbstractContextManager[None]:
    """The switch is asked for fp32 tensors only: at 16 bits it costs microseconds and means nothing."""
    return _matmul_precision(precision.tf32) if precision.scaled else nullcontext()


def input_gates(x: Tensor, w_ih: Tensor, precision: Precision) -> Tensor:
    """X W_ih': (rows, I) and (4H, I) to (rows, 4H)."""
    with _at(precision):
        return torch.mm(x, w_ih.t())


def gradients(
    d_gates: Tensor,
    x: Tensor,
    h_prev: Tensor,
    w_ih: Tensor,
    layer: Layer,
    need_x: bool,
    need_w_ih: bool,
    need_w_hh: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Of x (rows, I), W_ih (4H, I) and W_hh (4H, H), from those of the gates (rows, 4H); None for those not asked for."""
    with _at(layer.precision):
        if layer.precision.parts == 2:  # as accurate as fp32
            wanted = ([aligned(x)] if need_w_ih else []) + ([h_prev] if need_w_hh else [])
            found = split.weight_gradients(layer.kept, d_gates, wanted) if wanted else []
            dw_ih = found.pop(0) if need_w_ih else None
            dw_hh = found.pop(0) if need_w_hh else None
        else:
            columns = d_gates.t()
            dw_ih = torch.mm(columns, x) if need_w_ih else None
            dw_hh = torch.mm(columns, h_prev) if need_w_hh else None
        dx = torch.mm(d_gates, w_ih) if need_x else None
    return dx, dw_ih, dw_hh
