"""Segments and what fails inside their cloud: led round, or told as broken and mended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.net.command.messages import ChannelStateChanged
from gridstat.net.command.segment_messages import (
    Reserved,
    SegmentBroken,
    SegmentRestored,
)
from tests.unit.broker.segments.family import (
    ENTRIES,
    EXITS,
    IN,
    OUT,
    OUT_TWO,
    Family,
    family,
)
from tests.unit.broker.stand_ins import PMU, VOLTAGE

if TYPE_CHECKING:
    from gridstat.broker.records.operations import Subscribed

CROSSING = "c9#1"


@pytest.fixture
def cloud() -> Family:
    return family()


def record_of(cloud: Family, contract: str, generation: int = 0) -> Subscribed:
    registry = cloud.broker.registry
    return registry.subscriptions[registry.tree.segment(contract, generation)].record


def test_a_segment_is_led_round_a_failed_channel_without_its_parent(cloud: Family) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    cloud.reserve("c2#4", variable=voltage, exits=EXITS[:1])
    cloud.commit("c2#4")
    (path,) = cloud.last(Reserved).paths
    (channel_id,) = path.pieces[0].channel_ids

    cloud.hear("c1/i0", ChannelStateChanged(channel_id=channel_id, is_up=False))
    cloud.settle()
    assert cloud.heard(SegmentBroken) == []
    record = record_of(cloud, "c2#4")
    assert channel_id not in record.paths[0].channel_ids
    assert record.paths[0].routers[-1] == "c1/i0"


def test_a_segment_that_cannot_be_led_round_is_broken_and_mended_later(cloud: Family) -> None:
    cloud.reserve(CROSSING, entries=ENTRIES[:1], exits=EXITS[1:])
    cloud.commit(CROSSING)
    channels = cloud.broker.registry.channels
    into = [number for number, found in channels.items() if found.to_router == "c1/i1"]
    for number in into:
        cloud.hear("c1/i1", ChannelStateChanged(channel_id=number, is_up=False))
    cloud.settle()
    broken = cloud.last(SegmentBroken)
    assert (broken.contract, broken.broken, broken.is_over) == (CROSSING, (IN, OUT_TWO), False)

    for number in into:
        cloud.hear("c1/i1", ChannelStateChanged(channel_id=number, is_up=True))
    cloud.settle()
    assert cloud.last(SegmentRestored).contract == CROSSING


def test_a_segment_never_leaves_by_the_wrong_exit_after_a_failure(cloud: Family) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    cloud.reserve("c2#4", variable=voltage, exits=EXITS)
    cloud.commit("c2#4")
    channels = cloud.broker.registry.channels
    for number in [one for one, found in channels.items() if found.to_router == "c1/i1"]:
        cloud.hear("c1/i1", ChannelStateChanged(channel_id=number, is_up=False))
        cloud.settle()
        ends = {path.routers[-1] for path in record_of(cloud, "c2#4").paths}
        assert ends == {"c1/i0", "c1/i1"}
    assert cloud.last(SegmentBroken).broken == (OUT_TWO,)


def test_a_publisher_that_moves_to_another_edge_takes_its_segments_along(cloud: Family) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    cloud.reserve("c2#4", variable=voltage, exits=EXITS[:1])
    cloud.commit("c2#4")
    start = record_of(cloud, "c2#4").paths[0].routers[0]
    cloud.lose(PMU, start)
    cloud.advance(cloud.settings.settle_after_ns)
    cloud.settle()
    moved = record_of(cloud, "c2#4")
    assert moved.paths[0].routers[0] != start
    assert moved.paths[0].routers[-1] == "c1/i0"
    assert (moved.contract, moved.segment_generation, moved.exits) == (
        "c2#4",
        0,
        (("c1/i0", OUT),),
    )


@pytest.mark.parametrize("is_back", [True, False])
def test_a_segment_whose_router_the_file_has_lost_is_housed_or_told_as_broken(
    cloud: Family, *, is_back: bool
) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    cloud.reserve("c2#4", variable=voltage, exits=EXITS[1:])
    cloud.commit("c2#4")
    lost = "c1/e1" if is_back else "c1/i1"
    if is_back:
        cloud.lose(PMU, "c1/e0")
        cloud.advance(cloud.settings.settle_after_ns)
        cloud.attach(PMU, "c1/e0", first_time=False, data_port=0)
    cloud.routers_given = [one for one in cloud.routers_given if one.name != lost]
    cloud.channels_given = [
        one for one in cloud.channels_given if lost not in (one.from_router, one.to_router)
    ]
    cloud.kill_broker()
    del cloud.routers[lost]
    cloud.start()
    cloud.join()
    cloud.advance(cloud.settings.grace_ns)
    cloud.settle()
    if is_back:
        assert record_of(cloud, "c2#4").paths[0].routers[0] == "c1/e0"
    else:
        assert cloud.broker.registry.tree.segments == {}
        assert cloud.last(SegmentBroken).is_over is False
