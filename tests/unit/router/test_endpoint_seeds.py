"""Seeds of an edge router for its end-points: the times of the router's file are obeyed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.model.keys.key_settings import KeySettings
from gridstat.net.command.machine import Send, SetTimer
from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelOrder,
    ChannelSeed,
    SeedAccepted,
    SourceOrder,
)
from gridstat.router.agent_events import SeedTaken, TakeSeed
from gridstat.router.endpoint_seeds import EndPointSeeds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.router.endpoint_seeds import SeedInstruction

NS_PER_MS = 1_000_000
QUICK = KeySettings(epoch_ms=700, reseed_ms=4_000, life_ms=9_000)
PMU = "c1/hill/pmu"
UP, DOWN = 7, 8
TABLE = ChangeTable(
    term=1,
    number=1,
    sources=(SourceOrder(channel_id=UP, sender=PMU, is_publisher=True, is_sealed=True),),
    channels=(
        ChannelOrder(
            channel_id=DOWN,
            to=PMU,
            host="::1",
            data_port=1,
            urgent_port=2,
            datagram_version=3,
            is_endpoint=True,
        ),
    ),
)


@pytest.fixture
def seeds() -> EndPointSeeds:
    return EndPointSeeds(QUICK, bytes)


def given(found: Iterable[SeedInstruction]) -> dict[int, tuple[bool, ChannelSeed]]:
    """The seeds by channel, and whether each goes to the end-point."""
    seen: dict[int, tuple[bool, ChannelSeed]] = {}
    for each in found:
        if isinstance(each, SetTimer):
            continue
        message = each.message
        assert isinstance(each, Send | TakeSeed)
        assert isinstance(message, ChannelSeed)
        seen[message.channel_id] = isinstance(each, Send), message
    return seen


def exchange(seeds: EndPointSeeds) -> list[tuple[bool, ChannelSeed]]:
    """Give the first seeds of both channels; return those for the sending ends."""
    first = given(seeds.table_changed(TABLE, {PMU}, 0))
    assert {channel: is_theirs for channel, (is_theirs, _) in first.items()} == {
        UP: False,
        DOWN: True,
    }
    up = SeedTaken(channel_id=UP, number=first[UP][1].number, first_epoch=5)
    down = SeedAccepted(channel_id=DOWN, number=first[DOWN][1].number, first_epoch=6)
    found = given([*seeds.taken(up, 0), *seeds.accepted(PMU, down, 0)])
    return [found[UP], found[DOWN]]


def test_both_ends_are_told_the_times_of_the_routers_file(seeds: EndPointSeeds) -> None:
    (to_endpoint, up), (to_itself, down) = exchange(seeds)
    assert (to_endpoint, up.first_epoch) == (True, 5)
    assert (not to_itself, down.first_epoch) == (True, 6)
    for message in (up, down):
        assert (message.epoch_ms, message.reseed_ms, message.life_ms) == (700, 4_000, 9_000)


def test_a_fresh_seed_comes_when_the_routers_file_says(seeds: EndPointSeeds) -> None:
    exchange(seeds)
    assert given(seeds.step(3_500 * NS_PER_MS)) == {}
    assert given(seeds.step(4_000 * NS_PER_MS)).keys() == {UP, DOWN}


def test_a_seed_of_another_end_point_is_not_used(seeds: EndPointSeeds) -> None:
    number = given(seeds.table_changed(TABLE, {PMU}, 0))[DOWN][1].number
    accepted = SeedAccepted(channel_id=DOWN, number=number, first_epoch=6)
    assert seeds.accepted("c1/mallory", accepted, 0) == []
    assert given(seeds.accepted(PMU, accepted, 0)).keys() == {DOWN}
