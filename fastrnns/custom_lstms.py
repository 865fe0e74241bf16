"""LSTM layers, stacks and directions as modules that TorchScript can compile, and their checks.

Nothing runs at import. States are those of torch.nn.LSTM: h and c are (L*D, B, H), L layers of D directions.
"""

# No `from __future__ import annotations`: TorchScript reads these annotations.

from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch import Tensor, nn

from fastrnns.cells import layer_norm, layer_norm_decomposed, lstm_cell
from fastrnns.errors import HarnessError

CHECK_TOLERANCE = 1e-5  # upstream's, of the checks against torch.nn.LSTM in fp32


class LSTMCell(nn.Module):
    """One step of an LSTM with its own weights."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        super().__init__()
        w_ih, w_hh, b_ih, b_hh = weights
        self.weight_ih = nn.Parameter(w_ih.detach().clone())  # (4H, I)
        self.weight_hh = nn.Parameter(w_hh.detach().clone())  # (4H, H)
        self.bias_ih = nn.Parameter(b_ih.detach().clone())  # (4H,)
        self.bias_hh = nn.Parameter(b_hh.detach().clone())  # (4H,)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """One step: x (B, I); h, c (B, H)."""
        return lstm_cell(x, h, c, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)


class LayerNormLSTMCell(nn.Module):
    """One step of an LSTM with layer norm on both gate inputs and on the cell; the norms carry the biases."""

    decompose: Final[bool]

    def __init__(self, weights: Sequence[Tensor], *, decompose: bool = False) -> None:
        super().__init__()
        w_ih, w_hh = weights[:2]
        hidden = w_hh.size(1)
        self.decompose = decompose
        self.weight_ih = nn.Parameter(w_ih.detach().clone())  # (4H, I)
        self.weight_hh = nn.Parameter(w_hh.detach().clone())  # (4H, H)
        self.norm_ih_weight = nn.Parameter(torch.ones(4 * hidden))
        self.norm_ih_bias = nn.Parameter(torch.zeros(4 * hidden))
        self.norm_hh_weight = nn.Parameter(torch.ones(4 * hidden))
        self.norm_hh_bias = nn.Parameter(torch.zeros(4 * hidden))
        self.norm_c_weight = nn.Parameter(torch.ones(hidden))
        self.norm_c_bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """One step: x (B, I); h, c (B, H)."""
        from_x = torch.mm(x, self.weight_ih.t())  # (B, 4H)
        from_h = torch.mm(h, self.weight_hh.t())  # (B, 4H)
        if self.decompose:
            gates = layer_norm_decomposed(from_x, self.norm_ih_weight, self.norm_ih_bias)
            gates = gates + layer_norm_decomposed(from_h, self.norm_hh_weight, self.norm_hh_bias)
        else:
            gates = layer_norm(from_x, self.norm_ih_weight, self.norm_ih_bias)
            gates = gates + layer_norm(from_h, self.norm_hh_weight, self.norm_hh_bias)
        i, f, g, o = gates.chunk(4, 1)  # (B, H) each
        c_next = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        if self.decompose:
            c_next = layer_norm_decomposed(c_next, self.norm_c_weight, self.norm_c_bias)
        else:
            c_next = layer_norm(c_next, self.norm_c_weight, self.norm_c_bias)
        return torch.sigmoid(o) * torch.tanh(c_next), c_next


class LSTMLayer(nn.Module):
    """A cell over all steps of a sequence, forwards or backwards in time."""

    reverse: Final[bool]

    def __init__(self, cell: nn.Module, *, reverse: bool = False) -> None:
        super().__init__()
        self.cell = cell
        self.reverse = reverse

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All steps: x (T, B, I); h, c (B, H) to outputs (T, B, H) in the order of x, and the last states."""
        steps = x.unbind(0)
        count = len(steps)
        outputs: list[Tensor] = []
        for t in range(count):
            step = steps[count - 1 - t] if self.reverse else steps[t]
            h, c = self.cell(step, h, c)
            outputs.append(h)
        if self.reverse:
            outputs.reverse()
        return torch.stack(outputs), h, c


