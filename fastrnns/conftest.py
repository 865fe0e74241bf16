"""Flags and fixtures of the pytest route: `pytest fastrnns/test_bench.py --fuser te --rnns cudnn jit`.

The same models, the same contexts and the same measured region as `fastrnns.bench`, in one process and with
pytest-benchmark's own report: what bench adds (fresh processes, the machine, the record) is not here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from fastrnns import options, runner, sizes
from fastrnns.errors import HarnessError

WARMUP, ROUNDS = 10, 100  # upstream's bench


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare upstream's flags of the pytest route, and the ones of bench that choose what runs."""
    group = parser.getgroup("fastrnns")
    group.addoption("--fuser", default="te", choices=options.FUSERS, help="TorchScript's fuser (default: te)")
    group.addoption("--executor", default=None, choices=options.EXECUTORS, help="TorchScript's executor")
    group.addoption("--rnns", nargs="+", metavar="NAME", help="recurrent models (default: bench's)")
    group.addoption("--cnns", nargs="+", metavar="NAME", help="convolutional models (default: bench's)")
    group.addoption("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    group.addoption("--tf32", default="off", choices=("on", "off"), help="default: off, as in bench")
    group.addoption("--rounds", type=int, default=ROUNDS, metavar="N", help="timed (default: 100)")
    group.addoption("--warmup-rounds", type=int, default=WARMUP, metavar="N", help="untimed (default: 10)")
    for name, default in sizes.Problem().as_dict().items():
        words = name.split("_")
        spelled = words[0] + "".join(word.title() for word in words[1:])
        group.addoption(f"--{spelled}", type=int, default=default, metavar="N", help=f"default: {default}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a model and phase; a model that has no backward has no test of it."""
    if "model" not in metafunc.fixturenames:
        return
    named = {group: metafunc.config.getoption(f"--{group}") for group in ("rnns", "cnns")}
    chosen = [group for group in named if named[group]] or list(named)
    try:
        models = [
            runner.lookup(name, group) for group in chosen for name in named[group] or runner.DEFAULT[group]
        ]
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from None
    if metafunc.function.__name__ == "test_backward":
        models = [model for model in models if model.has_backward]
    metafunc.parametrize("model", models, ids=[model.name for model in models], scope="module")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Any:
    """The torch device of --device."""
    import torch

    from fastrnns import device as devices

    return torch.device(str(devices.resolve(request.config.getoption("--device"))))


@pytest.fixture(scope="module")
def measured(request: pytest.FixtureRequest, model: runner.Model, device: Any) -> Iterator[Any]:
    """A model built inside its own context, with the JIT and TF32 as asked; all is as before afterwards."""
    from fastrnns import fuser, precision
    from fastrnns.measure.loop import garbage_frozen

    config = request.config
    problem = sizes.Problem(
        seq_length=config.getoption("--seqLength"),
        num_layers=config.getoption("--numLayers"),
        input_size=config.getoption("--inputSize"),
        hidden_size=config.getoption("--hiddenSize"),
        mini_batch=config.getoption("--miniBatch"),
    )
    reason = runner.unsupported_reason(model, device.type)
    if reason is not None:
        pytest.skip(reason)
    runner.check_supported(model, problem, device.type, "fp32")
    with ExitStack() as stack:
        stack.enter_context(precision.tf32(config.getoption("--tf32") == "on"))
        stack.enter_context(
            fuser.fusers_and_executor(config.getoption("--fuser"), config.getoption("--executor"))
        )
        stack.enter_context(runner.entered(model))
        made = runner.build(model, problem, device, "fp32", options.DEFAULT_SEED)
        stack.enter_context(garbage_frozen())
        yield made
