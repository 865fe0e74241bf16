"""From what was found to the record: results, ceilings, fingerprint and files, kept in the archive."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastrnns.archive import record as records
from fastrnns.archive.store import Archive
from fastrnns.profiling import ceilings, files, session
from fastrnns.profiling.plan import Plan
from fastrnns.profiling.session import Found


def environment(held: Any, mode: str, notes: Sequence[str] = ()) -> dict[str, Any]:
    """What a record says of the machine while it was held."""
    return {
        "mode": mode,
        "before": list(held.before),
        "after": list(held.after),
        "shield": dict(held.shield) or None,
        "watch": None,
        "drift": list(held.drift),
        "reasons": [*held.reasons, *notes],
    }


def build(
    plan: Plan,
    argv: Sequence[str],
    done: Sequence[Found],
    *,
    started: float,
    fingerprint: Mapping[str, Any],
    known: dict[str, Any] | None,
    surroundings: dict[str, Any],
    exit_code: int,
) -> dict[str, Any]:
    """The record of a profile."""
    found = records.new("profile", argv, plan.problem.as_dict(), plan.options())
    results = [session.result(plan, one, known) for one in done]
    found |= {
        "duration_s": round(time.monotonic() - started, 3),
        "results": results,
        "fingerprint": dict(fingerprint),
        "environment": surroundings,
        "exit_code": exit_code,
        "ceilings": known,
        "details": {
            "tool": {"name": plan.choice.tool, "why": plan.choice.why, "refused": plan.choice.refused}
        },
        "verdict": records.verdict(
            surroundings, results, plan.options(), kind="profile", exit_code=exit_code
        ),
    }
    return found


def write(store: Archive, found: dict[str, Any], done: Sequence[Found], folder: Path) -> Path:
    """The record and its files, in the archive."""
    ready = folder / "ready"
    ready.mkdir()
    paths = [
        path
        for one, result in zip(done, found["results"], strict=True)
        if one.phases
        for path in files.prepare(one, ready, {**result, "profile": {**result["profile"], **one.phases}})
    ]
    return files.archive(store, found, paths)


def ceilings_for(
    plan: Plan,
    *,
    wanted: bool | None,
    archive: Archive | None,
    complete: Callable[[dict[str, Any] | None], dict[str, Any]],
    measure: Callable[[], tuple[dict[str, Any], dict[str, Any]]],
    threads: int | None,
    say: Callable[[str], None],
) -> dict[str, Any] | None:
    """The ceilings of this machine: kept in the archive, else measured now and kept; None if not wanted.

    `wanted` None: only where an archive keeps them, so that no command measures them twice.
    """
    if wanted is False or (wanted is None and archive is None):
        return None
    folder = archive.folder if archive is not None else None
    hardware = complete(None)["ids"]["hardware"]
    found = ceilings.kept(folder, hardware, plan.device_type, threads)
    if found is not None:
        return found
    say("measuring this machine's ceilings, once")
    started = time.monotonic()
    hello, measured = measure()
    if archive is not None:
        new = records.new("ceilings", [], None, {"device": plan.device, "threads": measured.get("threads")})
        new |= {
            "duration_s": round(time.monotonic() - started, 3),
            "ceilings": measured,
            "fingerprint": complete(hello),
            "exit_code": 0,
        }
        new["verdict"] = {"status": "valid", "reasons": []}
        say(f"ceilings: {archive.write(new)}")
    return measured
