"""Channels open on command, wait for an address, and close after their last row."""

from __future__ import annotations

import msgspec
import pytest

from gridstat.core.rows import ChannelSpec
from gridstat.model.errors import LayoutError
from gridstat.model.keys.channel_keys import ChannelKeys
from gridstat.model.keys.key_settings import Seed
from gridstat.net.command.router_messages import ChannelOrder
from gridstat.router import router_channels
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
    return RouterChannels(recording, ChannelKeys(recording, bytes), clock_ns=lambda: 0)


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


HELD = msgspec.structs.replace(ORDER, datagram_version=3, is_endpoint=True)


def test_a_channel_to_an_end_point_opens_held_from_a_random_counter(
    recording: RecordingCore,
) -> None:
    channels = RouterChannels(
        recording,
        ChannelKeys(recording, bytes),
        clock_ns=lambda: 0,
        random_bytes=lambda size: b"\7" * size,
    )
    spec = spec_of(HELD)
    assert spec.is_held
    assert spec.counter_start == 0, "an order that comes again is the same"
    channels.open(spec)
    opened = recording.opened[HELD.channel_id]
    assert opened.is_held
    assert opened.counter_start == 0x0707070707
    recording.calls.clear()
    channels.open(spec_of(HELD))
    assert recording.calls == []


def test_a_sealed_channel_begins_at_a_random_counter_once_in_a_process(
    recording: RecordingCore,
) -> None:
    channels = RouterChannels(
        recording,
        ChannelKeys(recording, bytes),
        clock_ns=lambda: 0,
        random_bytes=lambda size: b"\7" * size,
    )
    sealed = msgspec.structs.replace(ORDER, datagram_version=3)
    channels.open(spec_of(sealed))
    assert recording.opened[EAST].counter_start == 0x070707070707
    channels.open(spec_of(msgspec.structs.replace(sealed, data_port=4_444)))
    assert recording.opened[EAST].counter_start == 0, "the core continues where it was"
    channels.open(spec_of(ORDER))
    assert recording.opened[EAST].counter_start == 0, "a plain channel needs none"


def test_a_sealed_channel_opened_again_goes_on_with_its_key(recording: RecordingCore) -> None:
    keys = ChannelKeys(recording, bytes)
    channels = RouterChannels(recording, keys, clock_ns=lambda: 0)
    sealed = msgspec.structs.replace(ORDER, datagram_version=3)
    channels.open(spec_of(sealed))
    keys.use(Seed(EAST, 1, bytes(32)), 5, 0)
    for port in (4_444, 4_555):
        channels.open(spec_of(msgspec.structs.replace(sealed, data_port=port)))
    told = [call for call in recording.calls if "key" in call]
    assert told == 3 * [f"sending key {EAST} 5"], "the receiver is never two epochs behind"


def test_a_channel_whose_counter_begins_anew_gets_another_key(recording: RecordingCore) -> None:
    """The core remembers the counters of so many closed channels only."""
    keys = ChannelKeys(recording, bytes)
    channels = RouterChannels(recording, keys, clock_ns=lambda: 0)
    sealed = msgspec.structs.replace(ORDER, datagram_version=3)
    channels.open(spec_of(sealed))
    keys.use(Seed(EAST, 1, bytes(32)), 5, 0)
    recording.unreachable.add(EAST)
    channels.open(spec_of(msgspec.structs.replace(sealed, data_port=4_444)))
    recording.sent.clear()
    recording.unreachable.clear()
    assert channels.retry() == [EAST]
    told = [call for call in recording.calls if "key" in call]
    assert told == [f"sending key {EAST} 5", f"sending key {EAST} 6"]


def test_a_counter_that_was_sent_releases_the_channel(
    recording: RecordingCore, channels: RouterChannels
) -> None:
    assert not channels.check_address(HELD.channel_id, 11), "it is not open"
    channels.open(spec_of(HELD))
    recording.calls.clear()
    for wrong in (0, 9, 13):
        assert not channels.check_address(HELD.channel_id, wrong)
    assert recording.calls == []
    assert channels.check_address(HELD.channel_id, 10)
    channels.hold(HELD.channel_id, is_probed=False)
    assert recording.calls == [f"release {HELD.channel_id}", f"hold {HELD.channel_id} False"]


@pytest.mark.parametrize("is_probed", [False, True])
def test_a_channel_that_waits_for_its_address_is_held_as_ordered_when_it_opens(
    channels: RouterChannels, recording: RecordingCore, is_probed: bool
) -> None:
    recording.unreachable.add(EAST)
    channels.open(ChannelSpec(EAST, datagram_version=3, is_sealed=True, is_held=True))
    channels.hold(EAST, is_probed=True)
    channels.hold(EAST, is_probed=is_probed)
    recording.unreachable.clear()
    assert channels.retry() == [EAST]
    opened = [call for call in recording.calls if "key" not in call]
    assert opened == [f"open channel {EAST}", f"hold {EAST} {is_probed}"]


def test_an_order_to_hold_ends_with_its_channel(
    channels: RouterChannels, recording: RecordingCore
) -> None:
    channels.open(ChannelSpec(EAST))
    channels.hold(EAST, is_probed=False)
    channels.close(EAST)
    channels.hold(EAST, is_probed=False)
    recording.calls.clear()
    channels.open(ChannelSpec(EAST))
    assert recording.calls == [f"open channel {EAST}"]


def test_channels_that_were_opened_before_are_remembered_within_a_bound(
    recording: RecordingCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_channels, "BEGUN_MAX", 2)
    channels = RouterChannels(
        recording,
        ChannelKeys(recording, bytes),
        clock_ns=lambda: 0,
        random_bytes=lambda size: b"\1" * size,
    )
    for channel_id in (1, 2, 3, 3, 1):
        channels.open(ChannelSpec(channel_id, datagram_version=3, is_sealed=True))
        is_first = recording.opened[channel_id].counter_start > 0
        channels.close(channel_id)
        recording.calls.append(f"{channel_id} {is_first}")
    found = [call for call in recording.calls if call.endswith(("True", "False"))]
    assert found == ["1 True", "2 True", "3 True", "3 False", "1 True"]
