"""Senders of this end-point: one for each edge router that it attached to.

Every event goes to every edge with the same stamp and sequence, so that a receiver of both copies
detects the duplicate. An edge whose session is lost is still sent to: a router forwards even
without a session.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from secrets import randbits
from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.core._ends import Sender
from gridstat.model.channel_security import SEALED_VERSION
from gridstat.model.errors import GridStatError, LinkDown

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from gridstat.endpoint.end_keys import EndKeys
    from gridstat.net.command.endpoint_messages import AttachedOutcome

log = logging.getLogger(__name__)
COUNTER_START_BITS: Final = 48


class Outgoing(NamedTuple):
    """One event to be sent; `value` is a number, or the bytes of a record with derived values.

    Without a sequence it gets the next one of its variable.
    """

    variable_id: int
    value: float | bytes
    created_ns: int
    flags: int = 0
    is_urgent: bool = False
    sequence: int | None = None


@dataclass(slots=True)
class _Channel:
    """A sender to one edge, with the outcome that names its address."""

    sender: Sender
    outcome: AttachedOutcome
    is_up: bool = True


class OutgoingChannels:
    """All senders have sent the same events since the newest of them was opened."""

    def __init__(
        self, make: Callable[..., Sender] = Sender, *, keys: EndKeys | None = None
    ) -> None:
        """`keys` gives sealed senders their keys; without it no sender may be sealed."""
        self._keys = keys
        self._make = make
        self._channels: dict[str, _Channel] = {}
        self._unreached: dict[str, AttachedOutcome] = {}
        """Edges that attached, while there was no way to their address."""
        self._lock = threading.Lock()

    @property
    def is_up(self) -> bool:
        """True if at least one edge is reachable, as far as its session shows."""
        return any(channel.is_up for channel in tuple(self._channels.values()))

    def open(self, edge: str, outcome: AttachedOutcome) -> None:
        """Send to this edge from now on, or to its new ports; `retry` tries again if there is no
        way there."""
        try:
            self._open_now(edge, outcome)
        except LinkDown as error:
            if edge not in self._unreached:
                log.warning(
                    "edge_unreachable edge=%s reason=%r hint='events go to the other edges; this "
                    "one is tried again'",
                    edge,
                    str(error.args[0]),
                )
            self._unreached[edge] = outcome
        else:
            self._unreached.pop(edge, None)

    def retry(self) -> None:
        """Open what could not be opened."""
        for edge, outcome in tuple(self._unreached.items()):
            self.open(edge, outcome)

    def _open_now(self, edge: str, outcome: AttachedOutcome) -> None:
        with self._lock:
            before = self._channels.get(edge)
            if before is not None and _is_same_channel(before.outcome, outcome):
                if _address(before.outcome) != _address(outcome):
                    before.sender.retarget(_address(outcome))
                before.outcome, before.is_up = outcome, True
                return
            # A header has 8 bits of the epoch only: a random counter keeps apart the headers of
            # two processes on one channel, whose keys differ.
            is_sealed = outcome.datagram_version == SEALED_VERSION
            sender = self._open(edge, outcome, randbits(COUNTER_START_BITS) if is_sealed else 0)
            # The others number their events anew as well: copies are matched by the sequences.
            # Their sockets and keys stay, for the way to another edge may be closed just now.
            for name, channel in self._channels.items():
                if name != edge:
                    channel.sender.restart_sequences()
            if before is not None:
                if before.outcome.up_channel_id != outcome.up_channel_id:
                    self._forget_keys(before)
                before.sender.close()
            self._channels[edge] = _Channel(sender, outcome)

    def lose(self, edge: str) -> None:
        """Note that the session with this edge is lost."""
        channel = self._channels.get(edge)
        if channel is not None:
            channel.is_up = False

    def send(self, event: Outgoing) -> bool:
        """Send an event to all edges; return whether a reachable one took it."""
        variable_id, value, created_ns, flags, is_urgent, sequence = event
        is_taken = False
        with self._lock:
            for channel in self._channels.values():
                was_sent = channel.sender.send(
                    variable_id,
                    value,
                    created_ns=created_ns,
                    flags=flags,
                    urgent=is_urgent,
                    sequence=sequence,
                )
                is_taken = is_taken or (was_sent and channel.is_up)
        return is_taken

    def send_many(
        self,
        variable_ids: NDArray[np.integer],
        values: NDArray[np.number | np.bool],
        created_ns: NDArray[np.integer],
        flags: int,
    ) -> int:
        """Send columns of events to all edges; return how many the best reachable one took."""
        with self._lock:
            taken = [
                channel.sender.send_many(variable_ids, values, created_ns, flags=flags)
                * channel.is_up
                for channel in self._channels.values()
            ]
        return max(taken, default=0)

    def counters(self) -> dict[str, dict[str, int]]:
        """Return the senders' counters by edge."""
        return {edge: channel.sender.counters() for edge, channel in tuple(self._channels.items())}

    def close(self) -> None:
        """Close all senders."""
        with self._lock:
            for channel in self._channels.values():
                self._forget_keys(channel)
                channel.sender.close()
            self._channels.clear()
            self._unreached.clear()

    def _open(self, edge: str, outcome: AttachedOutcome, counter_start: int = 0) -> Sender:
        is_sealed = outcome.datagram_version == SEALED_VERSION
        sender = self._make(
            outcome.up_channel_id,
            _address(outcome),
            datagram_version=outcome.datagram_version,
            counter_start=counter_start,
            is_sealed=is_sealed,
        )
        if is_sealed:
            assert self._keys is not None
            try:
                self._keys.sender_opened(outcome.up_channel_id, sender, edge)
            except GridStatError:
                sender.close()
                raise
        return sender

    def _forget_keys(self, channel: _Channel) -> None:
        if self._keys is not None:
            self._keys.sender_closed(channel.outcome.up_channel_id)


def _address(outcome: AttachedOutcome) -> tuple[str, int, int]:
    return outcome.host, outcome.data_port, outcome.urgent_port


def _is_same_channel(before: AttachedOutcome, after: AttachedOutcome) -> bool:
    return (before.up_channel_id, before.datagram_version) == (
        after.up_channel_id,
        after.datagram_version,
    )
