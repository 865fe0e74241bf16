"""The maths of one time step of each recurrence, as plain functions that TorchScript can compile.

Shapes: B sequences, I input features, H hidden units; weights are stored as torch.nn stores them, (G*H, I)
for G gates. Nothing is scripted at import.
"""

# ruff: noqa: PLR0917  a cell takes its tensors in the order of the formula; TorchScript calls by position
# No `from __future__ import annotations`: TorchScript reads these annotations.

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch import Tensor


def scripted(function: Callable[..., Any]) -> Any:
    """TorchScript's version of a function; the only place that calls torch.jit.script on one."""
    return torch.jit.script(function)


def lstm_pointwise(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The part of an LSTM step after the products: gates (B, 4H) in the order i, f, g, o; c (B, H)."""
    i, f, g, o = gates.chunk(4, 1)  # (B, H) each
    c_next = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h_next = torch.sigmoid(o) * torch.tanh(c_next)
    return h_next, c_next


def lstm_cell(
    x: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    """One LSTM step: two products, two biases. x (B, I); h, c (B, H)."""
    gates = torch.mm(x, w_ih.t()) + torch.mm(h, w_hh.t()) + b_ih + b_hh  # (B, 4H)
    return lstm_pointwise(gates, c)


def lstm_cell_premul(
    x_gates: Tensor, h: Tensor, c: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    """One LSTM step whose input product is done already: x_gates (B, 4H)."""
    gates = x_gates + torch.mm(h, w_hh.t()) + b_ih + b_hh  # (B, 4H)
    return lstm_pointwise(gates, c)


def lstm_cell_premul_bias(
    x_gates: Tensor, h: Tensor, c: Tensor, w_hh: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    """One LSTM step whose input product and input bias are done already: x_gates (B, 4H)."""
    gates = x_gates + torch.mm(h, w_hh.t()) + b_hh  # (B, 4H)
    return lstm_pointwise(gates, c)


def layer_norm_decomposed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Layer norm over the last dimension written out: mean and biased deviation, no epsilon."""
    mean = x.mean(-1, keepdim=True)
    deviation = x.std(-1, unbiased=False, keepdim=True)
    return (x - mean) / deviation * weight + bias


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """PyTorch's layer norm over the last dimension."""
    return F.layer_norm(x, [x.size(-1)], weight, bias)


def mi_lstm_cell(
    x: Tensor,
    h: Tensor,
    c: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    alpha: Tensor,
    beta_h: Tensor,
    beta_x: Tensor,
    bias: Tensor,
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM with multiplicative integration (arXiv 1606.06630, section 2.1).

    The sum of the two products becomes alpha*Wx*Uh + beta_h*Uh + beta_x*Wx + bias.
    """
    wx = torch.mm(x, w_ih.t())  # (B, 4H)
    uh = torch.mm(h, w_hh.t())  # (B, 4H)
    gates = alpha * wx * uh + beta_h * uh + beta_x * wx + bias
    return lstm_pointwise(gates, c)


def gru_cell(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
    """One GRU step, gates in the order r, z, n; the reset gate acts after the hidden product."""
    xr, xz, xn = (torch.mm(x, w_ih.t()) + b_ih).chunk(3, 1)  # (B, H) each
    hr, hz, hn = (torch.mm(h, w_hh.t()) + b_hh).chunk(3, 1)
    r = torch.sigmoid(xr + hr)
    z = torch.sigmoid(xz + hz)
    n = torch.tanh(xn + r * hn)
    return n + z * (h - n)


def rnn_relu_cell(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
    """One step of a plain RNN with relu."""
    return torch.relu(torch.mm(x, w_ih.t()) + b_ih + torch.mm(h, w_hh.t()) + b_hh)


def rnn_tanh_cell(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
    """One step of a plain RNN with tanh."""
    return torch.tanh(torch.mm(x, w_ih.t()) + b_ih + torch.mm(h, w_hh.t()) + b_hh)
