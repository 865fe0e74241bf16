"""What the state of the machine means to a person: each step, its state, what it does to the numbers, what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from env import machine
from env.step import Host, Wanted
from env.sysfs import Files

WIDTH = 100


def meanings() -> dict[str, str]:
    """What each step, left alone, does to the numbers."""
    from env.privilege import Privilege

    files = Files("/")
    return {step.name: step.why for step in machine.steps(Host(files, Privilege(files), Wanted()))}


def table(states: Sequence[Mapping[str, Any]]) -> str:
    """The steps for a person, no wider than 100 columns, and the answer in the last line."""
    why = meanings()
    lines = [f"{'step':<10}{'state':<13}now"]
    for row in states:
        now = row["current"] if row["current"] is not None else "-"
        wanted = f", wanted: {row['wanted']}" if row["wanted"] and row["status"] != "stable" else ""
        lines += _wrapped(f"{row['name']:<10}{row['status']:<13}", f"{now}{wanted}")
        if row["status"] != "stable" and row["name"] in why:
            lines += _wrapped(" " * 23 + "why: ", why[row["name"]])
        if row["reason"]:
            label = "note: " if row["status"] == "stable" else "what: "
            lines += _wrapped(" " * 23 + label, row["reason"])
    wrong = machine.amiss([dict(row) for row in states])
    if wrong:
        named = ", ".join(f"{row['name']} {row['status']}" for row in wrong)
        lines += _wrapped("overall: ", f"unstable ({named})")
        if any(row["status"] == "unstable" for row in wrong):
            lines += _wrapped(
                "", "`python -m env apply` (as root, or with sudo -n allowed) would change what is unstable."
            )
    else:
        lines.append("overall: stable")
    return "\n".join(lines)


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=head, subsequent_indent=" " * 23, break_long_words=False
    ) or [head.rstrip()]
