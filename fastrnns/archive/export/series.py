"""What every format is made from: the phases of a record, by name, with their samples."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastrnns.phases import ALL as PHASES

MS_A_SECOND = 1000  # divided by: a product with 0.001 would not print as it was measured
NANOSECONDS_A_MS = 1e6


@dataclass(frozen=True)
class Series:
    """One phase of one model; times in milliseconds, one tuple a process, in the order of time."""

    model: str
    group: str
    phase: str
    dtype: str | None
    backend: str | None
    samples: tuple[tuple[float, ...], ...]
    warmup: tuple[tuple[float, ...], ...]
    summary: Mapping[str, Any]
    result: Mapping[str, Any]

    @property
    def name(self) -> str:
        """`rnns/cudnn/forward`: unique in a record, and the same in every record."""
        return f"{self.group}/{self.model}/{self.phase}"

    @property
    def pooled(self) -> list[float]:
        """All samples of all processes."""
        return [value for series in self.samples for value in series]

    @property
    def medians(self) -> list[float]:
        """One median a process."""
        return [statistics.median(series) for series in self.samples if series]


def series_of(record: Mapping[str, Any], *, sampled: bool = True) -> Iterator[Series]:
    """The phases that were measured; with `sampled`, only those of which there are samples."""
    for result in record["results"]:
        if result["status"] != "ok":
            continue
        for phase in PHASES:
            part = result.get(phase)
            if part is None:
                continue
            found = Series(
                model=result["model"],
                group=result["group"],
                phase=phase,
                dtype=result["dtype"],
                backend=result["backend"],
                samples=_times(part["samples"]),
                warmup=_times(part["warmup"]),
                summary=part,
                result=result,
            )
            if found.pooled or not sampled:
                yield found


def cpu_brand(record: Mapping[str, Any]) -> str | None:
    """The CPU's name, where it is known."""
    brand = _at(record, "hardware", "cpu").get("brand")
    return None if brand is None else str(brand)


def facts(record: Mapping[str, Any]) -> dict[str, str]:
    """The record in a dozen strings, for formats that take free text."""
    hardware, software = record["fingerprint"]["hardware"], record["fingerprint"]["software"]
    torch = software.get("torch")
    found = {
        "record": record["id"],
        "verdict": record["verdict"]["status"],
        "verdict_reasons": "; ".join(record["verdict"]["reasons"]),
        "hardware_id": record["fingerprint"]["ids"]["hardware"],
        "software_id": record["fingerprint"]["ids"]["software"],
        "cpu": cpu_brand(record),
        "gpus": ", ".join(str(gpu.get("model")) for gpu in hardware.get("gpus") or []),
        "torch": torch.get("version") if isinstance(torch, dict) else None,
        "device": record["options"].get("device"),
        "problem": " ".join(f"{key}={value}" for key, value in (record["problem"] or {}).items()),
    }
    return {key: str(value) for key, value in found.items() if value not in {None, ""}}


def commit(record: Mapping[str, Any]) -> str | None:
    """This project's commit, where it is known."""
    value = _at(record, "software", "project").get("commit")
    return None if value is None else str(value)


def dirty(record: Mapping[str, Any]) -> bool | None:
    """Whether the project had changes; None where that is not known."""
    value = _at(record, "software", "project").get("dirty")
    return value if isinstance(value, bool) else None


def _at(record: Mapping[str, Any], part: str, name: str) -> Mapping[str, Any]:
    found = record["fingerprint"][part].get(name)
    return found if isinstance(found, Mapping) else {}


def _times(series: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(value) for value in one if value is not None) for one in series or [])
