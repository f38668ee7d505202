"""Duplicate detection in plain Python: only the first copy of an event is accepted.

`duplicates.c` is the fast copy of this file. Never a high-water mark: under loss and jitter
"newest wins" throws good events away. A jump beyond the window needs two consistent events, so
that one forged stamp cannot silence a variable (S0 A12). How far the stream may be by now goes by
the time since the last event: what is ahead of that by less than the window is no jump. A forged
stamp of that kind leaves all true events within the window.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from gridstat.model.flooding import FLOOD_EVENTS_MAX, FLOOD_HOLD_NS
from gridstat.model.rate_law import NS_PER_S
from gridstat.model.window_law import window_slots

if TYPE_CHECKING:
    from gridstat.model.rate_law import Period

POLICED_SLOTS = 64
RING_EVENTS = FLOOD_EVENTS_MAX
QUIET_NS = 1_000_000_000
"""Silence after which events from far behind the window mean a restarted clock, not old copies."""
CLOCK_AHEAD_NS = 1_100_000_000
CLOCK_BEHIND_NS = 11_000_000_000
"""An honest stamp is no further ahead of our clock, and no older, whatever host it is from."""
PACE_JITTER_NS = 10_000_000
"""Time by which an alert may come before it is due."""
PACE_BURST_NS = 1_000_000_000
"""The same for replayed events, which are sent in batches."""
PACE_NS_MAX = 2**62
"""Longest interval; longer ones count as this."""

Refusal = Literal["duplicate", "too_old", "policed_slot", "policed_jump", "policed_interval"]
"""Reason for which an event is refused, which is also its counter; None means accepted."""

_POLICED_MASK = (1 << POLICED_SLOTS) - 1


@dataclass(slots=True)
class Pace:
    """Pace of a publisher's events where their stamps bound nothing: by arrival, one an interval on
    the average, and closer together only within a tolerance of at least an interval.

    It stays with what is remembered of a variable: no change of its row lets more events pass.
    """

    due_ns: int = 0

    def keeps(self, interval_ns: int, *, now_ns: int, is_burst: bool) -> bool:
        """Return whether an event keeps the pace, and advance the due time if so.

        A due time left by a longer interval is lowered to the most that this interval could have
        caused.
        """
        interval_ns = min(interval_ns, PACE_NS_MAX)
        tolerance_ns = max(PACE_BURST_NS if is_burst else PACE_JITTER_NS, interval_ns)
        ahead_ns = max(0, self.due_ns - now_ns)
        keeps = ahead_ns <= tolerance_ns
        self.due_ns = now_ns + (
            ahead_ns + interval_ns if keeps else min(ahead_ns, tolerance_ns + interval_ns)
        )
        return keeps


@dataclass(slots=True)
class SlotWindow:
    """The slots of a periodic variable seen so far; bit i of a bitmap is slot `newest - i`.

    `policed` marks the slots that the publisher itself has used: a second event in one of them is
    the publisher's fault, whereas a second copy from another channel is a mere duplicate.
    """

    period: Period
    newest: int | None = None
    bits: int = 0
    policed: int = 0
    candidate: int | None = None
    accepted_at_ns: int = 0
    pace: Pace = field(default_factory=Pace)
    length: int = field(init=False)

    def __post_init__(self) -> None:
        self.length = window_slots(self.period)

    def offer(
        self,
        slot: int,
        *,
        is_publisher: bool,
        now_ns: int,
        is_replayed: bool = False,
        near_slots: range | None = None,
    ) -> Refusal | None:
        """Take the event's slot, or return why not; a replayed stream may jump ahead.

        `near_slots` are those near the present by our own clock. An event beyond the window in one
        of them moves the window, if its newest slot is none of them: then our clock was set.
        """
        is_beyond = self.newest is not None and abs(slot - self.newest) >= self.length
        is_set = (
            is_beyond
            and near_slots is not None
            and slot in near_slots
            and self.newest not in near_slots
        )
        refusal = self._place(
            slot, is_publisher=is_publisher, now_ns=now_ns, is_replayed=is_replayed
        )
        if refusal is not None and is_set:
            self._restart(slot, is_publisher=is_publisher)
            refusal = None
        if refusal is None:
            self.candidate = None
            self.accepted_at_ns = now_ns & ~1  # The core keeps something else in that bit.
        return refusal

    def _place(
        self, slot: int, *, is_publisher: bool, now_ns: int, is_replayed: bool
    ) -> Refusal | None:
        if self.newest is None:
            self._restart(slot, is_publisher=is_publisher)
            return None
        ahead = slot - self.newest
        if -self.length < ahead <= 0:
            return self._fill(-ahead, is_publisher=is_publisher)
        if 0 < ahead < self.length:
            self._advance(ahead, is_publisher=is_publisher)
            return None
        elapsed_ns = max(0, now_ns - self.accepted_at_ns)
        is_quiet = elapsed_ns >= QUIET_NS
        if ahead < 0 and not is_quiet:
            return "too_old"  # The stream is alive: an old copy, not a restarted clock.
        passed = elapsed_ns * self.period.per_seconds // (self.period.seconds * NS_PER_S)
        if ahead > 0 and (is_quiet or ahead < self.length + passed or is_replayed):
            self._restart(slot, is_publisher=is_publisher)
            return None  # The events of sparse subscriptions are so far apart.
        return self._jump(ahead, is_publisher=is_publisher)

    def _fill(self, back: int, *, is_publisher: bool) -> Refusal | None:
        bit = 1 << back
        if is_publisher and back < POLICED_SLOTS:
            if self.policed & bit:
                return "policed_slot"
            self.policed |= bit
        if self.bits & bit:
            return "duplicate"
        self.bits |= bit
        return None

    def _advance(self, ahead: int, *, is_publisher: bool) -> None:
        assert self.newest is not None
        self.bits = (self.bits << ahead | 1) & ((1 << self.length) - 1)
        self.policed = (self.policed << ahead | is_publisher) & _POLICED_MASK
        self.newest += ahead

    def _jump(self, ahead: int, *, is_publisher: bool) -> Refusal | None:
        """Move the window to two different events that are near each other, on the same far
        side."""
        assert self.newest is not None
        slot = self.newest + ahead
        if self.candidate is not None:
            was_ahead = self.candidate - self.newest
            is_same_side = was_ahead * ahead > 0 and abs(was_ahead) >= self.length
            is_near = 0 < abs(slot - self.candidate) < self.length
            follows = self.candidate < slot < self.newest
            if is_same_side and (is_near or follows):
                self._restart(slot, is_publisher=is_publisher)
                return None
        self.candidate = slot
        return "policed_jump"

    def _restart(self, slot: int, *, is_publisher: bool) -> None:
        self.newest = slot
        self.bits = 1
        self.policed = int(is_publisher)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One aperiodic event as a ring remembers it."""

    created_ns: int
    sequence: int
    arrived_ns: int

    def is_too_soon_after(self, last: Arrival, interval_ns_min: int) -> bool:
        """Return whether the event is too soon both by its stamp and by arrival; a clock that was
        set back silences its publisher for one interval at most."""
        is_stamped_too_soon = self.created_ns < last.created_ns + interval_ns_min
        return is_stamped_too_soon and max(0, self.arrived_ns - last.arrived_ns) < interval_ns_min


