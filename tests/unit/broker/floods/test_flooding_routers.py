"""Charges of floods between clouds on the routers at both ends of every channel."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import RouterFull
from tests.unit.broker.floods.test_tree_flooding import flood, publish, stop
from tests.unit.broker.tree.family import Family

if TYPE_CHECKING:
    from gridstat.broker.capacity.accounts import RouterAccount

RATE = 60


@pytest.fixture
def family() -> Family:
    """Both routers of cloud a send to the one border of cloud b."""
    found = Family(
        {"a": "root", "b": "root"},
        {"a": [("a/0", "a/1")], "b": [("b/0", "b/1")]},
        {"root": [("a/0", "b/0"), ("a/1", "b/0")]},
    ).start()
    publish(found)
    return found


def account(family: Family, router: str) -> RouterAccount:
    return family.leaves[router[0]].broker.reservations.resources.router(router)


def test_every_channel_between_clouds_costs_both_of_its_ends_a_copy(family: Family) -> None:
    routers = ("a/0", "a/1", "b/0", "b/1")
    before = [account(family, name).events.value for name in routers]
    assert flood(family, "root").refused is None
    after = [account(family, name).events.value for name in routers]
    more = [now - was for now, was in zip(after, before, strict=True)]
    assert more == [2 * RATE, 2 * RATE, 3 * RATE, RATE]
    stop(family, "root")
    assert [account(family, name).events.value for name in routers] == before


def test_a_router_that_cannot_take_what_comes_from_other_clouds_refuses_the_flood(
    family: Family,
) -> None:
    border = account(family, "b/0")
    border.router = replace(border.router, events_per_s_max=3 * RATE - 1)
    refused = flood(family, "root").refused
    assert refused is not None
    assert (refused.code, refused.bottleneck) == (RouterFull.code, "router b/0")
    assert refused.shortfall == "1 events/s"
    border.router = replace(border.router, events_per_s_max=3 * RATE)
    assert flood(family, "root").refused is None
