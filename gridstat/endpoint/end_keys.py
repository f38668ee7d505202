"""Keys of an end-point's sealed channels: those to its edges, and those that come from them.

Each edge router gives the seeds of its channels over its session, and of no others: a seed for a
channel of another edge is not taken. The session's thread passes them here and calls `step`;
senders and receivers report here when they open and close, with the edge of their channel. That of
a channel of flooded events is not named, so it belongs to the first edge that gives a seed for it.
"""

from __future__ import annotations

import logging
import threading
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Final, Protocol, assert_never

from gridstat.model.errors import GridStatError, NotAuthorised
from gridstat.model.keys.channel_keys import ChannelKeys, KeysFailed, SeedOver, SeedOverdue
from gridstat.net.command.router_messages import SeedAccepted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gridstat.model.keys.channel_keys import KeyNews, SeedInstalled
    from gridstat.net.command.router_messages import ChannelSeed

log = logging.getLogger(__name__)
WAITING_MAX: Final = 64
"""Seeds of one edge that may wait for their channels."""


class KeyedSender(Protocol):
    """Part of a sender that holds a key."""

    def set_key(self, epoch: int, key: bytes, salt: bytes) -> None:
        """Seal with this key from the next datagram on."""
        ...

    def clear_key(self) -> None:
        """Send nothing until there is another key."""
        ...

    def sending_state(self) -> Mapping[str, Any]:
        """Return the datagrams under the present key."""
        ...


class KeyedReceiver(Protocol):
    """Part of a receiver that holds the keys of its sources."""

    def set_keys(self, channel_id: int, keys: Iterable[tuple[int, bytes, bytes]]) -> None:
        """Accept these keys and no others."""
        ...

    def receiving_state(self, channel_id: int) -> Mapping[str, Any]:
        """Return the epochs that were opened, and those without a key."""
        ...

    def source_states(self) -> Mapping[int, Mapping[str, int]]:
        """Return the state of each source."""
        ...