@dataclass(slots=True)
class ArrivalRing:
    """The last aperiodic events of a variable, exactly; each is forgotten after `expiry_ns`."""

    expiry_ns: int
    arrivals: deque[Arrival] = field(default_factory=lambda: deque(maxlen=RING_EVENTS))
    pace: Pace = field(default_factory=Pace)

    def offer(
        self,
        arrival: Arrival,
        *,
        interval_ns_min: int,
        is_burst: bool = False,
    ) -> Refusal | None:
        """Take the event, or return why not; an `interval_ns_min` of 0 is not policed.

        A sender can choose its stamps, and arrivals jitter: each test alone would not suffice.
        """
        for known in self.arrivals:
            is_same = known.created_ns == arrival.created_ns and known.sequence == arrival.sequence
            if is_same and arrival.arrived_ns - known.arrived_ns <= self.expiry_ns:
                return "duplicate"
        # The newest entry is the last accepted event: entries leave only at the old end.
        if self.arrivals and arrival.is_too_soon_after(self.arrivals[-1], interval_ns_min):
            return "policed_interval"
        if interval_ns_min and not self.pace.keeps(
            interval_ns_min, now_ns=arrival.arrived_ns, is_burst=is_burst
        ):
            return "policed_interval"
        self.arrivals.append(arrival)
        return None

    def is_crowded(self, now_ns: int) -> bool:
        """Return whether the event accepted last may be a copy of a forgotten one."""
        is_full = len(self.arrivals) == RING_EVENTS
        return is_full and now_ns - self.arrivals[0].arrived_ns < FLOOD_HOLD_NS
