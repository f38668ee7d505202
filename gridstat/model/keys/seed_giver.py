"""Exchange of seeds at their giver: a leaf broker, the owner of a channel, or an edge router.

For each channel:

    waiting --both ends are there--> offered: the seed was sent to the receiver
    offered --the receiver has accepted, with its first epoch--> given: sent to the sender
    offered --no answer in time--> offered, with another seed
    any --an end has a new session--> waiting, then another exchange
    given --the time for a fresh seed has come--> offered, with another seed

The receiver comes first, so that it holds a key before the sender uses it. A seed is sent to the
sender once, in one session, and forgotten here then: a restarted sender, or one whose session was
lost, gets another. So no two processes ever count datagrams under one key.

Nothing is durable. After a restart of the giver all sessions are new, and all seeds are too; until
then both ends go on with the seed that they have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from gridstat.model.key_schedule import SEED_BYTES
from gridstat.model.keys.key_settings import NS_PER_MS, KeySettings, Seed

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWER_NS_MAX: Final = 5_000_000_000
"""Time after which an unanswered offer is repeated, with another seed."""
_NUMBER_BYTES: Final = 6
_SPREAD: Final = 1_024
_TICKS: Final = 64
"""Steps in an interval of fresh seeds, at least."""


class End(Enum):
    """End of a one-way channel."""

    SENDER = auto()
    RECEIVER = auto()


@dataclass(frozen=True, slots=True)
class GiveSeed:
    """Instruction to send a seed to one end; the sender's has the first epoch of the receiver."""

    to: End
    seed: Seed
    first_epoch: int | None = None


@dataclass(slots=True)
class _Exchange:
    """Exchange of one channel; `seed` is there from the offer until it is given."""

    opened_ns: int
    ends: set[End] = field(default_factory=set)
    seed: Seed | None = None
    offered_ns: int = 0
    given_ns: int | None = None
    due_ns: int = 0


class SeedGiver:
    """Exchanges of all channels of one giver; `random_bytes` is the only source of secrets."""

    def __init__(self, settings: KeySettings, random_bytes: Callable[[int], bytes]) -> None:
        self._settings = settings
        self._random_bytes = random_bytes
        self._exchanges: dict[int, _Exchange] = {}
        self.seeds_given = 0

    def __contains__(self, channel_id: object) -> bool:
        return channel_id in self._exchanges

    def __len__(self) -> int:
        return len(self._exchanges)

    @property
    def tick_ns(self) -> int:
        """Interval at which `step` is to be called while there are channels."""
        tick_ns = self._settings.reseed_ms * NS_PER_MS // _TICKS
        return max(min(tick_ns, ANSWER_NS_MAX), NS_PER_MS)

    def channel_ids(self) -> list[int]:
        return sorted(self._exchanges)

    def open(self, channel_id: int, now_ns: int) -> None:
        """Begin to serve a channel; an open one goes on as it is."""
        if channel_id not in self._exchanges:
            self._exchanges[channel_id] = _Exchange(now_ns)

    def close(self, channel_id: int) -> None:
        self._exchanges.pop(channel_id, None)

    def end_up(self, channel_id: int, end: End, now_ns: int) -> list[GiveSeed]:
        """Note a new session of an end; it begins a new exchange if the other end is there."""
        exchange = self._exchanges.get(channel_id)
        if exchange is None:
            return []
        exchange.ends.add(end)
        return self._offer(channel_id, exchange, now_ns)

    def is_up(self, channel_id: int, end: End) -> bool:
        """Return whether the session of an end was noted and is not lost."""
        exchange = self._exchanges.get(channel_id)
        return exchange is not None and end in exchange.ends

    def end_down(self, channel_id: int, end: End) -> None:
        """Note that the session of an end is lost: an exchange under way ends with it."""
        exchange = self._exchanges.get(channel_id)
        if exchange is not None:
            exchange.ends.discard(end)
            exchange.seed = None

    def accepted(
        self, channel_id: int, number: int, first_epoch: int, now_ns: int
    ) -> list[GiveSeed]:
        """Give the sender a seed that the receiver has installed; ignore an outdated answer."""
        exchange = self._exchanges.get(channel_id)
        if exchange is None or exchange.seed is None or exchange.seed.number != number:
            return []
        seed, exchange.seed = exchange.seed, None
        exchange.given_ns = now_ns
        reseed_ns = self._settings.reseed_ms * NS_PER_MS
        # Spread over a tenth of the interval, or all channels would be served at the same moment.
        early_ns = seed.number % _SPREAD * reseed_ns // (10 * _SPREAD)
        exchange.due_ns = now_ns + reseed_ns - early_ns
        self.seeds_given += 1
        return [GiveSeed(End.SENDER, seed, first_epoch)]

    def step(self, now_ns: int) -> list[GiveSeed]:
        """Offer fresh seeds where they are due, and repeat offers that were not answered."""
        found: list[GiveSeed] = []
        for channel_id, exchange in self._exchanges.items():
            if exchange.seed is not None:
                is_due = now_ns - exchange.offered_ns >= ANSWER_NS_MAX
            else:
                is_due = now_ns >= exchange.due_ns
            if is_due:
                found += self._offer(channel_id, exchange, now_ns)
        return found

    def overdue(self, now_ns: int) -> list[int]:
        """Return the channels that should have got a fresh seed long ago."""
        return [
            channel_id
            for channel_id, exchange in sorted(self._exchanges.items())
            if now_ns - (exchange.given_ns or exchange.opened_ns) > self._settings.overdue_ns
        ]

    def is_given(self, channel_id: int) -> bool:
        """Return whether this giver has given both ends a seed."""
        exchange = self._exchanges.get(channel_id)
        return exchange is not None and exchange.given_ns is not None

    def _offer(self, channel_id: int, exchange: _Exchange, now_ns: int) -> list[GiveSeed]:
        exchange.seed = None
        if len(exchange.ends) < len(End):
            return []
        number = int.from_bytes(self._random_bytes(_NUMBER_BYTES), "big")
        secret = self._random_bytes(SEED_BYTES)
        exchange.seed = Seed(channel_id, number, secret, self._settings)
        exchange.offered_ns = now_ns
        return [GiveSeed(End.RECEIVER, exchange.seed)]
