"""What the numbers of a profile mean, in sentences. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastrnns.profiling import cudnn

LAUNCH_BOUND = 0.6  # below this share of busy time the GPU waits more than a compiler could hide
_WRAPPED = re.compile(r"cutlass::Kernel2?<\s*([\w:]+)")

BUSY = 0.85  # above this share what runs decides, not what launches it
PROFILER_COST_US = 50.0  # an operator: torch.profiler takes 1 to 10 us; more is not the profiler
TOLERANCE = 0.1  # work against bench's time: a larger gap is explained


def reading(phase: Mapping[str, Any], *, device_type: str) -> str:
    """One sentence: what bounds a phase, and the two or three numbers that say so."""
    busy = phase.get("busy_share")
    if phase.get("kernels") and busy is not None:
        return _gpu(phase, busy)
    if phase.get("kernels"):
        return _kernels_only(phase)
    if busy is None or device_type == "cuda":
        return "nothing ran on the GPU" if device_type == "cuda" else "nothing was seen"
    return _cpu(phase, busy)


def _gpu(phase: Mapping[str, Any], busy: float) -> str:
    kernels = phase["kernels"]
    pace = _pace(kernels["per_step"], "kernels") or f"{kernels['count']:.0f} kernels"
    if busy < LAUNCH_BOUND:
        return f"launch-bound: {busy:.0%} busy, {pace}"
    top = kernels["rows"][0]
    products = sum(row["share"] for row in kernels["rows"] if cudnn.is_product(row["name"]))
    what = (
        f"{products:.0%} of it in matrix products"
        if products >= 0.5
        else f"{top['share']:.0%} in {short(top['name'])}"
    )
    return f"{'kernel-bound' if busy >= BUSY else 'partly launch-bound'}: {busy:.0%} busy, {what}, {pace}"


def _kernels_only(phase: Mapping[str, Any]) -> str:
    top = phase["kernels"]["rows"][0]
    used = [
        f"{name} {top[key]:.0f} %"
        for key, name in (("sm_percent", "SM"), ("dram_percent", "memory"), ("l2_percent", "L2"))
        if top.get(key) is not None
    ]
    counters = f", which uses {', '.join(used)} of the peak" if used else ""
    return f"{phase['kernels']['count']:.0f} kernels, {top['share']:.0%} in {short(top['name'])}{counters}"


def _cpu(phase: Mapping[str, Any], busy: float) -> str:
    rows = list(phase["operators"]["rows"])
    if not rows:
        return "no operator was seen"
    top = rows[0]
    calls = phase["operators"]["calls"]
    pace = (
        _pace(calls / phase["steps"] if phase.get("steps") else None, "operators") or f"{calls:.0f} operators"
    )
    if busy < LAUNCH_BOUND:
        return f"dispatch-bound: {busy:.0%} in operators, {pace}"
    kind = (
        "one operator"
        if top["share"] >= BUSY
        else "operator-bound"
        if busy >= BUSY
        else "partly dispatch-bound"
    )
    return f"{kind}: {busy:.0%} in operators, {top['share']:.0%} in {short(top['name'])}, {pace}"


def _pace(per_step: float | None, what: str) -> str | None:
    return None if per_step is None else f"{per_step:.{0 if per_step >= 10 else 1}f} {what} a step"


def short(name: str, limit: int = 48) -> str:
    """A kernel's name without its types, for a line on the terminal."""
    plain = re.sub(r"<unnamed>::|\(anonymous namespace\)::", "", name).removeprefix("void ")
    wrapped = _WRAPPED.match(plain)  # cutlass::Kernel2<what runs>(...)
    plain = (wrapped[1] if wrapped else plain.partition("(")[0].partition("<")[0]).strip() or name
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."


def account(phase: Mapping[str, Any], bench_ms: float | None) -> dict[str, Any] | None:
    """The work that the profiler saw against the time that bench's clock gives, and the gap explained."""
    work_ms = phase.get("work_ms")
    if not bench_ms or work_ms is None:
        return None
    gpu = bool(phase.get("kernels"))
    ratio = work_ms / bench_ms
    what = "kernels" if gpu else "operators"
    text = f"{what} sum to {work_ms:.4g} ms of the {bench_ms:.4g} ms that bench's clock gives ({ratio:.0%})"
    within = abs(ratio - 1) <= TOLERANCE
    if not within:
        text += f": {_gap(phase, bench_ms, gpu)}"
    return {
        "bench_ms": bench_ms,
        "work_ms": work_ms,
        "ratio": ratio,
        "within_10_percent": within,
        "text": text,
    }


def _gap(phase: Mapping[str, Any], bench_ms: float, gpu: bool) -> str:
    wall_ms, work_ms = phase["wall_ms"], phase["work_ms"]
    slower = wall_ms / bench_ms - 1
    slowed = (
        f"the profiler makes the call {slower:.0%} slower ({wall_ms:.4g} ms)"
        if slower > TOLERANCE / 2
        else ""
    )
    if slower < -TOLERANCE / 2:
        slowed = f"the profiled iterations were {-slower:.0%} faster ({wall_ms:.4g} ms): an unsteady machine"
    idle_ms = max(0.0, wall_ms - work_ms)
    if work_ms < bench_ms:
        gaps = phase.get("gaps") or {}
        where = f" in {gaps['count']:.0f} gaps between kernels" if gpu and gaps.get("count") else ""
        step = phase.get("overhead_us_per_step")
        each = f", {step:.3g} us a step" if step is not None else ""
        waits = "the GPU waits for the host" if gpu else "the rest is Python, interpreter and autograd"
        parts = [f"{waits} {idle_ms:.4g} ms{where}{each}" if gpu else f"{waits}: {idle_ms:.4g} ms{each}"]
        return "; ".join([*parts, *([slowed] if slowed else [])])
    calls = phase["operators"]["calls"]
    cost_us = (work_ms - bench_ms) / calls * 1e3 if calls else 0.0
    if gpu or cost_us > PROFILER_COST_US:
        return "more than a profiler costs, so the machine was unsteady between the two"
    return "; ".join(part for part in (slowed, f"{cost_us:.3g} us for each of {calls:.0f} operators") if part)


def limit_text(limit: Mapping[str, Any]) -> str:
    """The share of the limit, for a person."""
    if limit.get("limit_ms") is None:
        return "no ceiling known"
    share = "" if limit.get("share") is None else f"{limit['share']:.1%} of the {limit['bound']} limit, "
    if (limit.get("share") or 0) > 1:
        return (
            f"above the {limit['bound']} ceiling, which was measured on a disturbed machine: use --roofline"
        )
    barriers = limit.get("barriers_ms")
    serial = f"; {barriers:.3g} ms if each step cost one grid barrier" if barriers else ""
    return f"{share}{limit['limit_ms']:.3g} ms at best{serial}"