class EndKeys:
    """Keys of all open senders and sources; callable from any thread.

    `answer` sends `SeedAccepted` to the edge that gave the seed.
    """

    def __init__(
        self,
        answer: Callable[[str, SeedAccepted], None],
        *,
        clock_ns: Callable[[], int],
        random_bytes: Callable[[int], bytes] = token_bytes,
    ) -> None:
        self._answer = answer
        self._clock_ns = clock_ns
        self._senders: dict[int, KeyedSender] = {}
        self._receivers: dict[int, KeyedReceiver] = {}
        self._sender_edges: dict[int, str | None] = {}
        self._source_edges: dict[int, str | None] = {}
        self._waiting: dict[str, dict[tuple[int, bool], ChannelSeed]] = {}
        """By edge, seeds of channels that are not open, and whether we send there."""
        self._keys = ChannelKeys(self, random_bytes)
        self._lock = threading.RLock()

    # Channels.

    def sender_opened(self, channel_id: int, sender: KeyedSender, edge: str) -> None:
        """Give a sender the key of its channel, as far as there is one; it may replace another."""
        with self._lock:
            _check_owner(self._sender_edges, channel_id, edge)
            self._senders[channel_id] = sender
            self._sender_edges[channel_id] = edge
            try:
                self._keys.channel_opened(channel_id, self._clock_ns())
                self._take_waiting(edge, channel_id, is_sender=True)
            except GridStatError:
                self.sender_closed(channel_id)
                raise

    def sender_closed(self, channel_id: int) -> None:
        """Forget the keys of a closed sender."""
        with self._lock:
            self._keys.channel_closed(channel_id)
            self._senders.pop(channel_id, None)
            self._sender_edges.pop(channel_id, None)

    def source_opened(
        self, channel_id: int, receiver: KeyedReceiver, edge: str | None = None
    ) -> None:
        """Accept datagrams of a source under its keys, as far as there are any.

        Without an edge it belongs to the first one that gives a seed for it.
        """
        with self._lock:
            _check_owner(self._source_edges, channel_id, edge)
            self._receivers[channel_id] = receiver
            self._source_edges[channel_id] = edge
            self._answer_all(self._keys.source_opened(channel_id, self._clock_ns()))
            for giver in (*self._waiting,) if edge is None else (edge,):
                self._take_waiting(giver, channel_id, is_sender=False)

    def source_closed(self, channel_id: int) -> None:
        """Forget the keys of a closed source."""
        with self._lock:
            self._keys.source_closed(channel_id)
            self._receivers.pop(channel_id, None)
            self._source_edges.pop(channel_id, None)

    def newest_counter(self, channel_id: int) -> int | None:
        """Return the newest authentic counter of a source; None: none has come, or it is closed."""
        with self._lock:
            receiver = self._receivers.get(channel_id)
            facts = {} if receiver is None else receiver.source_states().get(channel_id, {})
            return facts["newest_counter"] if facts.get("datagrams") else None

    # Seeds and time.

    def take(self, edge: str, message: ChannelSeed) -> None:
        """Take a seed of an edge for its own channel; one that is not open yet waits for it."""
        channel_id, is_sender = message.channel_id, message.first_epoch >= 0
        with self._lock:
            edges = self._sender_edges if is_sender else self._source_edges
            if channel_id not in edges:
                self._keep(edge, message)
                return
            if edges[channel_id] is None:
                edges[channel_id] = edge
            if edges[channel_id] != edge:
                log.warning(
                    "seed_refused channel_id=%d edge=%s hint='the channel belongs to %s; check the "
                    "edge router that gave the seed'",
                    channel_id,
                    edge,
                    edges[channel_id],
                )
            elif is_sender:
                self._keys.use(message.seed, message.first_epoch, self._clock_ns())
            else:
                self._answer_all(self._keys.accept(message.seed, self._clock_ns()))

    def _keep(self, edge: str, message: ChannelSeed) -> None:
        waiting = self._waiting.setdefault(edge, {})
        about = message.channel_id, message.first_epoch >= 0
        waiting.pop(about, None)
        waiting[about] = message
        if len(waiting) > WAITING_MAX:
            del waiting[next(iter(waiting))]

    def _take_waiting(self, edge: str, channel_id: int, *, is_sender: bool) -> None:
        message = self._waiting.get(edge, {}).pop((channel_id, is_sender), None)
        if message is not None:
            self.take(edge, message)

    def step(self) -> None:
        """Begin the epochs that are due, and follow those of the edges."""
        with self._lock:
            for news in self._keys.step(self._clock_ns()):
                _log(news)

    def _answer_all(self, installed: Iterable[SeedInstalled]) -> None:
        for each in installed:
            accepted = SeedAccepted(
                channel_id=each.channel_id, number=each.number, first_epoch=each.first_epoch
            )
            edge = self._source_edges[each.channel_id]
            assert edge is not None
            self._answer(edge, accepted)

    # What `ChannelKeys` asks of a core.

    def set_sending_key(self, channel_id: int, epoch: int, key: bytes, salt: bytes) -> None:
        """Pass a key to the sender of a channel."""
        self._senders[channel_id].set_key(epoch, key, salt)

    def clear_sending_key(self, channel_id: int) -> None:
        """Take the key of a sender away."""
        self._senders[channel_id].clear_key()

    def sending_state(self, channel_id: int) -> Mapping[str, Any]:
        """Return the state of a sender."""
        return self._senders[channel_id].sending_state()

    def set_receiving_keys(self, channel_id: int, keys: Sequence[tuple[int, bytes, bytes]]) -> None:
        """Pass the accepted keys to the receiver of a channel."""
        self._receivers[channel_id].set_keys(channel_id, keys)

    def receiving_state(self, channel_id: int) -> Mapping[str, Any]:
        """Return the state of a source."""
        return self._receivers[channel_id].receiving_state(channel_id)


def _log(news: KeyNews) -> None:
    match news:
        case SeedOver():
            log.warning(
                "seed_over channel_id=%d sends=%d hint='its edge router has given no seed for "
                "long; check the session with it'",
                news.channel_id,
                news.is_sender,
            )
        case SeedOverdue():
            log.warning(
                "seed_overdue channel_id=%d sends=%d hint='its edge router has given no fresh seed "
                "for long; check the session with it, for the channel stops 24 h after its last "
                "seed'",
                news.channel_id,
                news.is_sender,
            )
        case KeysFailed():
            log.warning(
                "keys_failed channel_id=%d sends=%d reason=%r hint='the other channels go on, and "
                "this one is tried again; connect again if it stays silent'",
                news.channel_id,
                news.is_sender,
                news.reason,
            )
        case _:
            assert_never(news)


def _check_owner(edges: Mapping[int, str | None], channel_id: int, edge: str | None) -> None:
    """Raise `NotAuthorised` if an open channel belongs to another edge."""
    owner = edges.get(channel_id, edge)
    if owner != edge:
        raise NotAuthorised(
            f"channel {channel_id} belongs to edge router {owner}, not to {edge}",
            hint="check the edge router that names a channel of another one",
        )
