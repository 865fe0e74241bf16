"""FusedLSTM: nn.LSTM's parameters and call, run by the persistent kernels, with gradients."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from fastrnns.fused import launch
from fastrnns.fused.plan import Plan, choose

DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16"}
# What an interpreted run pretends to have.
INTERPRETED_PROCESSORS = 132
# The matrix instructions and the shared memory that the plans count on.
CAPABILITY = (9, 0)


def _dense(gradient: Tensor | None) -> Tensor | None:
    return None if gradient is None else gradient.contiguous()


class _Layer(torch.autograd.Function):
    """One layer. Its input is (rows, I): the rows of all steps, one step after another."""

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
        plan: Plan,
        precision: launch.Precision,
        train: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        with launch.matmul_precision(precision.tf32):
            gates = torch.mm(x, w_ih.t()) if b_ih is None else torch.addmm(b_ih, x, w_ih.t())  # (rows, 4H)
        y, h_n, c_n, saved = launch.forward(gates, w_hh, b_hh, h0, c0, steps, plan, precision, train)
        if saved is not None:
            ctx.save_for_backward(x, w_ih, w_hh, c0, saved.gates, saved.cells, saved.h_prev)
            ctx.how = (steps, plan, precision)
            ctx.set_materialize_grads(False)
        return y, h_n, c_n

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, dh_n: Tensor | None, dc_n: Tensor | None) -> Any:
        x, w_ih, w_hh, c0, gates, cells, h_prev = ctx.saved_tensors
        steps, plan, precision = ctx.how
        d_gates, d_bias, dh_0, dc_0 = launch.backward(
            launch.Saved(gates, cells, h_prev), w_hh, c0,
            _dense(dy), _dense(dh_n), _dense(dc_n), steps, plan, precision,
        )  # fmt: skip
        need = ctx.needs_input_grad
        columns = d_gates.t()
        with launch.matmul_precision(precision.tf32):
            dx = torch.mm(d_gates, w_ih) if need[0] else None
            dw_ih = torch.mm(columns, x) if need[1] else None
            dw_hh = torch.mm(columns, h_prev) if need[2] else None
        db_ih = db_hh = None
        if need[3] or need[4]:
            both = d_bias.expand(2, *d_bias.shape).sum(1).to(gates.dtype)
            db_ih, db_hh = both[0], both[1]
        return (
            dx, dw_ih, dw_hh, db_ih if need[3] else None, db_hh if need[4] else None,
            dh_0.to(gates.dtype) if need[5] else None, dc_0.to(gates.dtype) if need[6] else None,
            None, None, None, None,
        )  # fmt: skip


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

    `precision` is for fp32 parameters: "fp32" (split operands, as accurate as fp32) or "tf32"; 16-bit parameters run at
    their own type. After each call `backend` is "fused (PRECISION)" or "fallback: REASON".
    """

    def __init__(self, *args: Any, precision: str = "fp32", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if precision not in {"fp32", "tf32"}:
            msg = f"precision is fp32 or tf32, got {precision!r}"
            raise ValueError(msg)
        self.precision = precision
        self.backend = "not run yet"
        self._plans: dict[Any, tuple[Plan, launch.Precision] | str] = {}

    @classmethod
    def from_lstm(cls, lstm: nn.LSTM, precision: str = "fp32") -> FusedLSTM:
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

    def unfusable(self, x: Tensor, batch: int) -> str | None:
        """Why this input cannot run fused, or None."""
        planned = self._plan(x, batch)
        return planned if isinstance(planned, str) else None

    def _plan(self, x: Tensor, batch: int) -> tuple[Plan, launch.Precision] | str:
        key = (x.dtype, x.device, batch, self.training and self.dropout > 0.0)
        planned = self._plans.get(key)
        if planned is None:
            planned = self._plans[key] = self._make_plan(x, batch)
        return planned

    def _make_plan(self, x: Tensor, batch: int) -> tuple[Plan, launch.Precision] | str:
        if self.bidirectional:
            return "bidirectional layers are not fused"
        if self.proj_size:
            return "projections are not fused"
        if self.dropout and self.training and self.num_layers > 1:
            return "dropout between layers is not fused"
        if self.weight_hh_l0.dtype != x.dtype:
            return f"the input is {x.dtype} and the parameters are {self.weight_hh_l0.dtype}"
        name = self.precision if x.dtype == torch.float32 else DTYPES.get(x.dtype)
        if name is None:
            return f"{x.dtype} is not fused"
        if launch.INTERPRETED:
            count = INTERPRETED_PROCESSORS
        elif x.device.type != "cuda":
            return f"the kernels need a CUDA device, not {x.device.type}"
        elif torch.cuda.get_device_capability(x.device) < CAPABILITY:
            return "the kernels need compute capability 9.0 or newer"
        else:
            count = launch.processors(x.get_device())
        precision = launch.PRECISIONS[name]
        plan = choose(self.hidden_size, batch, precision.parts, count)
        return plan if isinstance(plan, str) else (plan, precision)

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> Any:
        """As nn.LSTM: (output, (h_n, c_n)); `input` is a tensor or a PackedSequence."""
        packed = isinstance(input, PackedSequence)
        if not packed and (input.dim() != 3 or 0 in input.shape):  # (steps, batch, features)
            planned: tuple[Plan, launch.Precision] | str = (
                "inputs without a batch, or empty ones, are not fused"
            )
            batch = 0
        else:
            batch = int(input.batch_sizes[0]) if packed else input.shape[0 if self.batch_first else 1]
            planned = self._plan(input.data if packed else input, batch)
        if isinstance(planned, str):
            self.backend = f"fallback: {planned}"
            return super().forward(input, hx)
        plan, precision = planned
        if packed:
            rows = input.data
            steps = _packed_steps(tuple(input.batch_sizes.tolist()), rows.device)
            if hx is not None:
                hx = self.permute_hidden(hx, input.sorted_indices)
        else:
            dense = input.transpose(0, 1) if self.batch_first else input
            steps = launch.Steps(dense.shape[0], batch, dense.shape[0] * batch)
            rows = dense.reshape(steps.rows, dense.shape[2])
        self.check_forward_args(
            rows if packed else dense, hx or self._no_state(batch), input.batch_sizes if packed else None
        )
        y, h_n, c_n = self._layers(rows, hx, steps, plan, precision)
        self.backend = f"fused ({precision.name})"
        if packed:
            out = PackedSequence(y, input.batch_sizes, input.sorted_indices, input.unsorted_indices)
            return out, self.permute_hidden((h_n, c_n), input.unsorted_indices)
        output = y.view(steps.length, batch, self.hidden_size)
        return (output.transpose(0, 1) if self.batch_first else output), (h_n, c_n)

    def _no_state(self, batch: int) -> tuple[Tensor, Tensor]:
        shape = torch.empty((self.num_layers, batch, self.hidden_size), device="meta")
        return shape, shape

    def _layers(
        self,
        rows: Tensor,
        hx: tuple[Tensor, Tensor] | None,
        steps: launch.Steps,
        plan: Plan,
        precision: launch.Precision,
    ) -> tuple[Tensor, Tensor, Tensor]:
        weights = [weight for weight in self._flat_weights if isinstance(weight, Tensor)]
        each = 4 if self.bias else 2
        states = () if hx is None else hx
        train = torch.is_grad_enabled() and any(t.requires_grad for t in (rows, *weights, *states))
        h_n, c_n = [], []
        for layer in range(self.num_layers):
            w_ih, w_hh, *biases = weights[layer * each : (layer + 1) * each]
            b_ih, b_hh = biases or (None, None)
            h0, c0 = (None, None) if hx is None else (hx[0][layer].contiguous(), hx[1][layer].contiguous())
            rows, h, c = _Layer.apply(rows, w_ih, w_hh, b_ih, b_hh, h0, c0, steps, plan, precision, train)
            h_n.append(h)
            c_n.append(c)
        if self.num_layers == 1:
            return rows, h_n[0].unsqueeze(0), c_n[0].unsqueeze(0)
        return rows, torch.stack(h_n), torch.stack(c_n)
