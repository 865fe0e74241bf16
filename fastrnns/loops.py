"""Loops over time around a cell, as functions that TorchScript can compile.

Each function here makes a new loop: TorchScript keeps what it compiled by function, with the executor of its
first run, and a new model must not inherit that from an older one.
Shapes: x (T, B, I); the states h, c are (1, B, H), as torch.nn has them for one layer.
"""

# ruff: noqa: PLR0917  a loop takes its tensors by position, as TorchScript passes them
# No `from __future__ import annotations`: TorchScript reads these annotations.

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fastrnns.cells import (
    gru_cell,
    lstm_cell,
    lstm_cell_premul,
    lstm_cell_premul_bias,
    mi_lstm_cell,
    rnn_relu_cell,
    rnn_tanh_cell,
)

Loop = Callable[..., Any]


def lstm() -> Loop:
    """The plain loop."""

    def loop(
        x: Tensor, state: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, c = state[0][0], state[1][0]  # (B, H)
        outputs: list[Tensor] = []
        for step in x.unbind(0):
            h, c = lstm_cell(step, h, c, w_ih, w_hh, b_ih, b_hh)
            outputs.append(h)
        return torch.stack(outputs), (h.unsqueeze(0), c.unsqueeze(0))

    return loop


def lstm_premul() -> Loop:
    """The input product of all steps first."""

    def loop(
        x: Tensor, state: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, c = state[0][0], state[1][0]  # (B, H)
        outputs: list[Tensor] = []
        x_gates = torch.matmul(x, w_ih.t())  # (T, B, 4H)
        for step in x_gates.unbind(0):
            h, c = lstm_cell_premul(step, h, c, w_hh, b_ih, b_hh)
            outputs.append(h)
        return torch.stack(outputs), (h.unsqueeze(0), c.unsqueeze(0))

    return loop


def lstm_premul_bias() -> Loop:
    """The input product and bias of all steps first."""

    def loop(
        x: Tensor, state: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, c = state[0][0], state[1][0]  # (B, H)
        outputs: list[Tensor] = []
        # One product and one broadcast addition, so that backward reduces the bias once.
        x_gates = torch.mm(x.reshape(-1, x.size(2)), w_ih.t()) + b_ih  # (T*B, 4H)
        x_gates = x_gates.view(x.size(0), x.size(1), -1)  # (T, B, 4H)
        for step in x_gates.unbind(0):
            h, c = lstm_cell_premul_bias(step, h, c, w_hh, b_hh)
            outputs.append(h)
        return torch.stack(outputs), (h.unsqueeze(0), c.unsqueeze(0))

    return loop


def lstm_simple() -> Loop:
    """No outputs kept: the last states are all that is returned."""

    def loop(
        x: Tensor, h_0: Tensor, c_0: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
    ) -> tuple[Tensor, Tensor]:
        h, c = h_0[0], c_0[0]  # (B, H)
        for step in x.unbind(0):
            h, c = lstm_cell(step, h, c, w_ih, w_hh, b_ih, b_hh)
        return h.unsqueeze(0), c.unsqueeze(0)

    return loop


def lstm_multilayer() -> Loop:
    """A loop over layers around the loop over time; states are (L, B, H), weights four a layer."""

    def loop(
        x: Tensor, state: tuple[Tensor, Tensor], layers: list[list[Tensor]]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h_0, c_0 = state[0].unbind(0), state[1].unbind(0)
        last_h: list[Tensor] = []
        last_c: list[Tensor] = []
        for layer in range(len(layers)):
            h, c = h_0[layer], c_0[layer]  # (B, H)
            w_ih, w_hh, b_ih, b_hh = layers[layer]
            outputs: list[Tensor] = []
            for step in x.unbind(0):
                h, c = lstm_cell(step, h, c, w_ih, w_hh, b_ih, b_hh)
                outputs.append(h)
            x = torch.stack(outputs)  # (T, B, H)
            last_h.append(h)
            last_c.append(c)
        return x, (torch.stack(last_h), torch.stack(last_c))

    return loop


def lstm_varlen() -> Loop:
    """A loop over samples around the loop over their steps; sequences are (t, I), states (1, B, H)."""

    def loop(
        sequences: list[Tensor],
        state: tuple[Tensor, Tensor],
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor,
        b_hh: Tensor,
    ) -> tuple[list[Tensor], tuple[list[Tensor], list[Tensor]]]:
        h_0, c_0 = torch.split(state[0][0], 1), torch.split(state[1][0], 1)  # (1, H) each
        all_outputs: list[Tensor] = []
        last_h: list[Tensor] = []
        last_c: list[Tensor] = []
        for sample in range(len(sequences)):
            h, c = h_0[sample], c_0[sample]
            outputs: list[Tensor] = []
            for step in torch.split(sequences[sample], 1):  # (1, I)
                h, c = lstm_cell(step, h, c, w_ih, w_hh, b_ih, b_hh)
                outputs.append(h)
            all_outputs.append(torch.cat(outputs))  # (t, H)
            last_h.append(h)
            last_c.append(c)
        return all_outputs, (last_h, last_c)

    return loop


def mi_lstm() -> Loop:
    """The plain loop around the multiplicative-integration cell."""

    def loop(
        x: Tensor,
        state: tuple[Tensor, Tensor],
        w_ih: Tensor,
        w_hh: Tensor,
        alpha: Tensor,
        beta_h: Tensor,
        beta_x: Tensor,
        bias: Tensor,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, c = state[0][0], state[1][0]  # (B, H)
        outputs: list[Tensor] = []
        for step in x.unbind(0):
            h, c = mi_lstm_cell(step, h, c, w_ih, w_hh, alpha, beta_h, beta_x, bias)
            outputs.append(h)
        return torch.stack(outputs), (h.unsqueeze(0), c.unsqueeze(0))

    return loop


_ONE_STATE_CELLS = {"gru": gru_cell, "rnn_relu": rnn_relu_cell, "rnn_tanh": rnn_tanh_cell}


def one_state(kind: str) -> Loop:
    """The plain loop around a cell with one state: a GRU or a plain RNN."""
    cell = _ONE_STATE_CELLS[kind]

    def loop(
        x: Tensor, h_0: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
    ) -> tuple[Tensor, Tensor]:
        h = h_0[0]  # (B, H)
        outputs: list[Tensor] = []
        for step in x.unbind(0):
            h = cell(step, h, w_ih, w_hh, b_ih, b_hh)
            outputs.append(h)
        return torch.stack(outputs), h.unsqueeze(0)

    return loop
