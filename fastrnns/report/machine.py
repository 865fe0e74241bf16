"""The machine in a report: its steps before and after, its fingerprint, and the conditions of the run. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from env.fingerprint import machine_name
from fastrnns.archive.export import series
from fastrnns.report.page import Cell, Line, Section, Table, cells

PARTS = ("hardware", "software", "state")


def name(record: Mapping[str, Any]) -> str:
    """The machine, as a person would call it."""
    return machine_name(dict(record["fingerprint"]))


def subtitle(record: Mapping[str, Any]) -> str:
    """When and on what, in one line."""
    software = record["fingerprint"]["software"]
    torch = software.get("torch")
    version = torch.get("version") if isinstance(torch, Mapping) else None
    parts = [
        name(record),
        f"torch {version}" if version else None,
        record["started_at"][:19].replace("T", " ") + " UTC",
        f"{record['duration_s']:.0f} s",
    ]
    return ", ".join(str(part) for part in parts if part)


def commit(record: Mapping[str, Any]) -> str | None:
    """The project's commit, where the record ran exactly that."""
    return None if series.dirty(record) else series.commit(record)


def environment(record: Mapping[str, Any]) -> Section | None:
    """Every step before and after; what moved between is marked in words and by colour."""
    before = {step["name"]: step for step in record["environment"]["before"]}
    after = {step["name"]: step for step in record["environment"]["after"]}
    if not before and not after:
        return None
    drifted = {change.get("name") or change.get("step") for change in record["environment"]["drift"]}
    lines = []
    for name in dict.fromkeys((*before, *after)):
        first, last = before.get(name), after.get(name)
        moved = name in drifted or (first is not None and last is not None and _state(first) != _state(last))
        facts = last or first or {}
        lines.append(
            Line(
                (
                    Cell(name),
                    step_cell(first),
                    step_cell(last),
                    Cell("drifted" if moved else "-", mark="drift" if moved else ""),
                    Cell(_value(facts.get("wanted"))),
                    Cell(str(facts.get("reason") or "")),
                ),
                mark="drifted" if moved else "",
            )
        )
    texts = [f"drift: {_pairs(change)}" for change in record["environment"]["drift"]]
    texts += [str(reason) for reason in record["environment"].get("reasons") or ()]
    shield = record["environment"]["shield"]
    if shield:
        verified = "verified by the kernel" if shield.get("verified") else "not verified"
        texts.insert(0, f"Shield: {shield.get('backend')}, CPUs {shield.get('cpus')}, {verified}.")
    table = Table(
        "environment",
        "Each step of the machine before and after the run.",
        ("step", "before", "after", "drift", "wanted", "reason"),
        tuple(lines),
    )
    return Section("environment", "Environment", tuple(texts), (table,))


def _state(step: Mapping[str, Any]) -> tuple[Any, Any]:
    return step["status"], step["current"]


def step_cell(step: Mapping[str, Any] | None) -> Cell:
    """A step's status and value."""
    if step is None:
        return Cell("not looked at")
    current = "" if step["current"] is None else f": {_value(step['current'])}"
    return Cell(f"{step['status']}{current}", mark=f"step-{step['status']}")


def fingerprint(record: Mapping[str, Any]) -> Section:
    """All that is known of machine and software, fact by fact; what is not known with its reason."""
    found = record["fingerprint"]
    errors = found.get("errors") or {}
    tables = []
    for part in PARTS:
        identity = found["ids"][part] or "not known"
        lines = [
            Line(
                cells(name, f"not known: {errors[f'{part}.{name}']}" if f"{part}.{name}" in errors else value)
            )
            for name, value in leaves(found[part])
        ]
        if lines:
            caption = f"{part.capitalize()}, id {identity}"
            tables.append(Table(f"fingerprint-{part}", caption, ("fact", "value"), tuple(lines)))
    ids = ", ".join(f"{part} {found['ids'][part] or 'not known'}" for part in PARTS)
    return Section("fingerprint", "Fingerprint", (f"Ids: {ids}.",), tuple(tables), folded=True)


def ceilings(record: Mapping[str, Any]) -> Section | None:
    """What the machine was seen to do at best, where the record knows it."""
    lines = tuple(Line(cells(name, value)) for name, value in leaves(record.get("ceilings") or {}))
    if not lines:
        return None
    table = Table(
        "ceilings",
        "What this machine was seen to do at best; the units are in the names.",
        ("fact", "value"),
        lines,
    )
    return Section("ceilings", "Ceilings", tables=(table,))


def conditions(record: Mapping[str, Any]) -> Section:
    """The problem and every option as it took effect."""
    lines = [
        Line(cells(f"{part}.{name}", value))
        for part in ("problem", "options")
        for name, value in leaves(record[part] or {})
    ]
    table = Table(
        "options", "The sizes, and every option as it took effect.", ("option", "value"), tuple(lines)
    )
    return Section("conditions", "Problem and options", tables=(table,), folded=True)


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every fact by its dotted name."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            yield from leaves({str(index): item for index, item in enumerate(value)}, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _value(value)


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(_value(item) for item in value) or "-"
    return json.dumps(value)


def _pairs(change: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {_value(value)}" for key, value in change.items())
