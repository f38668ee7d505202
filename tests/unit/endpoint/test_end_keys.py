"""Keys of an end-point's channels: each edge gives those of its own channels, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gridstat.endpoint.end_keys import WAITING_MAX, EndKeys
from gridstat.model.errors import NotAuthorised
from gridstat.net.command.router_messages import ChannelSeed, SeedAccepted

if TYPE_CHECKING:
    from collections.abc import Iterable

E0, E1 = "c1/e0", "c1/e1"
UP, DOWN = 6, 7


class Station:
    """A sender, a receiver, and what was installed in them and answered."""

    def __init__(self) -> None:
        self.used: list[int] = []
        self.accepted: list[int] = []
        self.answers: list[tuple[str, SeedAccepted]] = []
        self.keys = EndKeys(self._answer, clock_ns=lambda: 0, random_bytes=bytes)

    def _answer(self, edge: str, accepted: SeedAccepted) -> None:
        self.answers.append((edge, accepted))

    def set_key(self, epoch: int, key: bytes, salt: bytes) -> None:
        del key, salt
        self.used.append(epoch)

    def clear_key(self) -> None:
        self.used.clear()

    def sending_state(self) -> dict[str, Any]:
        return {"datagrams": 0}

    def set_keys(self, channel_id: int, keys: Iterable[tuple[int, bytes, bytes]]) -> None:
        del keys
        self.accepted.append(channel_id)

    def receiving_state(self, channel_id: int) -> dict[str, Any]:
        del channel_id
        return {"epochs": (), "dropped_epochs": (), "unknown_epochs": ()}

    def source_states(self) -> dict[int, dict[str, int]]:
        return {}

    def numbers(self) -> list[tuple[str, int]]:
        """Edges that got an answer, with the numbers of their seeds."""
        return [(edge, accepted.number) for edge, accepted in self.answers]


def seed(channel_id: int, number: int, first_epoch: int = -1) -> ChannelSeed:
    secret = bytes((number,)) * 32
    return ChannelSeed(channel_id=channel_id, number=number, secret=secret, first_epoch=first_epoch)


def test_no_edge_replaces_the_keys_of_a_source_of_another_edge() -> None:
    station = Station()
    station.keys.source_opened(DOWN, station, E0)
    station.keys.take(E0, seed(DOWN, 1))
    station.keys.take(E1, seed(DOWN, 2))
    assert station.numbers() == [(E0, 1)]
    assert station.accepted == [DOWN]


def test_no_edge_replaces_the_key_of_a_sender_to_another_edge() -> None:
    station = Station()
    station.keys.sender_opened(UP, station, E0)
    station.keys.take(E0, seed(UP, 1, first_epoch=5))
    station.keys.take(E1, seed(UP, 2, first_epoch=50))
    assert station.used == [5]


def test_a_waiting_seed_is_taken_from_the_edge_of_the_channel_alone() -> None:
    station = Station()
    for edge, number in ((E0, 1), (E1, 2)):
        station.keys.take(edge, seed(DOWN, number))
        station.keys.take(edge, seed(UP, number, first_epoch=10 * number))
    station.keys.source_opened(DOWN, station, E0)
    station.keys.sender_opened(UP, station, E0)
    assert station.numbers() == [(E0, 1)]
    assert station.used == [10]


def test_an_edge_cannot_open_a_channel_of_another_edge() -> None:
    station = Station()
    station.keys.source_opened(DOWN, station, E0)
    station.keys.sender_opened(UP, station, E0)
    with pytest.raises(NotAuthorised, match="belongs to edge router c1/e0"):
        station.keys.source_opened(DOWN, station, E1)
    with pytest.raises(NotAuthorised, match="belongs to edge router c1/e0"):
        station.keys.sender_opened(UP, station, E1)


def test_a_channel_of_flooded_events_belongs_to_the_first_edge_that_gives_its_seed() -> None:
    station = Station()
    station.keys.source_opened(DOWN, station)
    station.keys.take(E1, seed(DOWN, 1))
    station.keys.take(E0, seed(DOWN, 2))
    assert station.numbers() == [(E1, 1)]
    waiting = Station()
    waiting.keys.take(E0, seed(DOWN, 3))
    waiting.keys.source_opened(DOWN, waiting)
    assert waiting.numbers() == [(E0, 3)]


def test_a_closed_channel_belongs_to_nobody() -> None:
    station = Station()
    station.keys.source_opened(DOWN, station, E0)
    station.keys.source_closed(DOWN)
    station.keys.source_opened(DOWN, station, E1)
    station.keys.take(E1, seed(DOWN, 1))
    assert station.numbers() == [(E1, 1)]


def test_the_waiting_seeds_of_one_edge_are_bounded_and_displace_none_of_another() -> None:
    station = Station()
    station.keys.take(E0, seed(DOWN, 1))
    for channel_id in range(100, 100 + WAITING_MAX + 1):
        station.keys.take(E1, seed(channel_id, 2))
    station.keys.source_opened(100, station, E1)
    assert station.answers == [], "the oldest was dropped"
    station.keys.source_opened(101, station, E1)
    station.keys.source_opened(DOWN, station, E0)
    assert station.numbers() == [(E1, 2), (E0, 1)]
