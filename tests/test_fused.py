"""The fused LSTM beside torch.nn.LSTM in float64, its kernels run by Triton's interpreter on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed here")

ROOT = Path(__file__).parent.parent
# Sizes that are no multiple of a tile, length 1, batch 1, several layers, packed sequences, no biases.
CASES = [
    "(3, 2, 5, 16, 1), 'float32', 'fp32', True, True, None, 2e-6",
    "(3, 2, 5, 17, 1), 'float32', 'fp32', False, True, None, 2e-6",
    "(2, 18, 4, 40, 2), 'float32', 'fp32', True, True, None, 2e-6",
    "(1, 1, 1, 1, 1), 'float32', 'fp32', False, True, None, 2e-6",
    "(4, 3, 3, 20, 1), 'float32', 'fp32', True, False, None, 2e-6",
    "(5, 6, 3, 20, 1), 'float32', 'fp32', True, True, [5, 1, 3, 5, 2, 4], 2e-6",
    "(3, 3, 4, 33, 1), 'float32', 'tf32', True, True, None, 2e-3",
    "(3, 3, 4, 33, 1), 'bfloat16', 'fp32', True, True, None, 3e-2",
    "(3, 3, 4, 33, 1), 'float16', 'fp32', True, True, None, 4e-3",
]
SCRIPT = """
import torch
from torch import nn
from fastrnns.fused.lstm import FusedLSTM

torch.manual_seed(0)
torch.set_num_threads(1)


def check(sizes, dtype, precision, state, bias, lengths, allowed):
    steps, batch, inputs, hidden, layers = sizes
    dtype = getattr(torch, dtype)
    control = nn.LSTM(inputs, hidden, layers, bias=bias).double()
    for parameter in control.parameters():
        parameter.data = parameter.data.to(dtype).double()
    fused = FusedLSTM(inputs, hidden, layers, bias=bias, precision=precision).to(dtype)
    fused.load_state_dict(control.state_dict())
    x = torch.randn(steps, batch, inputs).to(dtype)
    hx = [torch.randn(layers, batch, hidden).to(dtype) for _ in range(2)] if state else None

    def run(model, to):
        given = x.to(to).requires_grad_()
        states = None if hx is None else tuple(h.to(to).requires_grad_() for h in hx)
        packed = given if lengths is None else nn.utils.rnn.pack_padded_sequence(given, lengths, enforce_sorted=False)
        y, (h, c) = model(packed, states)
        if lengths is not None:
            y, _ = nn.utils.rnn.pad_packed_sequence(y, total_length=steps)
        draw = torch.Generator().manual_seed(1)
        loss = sum((t * torch.randn(t.shape, generator=draw, dtype=torch.float64).to(to)).sum() for t in (y, h, c))
        loss.backward()
        found = {"y": y, "h": h, "c": c, "dx": given.grad}
        found |= {} if states is None else {"dh0": states[0].grad, "dc0": states[1].grad}
        return found | {name: p.grad for name, p in model.named_parameters()}

    want, got = run(control, torch.float64), run(fused, dtype)
    assert fused.backend.startswith("fused"), fused.backend
    for name, value in want.items():
        assert got[name] is not None and got[name].shape == value.shape, name
        assert torch.isfinite(got[name]).all(), name
        error = ((got[name].double() - value).norm() / value.norm().clamp_min(1e-30)).item()
        assert error <= allowed, f"{name}: relative error {error:.2e}, allowed {allowed:.0e}"
"""


@pytest.mark.parametrize("case", CASES)
def test_the_fused_lstm_agrees_with_float64_in_outputs_states_and_gradients(case: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{SCRIPT}\ncheck({case})"],
        cwd=ROOT, env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


OTHERS = """
import torch
from torch import nn
from fastrnns.fused.lstm import FusedLSTM

torch.manual_seed(0)
lstm = nn.LSTM(3, 4)
fused = FusedLSTM.from_lstm(lstm)
assert [a is b for a, b in zip(lstm.parameters(), fused.parameters(), strict=True)] == [True] * 4
x = torch.randn(2, 2, 3, requires_grad=True)
(first,) = torch.autograd.grad(fused(x)[0].square().sum(), x, create_graph=True)
try:
    first.sum().backward()
except RuntimeError as error:
    assert "once_differentiable" in str(error), error
else:
    raise AssertionError("a second derivative was made up")
with torch.autocast("cpu", dtype=torch.bfloat16):
    try:  # nn.LSTM itself runs or refuses, as it does without us
        fused(x)
    except RuntimeError:
        pass
assert fused.backend == "fallback: autocast is not fused"
wide = FusedLSTM(3, 132 * 16 + 1)
assert "2113" in wide.backend_for(x, 2)
both = FusedLSTM(3, 4, bidirectional=True)
assert both(x)[0].shape == (2, 2, 8)
assert both.backend == "fallback: bidirectional layers are not fused"
for wrong in (torch.randn(2, 2, 5), ):
    try:
        fused(wrong)
    except RuntimeError as error:
        assert "Expected 3, got 5" in str(error)
    else:
        raise AssertionError("a wrong input was taken")
try:
    fused(x, (torch.randn(1, 3, 4), torch.randn(1, 2, 4)))
except RuntimeError as error:
    assert "hidden[0]" in str(error)
else:
    raise AssertionError("a wrong state was taken")
first = FusedLSTM(3, 4, batch_first=True)
assert torch.allclose(first(x.transpose(0, 1))[0], nn.LSTM.forward(first, x.transpose(0, 1))[0], atol=1e-5)
"""


def test_what_is_not_fused_falls_back_by_name_and_what_is_wrong_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OTHERS],
        cwd=ROOT, env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
