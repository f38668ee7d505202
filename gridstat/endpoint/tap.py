"""A tap on a connection: all that arrives, as whole batches, before it is parted by variables.

For whoever wants every event and none in particular, as a recorder does: no Python runs for a
single event. Subscriptions are counted from the same batches, gathered for a moment, so that the
price of a ledger is paid twice a second and not with every batch.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.core.samples import Samples
    from gridstat.endpoint.arrival_clock import Arrival
    from gridstat.model.status import StatusVariable

TAPPED_EVENTS_MAX: Final = 65_536
"""Of one batch."""
GATHER_NS: Final = 500_000_000
GATHERED_EVENTS_MAX: Final = 524_288
CLOCK_JUMP_NS: Final = 1_000_000

log = logging.getLogger(__name__)


class Tap(Protocol):
    """Who takes everything; both are called between two batches, or before the first."""

    def begin(self, variable: StatusVariable, every: int, subscription_id: int) -> object:
        """Events of this identifier come under the terms of this contract from now on."""
        ...

    def take(self, batch: Samples, options: bytes) -> None:
        """Events of all variables in the order of arrival, and all their options behind each
        other; it must not wait for anything."""
        ...


class Gathering:
    """What has passed the tap, and is not yet parted by variables.

    Invariant: all gathered batches were taken with the same distance between the two clocks.
    """

    def __init__(self, tap: Tap, deliver: Callable[[Samples, bytes, Arrival], None]) -> None:
        self.next_due_ns: int | None = None
        self._tap = tap
        self._deliver = deliver
        self._parts: list[tuple[Samples, bytes]] = []
        self._events = 0
        self._arrival: Arrival | None = None

    @property
    def is_empty(self) -> bool:
        """Whether all has been handed out."""
        return not self._parts

    def add(self, batch: Samples, options: bytes, arrival: Arrival) -> None:
        """One more batch: through the tap at once, to the subscriptions soon."""
        try:
            self._tap.take(batch, options)
        except Exception:
            log.exception("tap_failed events=%d", len(batch))
        before = self._arrival
        if before is not None and not _is_same_time(before, arrival):
            self.fire(before)
        self._arrival = arrival
        self._parts.append((batch, options))
        self._events += len(batch)
        if self.next_due_ns is None:
            self.next_due_ns = arrival.steady_ns + GATHER_NS
        if self._events >= GATHERED_EVENTS_MAX:
            self.fire(arrival)

    def fire(self, _arrival: Arrival) -> None:
        """Hand out what was gathered; the clocks of its own arrival count."""
        parts, arrival = self._parts, self._arrival
        self._parts, self._events, self._arrival, self.next_due_ns = [], 0, None, None
        if parts and arrival is not None:
            batches, options = [batch for batch, _ in parts], [each for _, each in parts]
            self._deliver(np.concatenate(batches), b"".join(options), arrival)


def _is_same_time(one: Arrival, other: Arrival) -> bool:
    jump_ns = (other.wall_ns - other.steady_ns) - (one.wall_ns - one.steady_ns)
    return one.correction_ns == other.correction_ns and abs(jump_ns) < CLOCK_JUMP_NS
