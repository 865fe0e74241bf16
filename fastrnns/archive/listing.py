"""Records as text for a person: the table of an archive, and one record in full."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from env import fingerprint
from fastrnns import sweep
from fastrnns.archive.store import Entry
from fastrnns.phases import ALL as PHASES

WIDTH = 100
COLUMNS = (("id", 12), ("time (UTC)", 16), ("kind", 9), ("machine", 21), ("models", 25), ("verdict", 7))
GAP = "  "


def table(entries: Sequence[Entry]) -> str:
    """One line a record, oldest first, at most 100 columns wide."""
    if not entries:
        return ""
    rows = [_row(entry) for entry in entries]
    lines = [[name for name, _ in COLUMNS], *rows]
    return "\n".join(plain(_line(line)) for line in lines)


def summary(entry: Entry) -> dict[str, Any]:
    """What the table shows of a record, for `list --json`."""
    record = entry.record
    return {
        "id": entry.id,
        "started_at": record["started_at"],
        "sequence": record["sequence"],
        "kind": record["kind"],
        "machine": entry.machine,
        "models": [result["model"] for result in record["results"]],
        "verdict": record["verdict"]["status"],
        "path": str(entry.path),
    }


def show(record: Mapping[str, Any]) -> str:
    """One record: verdict and reasons first, then what was measured, on what, and how to repeat it."""
    verdict = record["verdict"]
    blocks = [
        "{kind} {id}  {started_at}  {duration_s:.1f} s  exit {exit_code}".format_map(record),
        "\n".join([f"verdict      {verdict['status']}", *_wrapped(verdict["reasons"])]),
        _results(record["results"]),
        _pairs("problem", record["problem"] or {}),
        _pairs("options", record["options"]),
        _environment(record["environment"]),
        fingerprint.explain(dict(record["fingerprint"])),
        "command      " + " ".join(record["command"]["argv"]),
    ]
    if record.get("notes"):
        blocks.append("\n".join(["notes", *_wrapped(record["notes"])]))
    return plain("\n\n".join(block for block in blocks if block))


def milliseconds(value: float | None) -> str:
    """A time with four figures; a dash for none."""
    if value is None:
        return "-"
    digits = 3 if value < 10 else 2 if value < 100 else 1
    return f"{value:.{digits}f}"


def plain(text: str) -> str:
    """Text without the control characters by which a record from elsewhere could play with a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char == "\n" or char.isprintable() else ascii(char)[1:-1] for char in text)


def _row(entry: Entry) -> list[str]:
    record = entry.record
    models = sweep.told([result["model"] for result in record["results"]]) or "-"
    return [
        entry.id,
        record["started_at"][:16].replace("T", " "),
        record["kind"],
        entry.machine,
        models,
        record["verdict"]["status"],
    ]


def _line(cells: Sequence[str]) -> str:
    return GAP.join(_fit(cell, width) for cell, (_, width) in zip(cells, COLUMNS, strict=True)).rstrip()


def _fit(text: str, width: int) -> str:
    """Cut in the middle of machines' names would hide their ids: keep both ends."""
    if len(text) <= width:
        return text.ljust(width)
    tail = (width - 2) // 2
    return f"{text[: width - 2 - tail]}..{text[-tail:]}"


def _results(results: Sequence[Mapping[str, Any]]) -> str:
    if not results:
        return ""
    width = max(12, *(len(result["model"]) for result in results))
    lines = [
        f"{'model':{width}} {'phase':15}{'median':>9} {'95 % interval':>20}{'min':>9}{'std':>9}{'n':>7}  ms"
    ]
    for result in results:
        if result["status"] != "ok":
            lines.append(f"{result['model']:{width}} {result['status']}: {result['error']}")
            continue
        for phase in PHASES:
            part = result.get(phase)
            if part is None:
                continue
            low, high = part["ci95"] or (None, None)
            interval = "-" if low is None else f"{milliseconds(low)} .. {milliseconds(high)}"
            lines.append(
                f"{result['model']:{width}} {phase:15}{milliseconds(part['median']):>9} {interval:>20}"
                f"{milliseconds(part['min']):>9}{milliseconds(part['std']):>9}{part['n'] or '-':>7}",
            )
        if result["forward"] is None:
            lines.append(f"{result['model']:{width}} {result['status']}{_checks(result)}")
        lines += _wrapped(result["notes"])
        if result["backend"]:
            lines.append(f"{'':{width}} by {result['backend']}")
    return "\n".join(lines)


def _checks(result: Mapping[str, Any]) -> str:
    checks = result.get("checks") or []
    return f": {len(checks)} checks" if checks else ""


def _environment(environment: Mapping[str, Any]) -> str:
    lines = []
    after = {step["name"]: step for step in environment["after"]}
    for step in environment["before"]:
        now = after.get(step["name"], step)
        moved = f" -> {now['current']}" if now["current"] != step["current"] else ""
        reason = f"  ({step['reason']})" if step["reason"] else ""
        lines.append(f"{step['name']:12} {step['status']:12}{step['current']}{moved}{reason}")
    shield = environment["shield"]
    if shield:
        state = "verified" if shield.get("verified") else "not verified"
        lines.append(f"{'shield':12} {shield.get('backend')}: CPUs {shield.get('cpus')}, {state}")
    lines += [f"{'drift':12} {_pairs('', change).strip()}" for change in environment["drift"]]
    return "\n".join(line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..." for line in lines)


def _pairs(name: str, values: Mapping[str, Any]) -> str:
    text = "  ".join(f"{key}={value}" for key, value in values.items() if value is not None)
    if not text:
        return ""
    return textwrap.fill(text, WIDTH, initial_indent=f"{name:13}", subsequent_indent=" " * 13)


def _wrapped(texts: Iterable[str]) -> list[str]:
    return [
        textwrap.fill(text, WIDTH, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False)
        for text in texts
    ]
