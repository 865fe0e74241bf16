"""The report of two records: the verdicts first, then ratios, samples side by side, and what else differs. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fastrnns.archive.comparable import Difference
from fastrnns.archive.compare import Comparison, Row
from fastrnns.archive.listing import plain
from fastrnns.present.table import number
from fastrnns.report import machine, samples, vector
from fastrnns.report.page import Cell, Line, Page, Picture, Section, Table, cells, milliseconds, without_empty
from fastrnns.report.samples import Panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Record = Mapping[str, Any]
COLUMNS = ("model", "phase", "verdict", "base ms", "new ms", "ratio", "95 % interval", "margin", "why")


def page(judged: Comparison, base: Record, new: Record) -> Page:
    """The whole report of a comparison that was judged."""
    sections = (
        _verdicts(judged),
        _samples(base, new),
        _records(base, new),
        _software(judged.software),
        _steps(base, new),
        Section("repeat", "Repeat it", commands=(("compare again", _command(judged)),)),
    )
    return Page(
        title=f"{judged.new_id} against {judged.base_id}",
        subtitle=f"new: {machine.subtitle(new)}; base: {machine.subtitle(base)}",
        status=judged.overall,
        reasons=tuple(_reasons(judged, base, new)),
        sections=tuple(section for section in sections if section is not None),
    )


def _command(judged: Comparison) -> str:
    return f"python -m fastrnns.compare {judged.base_id} {judged.new_id}"


def _sides(base: Record, new: Record) -> tuple[tuple[str, Record], tuple[str, Record]]:
    return ("base", base), ("new", new)


def _reasons(judged: Comparison, base: Record, new: Record) -> Iterator[str]:
    """How many of each verdict, why there are none, and what else must be known; what is long stands below."""
    counts = Counter(row.verdict for row in judged.rows)
    yield (
        ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        or "no model is in both records"
    )
    for difference in judged.refusals:
        yield f"{difference}: {'forced although this differs' if judged.forced else 'this must not differ'}"
    doubts = {}
    for side, record in _sides(base, new):
        verdict = record["verdict"]
        doubts[f"{side} is {verdict['status']}"] = len(verdict["reasons"])
    for note in judged.notes:
        start = note.partition(":")[0]
        yield (
            f"{start}, for {doubts[start]} reasons: see the two records" if doubts.get(start, 0) > 1 else note
        )


def _verdicts(judged: Comparison) -> Section:
    lines = tuple(
        Line(
            (
                *cells(row.model, row.phase),
                Cell(row.verdict, mark=row.verdict),
                milliseconds(row.base_ms),
                milliseconds(row.new_ms),
                Cell("-" if row.ratio is None else f"{row.ratio:.4f}", row.ratio, "main"),
                Cell(
                    "-" if row.ci95 is None else f"{row.ci95[0]:.4f}-{row.ci95[1]:.4f}",
                    (row.ci95 or (None,))[0],
                ),
                Cell("-" if row.margin is None else f"{row.margin * 100:.2g} %", row.margin),
                Cell(row.reason or ""),
            ),
            row.model,
            row.phase,
        )
        for row in judged.rows
    )
    caption = "Ratio: new over base, above 1 is slower. Same means that the interval lies inside the margin."
    table = without_empty(Table("verdicts", caption, COLUMNS, lines, frozenset({3, 4, 5, 6, 7})))
    placed = tuple(row for row in judged.rows if row.ratio is not None)
    picture = Picture(
        "ratios",
        "Ratios and their intervals",
        "The ratio of new to base of each model and phase with its 95 % interval where there is one, and its margin as "
        "a grey band. Left of 1 is faster. The same figures stand in the table.",
        partial(_draw_ratios, placed),
        wide=True,
    )
    return Section(
        "verdicts", "Verdicts", tables=(table,), pictures=(picture,) if placed else (), switches=True
    )


def _draw_ratios(rows: Sequence[Row]) -> Figure:
    with vector.styled():
        drawn = vector.figure(10, 0.8 + 0.28 * len(rows), fitted=True)
        axes = drawn.subplots()
        axes.axvline(1, color=vector.INK, linewidth=1)
        for place, row in enumerate(rows):
            ratio, margin = row.ratio or 1.0, row.margin or 0.0
            axes.fill_betweenx(
                [place - 0.35, place + 0.35],
                1 / (1 + margin),
                1 + margin,
                color=vector.GRID,
                linewidth=0,
                zorder=0,
            )
            low, high = row.ci95 or (ratio, ratio)
            axes.errorbar(
                ratio, place, xerr=[[max(0.0, ratio - low)], [max(0.0, high - ratio)]], capsize=3, linewidth=1.2,
                fmt="o" if row.phase == "forward" else "s", markersize=5, color=vector.PHASE_COLOURS[row.phase],
            )  # fmt: skip
        axes.set_yticks(range(len(rows)), [f"{plain(row.model)[:40]} {row.phase}" for row in rows])
        axes.tick_params(axis="y", labelcolor=vector.INK, length=0)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel("new / base")
    return drawn


def _samples(base: Record, new: Record) -> Section | None:
    before = {(panel.model, panel.phase): panel for panel in samples.panels(base)}
    pairs = [
        (before[panel.model, panel.phase], panel)
        for panel in samples.panels(new)
        if (panel.model, panel.phase) in before
    ]
    if not pairs:
        return None
    pictures = tuple(
        Picture(
            f"pair-{index}",
            f"{panel.model} {panel.phase}",
            f"Base: {samples.describe(old, warmup=False)} New: {samples.describe(panel, warmup=False)}",
            partial(_draw_pair, old, panel),
            panel.model,
            panel.phase,
        )
        for index, (old, panel) in enumerate(pairs)
    )
    text = (
        "Each dot is one timed iteration in run order, the base's in grey on the left, the new ones in colour on the "
        "right; lines are the medians. Beside them both distributions, as shares of each record's iterations."
    )
    return Section("samples", "Every sample", (text,), pictures=pictures)


def _draw_pair(base: Panel, new: Panel) -> Figure:
    import numpy as np

    with vector.styled():
        drawn = vector.figure(5.6, 2.5)
        run, spread = drawn.subplots(1, 2, sharey=True, width_ratios=(3.4, 1))
        drawn.subplots_adjust(left=0.115, right=0.99, top=0.92, bottom=0.17, wspace=0.06)
        run.set_ylim(*samples.limits([*base.timed, *new.timed]))
        edges = np.linspace(*samples.limits([*base.timed, *new.timed]), 41)
        begin = 0
        for panel, colour, name in (
            (base, vector.SOFT, "base"),
            (new, vector.PHASE_COLOURS[new.phase], "new"),
        ):
            first = begin
            for series in panel.samples:
                vector.dots(run, begin + np.arange(len(series)), np.array(series), colour=colour)
                begin += len(series)
                run.axvline(begin - 0.5, color=vector.GRID, linewidth=0.6)
            middle = panel.median if panel.median is not None else math.nan
            run.plot([first - 0.5, begin - 0.5], [middle, middle], color=vector.GREEN, linewidth=1.3)
            run.text(
                (first + begin) / 2, 1.0, f"{name}: {number(panel.median)} ms", ha="center", va="bottom", fontsize=8,
                transform=run.get_xaxis_transform(), color=vector.SOFT,
            )  # fmt: skip
            shares = np.histogram(panel.timed, edges)[0] / len(panel.timed)
            spread.stairs(shares, edges, orientation="horizontal", color=colour, linewidth=1.2, fill=False)
        run.axvline(len(base.timed) - 0.5, color=vector.INK, linewidth=0.8)
        run.set_xlim(-0.5, max(begin - 0.5, 0.5))
        run.set_xlabel("iteration, in run order")
        run.set_ylabel("ms")
        run.xaxis.get_major_locator().set_params(integer=True)
        spread.set_xlabel("share")
        spread.tick_params(labelleft=False)
    return drawn


def _records(base: Record, new: Record) -> Section:
    lines = tuple(
        Line(
            cells(
                side,
                record["id"],
                record["started_at"][:19].replace("T", " "),
                record["verdict"]["status"],
                "; ".join(record["verdict"]["reasons"]) or "-",
                machine.subtitle(record),
                record["fingerprint"]["ids"]["hardware"],
                machine.commit(record),
            )
        )
        for side, record in _sides(base, new)
    )
    columns = ("side", "record", "started (UTC)", "verdict", "reasons", "machine", "hardware id", "commit")
    table = Table("records", "What was compared.", columns, lines)
    return Section("records", "The two records", tables=(table,))


def _software(differences: Sequence[Difference]) -> Section:
    if not differences:
        return Section("software", "Software", ("No difference is known between the two fingerprints.",))
    lines = tuple(Line(cells(each.field, each.base, each.new)) for each in differences)
    table = Table("software", "What differs in the software fingerprint.", ("fact", "base", "new"), lines)
    return Section("software", "Software", tables=(table,))


def _steps(base: Record, new: Record) -> Section | None:
    sides = [
        {step["name"]: step for step in record["environment"]["before"]} for _, record in _sides(base, new)
    ]
    lines = []
    for name in dict.fromkeys((*sides[0], *sides[1])):
        first, second = (machine.step_cell(side.get(name)) for side in sides)
        differs = first.text != second.text
        lines.append(
            Line(
                (
                    Cell(name),
                    first,
                    second,
                    Cell("differs" if differs else "-", mark="drift" if differs else ""),
                ),
                mark="drifted" if differs else "",
            )
        )
    if not lines:
        return None
    table = Table(
        "steps",
        "Each step of the machine, before either run.",
        ("step", "base", "new", "verdict"),
        tuple(lines),
    )
    return Section("environment", "Environment", tables=(table,))
