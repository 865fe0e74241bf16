"""The pytest route: forward and backward of each model under pytest-benchmark, in bench's measured region.

    pytest fastrnns/test_bench.py --rnns cudnn jit --fuser te --benchmark-json out.json
    python -m fastrnns.archive import out.json --unit s

The forward region is the call of `forward` alone; the backward region is the call of `backward` alone, on a graph that
was made outside of it. On a GPU both end with the wait for the device, for the clock is the host's; bench uses events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fastrnns.measure.clock import clock_for
from fastrnns.runner import Model

pytest.importorskip("pytest_benchmark", reason="the pytest route needs pytest-benchmark; pip install it")


def settled(work: Callable[..., Any], device: Any) -> Callable[..., Any]:
    """The same work, over when the device is done with it."""
    if device.type != "cuda":
        return work
    settle = clock_for(device).settle

    def run(*arguments: Any) -> Any:
        made = work(*arguments)
        settle()
        return made

    return run


def note(benchmark: Any, model: Model, phase: str, device: Any) -> None:
    """What the JSON has to say for it to be imported."""
    benchmark.group = "fastrnns"
    benchmark.extra_info |= {
        "model": model.name,
        "family": model.family,
        "phase": phase,
        "device": str(device),
    }


@pytest.mark.timeout(0)  # a slow model takes what it takes
def test_forward(
    model: Model, measured: Any, device: Any, benchmark: Any, request: pytest.FixtureRequest
) -> None:
    """Time the forward; as in bench, the backward of the one before it lies between two of them."""
    note(benchmark, model, "forward", device)
    outputs: list[Any] = []  # here, and not returned: pytest-benchmark would hold them over the next round

    def backward() -> None:
        if outputs and measured.backward is not None:
            measured.backward(*gradients(measured, outputs.pop()))
            forget(measured)
        outputs.clear()
        clock_for(device).settle()

    benchmark.pedantic(
        settled(lambda: outputs.append(measured.forward(*measured.inputs)), device),
        setup=backward,
        rounds=request.config.getoption("--rounds"),
        warmup_rounds=request.config.getoption("--warmup-rounds"),
    )


@pytest.mark.timeout(0)
def test_backward(
    model: Model, measured: Any, device: Any, benchmark: Any, request: pytest.FixtureRequest
) -> None:
    """Time the backward; each round has a graph and a gradient of its own, made outside of the region."""
    note(benchmark, model, "backward", device)

    def graph() -> tuple[Any, dict[str, Any]]:
        forget(measured)
        made = gradients(measured, measured.forward(*measured.inputs))
        clock_for(device).settle()
        return tuple(made), {}

    benchmark.pedantic(
        settled(measured.backward, device),
        setup=graph,
        rounds=request.config.getoption("--rounds"),
        warmup_rounds=request.config.getoption("--warmup-rounds"),
    )


def gradients(measured: Any, outputs: Any) -> Any:
    """The arguments of backward."""
    return outputs if measured.backward_setup is None else measured.backward_setup(outputs)


def forget(measured: Any) -> None:
    """Drop the gradients, so that none accumulates."""
    for parameter in measured.params:
        parameter.grad = None
