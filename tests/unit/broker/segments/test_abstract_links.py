"""A cloud with many borders: the ways between them are looked for a few at a time."""

from __future__ import annotations

import pytest

from gridstat.broker.segments.abstract_links import BORDERS_PER_STEP, PAUSE_NS
from gridstat.broker.segments.leaf_borders import ABSTRACT_LINKS_TIMER
from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId
from gridstat.net.command.router_messages import ChannelStateChanged
from gridstat.net.command.tree_messages import AbstractLinksReported, TreeJoined, WantBorders
from tests.unit.broker.segments.family import Family
from tests.unit.broker.stand_ins import PMU

COUNT = 2 * BORDERS_PER_STEP + 1
LOOKS = 3
NAMES = [f"c1/r{at:02}" for at in range(COUNT)]


@pytest.fixture
def cloud() -> Family:
    """A circle of routers, each of them a border."""
    routers = [Router(name, RouterRole.EDGE) for name in NAMES]
    channels = [
        EventChannel(ChannelId(1 + at), NAMES[at], NAMES[(at + 1) % COUNT], latency_us=1_000)
        for at in range(COUNT)
    ]
    found = Family(topology=(routers, channels))
    found.start()
    found.call_parent()
    found.say(TreeJoined(term=7, depth=1, above=("root",)))
    found.settle()
    return found


def wanted(cloud: Family) -> None:
    cloud.say(WantBorders(term=7, routers=tuple(NAMES)))
    cloud.advance(LOOKS * PAUSE_NS)


def test_no_unit_of_work_searches_from_more_than_a_few_borders(cloud: Family) -> None:
    cloud.say(WantBorders(term=7, routers=tuple(NAMES)))
    assert cloud.heard(AbstractLinksReported) == []
    cloud.advance((LOOKS - 2) * PAUSE_NS)
    assert cloud.heard(AbstractLinksReported) == []
    cloud.advance(PAUSE_NS)
    assert len(cloud.last(AbstractLinksReported).abstract_links) == COUNT * (COUNT - 1)


def test_loads_are_looked_at_the_less_often_the_longer_a_look_is(cloud: Family) -> None:
    wanted(cloud)
    cloud.attach(PMU, NAMES[0], data_port=0)
    wait_ns = LOOKS * cloud.settings.retry_after_ns
    assert wait_ns - PAUSE_NS < cloud.timers[ABSTRACT_LINKS_TIMER] - cloud.now_ns <= wait_ns


def test_a_way_that_is_down_is_told_soon_all_the_same(cloud: Family) -> None:
    wanted(cloud)
    cloud.attach(PMU, NAMES[0], data_port=0)
    cloud.words.clear()
    cloud.hear(NAMES[1], ChannelStateChanged(channel_id=1, is_up=False))
    cloud.advance(cloud.settings.retry_after_ns + LOOKS * PAUSE_NS)
    told = {
        (one.from_router, one.to_router) for one in cloud.last(AbstractLinksReported).abstract_links
    }
    assert (NAMES[1], NAMES[0]) in told
    assert (NAMES[0], NAMES[1]) not in told
