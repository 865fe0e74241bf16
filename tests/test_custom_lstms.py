"""Claims about the scripted LSTM modules: right against torch.nn.LSTM, and silent at import."""

import subprocess
import sys
from pathlib import Path

import pytest

from fastrnns import custom_lstms
from fastrnns.errors import HarnessError

ROOT = Path(__file__).parent.parent


def test_upstream_fault_14_importing_runs_nothing():
    code = (
        "import torch\n"
        "def used(*a, **k): raise SystemExit('the import ran something')\n"
        "torch.jit.script = torch.randn = torch.nn.LSTM.forward = used\n"
        "import fastrnns.custom_lstms, fastrnns.cells, fastrnns.loops, fastrnns.factory\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_scripted_stack_agrees_with_nn_lstm_to_upstreams_1e_5(num_layers, bidirectional):
    worst = custom_lstms.check_against_nn_lstm(num_layers=num_layers, bidirectional=bidirectional)
    assert worst <= 1e-5


def test_the_check_fails_when_the_maths_is_wrong(monkeypatch):
    import torch

    def wrong(x, h, c, *weights):
        return h * float("nan"), c

    monkeypatch.setattr(custom_lstms, "script", lambda module: module)
    monkeypatch.setattr(custom_lstms, "lstm_cell", wrong)
    with pytest.raises(HarnessError, match=r"differs from torch\.nn\.LSTM by nan"), torch.no_grad():
        custom_lstms.check_against_nn_lstm()


def test_dropout_acts_while_training_only():
    custom_lstms.check_dropout()
