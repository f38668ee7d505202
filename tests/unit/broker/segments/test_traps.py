"""Traps are found a few at a time, and not looked for again where nothing has changed."""

from __future__ import annotations

import pytest

from gridstat.broker.segments.abstract_links import SEARCHES_PER_STEP, TrapSearch
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.tree_messages import AbstractLinksReported, Trap, WantBorders
from tests.unit.broker.segments.family import Family, family

SIX = ("c1/e0", "c1/e1", "c1/e2", "c1/e3", "c1/i0", "c1/i1")
PAIRS = 15 * 6
ACROSS = Trap(entries=("c1/e0", "c1/e1"), exits=("c1/e2", "c1/e3"))


@pytest.fixture
def cloud() -> Family:
    return family()


def searched(cloud: Family, search: TrapSearch) -> int:
    """Return the number of searches until all traps are known."""
    before = search.searches
    while search.search_some(cloud.broker.reservations.resources, SIX):
        pass
    return search.searches - before


def test_no_unit_of_work_has_more_than_a_few_searches(cloud: Family) -> None:
    search = cloud.broker._tree.borders._trap_search
    cloud.words.clear()
    cloud.say(WantBorders(term=7, routers=SIX))
    assert search.searches == SEARCHES_PER_STEP
    assert len(cloud.last(AbstractLinksReported).abstract_links) == len(SIX) * (len(SIX) - 1)
    cloud.advance(NS_PER_S)
    assert search.searches == PAIRS


def test_a_trap_is_reported_once_it_is_known_and_withdrawn_when_it_is_gone(cloud: Family) -> None:
    resources = cloud.broker.reservations.resources
    cloud.say(WantBorders(term=7, routers=SIX))
    cloud.advance(NS_PER_S)
    assert ACROSS not in cloud.last(AbstractLinksReported).traps
    into = [resources.channel_between(inner, "c1/e2") for inner in ("c1/i0", "c1/i1")]
    for number in into:
        resources.mark_channel(number, is_up=False)
    cloud.say(WantBorders(term=7, routers=SIX))
    cloud.advance(NS_PER_S)
    assert ACROSS in cloud.last(AbstractLinksReported).traps
    resources.mark_channel(into[0], is_up=True)
    cloud.say(WantBorders(term=7, routers=SIX))
    cloud.advance(NS_PER_S)
    assert ACROSS not in cloud.last(AbstractLinksReported).traps


def test_pairs_whose_ways_still_stand_are_not_searched_again(cloud: Family) -> None:
    resources = cloud.broker.reservations.resources
    search = TrapSearch()
    assert searched(cloud, search) == PAIRS
    traps = len(search.known)
    number = resources.channel_between("c1/i0", "c1/e2")
    resources.mark_channel(number, is_up=False)
    assert traps < searched(cloud, search) < PAIRS
    fresh = TrapSearch()
    searched(cloud, fresh)
    assert search.known == fresh.known
    resources.mark_channel(number, is_up=True)
    assert searched(cloud, search) == len(fresh.known)
