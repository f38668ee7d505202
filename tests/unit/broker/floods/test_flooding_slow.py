"""Nothing floods over a channel so slow that a copy could come round as a new event (A12)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.model.cloud import EventChannel
from gridstat.model.errors import LatencyNotSatisfiable
from gridstat.model.flooding import FLOOD_CHANNEL_US_MAX, FLOOD_HOLD_NS, FloodTerm
from gridstat.model.identifiers import ChannelId
from gridstat.net.command.messages import AddChannel
from gridstat.net.command.operator_messages import ListFlooding, RemoveFlooding, SetFlooding
from gridstat.net.command.tree_messages import CommitFlooding, FloodingRefused, ReserveFlooding
from tests.unit.broker.floods import test_flooding_faults as faults
from tests.unit.broker.floods.flooded_cloud import (
    Parent,
    charges,
    cloud_of,
    flood,
    no,
    operate,
    stop,
)
from tests.unit.broker.stand_ins import VOLTAGE

if TYPE_CHECKING:
    from gridstat.net.command.endpoint_messages import RefusedOutcome

SLOW = FLOOD_CHANNEL_US_MAX + 1


def channel(latency_us: int, ends: tuple[str, str] = ("c1/e0", "c1/e3")) -> AddChannel:
    found = EventChannel(ChannelId(0), *ends, bandwidth_bytes_per_s=100_000, latency_us=latency_us)
    return AddChannel(request_id=9, channel=found)


def assert_names(refused: RefusedOutcome | None, label: str) -> None:
    assert refused is not None
    assert (refused.code, refused.bottleneck) == (LatencyNotSatisfiable.code, f"channel {label}")
    assert label in refused.reason
    assert "flood at a broker" in refused.hint


def test_two_channels_that_something_floods_over_take_no_longer_than_routers_remember() -> None:
    assert 2 * FLOOD_CHANNEL_US_MAX * 1_000 <= FLOOD_HOLD_NS


def test_a_cloud_with_a_slow_channel_is_not_flooded_and_the_channel_is_named() -> None:
    cloud = cloud_of()
    assert operate(cloud, channel(SLOW)).refused is None
    before = charges(cloud)
    assert_names(no(flood(cloud)), "c1/e0→c1/e3")
    assert charges(cloud) == before
    assert cloud.broker.floods.variables == {}


def test_a_slow_channel_is_not_added_while_something_floods() -> None:
    cloud = cloud_of()
    assert flood(cloud).refused is None
    assert_names(no(operate(cloud, channel(SLOW))), "c1/e0→c1/e3")
    assert operate(cloud, channel(FLOOD_CHANNEL_US_MAX)).refused is None
    assert stop(cloud).refused is None
    assert operate(cloud, channel(SLOW, ("c1/e3", "c1/e0"))).refused is None


def test_a_parent_hears_which_channel_of_a_cloud_is_too_slow() -> None:
    cloud = cloud_of(parent="root")
    assert operate(cloud, channel(SLOW)).refused is None
    parent = Parent(cloud)
    parent.says(ReserveFlooding(term=1, flooded=parent.wants(1, {0: FloodTerm(0)})))
    (word,) = parent.told()
    assert isinstance(word, FloodingRefused)
    assert_names(word.refused, "c1/e0→c1/e3")


def test_what_floods_over_a_slow_channel_since_an_older_release_can_be_ended() -> None:
    cloud = cloud_of(parent="root")
    parent = Parent(cloud)
    parent.says(CommitFlooding(term=1, flooded=(parent.wants(1, {0: FloodTerm(0)}),)))
    assert flood(cloud, 2).refused is None
    registry, floods = cloud.broker.registry, cloud.broker.floods
    number = min(registry.channels)
    registry.channels[number] = replace(registry.channels[number], latency_us=SLOW)
    parent.says(CommitFlooding(term=1, flooded=(parent.wants(2, {}),)))
    assert floods.variables[VOLTAGE].above == {}
    assert stop(cloud).refused is None
    assert floods.variables == {}


def test_a_broker_above_clouds_judges_the_channels_that_it_owns() -> None:
    family = faults.middle()
    slow = channel(SLOW, ("a/1", "b/1"))
    assert family.operate("p", slow).refused is None
    for broker in ("p", "root"):
        assert_names(family.operate(broker, faults.FLOOD).refused, "a/1→b/1")
    assert faults.flooding_clouds(family) == set()
    assert family.operate("root", ListFlooding(request_id=3)).facts["floods"] == []


@pytest.mark.parametrize("is_flooding", [True, False])
def test_a_slow_channel_between_clouds_is_added_only_while_nothing_floods(
    *, is_flooding: bool
) -> None:
    family = faults.middle()
    assert family.operate("p", SetFlooding(request_id=1, name=faults.VOLTAGE)).refused is None
    if not is_flooding:
        end = RemoveFlooding(request_id=2, name=faults.VOLTAGE)
        assert family.operate("p", end).refused is None
    answer = family.operate("p", channel(SLOW, ("a/1", "b/1")))
    assert (answer.refused is not None) == is_flooding
    if is_flooding:
        assert_names(answer.refused, "a/1→b/1")
