"""The ceilings of this machine: measured once, kept as a record, found again by hardware id. No torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastrnns.errors import HarnessError
from fastrnns.measure.process import Child

if TYPE_CHECKING:
    from fastrnns.archive.store import Archive

KIND = "ceilings"
WORKER = "fastrnns.profiling.ceiling_worker"
SILENCE_S = 180.0


def measure(
    device: str,
    *,
    threads: int | None = None,
    adopt: Callable[[int], None] | None = None,
    cpus: tuple[int, ...] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure in a fresh process: the worker's account of itself, and the ceilings."""
    hello: dict[str, Any] = {}
    found: dict[str, Any] | None = None
    with Child(WORKER, cpus=cpus) as child:
        if adopt is not None:
            adopt(child.pid)
        child.send({"device": device, "threads": threads})
        for event in child.events(SILENCE_S):
            if event["event"] == "hello":
                hello = event
            elif event["event"] == "ceilings":
                found = event["ceilings"]
    if found is None:
        raise HarnessError("the ceilings were not measured: the worker ended early; run it again")
    return hello, found


def of_machine(
    device: str,
    *,
    wanted: bool | None,
    archive: Archive | None,
    complete: Callable[[dict[str, Any] | None], dict[str, Any]],
    measure: Callable[[], tuple[dict[str, Any], dict[str, Any]]],
    threads: int | None,
    say: Callable[[str], None],
) -> dict[str, Any] | None:
    """The ceilings of this machine: kept in the archive, else measured now and kept; None if not wanted.

    `wanted` None: only with an archive, and measured only where it has none; True: measured again, and joined
    with what is kept. `complete` makes a fingerprint of what a worker said of itself.
    """
    if wanted is False or (wanted is None and archive is None):
        return None
    device_type = device.partition(":")[0]
    found = None
    if archive is not None:
        found = kept(archive.folder, complete(None)["ids"]["hardware"], device_type, threads)
    if found is not None and not wanted:
        return found
    say("measuring this machine's ceilings")
    started = time.monotonic()
    hello, measured = measure()
    if archive is not None:
        from fastrnns.archive import record as records

        new = records.new(KIND, [], None, {"device": device, "threads": measured.get("threads")})
        new |= {
            "duration_s": round(time.monotonic() - started, 3),
            "ceilings": measured,
            "fingerprint": complete(hello),
            "exit_code": 0,
        }
        new["verdict"] = {"status": "valid", "reasons": []}
        say(f"ceilings: {archive.write(new)}")
    return best(found, measured)


def fits(found: Mapping[str, Any], device_type: str, threads: int | None) -> bool:
    """Whether ceilings are those of a device; of a CPU, those of as many threads."""
    if found.get("device") != device_type:
        return False
    return device_type != "cpu" or threads is None or found.get("threads") == threads


def kept(
    folder: Path | str | None, hardware_id: str | None, device_type: str, threads: int | None
) -> dict[str, Any] | None:
    """The best of the ceilings in an archive that were measured on this hardware, or None."""
    if folder is None or hardware_id is None:
        return None
    from fastrnns.archive.store import in_order, read

    # By name first: an archive may hold thousands of other records.
    paths = [path for path in Path(folder).glob(f"*/*-{KIND}-*.json") if not path.name.startswith(".")]
    entries = []
    for path in paths:
        try:
            entries.append(read(path))
        except HarnessError:
            continue  # `archive check` is what names damaged files
    found: dict[str, Any] | None = None
    for entry in in_order(entries):
        ids = entry.record["fingerprint"]["ids"]
        measured = entry.record.get("ceilings") or {}
        if ids.get("hardware") == hardware_id and fits(measured, device_type, threads):
            found = best(found, measured) | {"records": [*(found or {}).get("records", []), entry.id]}
    return found


def best(one: Mapping[str, Any] | None, other: Mapping[str, Any]) -> dict[str, Any]:
    """What was reached in either: a disturbed machine shows too low a ceiling, never too high a one."""
    if one is None:
        return dict(other)
    rates = [side.get("matrix_flops_per_s") or {} for side in (one, other)]
    return {
        **one,
        "copy_bytes_per_s": _chosen(max, one.get("copy_bytes_per_s"), other.get("copy_bytes_per_s")),
        "matrix_flops_per_s": {
            dtype: _chosen(max, rates[0].get(dtype), rates[1].get(dtype)) for dtype in rates[0] | rates[1]
        },
        "launch_s": _chosen(min, one.get("launch_s"), other.get("launch_s")),
        "grid_barrier_s": _chosen(min, one.get("grid_barrier_s"), other.get("grid_barrier_s")),
    }


def _chosen(choose: Callable[..., float], *values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return choose(known) if known else None


def describe(found: Mapping[str, Any]) -> str:
    """The ceilings in one line, for a person."""
    parts = []
    if found.get("copy_bytes_per_s"):
        parts.append(f"copy {found['copy_bytes_per_s'] / 1e9:,.0f} GB/s")
    for dtype, rate in (found.get("matrix_flops_per_s") or {}).items():
        if rate:
            parts.append(
                f"{dtype} {rate / 1e12:,.1f} TFLOP/s"
                if rate >= 1e12
                else f"{dtype} {rate / 1e9:,.1f} GFLOP/s"
            )
    if found.get("launch_s"):
        parts.append(f"launch {found['launch_s'] * 1e6:.1f} us")
    if found.get("grid_barrier_s"):
        parts.append(f"grid barrier {found['grid_barrier_s'] * 1e6:.2f} us")
    return ", ".join(parts)
