"""A profile on the terminal: for each model and phase the reading, and the lines that matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastrnns.profiling.reading import limit_text, short

TOP = 3


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """One model: about ten lines."""
    head = f"{result['model']} ({result['backend']})" if result.get("backend") else str(result["model"])
    profile = result.get("profile")
    if result["status"] != "ok" or not profile:
        yield f"{head}: {result['status']}: {result['error']}"
        return
    yield head
    for phase in ("forward", "backward", "whole"):
        facts = profile.get(phase)
        if facts:
            yield from _phase(phase, facts)


def _phase(phase: str, facts: Mapping[str, Any]) -> Iterator[str]:
    yield f"  {phase:8} {facts['reading']}"
    known = []
    if facts.get("wall_ms") is not None:
        known.append(f"{facts['wall_ms']:.4g} ms")
    if facts.get("overhead_us_per_step") is not None:
        known.append(f"overhead {facts['overhead_us_per_step']:.3g} us a step")
    if facts.get("memory_peak_bytes") is not None:
        known.append(f"memory peak {facts['memory_peak_bytes'] / 2**20:.1f} MiB")
    gaps = facts.get("gaps")
    if gaps and gaps["median_us"] is not None:
        known.append(
            f"{gaps['count']:.0f} gaps of {gaps['median_us']:.2g} us (largest {gaps['largest_us']:.3g})"
        )
    if facts.get("cudnn_algorithm"):
        known.append(f"cuDNN ran {facts['cudnn_algorithm']['algorithm']}")
    if known:
        yield f"           {', '.join(known)}"
    limit = (facts.get("roofline") or {}).get("limit")
    if limit:
        yield f"           {limit_text(limit)}"
    if facts.get("account"):
        yield f"           {facts['account']['text']}"
    rows = (facts.get("kernels") or facts.get("operators") or {}).get("rows", [])
    for row in rows[:TOP]:
        times = f"{row['share']:6.1%} {row['own_ms']:9.4g} ms {row['calls']:7.4g} x"
        yield f"           {times} {short(row['name'], 60)}"
    for note in facts.get("notes", ()):
        yield f"           {note}"
