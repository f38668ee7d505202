"""Channels open on command, wait for an address, and close after their last row."""

from __future__ import annotations

import msgspec
import pytest

from gridstat.core.rows import ChannelSpec
from gridstat.model.errors import LayoutError
from gridstat.net.command.router_messages import ChannelOrder
from gridstat.router.router_channels import RouterChannels, Source, spec_of
from tests.unit.router.recording_core import RecordingCore

EAST, PMU = 7, 3
ORDER = ChannelOrder(
    channel_id=EAST,
    to="c1/e1",
    host="10.0.0.2",
    data_port=4_000,
    urgent_port=4_001,
    bandwidth_bytes_per_s=1_000_000,
    queue_events_max=64,
    datagram_version=2,
    probe_interval_ms=25,
)


@pytest.fixture
def recording() -> RecordingCore:
    return RecordingCore()


@pytest.fixture
def channels(recording: RecordingCore) -> RouterChannels:
    return RouterChannels(recording)


def test_an_order_becomes_a_specification() -> None:
    assert spec_of(ORDER) == ChannelSpec(
        EAST,
        bandwidth_bytes_per_s=1_000_000,
        queue_events_max=64,
        address=("10.0.0.2", 4_000, 4_001),
        datagram_version=2,
        probe_interval_ns=25_000_000,
    )
    assert spec_of(ORDER, in_memory=True).address is None


def test_a_channel_of_version_1_sends_no_probes() -> None:
    order = msgspec.structs.replace(ORDER, datagram_version=1)
    assert spec_of(order).probe_interval_ns == 0


@pytest.mark.parametrize(
    "nonsense",
    [
        {"channel_id": 0},
        {"data_port": 0},
        {"urgent_port": 65_536},
        {"mtu_bytes": 1},
        {"level": 300},
        {"bandwidth_bytes_per_s": -1},
        {"queue_events_max": 0},
        {"datagram_version": 9},
        {"probe_interval_ms": -1},
    ],
)
def test_an_order_that_makes_no_sense_is_refused(nonsense: dict[str, int]) -> None:
    with pytest.raises(LayoutError):
        spec_of(msgspec.structs.replace(ORDER, **nonsense))


def test_a_channel_that_cannot_be_reached_is_tried_again(
    channels: RouterChannels, recording: RecordingCore
) -> None:
    recording.unreachable.add(EAST)
    channels.open(ChannelSpec(EAST))
    assert not channels.is_open(EAST)
    assert channels.retry() == []
    assert channels.waiting_ids() == [EAST]
    recording.unreachable.clear()
    assert channels.retry() == [EAST]
    assert channels.is_open(EAST)
    assert channels.open_ids() == [EAST]


def test_a_channel_that_waits_can_be_closed(
    channels: RouterChannels, recording: RecordingCore
) -> None:
    recording.unreachable.add(EAST)
    channels.open(ChannelSpec(EAST))
    channels.close(EAST)
    recording.unreachable.clear()
    assert channels.retry() == []
    assert recording.calls == []


def test_a_channel_that_leaves_stays_open_until_it_may_close(
    channels: RouterChannels, recording: RecordingCore
) -> None:
    channels.open(ChannelSpec(EAST))
    channels.close_later(EAST)
    channels.close_later(99)
    assert channels.is_open(EAST)
    assert channels.commanded_ids() == set()
    assert channels.close_unused() == [EAST]
    assert recording.opened == {}


def test_a_channel_that_is_wanted_again_does_not_leave(
    channels: RouterChannels, recording: RecordingCore
) -> None:
    channels.open(ChannelSpec(EAST))
    channels.close_later(EAST)
    channels.open(ChannelSpec(EAST))
    assert channels.close_unused() == []
    assert recording.calls == [f"open channel {EAST}"]


def test_a_source_changes_without_being_closed(
    channels: RouterChannels, recording: RecordingCore
) -> None:
    channels.open_source(Source(PMU))
    channels.open_source(Source(PMU, is_publisher=True))
    channels.open_source(Source(PMU, is_publisher=True))
    assert recording.calls == [f"open source {PMU} False 0", f"open source {PMU} True 0"]
