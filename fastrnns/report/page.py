"""What a page consists of, and the page as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING

from fastrnns.archive.listing import plain
from fastrnns.present.table import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SYMBOLS = {
    **dict.fromkeys(("valid", "same", "faster"), "\u2713"),
    **dict.fromkeys(("tainted", "inconclusive"), "\u25b2"),
    **dict.fromkeys(("invalid", "slower", "not-comparable"), "\u2715"),
}
TEMPLATE, STYLE, SCRIPT = "page.html.j2", "style.css", "page.js"


@dataclass(frozen=True)
class Cell:
    """One cell: its text, the number that a column is sorted by, and the class that it is drawn in."""

    text: str
    key: float | None = None
    mark: str = ""


@dataclass(frozen=True)
class Line:
    """One row of a table; `model` and `phase` are what the page's switches act on."""

    cells: tuple[Cell, ...]
    model: str = ""
    phase: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """A table whose columns can be sorted; `numeric` columns stand to the right."""

    name: str
    caption: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Picture:
    """A picture: what it shows in words (for who does not see it), and how it is drawn."""

    name: str
    title: str
    description: str
    draw: Callable[[], Figure]
    model: str = ""
    phase: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Section:
    """A part of a page, in the order of its fields; `folded` is closed until asked for."""

    name: str
    title: str
    texts: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()  # what for, and the command
    folded: bool = False
    switches: bool = False  # this section's place is where the switches of models and phases stand


@dataclass(frozen=True)
class Page:
    """A whole report. `status` is the word that is read first; `reasons` follow it."""

    title: str
    subtitle: str
    status: str
    reasons: tuple[str, ...]
    sections: tuple[Section, ...]

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """All pictures, in order."""
        return tuple(picture for section in self.sections for picture in section.pictures)

    @property
    def models(self) -> tuple[str, ...]:
        """The models that the page's switches name."""
        lines = (line.model for section in self.sections for table in section.tables for line in table.lines)
        return tuple(dict.fromkeys(model for model in lines if model))


def milliseconds(value: float | None, mark: str = "") -> Cell:
    """A time as a cell."""
    return Cell(number(value), value, mark)


def without_empty(table: Table) -> Table:
    """The table without the columns that hold nothing but dashes."""
    kept = [
        index
        for index in range(len(table.columns))
        if index == 0 or any(line.cells[index].text not in {"", "-"} for line in table.lines)
    ]
    return replace(
        table,
        columns=tuple(table.columns[index] for index in kept),
        lines=tuple(replace(line, cells=tuple(line.cells[index] for index in kept)) for line in table.lines),
        numeric=frozenset(place for place, index in enumerate(kept) if index in table.numeric),
    )


def cells(*texts: object) -> tuple[Cell, ...]:
    """Cells of plain text."""
    return tuple(
        text if isinstance(text, Cell) else Cell("-" if text is None else str(text)) for text in texts
    )


def html(page: Page) -> str:
    """The page as one file: no address in it is ever asked for anything, and it says so to the browser.

    Everything that comes from a record passes through the template's escaping; the policy in the head allows
    no script but the one that is written here, by its hash.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    from fastrnns.report import vector

    environment = Environment(
        loader=PackageLoader("fastrnns.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = plain
    script = _text(SCRIPT)
    drawn = {
        picture.name: Markup(vector.inline(picture.draw(), picture.name))  # noqa: S704 - drawn by us, escaped
        for picture in page.pictures
    }
    made: str = environment.get_template(TEMPLATE).render(
        page=page,
        drawn=drawn,
        warmup=any('class="warmup"' in each for each in drawn.values()),
        style=Markup(_text(STYLE)),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        symbols=SYMBOLS,
    )
    return made


def _text(name: str) -> str:
    return resources.files("fastrnns.report").joinpath("templates").joinpath(name).read_text(encoding="utf-8")


def sentence(names: Sequence[str]) -> str:
    """Names in a row, for a description."""
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1] if names else ""
