"""What a verification tells a person: progress, the table of errors, and every mismatch. No torch."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

WIDTH = 100
MOST_PROBLEMS = 8  # of one model that are printed; the record has them all
PARTS = ("outputs", "states", "gradients")


class Story:
    """Progress on stderr, a line for each model."""

    def __init__(self, count: int, stream: IO[str] | None = None) -> None:
        self._count = count
        self._done = 0
        self._started = time.monotonic()
        self._stream = stream or sys.stderr

    def begin(self, name: str) -> None:
        """Note that a model is being checked."""
        del name
        self._started = time.monotonic()

    def end(self, result: Mapping[str, Any]) -> None:
        """Tell how a model fared."""
        self._done += 1
        seconds = time.monotonic() - self._started
        reason = "" if result["status"] == "ok" else f": {result['error']}"
        self._say(
            f"[{self._done}/{self._count}] {result['model']} {result['status']} ({seconds:.1f} s){reason}"
        )

    def graph(self, name: str, graph: str) -> None:
        """Show the graph that TorchScript ran."""
        self._say(f"{name}: the graph that TorchScript ran\n{graph}")

    def _say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


def part_of(tensor: str) -> str:
    """Which column a tensor belongs to; empty for what is none of them (inputs, statistics)."""
    if "gradient of " in tensor:
        return "gradients"
    if "state " in tensor:
        return "states"
    return "outputs" if "output" in tensor else ""


def worst(checks: Iterable[Mapping[str, Any]], against: str, key: str = "max_abs") -> dict[str, float]:
    """The largest difference in each part."""
    found: dict[str, float] = {}
    for check in checks:
        part, value = part_of(check["tensor"]), check.get(key)
        if check["against"] == against and part and isinstance(value, float):
            found[part] = max(found.get(part, 0.0), value)
    return found


def table(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The largest absolute differences, a line for each model and what it was compared with."""
    columns = "".join(f"{part:>10}" for part in PARTS)
    lines = [f"{'model':<20} {'status':<12}{'against':<15}{columns}", "-" * 79]
    for result in results:
        head = f"{result['model']:<20} {result['status']:<12}"
        checks = result.get("checks") or []
        control = (result.get("details") or {}).get("control")
        rows = [(control, worst(checks, control))] if control else []
        rows.append(("float64", worst(checks, "float64")))
        if control:
            rows.append(("of the control", worst(checks, "float64", "control_max_abs")))
        rows = [row for row in rows if row[1]]
        for label, errors in rows:
            lines.append(f"{head}{label:<15}" + "".join(_error(errors.get(part)) for part in PARTS))
            head = " " * 33
        if not rows:
            lines.append(head.rstrip())
    return lines


def problems(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every mismatch with model, tensor, element and both values; and why a model did not run."""
    lines: list[str] = []
    for result in results:
        if result["status"] == "ok":
            continue
        wrong = [check for check in result.get("checks") or [] if not check["ok"]]
        if not wrong:
            lines.append(f"{result['model']}: {result['status']}: {result['error']}")
        for check in wrong[:MOST_PROBLEMS]:
            values = ""
            if check["got"] is not None or check["want"] is not None:
                values = f" (got {_value(check['got'])}, want {_value(check['want'])})"
            lines.append(f"{result['model']}: {check['tensor']}: {check['problem']}{values}")
        if len(wrong) > MOST_PROBLEMS:
            lines.append(f"{result['model']}: and {len(wrong) - MOST_PROBLEMS} more tensors")
    return lines


def tolerances(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which tolerance each model was held to, and in which number format."""
    by_tolerance: dict[str, list[str]] = {}
    for result in results:
        if result.get("checks"):
            key = f"{result['details']['tolerance']} ({result['dtype']})"
            by_tolerance.setdefault(key, []).append(result["model"])
    return [f"largest difference allowed: {key}: {' '.join(models)}" for key, models in by_tolerance.items()]


def _error(value: float | None) -> str:
    return f"{'-' if value is None else f'{value:.1e}':>10}"


def _value(value: float | str | None) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
