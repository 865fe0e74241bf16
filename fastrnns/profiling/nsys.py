"""Nsight Systems: a timeline of kernels, launches and named phases, read back from its SQLite export."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from fastrnns.profiling import external
from fastrnns.profiling.events import Event, Kind, ReportError

Runner = Callable[[Sequence[str]], external.Completed]
_TABLES: tuple[tuple[str, Kind, str], ...] = (  # table, kind, the column or text that names a row
    ("CUPTI_ACTIVITY_KIND_KERNEL", "kernel", "demangledName"),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", "copy", "'memcpy'"),
    ("CUPTI_ACTIVITY_KIND_MEMSET", "copy", "'memset'"),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "launch", "nameId"),
)


def arguments(path: str, program: Sequence[str], report: Path) -> list[str]:
    """The command line: CUDA and named ranges, from cudaProfilerStart to Stop; no counters are needed."""
    return [
        path, "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none",
        "--capture-range=cudaProfilerApi", "--capture-range-end=stop",
        "--force-overwrite=true", f"--output={report.with_suffix('')}", *program,
    ]  # fmt: skip


def profile(
    path: str, program: Sequence[str], folder: Path, *, name: str, run: Runner
) -> tuple[list[Event], list[Path]]:
    """Run a program under nsys; its events, and the files that are readable without this tool."""
    report = folder / f"{name}.nsys-rep"
    done = run(arguments(path, program, report))
    external.report(report, "nsys", done)
    database = folder / f"{name}.sqlite"
    exported = run(
        [path, "export", "--type=sqlite", "--force-overwrite=true", f"--output={database}", str(report)]
    )
    external.report(database, "nsys export", exported)
    return read(database), []


def read(database: Path) -> list[Event]:
    """The events of an export, in microseconds; refuses one without a kernel."""
    try:
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            tables = {
                row[0] for row in connection.execute("select name from sqlite_master where type='table'")
            }
            events = [event for table in _TABLES if table[0] in tables for event in _rows(connection, *table)]
            if "NVTX_EVENTS" in tables:
                rows = connection.execute(
                    "select n.start, n.end, coalesce(n.text, s.value) from NVTX_EVENTS n "
                    "left join StringIds s on n.textId = s.id where n.end is not null"
                )
                events += [
                    Event("range", str(text), start / 1e3, (end - start) / 1e3) for start, end, text in rows
                ]
    except sqlite3.Error as error:
        raise ReportError(
            f"nsys's export {database.name} cannot be read back ({error}); profile again"
        ) from None
    if not any(event.kind == "kernel" for event in events):
        raise ReportError("nsys's report holds no kernel: nothing ran on the GPU while it looked")
    return sorted(events, key=lambda event: event.start_us)


def _rows(connection: sqlite3.Connection, table: str, kind: Kind, naming: str) -> list[Event]:
    named = naming.startswith("'")
    name = naming if named else "s.value"
    join = "" if named else f"left join StringIds s on t.{naming} = s.id"
    lane = "t.globalTid" if kind == "launch" else "t.streamId"
    rows = connection.execute(
        f"select t.start, t.end, {name}, {lane}, t.correlationId from {table} t {join}"  # noqa: S608  our own names
    )
    return [
        Event(kind, str(text), start / 1e3, (end - start) / 1e3, str(on), correlation)
        for start, end, text, on, correlation in rows
    ]
