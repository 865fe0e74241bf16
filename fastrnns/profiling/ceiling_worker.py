"""One fresh process that measures what the device does at best: copies, products, launches, barriers."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any

from fastrnns.measure import wire
from fastrnns.measure.clock import Clock, clock_for
from fastrnns.measure.worker import hello, one_line, prepare

SECONDS = 1.0  # about what one ceiling may take
LEAST = 5  # repetitions, unless they take OVERRUN times as long
OVERRUN = 3.0
COPY_BYTES = {"cuda": 2 * 2**30, "cpu": 256 * 2**20}  # several times the largest cache
MATRIX = {"cuda": 8192, "cpu": 2048}  # side of the square matrices
LAUNCHES = 1000
SLOWEST_MS = 300.0  # for one product: a dtype that is emulated is measured on smaller matrices
DTYPES = {"cuda": ("fp32", "tf32", "bf16", "fp16"), "cpu": ("fp32", "bf16", "fp16")}


def main() -> int:
    """Serve one job; a ceiling that cannot be measured is null, with a reason."""
    job = wire.read_job()
    if job.get("stop"):
        return 0
    started = time.monotonic()
    import torch

    imported_s = time.monotonic() - started
    device = prepare(torch, job)
    wire.emit(hello(torch, device, imported_s, time.monotonic() - started))
    wire.emit({"event": "ceilings", "ceilings": measure(torch, device)})
    wire.emit({"event": "done"})
    return 0


def measure(torch: Any, device: Any) -> dict[str, Any]:
    """Every ceiling: the best that was reached here, not the promise of a data sheet."""
    clock = clock_for(device)
    reasons: dict[str, str] = {}

    def attempt(name: str, ask: Callable[[], float]) -> float | None:
        try:
            return ask()
        except Exception as error:
            reasons[name] = one_line(error)
            return None

    rates = {
        dtype: attempt(
            f"matrix_flops_per_s.{dtype}", functools.partial(matrix_rate, torch, device, clock, dtype)
        )
        for dtype in DTYPES[device.type]
    }
    found = {
        "device": device.type,
        "threads": torch.get_num_threads(),
        "copy_bytes_per_s": attempt("copy_bytes_per_s", lambda: copy_bandwidth(torch, device, clock)),
        "matrix_flops_per_s": rates,
        "launch_s": attempt("launch_s", lambda: launch(torch, device, clock)),
        "grid_barrier_s": None,
    }
    if device.type == "cuda":
        from fastrnns.profiling.barrier import barrier_seconds

        found["grid_barrier_s"] = attempt("grid_barrier_s", lambda: barrier_seconds(torch, device, clock))
    else:
        reasons["grid_barrier_s"] = "a CPU has no grid"
    return {**found, "reasons": reasons}


def best_ms(clock: Clock, work: Callable[[], Any], seconds: float = SECONDS) -> float:
    """The shortest of some repetitions: what the device does when nothing is in its way."""
    work()
    clock.settle()
    times: list[float] = []
    started = time.monotonic()
    while len(times) < LEAST or time.monotonic() - started < seconds:
        start = clock.mark()
        work()
        end = clock.mark()
        clock.settle()
        times.append(clock.milliseconds(start, end))
        if time.monotonic() - started > OVERRUN * seconds:
            break
    return min(times)


def copy_bandwidth(torch: Any, device: Any, clock: Clock) -> float:
    """Bytes read and written a second by a copy on the device."""
    size = COPY_BYTES[device.type]
    source = torch.empty(size // 4, dtype=torch.float32, device=device).fill_(1.0)
    target = torch.empty_like(source)
    return 2 * size / best_ms(clock, lambda: target.copy_(source)) * 1e3


def matrix_rate(torch: Any, device: Any, clock: Clock, dtype: str) -> float:
    """Operations a second of a product of square matrices of random numbers (zeros run faster)."""
    from fastrnns import precision

    kind = precision.torch_dtype(dtype)
    with precision.tf32(dtype == "tf32"):
        side = 256
        while True:
            a, b = (torch.randn(side, side, device=device).to(kind) for _ in range(2))
            ms = best_ms(clock, functools.partial(torch.mm, a, b), 0.0)
            if side >= MATRIX[device.type] or ms * 8 > SLOWEST_MS:
                break
            side *= 2
        best: float = best_ms(clock, functools.partial(torch.mm, a, b))
    return 2 * side**3 / min(ms, best) * 1e3


def launch(torch: Any, device: Any, clock: Clock) -> float:
    """Seconds from one launch of the smallest operator to the next: the pace that no loop can beat."""
    x = torch.zeros(1, device=device)

    def many() -> None:
        for _ in range(LAUNCHES):
            x.add_(1.0)

    return best_ms(clock, many) / 1e3 / LAUNCHES


if __name__ == "__main__":
    sys.exit(main())
