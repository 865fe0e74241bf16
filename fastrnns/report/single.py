"""The report of one record: verdict first, then what was measured, on what, and how to repeat it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from fastrnns.phases import ALL, STREAM
from fastrnns.present import table as present
from fastrnns.report import machine, samples, timeline, winners
from fastrnns.report.page import Cell, Line, Page, Section, Table, cells, milliseconds, without_empty

COLUMNS = (
    "model",
    "phase",
    "median ms",
    "95 % interval",
    "min",
    "mean",
    "std",
    "n",
    "ratio",
    "% of limit",
    "what ran",
)
LEGEND = (
    "Each dot is one timed iteration, none is left out; the line is the median, the band its 95 % interval. "
    "Rings are warm-up, which no figure counts; triangles are warm-up beyond the axis. On the right, the "
    "distribution of the timed iterations on the same scale."
)
SHOWN_NOTES = 6
NUMERIC = frozenset({2, 3, 4, 5, 6, 7, 8, 9})


def page(record: Mapping[str, Any]) -> Page:
    """The whole report of a record, whatever its kind."""
    sections = (
        winners.section(record),
        _results(record),
        _notes(record),
        _checks(record),
        _samples(record),
        _timeline(record),
        _profile(record),
        _roofline(record),
        machine.ceilings(record),
        machine.environment(record),
        machine.fingerprint(record),
        machine.conditions(record),
        _repeat(record),
    )
    return Page(
        title=f"{record['kind']} {record['id']}",
        subtitle=machine.subtitle(record),
        status=record["verdict"]["status"],
        reasons=tuple(record["verdict"]["reasons"]),
        sections=tuple(section for section in sections if section is not None),
    )


def results_table(record: Mapping[str, Any]) -> Table:
    """The record's times with their intervals; a model that failed has its error in place of them."""
    results = record["results"]
    over = present.references(results)
    caption = "Times in milliseconds: the median over processes, and its 95 % interval over processes."
    made = Table(
        name="results",
        caption=caption + (f" Ratio: {over}." if over else ""),
        columns=COLUMNS,
        lines=tuple(_lines(record)),
        numeric=NUMERIC,
    )
    return without_empty(made)


def _lines(record: Mapping[str, Any]) -> Iterator[Line]:
    by_name = {result["model"]: result for result in record["results"]}
    for result in record["results"]:
        said = ", ".join(present.marks_of(result))
        if result["status"] != "ok":
            error = Cell(f"{result['status']}: {result['error']}", mark="error")
            yield Line(
                (*cells(result["model"], ""), *cells(*[""] * 8), error), result["model"], mark="failed"
            )
            continue
        for phase in ALL:
            facts = result.get(phase)
            if facts is None:
                continue
            ratio = present.ratio(result, by_name, phase)
            share = _share(result, phase)
            low = (facts["ci95"] or (None,))[0]
            yield Line(
                (
                    *cells(result["model"], phase),
                    milliseconds(facts["median"], "main"),
                    Cell(present.interval(facts["ci95"]), low),
                    *(milliseconds(facts[name]) for name in ("min", "mean", "std")),
                    Cell(str(facts["n"] or "-"), facts["n"]),
                    Cell(ratio or "-", float(ratio) if ratio else None),
                    Cell("-" if share is None else f"{share:.1%}", share),
                    Cell(said),
                ),
                model=result["model"],
                phase=phase,
            )


def _results(record: Mapping[str, Any]) -> Section | None:
    if not any(result["forward"] or result["status"] != "ok" for result in record["results"]):
        return None
    picture = samples.overview(samples.panels(record), "Medians and their intervals")
    pictures = () if picture is None else (picture,)
    return Section("results", "Results", tables=(results_table(record),), pictures=pictures, switches=True)


def _notes(record: Mapping[str, Any]) -> Section | None:
    lines = tuple(
        Line(cells(result["model"], note), result["model"])
        for result in record["results"]
        for note in result["notes"]
    )
    if not lines:
        return None
    table = Table("notes", "What has to be known beside the figures.", ("model", "note"), lines)
    return Section("notes", "Notes", tables=(table,), folded=len(lines) > SHOWN_NOTES)


