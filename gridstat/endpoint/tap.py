"""A tap on a connection: all events in whole batches, before they are split by variables.

For a program that wants every event, as a recorder does: no Python runs for a single event.
Subscriptions are counted from the same batches, buffered for a while, so that the cost of ledgers
is paid twice a second or less, and while it is paid the tap stays open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from gridstat.endpoint.failure_reports import FailureReports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gridstat.core.samples import Samples
    from gridstat.endpoint.arrival_clock import Arrival
    from gridstat.model.status import StatusVariable

TAPPED_EVENTS_MAX: Final = 65_536
"""Most events of one batch."""
BUFFER_NS: Final = 500_000_000
BUFFER_NS_MAX: Final = 4_000_000_000
BUFFERED_EVENTS_MAX: Final = 2_097_152
"""Buffered events at which the buffer is delivered at once, whatever that costs."""
RESTED: Final = 2
"""Factor of the pause after a delivery: no shorter than so many times the last one took."""
CLOCK_JUMP_NS: Final = 1_000_000


class Tap(Protocol):
    """Consumer of all events; no method may block."""

    def begin(self, variable: StatusVariable, every: int, subscription_id: int) -> object:
        """Note that events of this identifier come under the terms of this contract from now on.

        Called between two batches, or before the first; again when the contract has another number.
        """
        ...

    def end(self, variable: StatusVariable, every: int, subscription_id: int) -> object:
        """Note that the contract has ended, by the cloud or by the application.

        Called on any thread; the last events may still be in transit.
        """
        ...

    def take(self, batch: Samples, options: bytes) -> None:
        """Take events of all variables in the order of arrival, and all their options one after
        another."""
        ...


class TapBuffer:
    """Batches that have passed the tap, and are not yet split by variables.

    Batches may be added while others are delivered; they wait for the next time.
    """

    def __init__(
        self,
        tap: Tap,
        deliver: Callable[[Samples, bytes, Arrival], None],
        steady_ns: Callable[[], int],
        failures: FailureReports | None = None,
    ) -> None:
        self.next_due_ns: int | None = None
        self.emptied_ns = 0
        """Events that arrived before this time of the steady clock have been added."""
        self._handed_ns = 0
        self._tap = tap
        self._deliver = deliver
        self._steady_ns = steady_ns
        self._failures = failures or FailureReports(steady_ns)
        self._parts: list[tuple[Samples, bytes, Arrival]] = []
        self._events = 0
        self._rest_ns = BUFFER_NS
        self._is_handing_out = False

    @property
    def caught_up_ns(self) -> int:
        """Events that arrived before this time have been delivered."""
        is_done = not self._parts and not self._is_handing_out
        return self.emptied_ns if is_done else self._handed_ns

    def add(self, batch: Samples, options: bytes, arrival: Arrival) -> None:
        """Add a batch: pass it to the tap at once, to the subscriptions later."""
        try:
            self._tap.take(batch, options)
        except Exception:
            self._failures.report(self._tap, "tap_failed events=%d", len(batch))
        self._parts.append((batch, options, arrival))
        self._events += len(batch)
        if self.next_due_ns is None:
            self.next_due_ns = arrival.steady_ns + self._rest_ns
        if self._events >= BUFFERED_EVENTS_MAX:
            self.hand_out()

    def fire(self, _arrival: Arrival) -> None:
        """Deliver the buffered batches."""
        self.hand_out()

    def hand_out(self) -> None:
        """Deliver all buffered batches, with the clocks of their own arrival."""
        if self._is_handing_out:
            return
        began_ns, emptied_ns = self._steady_ns(), self.emptied_ns
        parts, self._parts, self._events, self.next_due_ns = self._parts, [], 0, None
        self._is_handing_out = True
        try:
            for some in _by_time(parts):
                batches, options = [batch for batch, _, _ in some], [each for _, each, _ in some]
                self._deliver(np.concatenate(batches), b"".join(options), some[-1][2])
        finally:
            self._is_handing_out = False
        now_ns = self._steady_ns()
        self._handed_ns = emptied_ns
        self._rest_ns = min(max(BUFFER_NS, RESTED * (now_ns - began_ns)), BUFFER_NS_MAX)
        if self._parts:
            self.next_due_ns = now_ns + self._rest_ns


def _by_time(
    parts: list[tuple[Samples, bytes, Arrival]],
) -> Iterator[list[tuple[Samples, bytes, Arrival]]]:
    """Yield runs of batches between which no clock was set."""
    start = 0
    for index in range(1, len(parts) + 1):
        if index == len(parts) or not _is_same_time(parts[index - 1][2], parts[index][2]):
            yield parts[start:index]
            start = index


def _is_same_time(one: Arrival, other: Arrival) -> bool:
    jump_ns = (other.wall_ns - other.steady_ns) - (one.wall_ns - one.steady_ns)
    return one.correction_ns == other.correction_ns and abs(jump_ns) < CLOCK_JUMP_NS
