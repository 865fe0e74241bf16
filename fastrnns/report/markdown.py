"""A page as Markdown for a pull request: the verdict, its reasons, the tables that answer, how to repeat it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fastrnns.archive.listing import plain
from fastrnns.report.page import Page, Table

ANSWERS = ("results", "verdicts", "steps", "series")
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!~])")


def markdown(page: Page) -> str:
    """The page's answer; whatever comes from a record stays text."""
    return "\n".join(_lines(page)) + "\n"


def _lines(page: Page) -> Iterator[str]:
    yield f"### {escaped(page.title)}: {escaped(page.status)}"
    yield ""
    yield escaped(page.subtitle)
    if page.reasons:
        yield ""
        yield from (f"- {escaped(reason)}" for reason in page.reasons)
    for section in page.sections:
        for table in section.tables if section.name in ANSWERS else ():
            yield ""
            yield from _table(table)
    for section in page.sections:
        for purpose, command in section.commands:
            fence = "`" * (max(map(len, re.findall("`+", command)), default=0) + 1)
            yield ""
            yield f"{escaped(purpose)}: {fence} {plain(command)} {fence}".replace("\n", " ")


def _table(table: Table) -> Iterator[str]:
    yield escaped(table.caption)
    yield ""
    yield f"| {' | '.join(map(escaped, table.columns))} |"
    yield (
        "|"
        + "|".join(" ---: " if index in table.numeric else " --- " for index in range(len(table.columns)))
        + "|"
    )
    for line in table.lines:
        yield f"| {' | '.join(escaped(cell.text) for cell in line.cells)} |"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no link, no picture, no person called."""
    return SPECIAL.sub(r"\\\1", plain(text).replace("\n", " ").replace("&", "&amp;")).replace("@", "&#64;")
