"""State of a committed segment: it is up with one path that all of its routers have confirmed."""

from __future__ import annotations

import pytest

from gridstat.net.command.messages import ChannelStateChanged
from gridstat.net.command.segment_messages import SegmentBroken, SegmentUp
from tests.unit.broker.segments.family import ENTRIES, EXITS, FAR, Family, family
from tests.unit.broker.stand_ins import VOLTAGE

CROSSING = "c9#1"


@pytest.fixture
def cloud() -> Family:
    return family()


def two_generations(cloud: Family) -> None:
    """The first leaves by i0 and is up, the second will leave by i1."""
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    cloud.reserve("c2#1", variable=voltage, exits=EXITS[:1])
    cloud.commit("c2#1")
    cloud.reserve("c2#1", generation=1, variable=voltage, exits=EXITS[1:])


def ups(cloud: Family) -> list[int]:
    return [word.generation for word in cloud.heard(SegmentUp)]


def test_a_segment_none_of_whose_paths_is_confirmed_is_not_up(cloud: Family) -> None:
    two_generations(cloud)
    cloud.routers["c1/i1"].is_silent = True
    cloud.commit("c2#1", 1)
    cloud.advance(3 * cloud.settings.confirm_within_ns)
    assert ups(cloud) == [0]


def test_a_silent_router_is_waited_for_until_it_confirms(cloud: Family) -> None:
    two_generations(cloud)
    cloud.routers["c1/i1"].is_silent = True
    cloud.commit("c2#1", 1)
    cloud.advance(3 * cloud.settings.confirm_within_ns)
    cloud.commit("c2#1", 1)
    cloud.routers["c1/i1"].is_silent = False
    cloud.confirm("c1/i1")
    assert ups(cloud) == [0, 1]
    assert cloud.last(SegmentUp).degraded == ()


def test_a_router_that_is_away_is_waited_for_until_it_returns(cloud: Family) -> None:
    two_generations(cloud)
    cloud.disconnect("c1/i1")
    cloud.commit("c2#1", 1)
    cloud.advance(2 * cloud.settings.confirm_within_ns)
    assert ups(cloud) == [0]
    cloud.connect("c1/i1")
    cloud.settle()
    assert ups(cloud) == [0, 1]


def test_a_segment_is_up_by_one_of_its_paths_and_names_who_is_silent(cloud: Family) -> None:
    cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS)
    cloud.routers["c1/i1"].is_silent = True
    cloud.commit(CROSSING)
    cloud.advance(cloud.settings.confirm_within_ns)
    assert cloud.last(SegmentUp).degraded == ("router c1/i1 has not confirmed its part yet",)


def test_a_segment_whose_row_is_refused_is_up_when_it_is_committed_again_and_held(
    cloud: Family,
) -> None:
    cloud.reserve(CROSSING, entries=ENTRIES[:1], exits=EXITS[:1])
    cloud.routers["c1/i0"].refused = {FAR.variable_id: "no room"}
    cloud.commit(CROSSING)
    cloud.advance(cloud.settings.confirm_within_ns)
    assert ups(cloud) == []
    cloud.routers["c1/i0"].refused = {}
    cloud.disconnect("c1/i0")
    cloud.routers["c1/i0"].crash()
    cloud.connect("c1/i0")
    cloud.settle()
    cloud.commit(CROSSING)
    assert ups(cloud) == [0]


def test_troubles_that_a_segment_had_before_it_counted_are_told_though_it_is_not_up(
    cloud: Family,
) -> None:
    cloud.reserve(CROSSING, entries=ENTRIES[:1], exits=EXITS[1:])
    channels = cloud.broker.registry.channels
    for number in [one for one, found in channels.items() if found.to_router == "c1/i1"]:
        cloud.hear("c1/i1", ChannelStateChanged(channel_id=number, is_up=False))
    cloud.settle()
    cloud.routers["c1/i1"].is_silent = True
    cloud.commit(CROSSING)
    cloud.advance(cloud.settings.confirm_within_ns)
    assert ups(cloud) == []
    assert cloud.last(SegmentBroken).contract == CROSSING
