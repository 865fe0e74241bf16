"""One fresh process that profiles one model: as it runs by itself, under torch.profiler, and counted.

In this order, so that nothing measures the cost of what comes after it: warm-up, iterations under the
profiler between iterations without any, one iteration that records memory, one that counts operations.
"""

from __future__ import annotations

import functools
import gc
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastrnns import runner
from fastrnns.errors import UsageError
from fastrnns.measure import loop, wire
from fastrnns.measure.clock import clock_for
from fastrnns.measure.worker import backend_of, hello, one_line, prepare
from fastrnns.sizes import Problem

SCHEDULE_WARMUP = 2  # iterations under the profiler that it throws away: its own first costs are in them


def main() -> int:
    """Serve one job; what goes wrong in the model is an event, not an end."""
    job = wire.read_job()
    if job.get("stop"):
        return 0
    started = time.monotonic()
    import torch

    imported_s = time.monotonic() - started
    device = prepare(torch, job)
    with settings(job):
        wire.emit(hello(torch, device, imported_s, time.monotonic() - started))
        serve(torch, job, device)
    wire.emit({"event": "done"})
    return 0


@contextmanager
def settings(job: dict[str, Any]) -> Iterator[None]:
    """The precision and the JIT's switches of a job."""
    from fastrnns import fuser, precision

    with precision.tf32(job["tf32"]), fuser.fusers_and_executor(job["fuser"], job["executor"]):
        yield


def serve(torch: Any, job: dict[str, Any], device: Any) -> None:
    """Profile the job's model and say what was found."""
    model = runner.lookup(job["model"])
    reason = runner.unsupported_reason(model)
    if reason is not None:
        wire.emit({"event": "model_failed", "model": model.name, "status": "unsupported", "error": reason})
        return
    try:
        torch.manual_seed(job["seed"])
        with runner.entered(model):
            _profile(torch, job, model, device)
        wire.emit({"event": "counted", "model": model.name, **_counted(job, model, device)})
        wire.emit({"event": "model_done", "model": model.name})
    except Exception as error:
        traceback.print_exc()  # to stderr, whose tail the parent keeps; a person sees one sentence
        wire.emit(
            {"event": "model_failed", "model": model.name, "status": "failed", "error": one_line(error)}
        )


def _profile(torch: Any, job: dict[str, Any], model: runner.Model, device: Any) -> None:
    problem = Problem(**job["problem"])
    made: Any = runner.build(model, problem, device, job["dtype"], job["seed"])
    clock = clock_for(device)
    wire.emit({"event": "ready", "model": model.name, "backend": backend_of(model, device, job["dtype"]),
               "lengths": runner.lengths_of(model, made)})  # fmt: skip
    folder = Path(job["folder"])
    trace = folder / f"{model.name}.trace.json"
    with loop.garbage_frozen():
        for _ in range(job["warmup"]):
            loop.iterate(made, clock)
        samples = [loop.iterate(made, clock) for _ in range(job["nloops"])]
        traced(torch, made, clock, device, trace, warmup=SCHEDULE_WARMUP, active=job["nloops"])
        # On both sides of the profile, so that a drifting machine does not look like a costly profiler.
        samples += [loop.iterate(made, clock) for _ in range(job["nloops"])]
    wire.emit({
        "event": "iterations",
        "model": model.name,
        "started_ns": [sample[0] for sample in samples],
        "forward_ms": [sample[1] for sample in samples],
        "backward_ms": [sample[2] for sample in samples if sample[2] is not None],
    })  # fmt: skip
    wire.emit({"event": "trace", "model": model.name, "file": trace.name})
    memory = folder / f"{model.name}.memory.json"
    peaks = memory_pass(torch, made, clock, device, memory)
    wire.emit(
        {
            "event": "memory",
            "model": model.name,
            "file": memory.name if peaks is None else None,
            "peaks": peaks,
        }
    )
    if model.legacy:
        from fastrnns import jit_graph

        made.forward(*made.inputs)
        graph = jit_graph.optimised_graph()
        file = folder / f"{model.name}.graph.txt"
        file.write_text(graph, encoding="utf-8", errors="replace")
        wire.emit(
            {"event": "graph", "model": model.name, "file": file.name, "fused": jit_graph.describe(graph)}
        )