class LSTMStack(nn.Module):
    """Layers in one or two directions, with dropout between layers while training."""

    directions: Final[int]
    dropout: Final[float]

    def __init__(self, layers: Sequence[nn.Module], *, directions: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)  # layer 0 forward, layer 0 backward, layer 1 forward, ...
        self.directions = directions
        self.dropout = dropout

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """All layers: x (T, B, I); state h, c (L*D, B, H) to outputs (T, B, D*H) and the last states."""
        h_0, c_0 = state
        last_h: list[Tensor] = []
        last_c: list[Tensor] = []
        sides: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            if index % self.directions == 0 and index > 0:
                x = torch.cat(sides, 2)  # (T, B, D*H)
                sides.clear()
                if self.dropout > 0.0:
                    x = F.dropout(x, self.dropout, self.training)
            output, h, c = layer(x, h_0[index], c_0[index])
            sides.append(output)
            last_h.append(h)
            last_c.append(c)
        return torch.cat(sides, 2), (torch.stack(last_h), torch.stack(last_c))


def stack_from(lstm: nn.LSTM, *, dropout: float = 0.0) -> LSTMStack:
    """The stack of layers with the weights of a torch.nn.LSTM."""
    directions = 2 if lstm.bidirectional else 1
    layers = [
        LSTMLayer(LSTMCell(weights), reverse=index % directions == 1)
        for index, weights in enumerate(lstm.all_weights)
    ]
    return LSTMStack(layers, directions=directions, dropout=dropout)


def layer_norm_stack_from(lstm: nn.LSTM, *, decompose: bool = False) -> LSTMStack:
    """The stack of layer-norm LSTM layers with the matrices of a torch.nn.LSTM, whose biases are not used."""
    cells = [LayerNormLSTMCell(weights, decompose=decompose) for weights in lstm.all_weights]
    return LSTMStack([LSTMLayer(cell) for cell in cells])


def script(module: nn.Module) -> Any:
    """TorchScript's version of a module."""
    return torch.jit.script(module)


def check_against_nn_lstm(
    seq_length: int = 5,
    mini_batch: int = 2,
    input_size: int = 3,
    hidden_size: int = 7,
    num_layers: int = 1,
    *,
    bidirectional: bool = False,
    seed: int = 17,
) -> float:
    """Check a scripted stack against torch.nn.LSTM; the largest difference, or an error that names it."""
    generator = torch.Generator().manual_seed(seed)
    lstm = nn.LSTM(input_size, hidden_size, num_layers, bidirectional=bidirectional)
    states = num_layers * (2 if bidirectional else 1)
    x = torch.randn(seq_length, mini_batch, input_size, generator=generator)
    h = torch.randn(states, mini_batch, hidden_size, generator=generator)
    c = torch.randn(states, mini_batch, hidden_size, generator=generator)
    wanted, (wanted_h, wanted_c) = lstm(x, (h, c))
    output, (last_h, last_c) = script(stack_from(lstm))(x, (h, c))
    worst = 0.0
    for name, got, want in (
        ("output", output, wanted), ("state h", last_h, wanted_h), ("state c", last_c, wanted_c),
    ):  # fmt: skip
        if got.shape != want.shape:
            raise HarnessError(f"{name} is {tuple(got.shape)}; torch.nn.LSTM gives {tuple(want.shape)}")
        difference = float((got - want).detach().abs().max())
        if not difference <= CHECK_TOLERANCE:  # so that a NaN fails
            raise HarnessError(
                f"{name} differs from torch.nn.LSTM by {difference:g}, not {CHECK_TOLERANCE:g}"
            )
        worst = max(worst, difference)
    return worst


def check_dropout(seq_length: int = 4, mini_batch: int = 8, size: int = 64, dropout: float = 0.4) -> None:
    """Check that dropout acts between layers while training, and not when evaluating."""
    lstm = nn.LSTM(size, size, 2)
    stack = script(stack_from(lstm, dropout=dropout))
    x = torch.randn(seq_length, mini_batch, size)
    state = (torch.zeros(2, mini_batch, size), torch.zeros(2, mini_batch, size))
    if torch.equal(stack(x, state)[0], stack(x, state)[0]):
        raise HarnessError("dropout drops nothing while training")
    stack.eval()
    if not torch.allclose(stack(x, state)[0], lstm(x, state)[0], rtol=0, atol=CHECK_TOLERANCE):
        raise HarnessError("the stack differs from torch.nn.LSTM when evaluating, where dropout must not act")