def _checks(record: Mapping[str, Any]) -> Section | None:
    lines = tuple(
        Line(
            (
                *cells(result["model"], check.get("tensor"), check.get("against")),
                _agreement(check.get("ok")),
                *(Cell(_short(check.get(key)), check.get(key)) for key in ("max_abs", "allowed")),
                Cell(str(check.get("problem") or "")),
            ),
            model=result["model"],
            mark="" if check.get("ok") else "failed",
        )
        for result in record["results"]
        for check in result.get("checks") or ()
    )
    if not lines:
        return None
    columns = ("model", "tensor", "against", "result", "largest difference", "allowed", "problem")
    caption = "What was compared, and by how much it differs."
    table = Table("checks", caption, columns, lines, frozenset({4, 5}))
    return Section("checks", "Checks", tables=(table,), switches=True)


def _agreement(ok: Any) -> Cell:
    return Cell("agrees" if ok else "not known" if ok is None else "differs", mark="" if ok else "error")


def _short(value: Any) -> str:
    return "-" if value is None else f"{value:.3g}"


def _samples(record: Mapping[str, Any]) -> Section | None:
    found = samples.panels(record)
    if not found:
        return None
    return Section(
        "samples",
        "Every sample",
        texts=(LEGEND,),
        pictures=tuple(samples.picture(panel, f"samples-{index}") for index, panel in enumerate(found)),
    )


def _timeline(record: Mapping[str, Any]) -> Section | None:
    found = timeline.timelines(record)
    if not found:
        return None
    return Section(
        "timeline",
        "Samples and watch",
        texts=("What the machine did meanwhile stands below the samples, on the same axis of time.",),
        pictures=tuple(timeline.picture(one) for one in found),
    )


def _share(result: Mapping[str, Any], phase: str) -> float | None:
    share = (_limit(result, phase).get("limit") or {}).get("share")
    return None if share is None else float(share)


def _limit(result: Mapping[str, Any], phase: str) -> Mapping[str, Any]:
    """What a record knows of the hardware's limit: a profile keeps it with each phase."""
    own = (result.get("roofline") or {}).get(phase)
    return dict(own or ((result.get("profile") or {}).get(phase) or {}).get("roofline") or {})


def _roofline(record: Mapping[str, Any]) -> Section | None:
    from fastrnns.report import roofline

    points = [
        point
        for result in record["results"]
        for phase in STREAM
        if (point := roofline.point(result, phase, _limit(result, phase))) is not None
    ]
    return roofline.section(points, record.get("ceilings") or {}, record["options"]) if points else None


def _profile(record: Mapping[str, Any]) -> Section | None:
    """Where the time of each phase went, in the profile's own words, and the files that say more."""
    lines = []
    for result in record["results"]:
        for phase in STREAM:
            found = (result.get("profile") or {}).get(phase) or {}
            if not found:
                continue
            busy, overhead = found.get("busy_share"), found.get("overhead_us_per_step")
            said = [found.get("reading"), (found.get("account") or {}).get("text")]
            lines.append(
                Line(
                    (
                        *cells(result["model"], phase),
                        milliseconds(found.get("wall_ms")),
                        milliseconds(found.get("work_ms")),
                        Cell("-" if busy is None else f"{busy:.0%}", busy),
                        Cell("-" if overhead is None else f"{overhead:.3g}", overhead),
                        Cell("; ".join(str(text) for text in said if text)),
                    ),
                    result["model"],
                    phase,
                )
            )
    if not lines:
        return None
    caption = (
        "One iteration under the profiler, which slows it: its length, the kernels' work in it, and the rest."
    )
    columns = ("model", "phase", "wall ms", "work ms", "busy", "overhead us a step", "reading")
    tables = [without_empty(Table("profile", caption, columns, tuple(lines), frozenset(range(2, 6))))]
    files = tuple(
        Line((*cells(each["name"]), Cell(str(each["bytes"]), each["bytes"]), Cell(each["what"])))
        for each in record.get("files") or ()
    )
    if files:
        caption = "Files in the folder of the record's name, beside it."
        tables.append(Table("files", caption, ("file", "bytes", "what"), files, frozenset({1})))
    return Section("profile", "Where the time goes", tables=tuple(tables))


def _repeat(record: Mapping[str, Any]) -> Section:
    commands = [("what ran", shlex.join(record["command"]["argv"]))]
    if record["kind"] in {"bench", "reproduce", "calibrate"}:
        commands.append(
            ("run it again, and say whether it holds", f"python -m fastrnns.reproduce {record['id']}")
        )
    commit = machine.commit(record)
    if commit:
        commands.append(("the code it ran", f"git checkout {commit}"))
    return Section("repeat", "Repeat it", commands=tuple(commands), texts=tuple(record.get("notes") or ()))
