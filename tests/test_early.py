"""CUDA is started beside the import of torch, and where there is none nothing happens."""

from __future__ import annotations

import pytest

from fastrnns.measure import early


def test_a_machine_without_a_driver_is_left_for_torch_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "DRIVER", "libno-such-driver.so.1")
    thread = early.start_cuda(0)
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.cuda
def test_the_context_that_was_started_early_is_the_one_that_torch_uses() -> None:
    early.start_cuda(0).join(60)
    import torch

    assert torch.ones(2, device="cuda:0").sum().item() == 2
