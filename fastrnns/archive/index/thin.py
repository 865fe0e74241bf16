"""The archive as `list` and `history` need it, answered from the index; a file that is not in it is read itself.

A thin record holds what those two look at and nothing else, in the shape of a whole one, so that both go
through the same code as records that were read from their files.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fastrnns.archive import store
from fastrnns.archive.index import build
from fastrnns.archive.index.layout import DAMAGED, FACT, FOLDER, RECORD, RESULT, Stamp
from fastrnns.archive.index.places import Folder, Place
from fastrnns.archive.index.tables import Part, needed
from fastrnns.errors import HarnessError, UsageError

STAMPED = ("name", "bytes", "mtime_ns")
LISTED = (*STAMPED, "id", "kind", "started_text", "sequence", "verdict", "models")
COMPARED = ("hardware_id", "steps", "setting", "software")


def overview(archive: store.Archive) -> store.Survey:
    """As `survey`, by the archive's own index; by the files where it has none, or nothing here to read it with."""
    place = Folder(archive.folder / FOLDER)
    if not place.present():
        return archive.survey()
    try:
        needed("pyarrow")
    except UsageError:
        return archive.survey()
    return survey(archive, place)


def survey(archive: store.Archive, place: Place, model: str | None = None) -> store.Survey:
    """As `Archive.survey`, with thin records: for `list`, or for the history of a model."""
    with _everything_kept():
        return _survey(archive, place, model)


@contextlib.contextmanager
def _everything_kept() -> Iterator[None]:
    """Without the collector: of the objects that are made here none is garbage, and it would walk them all again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _survey(archive: store.Archive, place: Place, model: str | None) -> store.Survey:
    entries: list[tuple[str, str, store.Entry]] = []
    damaged: list[tuple[Path, str]] = []
    for key, seen in build.scan(archive.folder).items():
        missing = dict(seen)
        folder = archive.folder / key.machine
        if part := place.open(key):
            found = _listed(part) if model is None else _compared(part, model)
            for (name, stamp), record in found:
                if missing.get(name) == stamp:
                    del missing[name]
                    entries.append((key.machine, name, store.Entry(folder / name, record)))
            for name, size, mtime_ns, problem in part.rows(DAMAGED, (*STAMPED, "problem")):
                if missing.get(name) == Stamp(size, mtime_ns):
                    del missing[name]
                    damaged.append((folder / name, f"{folder / name}{problem}"))
        for name in missing:
            try:
                entries.append((key.machine, name, store.read(folder / name)))
            except HarnessError as error:
                damaged.append((folder / name, str(error)))
    entries.sort(key=lambda item: item[:2])
    return store.Survey(tuple(store.in_order([item[-1] for item in entries])), tuple(sorted(damaged)))


def _listed(part: Part) -> Iterator[tuple[tuple[str, Stamp], dict[str, Any]]]:
    """What `list` shows of each record, with the state of the file that says so."""
    for name, size, mtime_ns, *rest in part.rows(RECORD, LISTED):
        yield (name, Stamp(size, mtime_ns)), _thin(rest)


def _thin(row: Sequence[Any]) -> dict[str, Any]:
    identity, kind, started_at, sequence, verdict, models = row
    return {
        "id": identity,
        "kind": kind,
        "started_at": started_at,
        "sequence": sequence,
        "verdict": {"status": verdict},
        "results": [{"model": model} for model in models],
    }


def _compared(part: Part, model: str) -> Iterator[tuple[tuple[str, Stamp], dict[str, Any]]]:
    """The same with what puts the records of a model into series, and their times: a sample a process, its median."""
    times = _times(part, model)
    facts = {
        digest: text
        for fact, digest, text in part.rows(FACT, ("fact", "digest", "json"))
        if fact != "hardware"
    }
    for row in part.rows(RECORD, (*LISTED, *COMPARED)):
        name, size, mtime_ns, *rest = row[: len(LISTED)]
        hardware_id, steps, setting, software = row[len(LISTED) :]
        record = _thin(rest)
        record["results"] = [times[name]] if name in times else []
        if name in times:
            record |= _parsed(facts[setting])
            record["environment"] = {"before": _parsed(steps)}
            record["fingerprint"] = {"ids": {"hardware": hardware_id}, "software": _parsed(facts[software])}
        yield (name, Stamp(size, mtime_ns)), record


def _times(part: Part, model: str) -> dict[str, dict[str, Any]]:
    """By the name of its file the first result of the model that went well, as `history` takes it."""
    columns = ("name", "place", "phase", "process_medians_ms")
    table = part.table(RESULT, (*columns, "model", "status"))
    compute = needed("pyarrow.compute")
    mine = compute.and_(compute.equal(table["model"], model), compute.equal(table["status"], "ok"))
    table = table.filter(mine)
    found: dict[str, dict[str, Any]] = {}
    for name, place, phase, medians in zip(*(table[each].to_pylist() for each in columns), strict=True):
        result = found.setdefault(name, {"model": model, "status": "ok", "place": place})
        if phase is not None and result["place"] == place:
            result[phase] = {"samples": [[median] for median in medians]}
    return found


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> Any:
    """One object for all records that share the text."""
    return json.loads(text)
