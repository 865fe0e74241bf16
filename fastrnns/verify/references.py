"""The maths of every recurrence in float64, eagerly and by another road than the models: what is right.

Weights come as torch.nn orders them. Shapes: x (T, B, I); h, c (L*D, B, H) for L layers of D directions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Named = dict[str, Tensor]
Step = Callable[
    [Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]
]  # (input products of one step, states) -> states
Reference = Callable[[Sequence[Any], Sequence[Tensor]], Named]  # (inputs without weights, weights) -> outputs

EPSILON = 1e-5  # of torch's layer norm


def _over_time(
    x_gates: Tensor, states: tuple[Tensor, ...], step: Step, *, reverse: bool = False
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run one step after the other; the first state is the output."""
    order = range(x_gates.size(0) - 1, -1, -1) if reverse else range(x_gates.size(0))
    outputs: dict[int, Tensor] = {}
    for t in order:
        states = step(x_gates[t], states)
        outputs[t] = states[0]
    return torch.stack([outputs[t] for t in range(x_gates.size(0))]), states


def _lstm_states(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    size = c.size(1)
    i, f, g, o = (gates[:, k * size : (k + 1) * size] for k in range(4))
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _lstm_step(w_hh: Tensor, b_hh: Tensor) -> Step:
    def step(x_gates: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        h, c = states
        return _lstm_states(x_gates + torch.addmm(b_hh, h, w_hh.T), c)

    return step


def lstm(inputs: Sequence[Any], weights: Sequence[Tensor], directions: int = 1) -> Named:
    """Layers of LSTM in one direction or two."""
    x, h_0, c_0 = inputs
    last_h, last_c = [], []
    for layer in range(len(weights) // 4 // directions):
        sides = []
        for side in range(directions):
            at = layer * directions + side
            w_ih, w_hh, b_ih, b_hh = weights[4 * at : 4 * at + 4]
            output, (h, c) = _over_time(
                x @ w_ih.T + b_ih, (h_0[at], c_0[at]), _lstm_step(w_hh, b_hh), reverse=side == 1
            )
            sides.append(output)
            last_h.append(h)
            last_c.append(c)
        x = torch.cat(sides, 2)
    return {"output": x, "state h": torch.stack(last_h), "state c": torch.stack(last_c)}


def bilstm(inputs: Sequence[Any], weights: Sequence[Tensor]) -> Named:
    """Layers of LSTM in two directions."""
    return lstm(inputs, weights, directions=2)


def lstm_states(inputs: Sequence[Any], weights: Sequence[Tensor]) -> Named:
    """The last states of an LSTM, without its outputs."""
    found = lstm(inputs, weights)
    return {"state h": found["state h"], "state c": found["state c"]}


def vl_lstm(inputs: Sequence[Any], weights: Sequence[Tensor]) -> Named:
    """An LSTM over sequences of different lengths: padded, with the states frozen past each end."""
    *sequences, h_0, c_0 = inputs
    lengths = torch.tensor([len(sequence) for sequence in sequences], device=h_0.device)
    x = torch.nn.utils.rnn.pad_sequence(sequences)  # (longest, B, I)
    last_h, last_c = [], []
    for layer in range(len(weights) // 4):
        w_ih, w_hh, b_ih, b_hh = weights[4 * layer : 4 * layer + 4]
        step = _lstm_step(w_hh, b_hh)
        h, c = h_0[layer], c_0[layer]
        outputs = []
        for t, x_gates in enumerate(x @ w_ih.T + b_ih):
            going_on = (lengths > t).unsqueeze(1)  # (B, 1)
            h_next, c_next = step(x_gates, (h, c))
            h, c = torch.where(going_on, h_next, h), torch.where(going_on, c_next, c)
            outputs.append(torch.where(going_on, h, torch.zeros_like(h)))
        x = torch.stack(outputs)
        last_h.append(h)
        last_c.append(c)
    return {"output": x, "state h": torch.stack(last_h), "state c": torch.stack(last_c)}


def _normed(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    mean = x.mean(1, keepdim=True)
    variance = ((x - mean) ** 2).mean(1, keepdim=True)
    return (x - mean) / (variance + epsilon).sqrt() * weight + bias


def lstm_layernorm(inputs: Sequence[Any], weights: Sequence[Tensor], epsilon: float = EPSILON) -> Named:
    """Layers of LSTM with layer norm on both gate inputs and on the cell; eight weights a layer."""
    x, h_0, c_0 = inputs
    last_h, last_c = [], []
    for layer in range(len(weights) // 8):
        w_ih, w_hh, *norms = weights[8 * layer : 8 * layer + 8]
        (x_w, x_b), (h_w, h_b), (c_w, c_b) = norms[0:2], norms[2:4], norms[4:6]
        h, c = h_0[layer], c_0[layer]
        outputs = []
        for x_gates in x @ w_ih.T:
            gates = _normed(x_gates, x_w, x_b, epsilon) + _normed(h @ w_hh.T, h_w, h_b, epsilon)
            i, f, g, o = gates.chunk(4, 1)
            c = _normed(f.sigmoid() * c + i.sigmoid() * g.tanh(), c_w, c_b, epsilon)
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        x = torch.stack(outputs)
        last_h.append(h)
        last_c.append(c)
    return {"output": x, "state h": torch.stack(last_h), "state c": torch.stack(last_c)}


def lstm_layernorm_decomposed(inputs: Sequence[Any], weights: Sequence[Tensor]) -> Named:
    """The same without an epsilon."""
    return lstm_layernorm(inputs, weights, epsilon=0.0)


def layernorm_bound(inputs: Sequence[Any], weights: Sequence[Tensor]) -> Named:
    """An LSTM whose last cell state is then normed once for each step; the other norms leave nothing."""
    found = lstm(inputs, weights[:4])
    c = found["state c"][0]
    for _ in range(len(inputs[0])):
        c = _normed(c, weights[-2], weights[-1], EPSILON)
    return {**found, "state c": c.unsqueeze(0)}


def mi_lstm(inputs: Sequence[Any], weights: Sequence[Tensor]) -> Named:
    """One layer of LSTM with multiplicative integration (arXiv 1606.06630)."""
    x, h_0, c_0 = inputs
    w_ih, w_hh, alpha, beta_h, beta_x, bias = weights

    def step(wx: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        h, c = states
        uh = h @ w_hh.T
        return _lstm_states(uh * (alpha * wx + beta_h) + beta_x * wx + bias, c)

    output, (h, c) = _over_time(x @ w_ih.T, (h_0[0], c_0[0]), step)
    return {"output": output, "state h": h.unsqueeze(0), "state c": c.unsqueeze(0)}


def _one_state(inputs: Sequence[Any], weights: Sequence[Tensor], make_step: Callable[..., Step]) -> Named:
    x, h_0 = inputs
    last = []
    for layer in range(len(weights) // 4):
        w_ih, w_hh, b_ih, b_hh = weights[4 * layer : 4 * layer + 4]
        x, (h,) = _over_time(x @ w_ih.T + b_ih, (h_0[layer],), make_step(w_hh, b_hh))
        last.append(h)
    return {"output": x, "state h": torch.stack(last)}


def gru(inputs: Sequence[Any], weights: Sequence[Tensor]) -> Named:
    """Layers of GRU, the reset gate after the hidden product."""

    def make_step(w_hh: Tensor, b_hh: Tensor) -> Step:
        def step(x_gates: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            (h,) = states
            size = h.size(1)
            h_gates = h @ w_hh.T + b_hh
            r, z = (
                (x_gates[:, k * size : (k + 1) * size] + h_gates[:, k * size : (k + 1) * size]).sigmoid()
                for k in range(2)
            )
            n = (x_gates[:, 2 * size :] + r * h_gates[:, 2 * size :]).tanh()
            return ((1 - z) * n + z * h,)

        return step

    return _one_state(inputs, weights, make_step)


def _plain(activation: Callable[[Tensor], Tensor]) -> Callable[..., Step]:
    def make_step(w_hh: Tensor, b_hh: Tensor) -> Step:
        def step(x_gates: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (activation(x_gates + states[0] @ w_hh.T + b_hh),)

        return step

    return make_step


def rnn_relu(inputs: Sequence[Any], weights: Sequence[Tensor]) -> Named:
    """Layers of a plain RNN with relu."""
    return _one_state(inputs, weights, _plain(lambda x: x.clamp(min=0)))


def distance_to_kink(inputs: Sequence[Any], weights: Sequence[Tensor]) -> Tensor:
    """How near to zero, where its slope jumps, a relu's input comes in each sequence: (B,)."""
    nearest: list[Tensor] = []

    def activation(x: Tensor) -> Tensor:
        nearest.append(x.abs().amin(1))
        return x.clamp(min=0)

    _one_state(inputs, weights, _plain(activation))
    return torch.stack(nearest).amin(0)


def rnn_tanh(inputs: Sequence[Any], weights: Sequence[Tensor]) -> Named:
    """Layers of a plain RNN with tanh."""
    return _one_state(inputs, weights, _plain(torch.tanh))


REFERENCES: dict[str, Reference] = {
    "lstm": lstm,
    "lstm_dropout": lstm,  # with the dropout at zero
    "lstm_states": lstm_states,
    "bilstm": bilstm,
    "vl_lstm": vl_lstm,
    "lstm_layernorm": lstm_layernorm,
    "lstm_layernorm_decomposed": lstm_layernorm_decomposed,
    "layernorm_bound": layernorm_bound,
    "mi_lstm": mi_lstm,
    "gru": gru,
    "rnn_relu": rnn_relu,
    "rnn_tanh": rnn_tanh,
}
