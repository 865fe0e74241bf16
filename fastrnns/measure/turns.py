"""In which order several sides take their turns, round by round, so that none profits from its place. Pure."""

from __future__ import annotations

from functools import lru_cache


@lru_cache
def design(sides: int) -> tuple[tuple[int, ...], ...]:
    """The rounds after which every side stood at every place, and after every other, equally often.

    A Latin square balanced for what one treatment leaves behind for the next (Williams 1949): as many rounds as
    sides, twice as many where their number is odd. Two sides: AB BA.
    """
    first = [0]
    low, high = 1, sides - 1
    while low <= high:
        first.append(low)
        low += 1
        if low <= high:
            first.append(high)
            high -= 1
    square = [tuple((place + shift) % sides for place in first) for shift in range(sides)]
    mirrored = [tuple(reversed(row)) for row in square]
    return tuple(square if sides % 2 == 0 or sides == 1 else square + mirrored)


def order(sides: int, turn: int) -> tuple[int, ...]:
    """Which side comes first, second, ... in one round, by their indices.

    An odd number of sides has its mirrored rounds right after the plain ones, so that few rounds are balanced too.
    """
    rows = design(sides)
    if sides % 2 == 1 and sides > 1:
        half, mirrored = divmod(turn % len(rows), 2)
        return rows[half + sides * mirrored]
    return rows[turn % len(rows)]
