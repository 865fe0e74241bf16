"""One fresh process: takes a job, imports torch, builds and measures each model, and streams what it sees."""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
from typing import Any

from fastrnns import runner, sweep
from fastrnns.measure import early, loop, plan, wire
from fastrnns.measure.clock import clock_for
from fastrnns.measure.flush import flusher
from fastrnns.sizes import Problem

DEVICE_LOST = 70  # exit status after a CUDA error that leaves the process unable to go on (EX_SOFTWARE)
_LOST = ("CUDA error", "CUDNN_STATUS_EXECUTION_FAILED", "CUDNN_STATUS_INTERNAL_ERROR", "device-side assert")


def main() -> int:
    """Serve one job; everything that goes wrong in a model is an event, not an end."""
    job = wire.read_job()
    if job.get("stop"):
        return 0
    started = time.monotonic()
    if job.get("compile_cache"):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = job["compile_cache"]
        os.environ["TRITON_CACHE_DIR"] = os.path.join(job["compile_cache"], "triton")  # noqa: PTH118
    kind, _, index = str(job["device"]).partition(":")
    if kind == "cuda":
        early.start_cuda(int(index or 0))
    import torch

    imported_s = time.monotonic() - started
    from fastrnns import fuser, precision

    device = prepare(torch, job)
    pointwise = fuser.CudaPointwise(**job.get("cuda_pointwise", {}))
    with (
        precision.tf32(job["tf32"]),
        fuser.fusers_and_executor(job["fuser"], job["executor"], pointwise),
    ):
        wire.emit(hello(torch, device, imported_s, time.monotonic() - started))
        turn = wire.wait_message()  # `go` comes when the parent and the other workers are done with slow work
        if turn.get("stop"):
            return 0
        for name, rule in turn["models"]:
            if not run_model(torch, job, name, plan.Rule(**rule), device):
                return DEVICE_LOST
            if _Stop.asked:
                break
    wire.emit({"event": "done"})
    return 0


def prepare(torch: Any, job: dict[str, Any]) -> Any:
    """Set the threads and start the device before anything is built."""
    if job.get("threads"):
        torch.set_num_threads(job["threads"])
    # Builds differ in what they take by default: the CPUs that they may use, or all that the machine has.
    torch.set_num_interop_threads(len(os.sched_getaffinity(0)))
    device = torch.device(job["device"])
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.cuda.synchronize(device)
    return device


def hello(torch: Any, device: Any, imported_s: float, ready_s: float) -> dict[str, Any]:
    """What this process is: its torch, its device, its threads and its CPUs."""
    from fastrnns import precision

    facts: dict[str, Any] = {"type": device.type, "index": device.index}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts |= {
            "name": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "memory_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
        }
    return {
        "event": "hello",
        "pid": os.getpid(),
        "torch": {
            "version": torch.__version__,
            "git_version": torch.version.git_version,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version() if torch.version.cuda else None,
            "mkldnn": torch.backends.mkldnn.is_available(),
            "build_config": torch.__config__.show(),
        },
        "python": sys.version.split()[0],
        "device": facts,
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "affinity": sorted(os.sched_getaffinity(0)),
        "precision": precision.facts(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "import_s": round(imported_s, 4),
        "ready_s": round(ready_s, 4),  # torch imported and the device started
    }


def seed(torch: Any, device: Any, number: int) -> None:
    """Seed the generators that a model draws from while it runs (dropout, the random gradient).

    Not with torch.manual_seed: its first call imports torch._dynamo, which takes as long as torch itself.
    """
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(number)


class _Stop:
    """Whether the parent asked to stop; it is asked between batches."""

    asked = False

    @classmethod
    def check(cls) -> bool:
        message = wire.read_message()
        cls.asked = cls.asked or bool(message and message.get("stop"))
        return cls.asked


def run_model(torch: Any, job: dict[str, Any], name: str, rule: plan.Rule, device: Any) -> bool:
    """Measure one model; False when this process cannot measure another one after it."""
    wire.emit({"event": "model_start", "model": name})
    model = runner.of_series(name)
    reason = runner.unsupported_reason(model, device.type)
    if reason is not None:
        wire.emit({"event": "model_failed", "model": name, "status": "unsupported", "error": reason})
        return True
    started = time.monotonic()
    try:
        seed(torch, device, job["seed"])
        flush, flushed = flusher(device) if job.get("cache") == "cold" else (None, None)
        with runner.entered(model):
            problem = sweep.problem_at(name, Problem(**job["problem"]))
            modeldef = runner.build(model, problem, device, job["dtype"], job["seed"])
            wire.emit(
                {
                    "event": "ready",
                    "model": name,
                    "backend": modeldef.backend or backend_of(model, device, job["dtype"]),
                    "flushed_bytes": flushed,
                    "lengths": runner.lengths_of(model, modeldef),
                    "built_s": round(time.monotonic() - started, 6),
                    "notes": [],
                }
            )
            ended = loop.measure(
                name,
                modeldef,
                clock_for(device),
                rule,
                emit=wire.emit,
                stopped=_Stop.check,
                spent_s=lambda: time.monotonic() - started,
                flush=flush,
            )
            spent_s = time.monotonic() - started - ended.cold_s
            if job.get("graph_replay"):
                replay(torch, name, modeldef)
        del modeldef
    except Exception as error:
        traceback.print_exc()  # to stderr: the parent keeps its tail, a person sees one sentence
        wire.emit(
            {
                "event": "model_failed",
                "model": name,
                "status": runner.status_of(model, error),
                "error": one_line(error),
            }
        )
        if any(mark in str(error) for mark in _LOST):
            return False
    else:
        wire.emit(
            {
                "event": "model_done",
                "model": name,
                "warmup_ended": ended.warmup,
                "timed_ended": ended.timed,
                "spent_s": round(spent_s, 6),
                "cold_s": round(ended.cold_s, 6),
            }
        )
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()  # so that the next model does not fail for this one's memory
    return True


def replay(torch: Any, name: str, modeldef: Any) -> None:
    """Time a model's CUDA graphs; one that cannot be captured says why, and stays measured as it was."""
    from fastrnns.measure.replay import replayed

    try:
        with loop.garbage_frozen():
            found = replayed(modeldef)
    except Exception as error:
        torch.cuda.synchronize()  # raises where the failure cost the process its GPU
        wire.emit({"event": "not_replayed", "model": name, "reason": one_line(error)})
    else:
        wire.emit({"event": "replayed", "model": name, **vars(found)})


def backend_of(model: runner.Model, device: Any, dtype: str) -> str | None:
    """The library that runs a model, or None, with a line on stderr, where it cannot be told."""
    try:
        return runner.backend(model, device, dtype)
    except Exception as error:
        print(f"the backend of {model.name} is not known: {one_line(error)}", file=sys.stderr)
        return None


def one_line(error: BaseException) -> str:
    """The error's own first line, with its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:500]}" if lines else type(error).__name__


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # all is said: taking CUDA and torch down in order takes part of a second, for nothing
