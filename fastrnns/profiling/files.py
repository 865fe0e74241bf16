"""The files of a profile: traces and tables that need no tool of ours, nothing private in them."""

from __future__ import annotations

import csv
import functools
import gzip
import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from env.privacy import scrub
from fastrnns.archive import durable, record
from fastrnns.archive.naming import file_name, machine_folder
from fastrnns.archive.store import Archive
from fastrnns.profiling.session import Found

# Of a Chrome trace: torch also writes the host's name and the path of its temporary file.
TRACE_KEYS = ("schemaVersion", "displayTimeUnit", "baseTimeNanoseconds", "deviceProperties", "traceEvents")
WHAT = {
    ".trace.json.gz": "Chrome trace of the profiled iterations; Perfetto shows it",
    ".graph.txt": "the graph that the JIT ran, after its optimisations",
    ".kernels.csv": "kernels by name, or (ncu) one a line: calls and times per iteration",
    ".operators.csv": "operators by name: calls and own times per iteration",
    ".summary.json": "everything the record says of this model's profile, with all rows",
    ".nvprof.csv": "nvprof's log",
}


def prepare(found: Found, folder: Path, summary: Mapping[str, Any]) -> list[Path]:
    """Write the files of one model into a folder: its tool's, scrubbed, and the tables."""
    written = [
        clean_trace(source, folder) if source.name.endswith(".trace.json") else clean_text(source, folder)
        for source in found.files
    ]
    for kind in ("operators", "kernels"):
        rows = list(_rows(found, kind))
        target = folder / f"{found.model}.{kind}.csv"
        if rows and target not in written:
            written.append(table(target, rows))
    target = folder / f"{found.model}.summary.json"
    text = json.dumps(record.prepare(summary), indent=1, ensure_ascii=True, allow_nan=False)
    target.write_text(text + "\n", encoding="ascii")
    return [*written, target]


def _rows(found: Found, kind: str) -> Iterable[dict[str, Any]]:
    for phase, facts in found.phases.items():
        for row in (facts.get(kind) or {}).get("rows", ()):
            yield {"phase": phase, **row, "name": _clean(row["name"])}


def table(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Rows as CSV."""
    with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)
    return path


def clean_trace(source: Path, folder: Path) -> Path:
    """A trace without the host's name and private paths, compressed; its events are untouched."""
    trace = json.loads(source.read_bytes().decode("utf-8", "replace"))
    kept = {key: trace[key] for key in TRACE_KEYS if key in trace}
    target = folder / f"{source.name}.gz"
    text = json.dumps(_cleaned(kept), separators=(",", ":"), ensure_ascii=True)
    # No name and no time in the gzip header: the same trace gives the same bytes.
    target.write_bytes(gzip.compress(text.encode("ascii"), mtime=0))
    return target


def clean_text(source: Path, folder: Path) -> Path:
    """A text file without private names, in UTF-8 whatever it was."""
    text = source.read_bytes().decode("utf-8", "replace")
    target = folder / source.name
    target.write_text(scrub(text), encoding="utf-8", errors="replace")
    return target


@functools.lru_cache(maxsize=65536)
def _clean(text: str) -> str:
    return scrub(text)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, dict):
        return {key: _cleaned(item) for key, item in value.items()}
    return [_cleaned(item) for item in value] if isinstance(value, list) else value


def entries(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """What a record says of its files: name, size, hash, and what each is."""
    return [
        {
            "name": path.name,
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "what": next(
                (text for ending, text in WHAT.items() if path.name.endswith(ending)), "tool report"
            ),
        }
        for path in sorted(paths)
    ]


def archive(store: Archive, found: dict[str, Any], paths: Sequence[Path]) -> Path:
    """Write a record and its files beside it, in a folder of the record's own name; the files go first.

    Interrupted between the two, a folder without a record is left, never a record without its files.
    """
    found["files"] = entries(paths)
    machine = store.folder / machine_folder(record.prepare(found)["fingerprint"])
    folder = machine / Path(file_name(found)).stem
    durable.make_folder(folder)
    for path in paths:
        durable.write_new(folder / path.name, path.read_bytes())
    written = store.write(found)
    if written.stem != folder.name:  # the id was taken: the archive chose another
        shutil.move(folder, written.with_suffix(""))
    return written


def check(record_path: Path, found: Mapping[str, Any]) -> list[str]:
    """What is wrong with the files of an archived record, in sentences."""
    problems = []
    for entry in found.get("files") or []:
        path = record_path.with_suffix("") / entry["name"]
        try:
            data = path.read_bytes()
        except OSError:
            problems.append(f"{path.name} is missing beside {record_path.name}")
            continue
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            problems.append(f"{path.name} beside {record_path.name} was edited or torn")
    return problems
