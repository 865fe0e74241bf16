"""A fleet's answer: the nodes side by side, what stands out, and the same as JSON without a host's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, Any

from env.privacy import scrub
from fastrnns.fleet.drive import Seat
from fastrnns.fleet.odd import CUT, Group, Reading
from fastrnns.present.table import WIDTH, number

COLUMNS_MOST = 4  # a column for each model and phase; of more, only how far a node is off at most
SHOWN = 12


def named(seat: Seat, *, hosts: bool) -> str:
    """A node as it may be called: by its host's name where a person looks, else by its number."""
    return seat.node.name if hosts else f"node {seat.node.number}"


def show(seats: Sequence[Seat], groups: Sequence[Group], stream: IO[str], *, hosts: bool) -> None:
    """Print the nodes of each group side by side, then those without a record."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    console.width = console.width if console.is_terminal else WIDTH
    by_number = {seat.node.number: seat for seat in seats}
    for group in groups:
        keys = list(dict.fromkeys((reading.model, reading.phase) for reading in group.readings))
        wide = len(keys) <= COLUMNS_MOST
        made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        machine = next(entry.machine for node in group.nodes if (entry := by_number[node].whole) is not None)
        console.print(Text(f"{machine}: {len(group.nodes)} of {len(seats)} nodes"))
        for heading in ("node", "record", "verdict"):
            made.add_column(heading, overflow="fold")
        for model, phase in keys if wide else []:
            made.add_column(f"{model} {phase} ms", justify="right")
        made.add_column("to the median", justify="right")
        made.add_column("")
        for node in group.nodes:
            entry = by_number[node].whole
            if entry is None:
                continue
            readings = {(each.model, each.phase): each for each in group.readings if each.node == node}
            times = (
                [number(readings[key].median_ms) if key in readings else "-" for key in keys] if wide else []
            )
            odd = any(reading.odd for reading in readings.values())
            made.add_row(
                *(
                    Text(text, style="red" if odd else "")
                    for text in (
                        named(by_number[node], hosts=hosts),
                        entry.id,
                        entry.record["verdict"]["status"],
                        *times,
                        _farthest(list(readings.values())),
                        "odd" if odd else "",
                    )
                )
            )
        console.print(made)
        for line in _sentences(group, by_number, hosts=hosts):
            console.print(Text(line), soft_wrap=True)
    judged = {node for group in groups for node in group.nodes}
    for seat in seats:
        if seat.whole is not None and seat.node.number not in judged:
            why = "; ".join(seat.whole.record["verdict"]["reasons"])
            line = f"not judged: {named(seat, hosts=hosts)}: record {seat.whole.id} is invalid: {why}"
            console.print(Text(line), soft_wrap=True)
    without = [named(seat, hosts=hosts) for seat in seats if seat.whole is None]
    if without:
        more = f" and {len(without) - SHOWN} more" if len(without) > SHOWN else ""
        console.print(Text(f"no record: {', '.join(without[:SHOWN])}{more}"), soft_wrap=True)


def _farthest(readings: Sequence[Reading]) -> str:
    if not readings:
        return "-"
    reading = max(readings, key=lambda each: abs(each.ratio - 1))
    return f"{(reading.ratio - 1) * 100:+.1f} %"


def _sentences(group: Group, seats: Mapping[int, Seat], *, hosts: bool) -> list[str]:
    lines = []
    for reading in group.odd:
        word = "slower" if reading.ratio > 1 else "faster"
        z = "" if reading.z is None else f", z {reading.z:+.1f} (beyond {CUT})"
        lines.append(
            f"odd: {named(seats[reading.node], hosts=hosts)}: {reading.model} {reading.phase} is"
            f" {abs(reading.ratio - 1) * 100:.1f} % {word} than its like{z}, p {reading.p:.2g}"
        )
    return [*lines, *group.notes]


def as_dict(seats: Sequence[Seat], groups: Sequence[Group], exit_code: int) -> dict[str, Any]:
    """The answer for programs. Nodes have numbers: which host each is, the story on stderr tells."""
    return {
        "schema": 1,
        "exit_code": exit_code,
        "nodes": [_seat(seat) for seat in seats],
        "groups": [
            {
                "hardware": group.hardware,
                "nodes": list(group.nodes),
                "readings": [vars(reading) for reading in group.readings],
                "odd": sorted({reading.node for reading in group.odd}),
                "notes": list(group.notes),
            }
            for group in groups
        ],
    }


def _seat(seat: Seat) -> dict[str, Any]:
    whole = seat.whole
    reason = scrub(seat.reason)
    return {
        "node": seat.node.number,
        "gpu": seat.node.gpu,
        "status": seat.status,
        "reason": reason.replace(seat.node.host, "<host>") if seat.node.host else reason,
        "attempts": [
            {"exit_code": attempt.exit_code, "records": [entry.id for entry in attempt.entries]}
            for attempt in seat.attempts
        ],
        "machine": None if whole is None else whole.machine,
        "record": None if whole is None else whole.id,
        "put_back": seat.put_back,
    }
