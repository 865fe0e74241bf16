"""What a profiler saw, as rows of one form whatever the tool: operators, kernels, launches, ranges."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fastrnns.errors import HarnessError

Kind = Literal["operator", "kernel", "copy", "launch", "range", "memory"]

_KINDS: dict[str, Kind] = {  # categories of a Chrome trace by torch.profiler
    "cpu_op": "operator",
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "copy",
    "cuda_runtime": "launch",
    "cuda_driver": "launch",
    "user_annotation": "range",
    "cpu_instant_event": "memory",
}
DEVICE_KINDS = frozenset({"kernel", "copy"})


class ReportError(HarnessError):
    """A report that is missing, empty, or not what the tool says that it writes."""


@dataclass(frozen=True)
class Event:
    """One thing that took time, or (memory) one change of the bytes in use."""

    kind: Kind
    name: str
    start_us: float
    duration_us: float = 0.0
    lane: str = ""  # the thread or the stream: what runs on one lane does not overlap unless it nests
    correlation: int | None = None  # ties a launch to what it started on the device
    bytes_in_use: int | None = None  # memory only
    device: str = ""  # memory only: cpu or cuda

    @property
    def end_us(self) -> float:
        """When it ended."""
        return self.start_us + self.duration_us


def read_chrome(path: Path) -> list[Event]:
    """The events of a Chrome trace, gzipped or not; refuses one without any."""
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        trace = json.loads(text.decode("utf-8", "replace"))
    except FileNotFoundError:
        raise ReportError(f"the profiler left no trace ({path.name}); run it again with --verbose") from None
    except (OSError, EOFError, ValueError) as error:
        raise ReportError(
            f"the trace {path.name} cannot be read back ({error}); run the profile again"
        ) from None
    rows = trace.get("traceEvents", []) if isinstance(trace, dict) else trace
    events = from_chrome(rows)
    if not events:
        raise ReportError(f"the trace {path.name} holds no operator and no kernel; run the profile again")
    return events


def from_chrome(rows: Iterable[Mapping[str, Any]]) -> list[Event]:
    """The rows of a Chrome trace that this project reads, in order of time."""
    events = []
    for row in rows:
        kind = _KINDS.get(str(row.get("cat")))
        if kind is None or (row.get("ph") != "X" and kind != "memory"):
            continue
        name = str(row.get("name"))
        if kind == "range" and name.startswith("ProfilerStep#"):
            continue
        arguments = row.get("args") or {}
        if kind == "memory":
            if name != "[memory]":
                continue
            events.append(
                Event(
                    kind,
                    name,
                    float(row["ts"]),
                    bytes_in_use=int(arguments.get("Total Allocated", 0)),
                    device="cpu" if arguments.get("Device Type", 0) == 0 else "cuda",
                )
            )
            continue
        correlation = arguments.get("correlation")
        events.append(
            Event(
                kind,
                name,
                float(row["ts"]),
                float(row.get("dur", 0.0)),
                f"{row.get('pid')}/{row.get('tid')}",
                None if correlation is None else int(correlation),
            )
        )
    return sorted(events, key=lambda event: event.start_us)
