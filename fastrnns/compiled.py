"""Creators of models that torch.compile compiles, in their first iteration: the loop unrolled, and a scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fastrnns import cells, loops
from fastrnns.factory import ModelDef, draw, loop_model
from fastrnns.sizes import Problem


def compiled_lstm(
    problem: Problem, *, device: torch.device, dtype: torch.dtype, seed: int, mode: str | None = None
) -> ModelDef:
    """The eager loop over time, compiled as one graph: Dynamo unrolls it, a copy of the cell for each step."""
    return loop_model(draw(problem, device, dtype, seed), _compiled(loops.lstm(), mode))


def scan_lstm(problem: Problem, *, device: torch.device, dtype: torch.dtype, seed: int) -> ModelDef:
    """The loop over time as torch's scan, compiled: the cell is compiled once, whatever the steps."""
    return loop_model(draw(problem, device, dtype, seed), _compiled(_scan(), None))


def _compiled(function: Callable[..., Any], mode: str | None) -> Callable[..., Any]:
    """A function compiled for the sizes it is first called with, that inherits nothing compiled before it."""
    torch.compiler.reset()
    compiled: Callable[..., Any] = torch.compile(function, fullgraph=True, dynamic=False, mode=mode)
    return compiled


def _scan() -> Callable[..., Any]:
    from torch._higher_order_ops.scan import scan

    def loop(  # noqa: PLR0917 - a loop takes its tensors by position, as those of fastrnns.loops
        x: Tensor, state: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        # Copies, and a product by one, where scan (2.11 to 2.14) refuses a tensor that is returned twice or as it
        # came. The input product stays in the step: taken out of it, 2.14.1 on the CPU gives a wrong gradient of w_hh.
        def step(carry: tuple[Tensor, Tensor], x_t: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
            h, c = cells.lstm_cell(x_t, *carry, w_ih, w_hh, b_ih, b_hh)
            return (h, c.clone()), h * c.new_ones(())

        (h, c), outputs = scan(step, (state[0][0].clone(), state[1][0].clone()), x, dim=0)
        return outputs, (h.unsqueeze(0), c.unsqueeze(0))

    return loop
