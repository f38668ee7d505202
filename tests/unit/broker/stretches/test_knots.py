"""Knots are found a few at a time, and not looked for again where nothing has changed."""

from __future__ import annotations

import pytest

from gridstat.broker.stretches.knots import SEARCHES_A_TURN, KnotSearch
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.tree_messages import CrossingsTold, Knot, WantBorders
from tests.unit.broker.stretches.family import Family, family

SIX = ("c1/e0", "c1/e1", "c1/e2", "c1/e3", "c1/i0", "c1/i1")
PAIRS = 15 * 6
ACROSS = Knot(entries=("c1/e0", "c1/e1"), exits=("c1/e2", "c1/e3"))


@pytest.fixture
def cloud() -> Family:
    return family()


def searched(cloud: Family, search: KnotSearch) -> int:
    """How many searches it takes until all is known."""
    before = search.searches
    while search.look(cloud.broker.reservations.resources, SIX):
        pass
    return search.searches - before


def test_no_turn_has_more_than_a_few_searches(cloud: Family) -> None:
    search = cloud.broker._tree.borders._knot_search
    cloud.words.clear()
    cloud.say(WantBorders(term=7, routers=SIX))
    assert search.searches == SEARCHES_A_TURN
    assert len(cloud.last(CrossingsTold).crossings) == len(SIX) * (len(SIX) - 1)
    cloud.advance(NS_PER_S)
    assert search.searches == PAIRS


def test_a_knot_is_told_once_it_is_known_and_taken_back_when_it_is_gone(cloud: Family) -> None:
    resources = cloud.broker.reservations.resources
    cloud.say(WantBorders(term=7, routers=SIX))
    cloud.advance(NS_PER_S)
    assert ACROSS not in cloud.last(CrossingsTold).knots
    into = [resources.channel_between(inner, "c1/e2") for inner in ("c1/i0", "c1/i1")]
    for number in into:
        resources.mark_channel(number, is_up=False)
    cloud.say(WantBorders(term=7, routers=SIX))
    cloud.advance(NS_PER_S)
    assert ACROSS in cloud.last(CrossingsTold).knots
    resources.mark_channel(into[0], is_up=True)
    cloud.say(WantBorders(term=7, routers=SIX))
    cloud.advance(NS_PER_S)
    assert ACROSS not in cloud.last(CrossingsTold).knots


def test_pairs_whose_ways_still_stand_are_not_searched_again(cloud: Family) -> None:
    resources = cloud.broker.reservations.resources
    search = KnotSearch()
    assert searched(cloud, search) == PAIRS
    knots = len(search.known)
    number = resources.channel_between("c1/i0", "c1/e2")
    resources.mark_channel(number, is_up=False)
    assert knots < searched(cloud, search) < PAIRS
    fresh = KnotSearch()
    searched(cloud, fresh)
    assert search.known == fresh.known
    resources.mark_channel(number, is_up=True)
    assert searched(cloud, search) == len(fresh.known)
