"""A grid of problems in one run: axes read from text, and one name for each model at each point. No torch.

A model at a point of the grid is a series of its own, named `model[size=value,...]` by the sizes that were swept; it
goes through measuring, comparing and exporting like any other name.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from fastrnns import sizes
from fastrnns.errors import UsageError
from fastrnns.sizes import Problem

MOST_SERIES = 1000  # models times points in one record
NAMES = tuple(field.name for field in fields(Problem))
SERIES = re.compile(rf"([^\[\]]+)\[((?:(?:{'|'.join(NAMES)})=\d+,?)+)\]")
HOW = "write NAME=64,128 or NAME=128:2048:x2 or NAME=16:64:+16 or NAME=OTHER_NAME"


@dataclass(frozen=True)
class Axis:
    """One size and the values it takes; `follows` another size in their place."""

    name: str
    values: tuple[int, ...] = ()
    follows: str | None = None


@dataclass(frozen=True)
class Point:
    """One problem of the grid, and the sizes that tell it from the others."""

    problem: Problem
    label: str = ""  # hidden_size=128,mini_batch=16; empty where nothing is swept


def series(model: str, label: str) -> str:
    """The name of a model at a point; the model's own where nothing is swept."""
    return f"{model}[{label}]" if label else model


def parts(name: str) -> tuple[str, str]:
    """(model, label of its point) of a series' name; a record's model that is named otherwise is no series."""
    found = SERIES.fullmatch(name)
    return (found[1], found[2]) if found else (name, "")


def told(names: Sequence[str]) -> str:
    """Series in few words: each model once, and at how many points of a grid."""
    points = {parts(name)[1] for name in names} - {""}
    text = " ".join(dict.fromkeys(parts(name)[0] for name in names))
    return f"{text} at {len(points)} points" if points else text


def announcement(models: Sequence[str], budget_s: float, *, counted: bool) -> str:
    """What a sweep is about to do, and how long it may take unless its iterations are `counted` by flags."""
    points = len({parts(name)[1] for name in models})
    text = f"sweep: {points} points, {len(models)} series of a model at a point"
    return (
        text
        if counted
        else f"{text}; {budget_s:g} s each (--budget), {len(models) * budget_s / 60:.3g} min at most"
    )


def problem_at(name: str, problem: Problem) -> Problem:
    """The problem of a series, from that of its run."""
    return replace(problem, **sizes_of(parts(name)[1]))


def axes_from(texts: Sequence[str]) -> tuple[Axis, ...]:
    """The axes that --sweep names; UsageError says what is wrong with one, and what is possible."""
    axes = tuple(_axis(text) for text in texts)
    names = [axis.name for axis in axes]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--sweep names {name} twice; give all its values in one: {name}=64,128")
    followed = {axis.follows for axis in axes} & {axis.name for axis in axes if axis.follows}
    if followed:
        raise UsageError(
            f"--sweep lets a size follow {followed.pop()}, which follows another itself; name that one"
        )
    return axes


def points_of(problem: Problem, axes: Sequence[Axis]) -> tuple[Point, ...]:
    """Every point of the grid, the last axis fastest; UsageError for sizes that nothing can run."""
    free = [axis for axis in axes if axis.follows is None]
    points = []
    for values in itertools.product(*(axis.values for axis in free)):
        at = replace(problem, **dict(zip((axis.name for axis in free), values, strict=True)))
        chasing = {axis.name: getattr(at, axis.follows) for axis in axes if axis.follows}
        at = replace(at, **chasing)
        try:
            sizes.check(at)
        except UsageError as error:
            raise UsageError(f"--sweep reaches {_label(at, axes)}: {error}") from None
        points.append(Point(at, _label(at, axes)))
    return tuple(points)


def recorded(axes: Sequence[Axis]) -> list[str]:
    """The axes as a record holds them, and as --sweep takes them."""
    return [f"{axis.name}={axis.follows or ','.join(map(str, axis.values))}" for axis in axes]


def sizes_of(label: str) -> Mapping[str, int]:
    """The swept sizes of a point by name."""
    pairs = (pair.partition("=") for pair in label.split(",") if pair)
    return {name: int(value) for name, _, value in pairs}


def _label(problem: Problem, axes: Sequence[Axis]) -> str:
    return ",".join(f"{axis.name}={getattr(problem, axis.name)}" for axis in axes)


def _axis(text: str) -> Axis:
    name, equals, values = text.partition("=")
    field = _field(name)
    if field is None:
        raise UsageError(f"--sweep {text}: no size is named {name!r}; there are: {' '.join(NAMES)}")
    if not equals or not values:
        raise UsageError(f"--sweep {text}: it names no values; {HOW}")
    other = _field(values)
    if other is not None:
        if other == field:
            raise UsageError(f"--sweep {text}: a size cannot follow itself; {HOW}")
        return Axis(field, follows=other)
    found = tuple(itertools.chain.from_iterable(_values(text, part) for part in values.split(",")))
    twice = sorted({value for value in found if found.count(value) > 1})
    if twice:
        raise UsageError(f"--sweep {text}: {twice[0]} is there twice; give each value once")
    return Axis(field, found)


def _values(text: str, part: str) -> list[int]:
    if re.fullmatch(r"\d+", part):
        return [_number(text, part)]
    found = re.fullmatch(r"(\d+):(\d+):([x+])(\d+)", part)
    if not found:
        raise UsageError(f"--sweep {text}: {part!r} is no size and no range; {HOW}")
    start, stop, step = _number(text, found[1]), _number(text, found[2]), _number(text, found[4])
    if stop < start or step < (2 if found[3] == "x" else 1) or start == 0:
        raise UsageError(
            f"--sweep {text}: {part!r} goes nowhere; from 1 or more up to more, by x2 or +1 at least"
        )
    values, value = [], start
    while value <= stop:
        values.append(value)
        value = value * step if found[3] == "x" else value + step
        if len(values) > MOST_SERIES:
            raise UsageError(f"--sweep {text}: {part!r} is more than {MOST_SERIES} sizes; take larger steps")
    return values


def _number(text: str, digits: str) -> int:
    if len(digits) > len(str(sizes.LARGEST_SIZE)):
        raise UsageError(f"--sweep {text}: {digits} is too large; the largest size is {sizes.LARGEST_SIZE}")
    return int(digits)


def _field(name: str) -> str | None:
    """A size by any of its spellings: hidden_size, hidden-size, hiddenSize."""
    plain = re.sub(r"(?<!^)([A-Z])", r"_\1", name.replace("-", "_")).lower()
    return plain if plain in NAMES else None
