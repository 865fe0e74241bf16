"""FusedLSTM: nn.LSTM's parameters and call, run by the persistent kernels, with gradients."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence

from fastrnns.fused import launch, products
from fastrnns.fused.kept import INTERPRETED
from fastrnns.fused.plan import choose

DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16"}
# What an interpreted run pretends to have.
INTERPRETED_PROCESSORS = 132
# The matrix instructions and the shared memory that the plans count on.
CAPABILITY = (9, 0)


class _Layer(torch.autograd.Function):
    """One layer. Its input is (steps, batch, I), or (rows, I) where packed; its output likewise."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None,
        b_hh: Tensor | None,
        h0: Tensor | None,
        c0: Tensor | None,
        steps: launch.Steps,
        layer: launch.Layer,
        train: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows = x.view(steps.rows, -1)
        gates = products.input_gates(rows, w_ih, layer.precision)  # (rows, 4H)
        y, h_n, c_n, saved = layer.forward(gates, w_hh, b_ih, b_hh, h0, c0, steps, train)
        if saved is not None:
            ctx.save_for_backward(rows, w_ih, w_hh, c0, saved.gates, saved.cells, saved.h_prev)
            ctx.how = (steps, layer, x.shape)
            ctx.set_materialize_grads(False)
        return (y.view(*x.shape[:-1], -1) if x.dim() == 3 else y), h_n, c_n

    @staticmethod
    @once_differentiable  # a second derivative is refused, not wrong
    def backward(ctx: Any, dy: Tensor | None, dh_n: Tensor | None, dc_n: Tensor | None) -> Any:
        rows, w_ih, w_hh, c0, gates, cells, h_prev = ctx.saved_tensors
        steps, layer, shape = ctx.how
        need = ctx.needs_input_grad
        d_gates, d_bias, dh_0, dc_0 = layer.backward(
            launch.Saved(gates, cells, h_prev), w_hh, c0,
            launch.aligned(dy), launch.aligned(dh_n), launch.aligned(dc_n), steps, need[5], need[6],
        )  # fmt: skip
        dx, dw_ih, dw_hh = products.gradients(d_gates, rows, h_prev, w_ih, layer, need[0], need[1], need[2])
        db_ih = db_hh = None
        if need[3] or need[4]:
            db_ih, db_hh = layer.bias_gradients(d_bias, gates.dtype)
        return (
            None if dx is None else dx.view(shape), dw_ih, dw_hh,
            db_ih if need[3] else None, db_hh if need[4] else None,
            dh_0.to(gates.dtype) if need[5] else None, dc_0.to(gates.dtype) if need[6] else None,
            None, None, None,
        )  # fmt: skip


def _on_device(tensor: Tensor) -> AbstractContextManager[None]:
    """Kernels are launched on the current device: make it the tensor's."""
    if tensor.device.type != "cuda" or torch.cuda.current_device() == tensor.get_device():
        return nullcontext()
    return torch.cuda.device(tensor.device)


@lru_cache(maxsize=32)
def _packed_steps(batch_sizes: tuple[int, ...], device: torch.device) -> launch.Steps:
    """The time axis of packed rows: rows of step t begin at offsets[t], and row b lives for lengths[b] steps."""
    sizes = torch.tensor(batch_sizes, dtype=torch.int32)
    offsets = torch.cumsum(sizes, 0, dtype=torch.int32) - sizes
    rows = torch.arange(batch_sizes[0])
    lengths = (sizes[None, :] > rows[:, None]).sum(1, dtype=torch.int32)
    return launch.Steps(
        len(batch_sizes), batch_sizes[0], sum(batch_sizes), lengths.to(device), offsets.to(device)
    )


