"""Tables of models and of results: for a person in 100 columns, or separated for a program."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from fastrnns import runner, sweep
from fastrnns.phases import ALL as PHASES

WIDTH = 100
HEADINGS = ("model", "phase", "median", "95 % interval", "mean", "std", "n", "ratio", "of limit", "marks")
SHORT = {"forward_graph": "fwd graph", "backward_graph": "bwd graph"}  # for a person: columns are dear


@dataclass(frozen=True)
class Row:
    """One phase of one model, as text; `error` in place of numbers."""

    model: str
    phase: str
    median: str = ""
    interval: str = ""
    mean: str = ""
    std: str = ""
    n: str = ""
    ratio: str = ""
    limit: str = ""
    marks: str = ""
    error: str = ""


def rows(results: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows of all results, two a model, or one where it failed or has no backward."""
    by_name = {result["model"]: result for result in results}
    made: list[Row] = []
    for result in results:
        marks = ", ".join(marks_of(result))
        phases = [phase for phase in PHASES if result.get(phase)]
        for phase in phases:
            facts = result[phase]
            made.append(
                Row(
                    model=result["model"],
                    phase=phase,
                    median=number(facts["median"]),
                    interval=interval(facts["ci95"]),
                    mean=number(facts["mean"]),
                    std=number(facts["std"]),
                    n=str(facts["n"]),
                    ratio=ratio(result, by_name, phase),
                    limit=share(result, phase),
                    marks=marks if phase == phases[0] else "",
                )
            )
        if result["status"] != "ok":
            made.append(Row(model=result["model"], phase="", error=f"{result['status']}: {result['error']}"))
    return made


def marks_of(result: Mapping[str, Any]) -> list[str]:
    """What must be seen beside the number: what really ran, and what was cut short or unsteady."""
    found = [str(result["backend"]).split(" (")[0]] if result.get("backend") else []
    model = runner.known(result["model"])
    if model is not None and model.legacy and found:
        found.append("legacy")
    return [*found, *(result.get("details") or {}).get("marks", ())]


def number(value: float | None) -> str:
    """Milliseconds with four digits that count."""
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:.0f}"
    return f"{value:#.4g}"


def cold_starts(results: Sequence[Mapping[str, Any]]) -> str:
    """What the first process took to build each model, and for its first forward and backward."""
    found = []
    for result in results:
        parts = result.get("cold_start") or {}
        firsts = [parts.get(name) for name in ("built", "first_forward", "first_backward")]
        if firsts[0]:
            found.append(f"{result['model']} {' + '.join(f'{first[0]:.0f}' for first in firsts if first)}")
    return "; ".join(found)


def interval(bounds: Sequence[float] | None) -> str:
    """Both ends of an interval, or a dash where there are too few samples for one."""
    return "-" if not bounds else f"{number(bounds[0])}-{number(bounds[1])}"


def reference(result: Mapping[str, Any], by_name: Mapping[str, Any]) -> str | None:
    """The model that this one's time may be set against, where it ran too."""
    model = runner.known(result["model"])
    name = model.comparable_with if model is not None else None
    if name is not None:  # at the same point of a sweep
        name = sweep.series(name, sweep.parts(result["model"])[1])
    if name is None or name not in by_name:
        return None
    return name if by_name[name]["status"] == "ok" and result["status"] == "ok" else None


def ratio(result: Mapping[str, Any], by_name: Mapping[str, Mapping[str, Any]], phase: str) -> str:
    """The time over that of the reference model."""
    name = reference(result, by_name)
    if name is None or not by_name[name].get(phase) or not result.get(phase):
        return ""
    base, here = by_name[name][phase]["median"], result[phase]["median"]
    return f"{here / base:.2f}" if base and here else ""


def share(result: Mapping[str, Any], phase: str) -> str:
    """The share of the machine's limit that was reached, where a roofline was asked for."""
    if result.get("roofline") is None:
        return ""
    from fastrnns.profiling import roofline

    return roofline.percent(result["roofline"], phase)


