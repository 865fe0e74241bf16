"""Turns: no side profits from its place among the others."""

import itertools
from collections import Counter

import pytest

from fastrnns.measure import turns


@pytest.mark.parametrize("sides", range(1, 8))
def test_every_side_stands_at_every_place_and_follows_every_other_equally_often(sides):
    rounds = [turns.order(sides, turn) for turn in range(len(turns.design(sides)))]
    assert all(sorted(each) == list(range(sides)) for each in rounds)
    places = Counter((side, place) for each in rounds for place, side in enumerate(each))
    follows = Counter(pair for each in rounds for pair in itertools.pairwise(each))
    assert len(places) == sides * sides
    assert len(follows) == sides * (sides - 1)
    assert len(set(places.values())) == 1
    assert len(set(follows.values())) <= 1


def test_two_sides_change_places_each_time_and_the_rounds_begin_again():
    assert [turns.order(2, turn) for turn in range(4)] == [(0, 1), (1, 0), (0, 1), (1, 0)]
    assert turns.order(3, 6) == turns.order(3, 0)


@pytest.mark.parametrize("sides", [3, 5, 7])
def test_of_an_odd_number_each_two_rounds_mirror_each_other(sides):
    for turn in range(0, 2 * sides, 2):
        assert turns.order(sides, turn + 1) == turns.order(sides, turn)[::-1]
