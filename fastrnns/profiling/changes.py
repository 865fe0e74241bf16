"""What changed between two profiles: times, busy share, kernels, and the names that came and went. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastrnns.errors import UsageError

SMALLEST = 0.02  # a row that moved by less of the phase's work than this is not shown
MOST = 5  # rows a phase


def against(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The differences of two records of profiles as lines for a person, what makes them doubtful first."""
    for record in (base, new):
        if record.get("kind") != "profile":
            raise UsageError(
                f"record {record.get('id')} is a {record.get('kind')}, not a profile; name one with --against"
            )
    lines = [f"careful: {text}" for text in doubts(base, new)]
    before = {result["model"]: result for result in base["results"]}
    for result in new["results"]:
        old = before.get(result["model"])
        if not old or not old.get("profile") or not result.get("profile"):
            lines.append(f"{result['model']}: not profiled in both records")
            continue
        for phase in ("forward", "backward", "whole"):
            one, other = old["profile"].get(phase), result["profile"].get(phase)
            if one and other:
                lines.append(f"{result['model']} {phase}: {_numbers(one, other)}")
                lines += [f"    {text}" for text in _rows(one, other)]
    return lines


def doubts(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """In what the two were not run alike."""
    found = []
    ids = [record["fingerprint"]["ids"].get("hardware") for record in (base, new)]
    if ids[0] != ids[1] or ids[0] is None:
        found.append("the hardware differs, so times do not compare; kernels and counts do")
    if base.get("problem") != new.get("problem"):
        found.append("the problems differ")
    for key in ("tool", "device", "dtype", "tf32", "fuser", "executor", "threads"):
        one, other = (record["options"].get(key) for record in (base, new))
        if one != other:
            found.append(f"{key} was {one}, is {other}")
    return found


def _numbers(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    parts = []
    for key, name, pattern in (
        ("wall_ms", "ms", "{:.4g}"),
        ("busy_share", "busy", "{:.0%}"),
        ("overhead_us_per_step", "us overhead a step", "{:.3g}"),
        ("memory_peak_bytes", "bytes at most", "{:,}"),
    ):
        if one.get(key) is not None and other.get(key) is not None:
            change = f" ({other[key] / one[key] - 1:+.0%})" if key != "busy_share" and one[key] else ""
            parts.append(f"{pattern.format(one[key])} to {pattern.format(other[key])} {name}{change}")
    counts = [(side.get("kernels") or {}).get("count") for side in (one, other)]
    if None not in counts and counts[0] != counts[1]:
        parts.append(f"{counts[0]:.0f} to {counts[1]:.0f} kernels")
    algorithms = [(side.get("cudnn_algorithm") or {}).get("algorithm") for side in (one, other)]
    if algorithms[0] != algorithms[1]:
        parts.append(f"cuDNN's algorithm {algorithms[0]} to {algorithms[1]}")
    return "; ".join(parts) or "no number in common"


def _rows(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    kind = "kernels" if one.get("kernels") and other.get("kernels") else "operators"
    before, after = (
        {row["name"]: row for row in (side.get(kind) or {}).get("rows", ())} for side in (one, other)
    )
    whole = max(one.get("work_ms") or 0.0, other.get("work_ms") or 0.0)
    moved = []
    for name in before.keys() | after.keys():
        old, new = (side.get(name, {}).get("own_ms", 0.0) for side in (before, after))
        if abs(new - old) >= SMALLEST * whole:
            state = "came" if name not in before else "went" if name not in after else f"{new / old - 1:+.0%}"
            moved.append((abs(new - old), name, f"{name[:80]}: {old:.4g} to {new:.4g} ms ({state})"))
    for _, _, text in sorted(moved, reverse=True)[:MOST]:
        yield text
