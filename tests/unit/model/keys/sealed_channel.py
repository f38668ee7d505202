"""One sealed channel in virtual time: a giver, a sender and a receiver, with lines to cut."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, TypeAlias

from gridstat.model.keys.channel_keys import ChannelKeys, SeedInstalled
from gridstat.model.keys.seed_giver import End, GiveSeed, SeedGiver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gridstat.model.keys.key_settings import KeySettings

CHANNEL = 7
NS_PER_S = 1_000_000_000
StubKey: TypeAlias = tuple[int, bytes, bytes]
StubDatagram: TypeAlias = tuple[int, bytes, bytes, int]
"""Epoch byte, key, salt and counter."""


class StubCore:
    """Keys of one process; datagrams are tuples of epoch byte, key, salt and counter."""

    def __init__(self) -> None:
        self.sending: tuple[int, bytes, bytes] | None = None
        self.datagrams = 0
        self.counter = 0
        self.accepted: dict[int, tuple[bytes, bytes]] = {}
        self.windows: dict[StubKey, set[int]] = {}
        """Counters that a key has opened, for keys that are accepted or still kept."""
        self.openers: set[StubKey] = set()
        self.told: set[StubKey] = set()
        """Dropped keys of which it was told what they opened."""
        self.unknown: set[int] = set()
        self.before_set: Callable[[], object] = bool
        """Called just before the accepted keys change: a datagram may come at this moment."""

    def set_sending_key(self, channel_id: int, epoch: int, key: bytes, salt: bytes) -> None:
        assert channel_id == CHANNEL
        self.sending, self.datagrams = (epoch, key, salt), 0

    def clear_sending_key(self, channel_id: int) -> None:
        assert channel_id == CHANNEL
        self.sending = None

    def sending_state(self, channel_id: int) -> Mapping[str, int]:
        assert channel_id == CHANNEL
        return {
            "epoch": -1 if self.sending is None else self.sending[0],
            "datagrams": self.datagrams,
        }

    def set_receiving_keys(self, channel_id: int, keys: Sequence[StubKey]) -> None:
        assert channel_id == CHANNEL
        assert len(keys) <= 8
        assert len({epoch for epoch, _, _ in keys}) == len(keys)
        self.before_set()
        self.accepted = {epoch: (key, salt) for epoch, key, salt in keys}
        accepted = {tuple(each) for each in keys}
        self.told -= accepted
        self.windows = {key: seen for key, seen in self.windows.items() if seen or key in accepted}

    def receiving_state(self, channel_id: int) -> Mapping[str, Any]:
        assert channel_id == CHANNEL
        accepted = {(epoch, *words) for epoch, words in self.accepted.items()}
        for key in self.told - accepted:
            self.windows.pop(key, None)
        self.told = self.windows.keys() - accepted
        unknown, self.unknown = tuple(sorted(self.unknown)), set()
        openers, self.openers = self.openers, set()
        return {
            "epochs": tuple(sorted(epoch for epoch, *_ in openers & accepted)),
            "dropped_epochs": tuple(sorted(epoch for epoch, *_ in openers - accepted)),
            "unknown_epochs": unknown,
        }

    def receive(self, datagram: StubDatagram) -> bool:
        """Return whether a datagram is believed."""
        *_, counter = datagram
        key = datagram[:3]
        if key[0] not in self.accepted:
            self.unknown.add(key[0])
        elif self.accepted[key[0]] == key[1:]:
            seen = self.windows.setdefault(key, set())
            is_new = counter not in seen
            seen.add(counter)
            self.openers |= {key} if is_new else set()
            return is_new
        return False


class SealedChannel:
    """Channel with its two ends and its giver; every sent (key, counter) is remembered."""

    def __init__(self, settings: KeySettings, seed: int = 1) -> None:
        self.draw = random.Random(seed)
        self.settings = settings
        self.now_ns = 0
        self.giver = SeedGiver(settings, self.draw.randbytes)
        self.giver.open(CHANNEL, 0)
        self.used: set[tuple[bytes, bytes, int]] = set()
        self.believed: set[StubDatagram] = set()
        self.newest: StubDatagram | None = None
        """The last datagram that was sent, whether it came or not."""
        self.sent = self.received = self.unsent = 0
        self.over: list[object] = []
        self.is_cut = False
        self.is_giver_there = True
        self.loses_offers = False
        self.loses_gifts = False
        self.start_sender()
        self.start_receiver()

    def start_sender(self) -> None:
        """Begin a new process of the sender, with a counter that begins anew."""
        self.sending_core = StubCore()
        self.sender = ChannelKeys(self.sending_core, self.draw.randbytes)
        self.sender.channel_opened(CHANNEL, self.now_ns)
        self.connect(End.SENDER)

    def start_receiver(self) -> None:
        """Begin a new process of the receiver."""
        self.receiving_core = StubCore()
        self.receiver = ChannelKeys(self.receiving_core, self.draw.randbytes)
        self.receiver.source_opened(CHANNEL, self.now_ns)
        self.connect(End.RECEIVER)

    def connect(self, end: End) -> None:
        if self.is_giver_there:
            self._give(self.giver.end_up(CHANNEL, end, self.now_ns))

    def restart_giver(self) -> None:
        self.giver = SeedGiver(self.settings, self.draw.randbytes)
        self.giver.open(CHANNEL, self.now_ns)
        self.is_giver_there = True
        self.connect(End.RECEIVER)
        self.connect(End.SENDER)

    def run(self, duration_s: float, *, step_s: float = 0.25, each_s: float | None = None) -> None:
        """Let time pass, and send a datagram at each interval (each step if it is None)."""
        until_ns = self.now_ns + int(duration_s * NS_PER_S)
        send_ns = self.now_ns
        while self.now_ns < until_ns:
            self.now_ns += int(step_s * NS_PER_S)
            self.over += self.sender.step(self.now_ns)
            if each_s is None or self.now_ns - send_ns >= each_s * NS_PER_S:
                send_ns = self.now_ns
                self.send()
            self.over += self.receiver.step(self.now_ns)
            if self.is_giver_there:
                self._give(self.giver.step(self.now_ns))

    def is_heard(self) -> bool:
        """Return whether the receiver would accept what the sender sends now."""
        sending = self.sending_core.sending
        assert sending is not None
        return self.receiving_core.accepted.get(sending[0]) == sending[1:]

    def send(self, count: int = 1) -> None:
        core = self.sending_core
        if core.sending is None:
            self.unsent += 1
            return
        for _ in range(count):
            epoch, key, salt = core.sending
            core.datagrams += 1
            core.counter += 1
            nonce = (key, salt, core.counter)
            assert nonce not in self.used, "a key and a counter were used twice"
            self.used.add(nonce)
            self.sent += 1
            self.newest = epoch, key, salt, core.counter
            if not self.is_cut:
                self.play(self.newest)

    def play(self, datagram: StubDatagram) -> None:
        """Let a datagram come to the receiver, which must never believe it a second time."""
        if self.receiving_core.receive(datagram):
            assert datagram not in self.believed, "a datagram was believed twice"
            self.believed.add(datagram)
            self.received += 1

    def _give(self, gifts: list[GiveSeed]) -> None:
        for gift in gifts:
            if gift.to is End.SENDER:
                assert gift.first_epoch is not None
                if not self.loses_gifts:
                    self.sender.use(gift.seed, gift.first_epoch, self.now_ns)
            elif not self.loses_offers:
                self._answer(self.receiver.accept(gift.seed, self.now_ns))

    def _answer(self, installed: list[SeedInstalled]) -> None:
        for each in installed:
            self._give(
                self.giver.accepted(each.channel_id, each.number, each.first_epoch, self.now_ns)
            )