def aligned(lines: Sequence[Sequence[str]], left: Collection[int]) -> str:
    """Lines of cells as columns: words to the left, numbers to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def references(results: Sequence[Mapping[str, Any]]) -> str:
    """Which model each ratio is over, in one sentence."""
    by_name = {result["model"]: result for result in results}
    over: dict[str, list[str]] = {}
    for result in results:
        name = reference(result, by_name)
        if name is not None:
            over.setdefault(name, []).append(result["model"])
    return "; ".join(f"{', '.join(names)} over {name}" for name, names in over.items())


def separated(results: Sequence[Mapping[str, Any]], sep: str) -> str:
    """A line a phase, its columns joined by `sep`; the first line names them."""
    lines = [
        sep.join(
            ("model", "phase", "median_ms", "ci95_low_ms", "ci95_high_ms", "mean_ms", "std_ms", "n", "status")
        )
    ]
    for result in results:
        phases = [phase for phase in PHASES if result.get(phase)]
        for phase in phases:
            facts = result[phase]
            low, high = facts["ci95"] or (None, None)
            values = (facts["median"], low, high, facts["mean"], facts["std"])
            numbers = ["" if value is None else f"{value:.6g}" for value in values]
            lines.append(sep.join((result["model"], phase, *numbers, str(facts["n"]), result["status"])))
        if not phases:
            lines.append(sep.join((result["model"], "", *[""] * 5, "0", result["status"])))
    return "\n".join(lines) + "\n"


def show(results: Sequence[Mapping[str, Any]], stream: IO[str], sep: str = " ") -> None:
    """Print the results' table."""
    if sep != " ":
        stream.write(separated(results, sep))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    console.width = WIDTH if not console.is_terminal else min(WIDTH, console.width)
    made = rows(results)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    ratios, limits = any(row.ratio for row in made), any(row.limit for row in made)
    left_out = {heading for heading, known in (("ratio", ratios), ("of limit", limits)) if not known}
    for heading in HEADINGS:
        if heading in left_out:
            continue
        left = heading in ("model", "phase", "marks")
        table.add_column(
            f"{heading} ms" if heading == "median" else heading,
            justify="left" if left else "right",
            overflow="fold",
            no_wrap=heading != "marks",
        )
    errors: list[Row] = []
    before = ""
    for row in made:
        if row.error:
            errors.append(row)
            continue
        cells = [
            row.model if row.model != before else "",
            SHORT.get(row.phase, row.phase),
            row.median,
            row.interval,
        ]
        cells += [row.mean, row.std, row.n, *([row.ratio] if ratios else [])]
        cells += [*([row.limit] if limits else []), row.marks]
        table.add_row(*(Text(cell) for cell in cells))
        before = row.model
    if table.row_count:
        console.print(table)
    if ratios:
        console.print(Text(f"ratio: {references(results)}", style="dim"))
    if cold := cold_starts(results):
        console.print(Text(f"cold start ms, to build + first forward + first backward: {cold}", style="dim"))
    for row in errors:
        console.print(Text(f"{row.model}: {row.error}", style="red"))


def models(stream: IO[str]) -> None:
    """Print the registry: every model, what it is, what it supports and what its time may be set against."""
    widths = (24, 9, 9, 9)
    for group in ("rnns", "cnns"):
        title = f"{f'--{group}':24} {'layers':9} {'devices':9} {'gradient':9} what it is"
        stream.write(f"{title}\n")
        for row in runner.table():
            if row["group"] != group:
                continue
            fixed = (row["name"], row["layers"], row["devices"].replace(" ", ","), row["gradient"])
            head = " ".join(text.ljust(width) for text, width in zip(fixed, widths, strict=True))
            default = " (default)" if row["name"] in runner.DEFAULT[group] else ""
            default = " (default on a GPU)" if row["name"] in runner.DEFAULT_ON_GPU else default
            lines = textwrap.wrap(row["what it is"] + default, WIDTH - len(head) - 1)
            lines += textwrap.wrap(f"set against {row['compare with']}", WIDTH - len(head) - 1)
            stream.write(f"{head} {lines[0]}\n")
            for line in lines[1:]:
                stream.write(f"{' ' * len(head)} {line}\n")
        stream.write("\n")
