"""Senders to several edges, while the way to one of them comes and goes."""

from __future__ import annotations

from typing import Any

import pytest

from gridstat.endpoint.end_keys import EndKeys
from gridstat.endpoint.outgoing_channels import Outgoing, OutgoingChannels
from gridstat.model.channel_security import SEALED_VERSION
from gridstat.model.errors import LinkDown, Misuse
from gridstat.model.keys.key_settings import KEYS_DEFAULT, NS_PER_MS
from gridstat.net.command.endpoint_messages import AttachedOutcome
from gridstat.net.command.router_messages import ChannelSeed

E0, E1 = "c1/e0", "c1/e1"
EVENT = Outgoing(1, 1.0, 0)
UP = {E0: 6, E1: 7}


class KeyedPaperSender:
    """Refuses everything once it is closed, as the sender of the core does."""

    def __init__(self) -> None:
        self.is_closed = False
        self.epochs: list[int] = []
        self.sequences: list[int] = []

    def _need_open(self) -> None:
        if self.is_closed:
            raise Misuse("the sender is closed", hint="open a new one")

    def set_key(self, epoch: int, key: bytes, salt: bytes) -> None:
        del key, salt
        self._need_open()
        self.epochs.append(epoch)

    def clear_key(self) -> None:
        self._need_open()

    def sending_state(self) -> dict[str, Any]:
        self._need_open()
        return {"datagrams": 0}

    def send(self, *_: Any, **__: Any) -> bool:
        self._need_open()
        self.sequences.append(len(self.sequences))
        return bool(self.epochs)

    def restart_sequences(self) -> None:
        self._need_open()
        self.sequences.clear()

    def close(self) -> None:
        self.is_closed = True


class Station:
    """An end-point with two sealed edges, whose ways can be cut."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.cut: set[int] = set()
        self.senders: dict[int, KeyedPaperSender] = {}
        self.keys = EndKeys(lambda *_: None, clock_ns=lambda: self.now_ns)
        self.channels = OutgoingChannels(self._make, keys=self.keys)  # type: ignore[arg-type]

    def _make(self, channel_id: int, *_: Any, **__: Any) -> KeyedPaperSender:
        if channel_id in self.cut:
            raise LinkDown("no route to host")
        self.senders[channel_id] = KeyedPaperSender()
        return self.senders[channel_id]

    def attach(self, edge: str) -> None:
        outcome = AttachedOutcome(
            edge=edge,
            host="127.0.0.1",
            data_port=4_000,
            urgent_port=4_001,
            up_channel_id=UP[edge],
            down_channel_id=UP[edge] + 100,
            datagram_version=SEALED_VERSION,
        )
        self.channels.open(edge, outcome)
        seed = ChannelSeed(channel_id=UP[edge], number=1, secret=bytes(32), first_epoch=5)
        self.keys.take(edge, seed)

    def pass_epochs(self, count: int) -> None:
        for _ in range(count):
            self.now_ns += KEYS_DEFAULT.epoch_ms * NS_PER_MS
            self.keys.step()


@pytest.fixture
def station() -> Station:
    return Station()


def test_a_second_edge_leaves_the_first_one_with_its_keys_when_no_way_leads_there(
    station: Station,
) -> None:
    station.attach(E0)
    station.cut.add(UP[E0])
    station.attach(E1)
    station.pass_epochs(3)
    assert station.senders[UP[E0]].epochs == station.senders[UP[E1]].epochs == [5, 6, 7, 8]
    assert station.channels.send(EVENT)


def test_a_second_edge_makes_the_first_one_begin_its_sequences_anew(station: Station) -> None:
    station.attach(E0)
    station.channels.send(EVENT)
    station.attach(E1)
    station.channels.send(EVENT)
    first, second = station.senders.values()
    assert first.sequences == second.sequences == [0]
    assert first.epochs == [5], "its counter goes on, and so may its key"


def test_an_edge_without_a_way_is_opened_when_there_is_one(
    station: Station, caplog: pytest.LogCaptureFixture
) -> None:
    station.attach(E0)
    station.cut.add(UP[E1])
    station.attach(E1)
    station.channels.retry()
    assert caplog.text.count("edge_unreachable edge=c1/e1") == 1
    assert station.channels.send(EVENT)
    station.cut.clear()
    station.channels.retry()
    station.pass_epochs(1)
    assert station.senders[UP[E1]].epochs == [5, 6], "the seed has waited for its channel"


def test_a_closed_sender_holds_up_no_other_channel(
    station: Station, caplog: pytest.LogCaptureFixture
) -> None:
    station.attach(E0)
    station.attach(E1)
    station.senders[UP[E0]].close()
    station.pass_epochs(3)
    assert station.senders[UP[E1]].epochs == [5, 6, 7, 8]
    assert caplog.text.count("keys_failed channel_id=6") == 1


def test_an_end_point_warns_of_its_overdue_seeds(
    station: Station, caplog: pytest.LogCaptureFixture
) -> None:
    station.attach(E0)
    station.pass_epochs(65)
    assert caplog.text.count("seed_overdue channel_id=6 sends=1") == 1
