import gc
from types import SimpleNamespace

import pytest

from fastrnns.measure import loop
from fastrnns.measure.clock import CpuClock, CudaClock, clock_for
from fastrnns.measure.plan import Rule

FIXED = Rule(warmup=2, nloops=3, precision=0.01, seconds=60, limit_seconds=60)


class FakeClock:
    """Each mark is one second after the last; counts how often the work was waited for."""

    def __init__(self, trace):
        self.trace = trace
        self.now = 0

    def mark(self):
        self.now += 1
        self.trace.append("mark")
        return self.now

    def settle(self):
        self.trace.append("settle")

    def milliseconds(self, start, end):
        return (end - start) * 1000.0


@pytest.fixture
def trace():
    return []


@pytest.fixture
def model(trace):
    parameter = SimpleNamespace(grad="old")

    def forward(x):
        trace.append("forward")
        return (x,)

    def setup(outputs):
        trace.append("setup")
        return (*outputs, "gradient")

    def backward(output, gradient):
        trace.append("backward")
        parameter.grad = gradient

    return SimpleNamespace(
        inputs=("x",), params=(parameter,), forward=forward, backward_setup=setup, backward=backward
    )


def test_cold_caches_are_flushed_before_each_region_and_outside_of_it(model, trace):
    loop.iterate(model, FakeClock(trace), lambda: trace.append("flush"))
    assert trace == [
        *("flush", "mark", "forward", "mark", "setup"),
        *("flush", "mark", "backward", "mark", "settle"),
    ]


def test_every_iteration_of_a_cold_run_is_flushed_the_warm_up_too(model, trace):
    loop.measure(
        "a", model, FakeClock(trace), FIXED, emit=lambda event: None, flush=lambda: trace.append("flush")
    )
    assert trace.count("flush") == 2 * trace.count("forward") == 10


def test_a_timed_region_holds_the_model_and_nothing_else(model, trace):
    loop.iterate(model, FakeClock(trace))
    assert trace == ["mark", "forward", "mark", "setup", "mark", "backward", "mark", "settle"]


def test_gradients_are_dropped_after_every_iteration(model, trace):
    loop.iterate(model, FakeClock(trace))
    assert model.params[0].grad is None


def test_a_model_without_backward_has_no_backward_time(model, trace):
    model.backward = None
    _, forward_ms, backward_ms = loop.iterate(model, FakeClock(trace))
    assert (forward_ms, backward_ms) == (1000.0, None)
    assert trace == ["mark", "forward", "mark", "settle"]


def test_upstream_fault_3_garbage_is_collected_once_and_not_per_iteration(model, trace):
    collections = []
    gc.callbacks.append(
        lambda phase, info: collections.append(info["generation"]) if phase == "start" else None
    )
    try:
        loop.measure("m", model, FakeClock(trace), Rule(10, 100, 0.01, 60, 60), emit=lambda event: None)
    finally:
        gc.callbacks.pop()
    assert collections == [2]


def test_garbage_collection_is_afterwards_as_it_was():
    assert gc.isenabled()
    with loop.garbage_frozen():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with loop.garbage_frozen():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_warmup_and_timed_iterations_are_streamed_apart(model, trace):
    events = []
    ended = loop.measure("m", model, FakeClock(trace), FIXED, emit=events.append)
    counted = {
        phase: sum(len(e["forward_ms"]) for e in events if e["phase"] == phase)
        for phase in ("warmup", "timed")
    }
    assert counted == {"warmup": 2, "timed": 3}
    assert (ended.warmup, ended.timed) == ("fixed", "fixed")
    assert all(e["backward_ms"] == [1000.0] * len(e["forward_ms"]) for e in events)
    starts = [start for e in events for start in e["started_ns"]]
    assert starts == sorted(starts)


def test_a_request_to_stop_ends_the_run_after_a_batch(model, trace):
    events = []
    rule = Rule(warmup=0, nloops=10**6, precision=0.01, seconds=60, limit_seconds=60)
    ended = loop.measure("m", model, FakeClock(trace), rule, emit=events.append, stopped=lambda: bool(events))
    assert ended.timed == "stopped"
    assert 0 < sum(len(e["forward_ms"]) for e in events) < 10**6


def test_upstream_fault_1_the_cpu_clock_gives_milliseconds():
    clock = CpuClock()
    assert clock.milliseconds(0, 1_000_000) == 1.0
    assert clock.mark() > 1_000_000  # nanoseconds since boot


def test_case_D4_27_thousandths_of_a_second_are_27_milliseconds():
    assert CpuClock().milliseconds(5_000_000_000, 5_027_100_000) == pytest.approx(27.1)


def test_upstream_fault_2_a_numbered_gpu_gets_the_gpu_clock(monkeypatch):
    made = []
    monkeypatch.setattr(CudaClock, "__init__", lambda self, device: made.append(device.index))
    assert isinstance(clock_for(SimpleNamespace(type="cuda", index=1)), CudaClock)
    assert made == [1]
    assert isinstance(clock_for(SimpleNamespace(type="cpu", index=None)), CpuClock)


@pytest.mark.cuda
def test_case_D5_every_gpu_is_timed_by_its_own_events_and_waited_for():
    torch = pytest.importorskip("torch")
    device = torch.device("cuda", torch.cuda.device_count() - 1)
    clock = CudaClock(device)
    a = torch.randn(4096, 4096, device=device)
    clock.settle()
    start = clock.mark()
    for _ in range(20):
        a = a @ a * 1e-3
    end = clock.mark()
    clock.settle()
    assert torch.cuda.current_stream(device).query()
    assert clock.milliseconds(start, end) > 1.0