class FusedLSTM(nn.LSTM):
    """nn.LSTM by the persistent kernels; what they cannot run goes to nn.LSTM, and `backend` says so.

    `precision` is for fp32 parameters: "fp32" (split operands, as accurate as fp32), "tf32", or None for what
    `torch.backends.cudnn.allow_tf32` says at each call, which nn.LSTM follows too; 16-bit parameters run at their own
    type. After each call `backend` is "fused (PRECISION)" or "fallback: REASON".
    """

    def __init__(self, *args: Any, precision: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if precision not in {"fp32", "tf32", None}:
            msg = f"precision is fp32, tf32 or None, got {precision!r}"
            raise ValueError(msg)
        self.precision = precision
        self.backend = "not run yet"
        self._planned: dict[Any, launch.Layer | str] = {}

    @classmethod
    def from_lstm(cls, lstm: nn.LSTM, precision: str | None = None) -> FusedLSTM:
        """A FusedLSTM that shares an nn.LSTM's parameters."""
        fused = cls(
            lstm.input_size, lstm.hidden_size, lstm.num_layers, lstm.bias, lstm.batch_first, lstm.dropout,
            lstm.bidirectional, lstm.proj_size, precision=precision, device="meta",
        )  # fmt: skip
        for name, parameter in lstm.named_parameters():
            setattr(fused, name, parameter)
        fused._init_flat_weights()
        fused.training = lstm.training
        return fused

    def backend_for(self, x: Tensor, batch: int, packed: bool = False) -> str:
        """What a call with such an input and batch size would run: `backend` before there was a call."""
        planned = self._plan(x, batch, packed)
        return f"fallback: {planned}" if isinstance(planned, str) else planned.name

    def _plan(self, x: Tensor, batch: int, packed: bool) -> launch.Layer | str:
        precision = DTYPES.get(x.dtype)
        if x.dtype == torch.float32:
            precision = self.precision or ("tf32" if torch.backends.cudnn.allow_tf32 else "fp32")
        key = (x.dtype, x.device, batch, packed, self.training, precision)
        planned = self._planned.get(key)
        if planned is None:
            planned = self._planned[key] = self._make_plan(x, batch, packed, precision)
        return planned

    def _make_plan(self, x: Tensor, batch: int, packed: bool, name: str | None) -> launch.Layer | str:
        if self.bidirectional:
            return "bidirectional layers are not fused"
        if self.proj_size:
            return "projections are not fused"
        if self.dropout and self.training and self.num_layers > 1:
            return "dropout between layers is not fused"
        if self.weight_hh_l0.dtype != x.dtype:
            return f"the input is {x.dtype} and the parameters are {self.weight_hh_l0.dtype}"
        if name is None:
            return f"{x.dtype} is not fused"
        if INTERPRETED:
            count = INTERPRETED_PROCESSORS
        elif x.device.type != "cuda":
            return f"the kernels need a CUDA device, not {x.device.type}"
        elif torch.cuda.get_device_capability(x.device) < CAPABILITY:
            return "the kernels need compute capability 9.0 or newer"
        else:
            count = launch.processors(x.get_device())
        precision = launch.PRECISIONS[name]
        plan = choose(self.hidden_size, batch, precision.parts, precision.scaled, count)
        return (
            plan if isinstance(plan, str) else launch.Layer(self.hidden_size, batch, plan, precision, packed)
        )

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> Any:
        """As nn.LSTM: (output, (h_n, c_n)); `input` is a tensor or a PackedSequence."""
        packed = isinstance(input, PackedSequence)
        rows = input.data if packed else input
        planned: launch.Layer | str
        if packed:
            planned = self._plan(rows, int(input.batch_sizes[0]), True)
        elif input.dim() != 3 or 0 in input.shape:  # (steps, batch, features)
            planned = "inputs without a batch, or empty ones, are not fused"
        elif torch.is_autocast_enabled(input.device.type):
            planned = "autocast is not fused"
        else:
            planned = self._plan(input, input.shape[0 if self.batch_first else 1], False)
        if isinstance(planned, str):
            self.backend = f"fallback: {planned}"
            return super().forward(input, hx)
        if self.backend != planned.name:  # assigning to a module costs microseconds
            self.backend = planned.name
        batch = planned.batch
        if packed:
            steps = _packed_steps(tuple(input.batch_sizes.tolist()), rows.device)
            if hx is not None:
                hx = self.permute_hidden(hx, input.sorted_indices)
        else:
            rows = (input.transpose(0, 1) if self.batch_first else input).contiguous()
            length = rows.shape[0]
            steps = launch.Steps(length, batch, length * batch)
        self._check(rows, hx, batch)
        with _on_device(rows):
            y, h_n, c_n = self._layers(rows, hx, steps, planned)
        if packed:
            out = PackedSequence(y, input.batch_sizes, input.sorted_indices, input.unsorted_indices)
            return out, self.permute_hidden((h_n, c_n), input.unsorted_indices)
        return (y.transpose(0, 1) if self.batch_first else y), (h_n, c_n)

    def _check(self, rows: Tensor, hx: tuple[Tensor, Tensor] | None, batch: int) -> None:
        """nn.LSTM's own refusals of wrong sizes, in its words, where something is wrong."""
        wanted = (self.num_layers, batch, self.hidden_size)
        if rows.shape[-1] != self.input_size:
            msg = f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {rows.shape[-1]}"
            raise RuntimeError(msg)
        for name, state in zip(("hidden[0]", "hidden[1]"), hx or (), strict=False):
            if tuple(state.shape) != wanted:
                msg = f"Expected {name} size {wanted}, got {list(state.shape)}"
                raise RuntimeError(msg)

    def _layers(
        self, rows: Tensor, hx: tuple[Tensor, Tensor] | None, steps: launch.Steps, planned: launch.Layer
    ) -> tuple[Tensor, Tensor, Tensor]:
        weights = [weight for weight in self._flat_weights if isinstance(weight, Tensor)]
        each = 4 if self.bias else 2
        states = () if hx is None else hx
        train = torch.is_grad_enabled() and any(t.requires_grad for t in (rows, *weights, *states))
        if self.num_layers == 1:
            h0, c0 = hx or (None, None)
            return self._layer(rows, weights, h0, c0, steps, planned, train)
        h_n, c_n = [], []
        for layer in range(self.num_layers):
            h0, c0 = (None, None) if hx is None else (s[layer : layer + 1] for s in hx)
            rows, h, c = self._layer(
                rows, weights[layer * each : (layer + 1) * each], h0, c0, steps, planned, train
            )
            h_n.append(h)
            c_n.append(c)
        return rows, torch.cat(h_n), torch.cat(c_n)

    @staticmethod
    def _layer(
        rows: Tensor,
        weights: list[Tensor],
        h0: Tensor | None,
        c0: Tensor | None,
        steps: launch.Steps,
        planned: launch.Layer,
        train: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        aligned = launch.aligned
        w_ih, w_hh, *biases = weights
        b_ih, b_hh = biases or (None, None)
        found: tuple[Tensor, Tensor, Tensor] = _Layer.apply(
            rows,
            w_ih,
            aligned(w_hh),
            aligned(b_ih),
            aligned(b_hh),
            aligned(h0),
            aligned(c0),
            steps,
            planned,
            train,
        )
        return found