def iteration(made: Any, clock: Any, named: Callable[[str], Any]) -> None:
    """One iteration as bench does it, each phase inside `named(phase)`."""
    with named("forward"):
        outputs = made.forward(*made.inputs)
    if made.backward is not None:
        gradients = made.backward_setup(outputs)
        with named("backward"):
            made.backward(*gradients)
    clock.settle()
    for parameter in made.params:
        parameter.grad = None


def traced(
    torch: Any,
    made: Any,
    clock: Any,
    device: Any,
    file: Path,
    *,
    warmup: int,
    active: int,
    memory: bool = False,
) -> None:
    """Run iterations under torch.profiler, throw the first away, and leave the rest as a Chrome trace."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(
        activities=activities,
        schedule=torch.profiler.schedule(wait=0, warmup=warmup, active=active, repeat=1),
        on_trace_ready=lambda found: found.export_chrome_trace(str(file)),
        profile_memory=memory,
        acc_events=True,
    ) as profiler:
        for _ in range(warmup + active):
            iteration(made, clock, torch.profiler.record_function)
            profiler.step()


def memory_pass(torch: Any, made: Any, clock: Any, device: Any, file: Path) -> dict[str, int] | None:
    """The most bytes that each phase takes: a GPU's allocator says, else the profiler records it."""
    if device.type != "cuda":
        traced(torch, made, clock, device, file, warmup=1, active=1, memory=True)
        return None
    peaks: dict[str, int] = {}

    @contextmanager
    def named(phase: str) -> Iterator[None]:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield
        clock.settle()
        peaks[phase] = torch.cuda.max_memory_allocated(device) - before

    clock.settle()
    iteration(made, clock, named)
    return peaks


def _counted(job: dict[str, Any], model: runner.Model, device: Any) -> dict[str, Any]:
    """Operations by torch's counter; a model that cannot run under it has no count, and a reason."""
    from fastrnns.profiling import flops

    gc.collect()
    try:
        return asdict(flops.count(model, Problem(**job["problem"]), device, job["dtype"], job["seed"]))
    except Exception as error:
        return {
            "forward": None,
            "backward": None,
            "note": f"torch's counter could not run it: {one_line(error)}",
        }


@contextmanager
def _range(nvtx: Any, name: str) -> Iterator[None]:
    """A named range of the process: a backward launches its kernels from a thread of autograd's own."""
    handle = nvtx.range_start(name)
    try:
        yield
    finally:
        nvtx.range_end(handle)


def run_plain(job: dict[str, Any]) -> None:
    """Run a model for an outer profiler: warmed up first, then iterations between cudaProfilerStart and Stop.

    Phases are NVTX ranges on a GPU, so that the outer tool's report has the same names as torch's.
    """
    import torch

    device = prepare(torch, job)
    model = runner.lookup(job["model"])
    reason = runner.unsupported_reason(model)
    if reason is not None:
        raise UsageError(reason)
    cuda = device.type == "cuda"
    with settings(job), runner.entered(model):
        made = runner.build(model, Problem(**job["problem"]), device, job["dtype"], job["seed"])
        clock = clock_for(device)
        for _ in range(job["warmup"]):
            iteration(made, clock, nullcontext)
        gpu: Any = torch.cuda  # its profiler and nvtx modules are untyped
        named: Callable[[str], Any] = functools.partial(_range, gpu.nvtx) if cuda else nullcontext
        if cuda:
            gpu.profiler.start()
        for _ in range(job["nloops"]):
            iteration(made, clock, named)
        if cuda:
            gpu.profiler.stop()


if __name__ == "__main__":
    sys.exit(main())
