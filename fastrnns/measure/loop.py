"""One model in one process: warm up, time, stream out. A timed region holds nothing but the model."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastrnns.measure import plan
from fastrnns.measure.clock import Clock

BATCH_SECONDS = 0.05  # between two messages: sent between iterations, so rarely that they cost nothing
COLLECT_EVERY = 1000  # iterations of a long fixed run, for what a model leaves in cycles


class Measurable(Protocol):
    """What is measured of a ModelDef."""

    @property
    def inputs(self) -> Any:
        """The arguments of forward."""

    @property
    def params(self) -> Iterable[Any]:
        """Every tensor that gets a gradient."""

    @property
    def forward(self) -> Callable[..., Any]:
        """The forward."""

    @property
    def backward_setup(self) -> Callable[..., Any] | None:
        """Make the arguments of backward from what forward returned."""

    @property
    def backward(self) -> Callable[..., Any] | None:
        """The backward; None where the model has none."""


@dataclass
class Batch:
    """Iterations that wait to be sent."""

    forward_ms: list[float] = field(default_factory=list)
    backward_ms: list[float] = field(default_factory=list)
    started_ns: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Ended:
    """Why the two parts of one model's run ended."""

    warmup: str
    timed: str
    cold_s: float = 0.0  # that loading and compiling took, charged to no budget


def iterate(
    model: Measurable, clock: Clock, flush: Callable[[], None] | None = None
) -> tuple[int, float, float | None]:
    """One iteration: when it started, its forward and backward in milliseconds (None: it has no backward).

    The forward region is the call of `forward` alone, the backward region the call of `backward` alone; the
    incoming gradient is made between the two and gradients are dropped after both, as upstream does. `flush`
    (cold caches) runs before each region, and is over when it begins.
    """
    if flush is not None:
        flush()
    started_ns = time.monotonic_ns()
    backward_ms = None
    forward_start = clock.mark()
    outputs = model.forward(*model.inputs)
    forward_end = clock.mark()
    if model.backward is None:
        clock.settle()
    else:
        gradients = outputs if model.backward_setup is None else model.backward_setup(outputs)
        if flush is not None:
            flush()
        backward_start = clock.mark()
        model.backward(*gradients)
        backward_end = clock.mark()
        clock.settle()
        backward_ms = clock.milliseconds(backward_start, backward_end)
        for parameter in model.params:
            parameter.grad = None
    return started_ns, clock.milliseconds(forward_start, forward_end), backward_ms


@contextmanager
def garbage_frozen() -> Iterator[None]:
    """Collect once, keep the collector out of everything that follows, and put it back as it was."""
    enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()


def measure(
    name: str,
    model: Measurable,
    clock: Clock,
    rule: plan.Rule,
    *,
    emit: Callable[[dict[str, Any]], None],
    stopped: Callable[[], bool] = lambda: False,
    spent_s: Callable[[], float] | None = None,
    flush: Callable[[], None] | None = None,
) -> Ended:
    """Warm up and measure one model by its rule; every sample is sent, about twenty times a second."""
    if spent_s is None:
        start = time.monotonic()
        spent_s = lambda: time.monotonic() - start  # noqa: E731 - the default of a parameter
    stream = _Stream(name, emit, stopped)
    totals: list[float] = []
    forward: list[float] = []
    backward: list[float] = []
    with garbage_frozen():
        clock.settle()
        while (warmed := plan.warm(rule, totals, spent_s())) is None and not stream.stop:
            sample = iterate(model, clock, flush)
            totals.append(sample[1] + (sample[2] or 0.0))
            stream.add("warmup", *sample)
        stream.flush("warmup")
        cold_s = plan.cold_seconds(rule, totals)
        while (ended := plan.enough(rule, forward, backward, spent_s() - cold_s)) is None and not stream.stop:
            sample = iterate(model, clock, flush)
            forward.append(sample[1])
            if sample[2] is not None:
                backward.append(sample[2])
            stream.add("timed", *sample)
            if len(forward) % COLLECT_EVERY == 0:
                gc.collect()
        stream.flush("timed")
    return Ended(warmed or plan.STOPPED, ended or plan.STOPPED, cold_s)


class _Stream:
    """Sends iterations in batches, and hears a request to stop when it does."""

    def __init__(
        self, name: str, emit: Callable[[dict[str, Any]], None], stopped: Callable[[], bool]
    ) -> None:
        self.stop = False
        self._name = name
        self._emit = emit
        self._stopped = stopped
        self._batch = Batch()
        self._sent_at = time.monotonic()

    def add(self, phase: str, started_ns: int, forward_ms: float, backward_ms: float | None) -> None:
        self._batch.started_ns.append(started_ns)
        self._batch.forward_ms.append(forward_ms)
        if backward_ms is not None:
            self._batch.backward_ms.append(backward_ms)
        if time.monotonic() - self._sent_at >= BATCH_SECONDS:
            self.flush(phase)

    def flush(self, phase: str) -> None:
        if self._batch.started_ns:
            self._emit({"event": "iterations", "model": self._name, "phase": phase, **vars(self._batch)})
            self._batch = Batch()
        self.stop = self.stop or self._stopped()
        self._sent_at = time.monotonic()
