"""The report of a machine's history: where the time of a model changed, and what software changed with it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fastrnns.archive import history
from fastrnns.archive.history import Series
from fastrnns.present.table import number
from fastrnns.report import machine, vector
from fastrnns.report.page import Cell, Line, Page, Picture, Section, Table, cells, milliseconds, sentence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Record = Mapping[str, Any]
SHOWN_DATES = 5


def page(records: Sequence[Record]) -> Page:
    """The whole report; oldest record first in `records`."""
    models = dict.fromkeys(result["model"] for record in records for result in record["results"])
    found = [series for model in models for series in history.history(records, model)]
    status = {str(record["id"]): record["verdict"]["status"] for record in records}
    steps = sum(len(series.steps) for series in found)
    counted = len({point.record_id for series in found for point in series.points})
    reasons = [f"{counted} of {len(records)} records hold times that can stand in a series"]
    reasons += [
        f"record {record['id']} is invalid, and left out: {'; '.join(record['verdict']['reasons'])}"
        for record in records
        if record["verdict"]["status"] == "invalid"
    ]
    machines = list(dict.fromkeys(machine.name(record) for record in records))
    return Page(
        title=f"History of {sentence(machines)}",
        subtitle=f"{len(records)} records from {records[0]['started_at'][:10]} to {records[-1]['started_at'][:10]}",
        status="no steps" if not steps else "1 step" if steps == 1 else f"{steps} steps",
        reasons=tuple(reasons),
        sections=(_steps(found), _pictures(found, status), _records(records)),
    )


def _steps(found: Sequence[Series]) -> Section:
    lines = tuple(
        Line(
            (
                *cells(series.model, series.phase, step.after.started_at[:19].replace("T", " ")),
                Cell("slower" if step.ratio > 1 else "faster", mark="slower" if step.ratio > 1 else "faster"),
                Cell(f"{step.ratio:.4f}", step.ratio, "main"),
                milliseconds(step.before.median_ms),
                milliseconds(step.after.median_ms),
                *cells(step.before.record_id, step.after.record_id),
                Cell(
                    ", ".join(str(change) for change in step.software)
                    or "nothing in the software fingerprint"
                ),
            ),
            series.model,
            series.phase,
        )
        for series in found
        for step in series.steps
    )
    text = "A step is a lasting change of level, larger than 1 %, between records that may be compared."
    if not lines:
        return Section("steps", "Steps", (text, "None was found."))
    columns = (
        "model", "phase", "from (UTC)", "verdict", "ratio", "before ms", "after ms", "last before", "first after",
        "what changed",
    )  # fmt: skip
    table = Table(
        "steps", "Ratio: the level after over the level before.", columns, lines, frozenset({4, 5, 6})
    )
    return Section("steps", "Steps", (text,), (table,))


def _pictures(found: Sequence[Series], status: Mapping[str, str]) -> Section:
    lines = tuple(
        Line(
            (
                *cells(series.model, series.phase),
                Cell(str(len(series.points)), len(series.points)),
                milliseconds(series.points[0].median_ms),
                milliseconds(series.points[-1].median_ms),
                Cell(str(len(series.steps)), len(series.steps)),
                Cell(series.setting),
            ),
            series.model,
            series.phase,
        )
        for series in found
    )
    columns = ("model", "phase", "records", "first ms", "last ms", "steps", "setting")
    table = Table(
        "series", "One series for each model, phase and setting.", columns, lines, frozenset({2, 3, 4, 5})
    )
    pictures = tuple(
        Picture(
            f"history-{index}",
            f"{series.model} {series.phase}",
            _describe(series),
            partial(_draw, series, status),
            series.model,
            series.phase,
        )
        for index, series in enumerate(found)
    )
    text = (
        "Each mark is the median of one record, hollow where the record is tainted; a dashed line is a step."
    )
    return Section("series", "Series", (text,), (table,) if lines else (), pictures, switches=True)


def _describe(series: Series) -> str:
    times = [point.median_ms for point in series.points]
    text = f"{len(times)} records, from {number(times[0])} to {number(times[-1])} ms; lowest {number(min(times))}, "
    text += f"highest {number(max(times))}. "
    steps = [f"{step.ratio - 1:+.1%} at {step.after.record_id}" for step in series.steps]
    return text + (f"Steps: {', '.join(steps)}." if steps else "No step.")


def _draw(series: Series, status: Mapping[str, str]) -> Figure:
    with vector.styled():
        drawn = vector.figure(5.6, 2.5, fitted=True)
        axes = drawn.subplots()
        times = [point.median_ms for point in series.points]
        colour = vector.PHASE_COLOURS[series.phase]
        places = range(len(times))
        axes.plot(places, times, color=colour, linewidth=1)
        for place, point in zip(places, series.points, strict=True):
            sure = status.get(point.record_id) == "valid"
            vector.marks(
                axes,
                [place],
                [point.median_ms],
                colour=colour,
                marker="s" if sure else "o",
                size=4.5,
                fill=vector.PAPER,
            )
        ids = [point.record_id for point in series.points]
        for step in series.steps:
            at = ids.index(step.after.record_id) - 0.5
            axes.axvline(at, color=vector.PURPLE, linestyle="--", linewidth=1.2)
            axes.text(
                at, 1.0, f"{step.ratio - 1:+.1%}", transform=axes.get_xaxis_transform(), ha="center", va="bottom",
                fontsize=8, color=vector.INK,
            )  # fmt: skip
        shown = list(places)[:: max(1, -(-len(times) // SHOWN_DATES))]
        axes.set_xticks(shown, [series.points[place].started_at[:10] for place in shown])
        axes.set_ylabel("ms")
        axes.margins(y=0.15)
    return drawn


def _records(records: Sequence[Record]) -> Section:
    lines = tuple(
        Line(
            cells(
                record["id"],
                record["started_at"][:19].replace("T", " "),
                record["kind"],
                record["verdict"]["status"],
                machine.subtitle(record),
                machine.commit(record),
            )
        )
        for record in records
    )
    columns = ("record", "started (UTC)", "kind", "verdict", "machine", "commit")
    return Section(
        "records",
        "Records",
        tables=(Table("records", "Oldest first.", columns, lines),),
        folded=len(lines) > 12,
    )
