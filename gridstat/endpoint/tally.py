"""Counts of one subscription's contract under one identifier, slot by slot.

A due slot is open until its event comes or its window closes: its latency and a settling time after
it was due, by the steady clock. Then it is lost for good, so that no counter ever falls; an event
that comes later still is only `recovered`. At any time expected = delivered + lost.
"""

from __future__ import annotations

import threading
from itertools import repeat
from math import lcm
from typing import TYPE_CHECKING, Final

import numpy as np

from gridstat.endpoint.delivery import TIME_QUALITY_BITS, UNTIMELY_BITS
from gridstat.endpoint.ledger import HOUR_NS, Ledger
from gridstat.endpoint.slot_clock import ClockSetbackDetector, SlotClock
from gridstat.model.latency_histogram import BUCKETS, NS_PER_US
from gridstat.model.rate_law import NS_PER_S, slot_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gridstat.core.samples import Samples
    from gridstat.endpoint.arrival_clock import Arrival
    from gridstat.endpoint.slot_clock import StartTime
    from gridstat.endpoint.violation import Terms
    from gridstat.model.rate_law import Period

BEHIND_NS_MAX: Final = 11_000_000_000
"""Oldest event that a receiver may take: `GS_CLOCK_BEHIND_NS` of the core."""
SETTLE_NS: Final = 1_000_000_000
"""Time after its latency at which a slot closes."""
OPEN_SLOTS_MAX: Final = 4_096
"""Skipped slots that may still come; of more the oldest are lost at once."""
NEVER_NS: Final = 2**64
_NO_SLOTS: Final[list[int]] = []
FREE_SLOTS: Final = 256
"""Slots before the first event that count if they come, and are not lost if they do not."""
SERIAL_EVENTS_MAX: Final = 24
"""Events of a batch up to which counting one by one is faster than by columns."""
INT64_MAX: Final = 2**63 - 1
AGE_BITS_MAX: Final = 64
"""Most bits that the microseconds of an age can have, for any two 64-bit stamps and correction."""
WAITING_BATCHES_MAX: Final = 64
"""Batches whose latencies are counted together; NumPy is fast for many and slow to start."""


class Tally:
    """Counts on the delivering thread; any thread may read.

    Until the first event comes slots are counted by time alone; the first begins the exact count,
    unless it is known from which stamp on the events were promised.
    """

    def __init__(self, terms: Terms | None, latency_ns: int, begin: StartTime) -> None:
        self._terms = terms
        self._latency_ns, self._untimely_bits = latency_ns, _untimely_bits(latency_ns)
        self._delivered = self._late = self._unknown = self._lost = self._recovered = 0
        self._lost_to_clock = 0
        self._latencies = LatencyCounts()
        self._by_bits = self._latencies.by_bits
        self._runs = LossRuns()
        self._open: dict[int, None] = {}
        self._until: int | None = None
        self._next = self._close_ns = self._newest_ns = 0
        self._is_exact = False
        self._lock = threading.Lock()
        if terms is not None:
            self._begin(terms, begin)

    def due(
        self, batch: Samples, options: list[bytes], arrival: Arrival
    ) -> tuple[Samples, list[bytes]]:
        """Count the events that are due and return them; all are first copies."""
        terms = self._terms
        slots = _NO_SLOTS
        if len(batch) == 1:
            return self._due_one(batch, options, arrival)
        if terms is not None:
            slots = slots_of(batch["created_ns"], terms.period, terms.phase_ns)
            if terms.every > 1:
                picked = [at for at, slot in enumerate(slots) if slot % terms.every == 0]
                slots = [slots[at] for at in picked]
                batch = batch[picked]
                options = [options[at] for at in picked] if options else options
        with self._lock:
            self._count_some(batch, slots, arrival)
        return batch, options

    def ledger(self, now_ns: int) -> Ledger:
        """Return the counts, given that all events that arrived before `now_ns` were counted."""
        with self._lock:
            if self._terms is not None:
                self._close(self._terms, now_ns)
            return self._ledger()

    def limit(self, until_ns: int) -> None:
        """Expect no event stamped `until_ns` or later under this identifier."""
        with self._lock:
            if self._terms is not None:
                terms = self._terms
                self._until = slot_of(until_ns, terms.period, terms.phase_ns)

    def renew(self, terms: Terms | None, latency_ns: int, begin: StartTime) -> None:
        """Set other terms from now on; slots promised before are still expected."""
        with self._lock:
            before, self._terms = self._terms, terms
            self._latency_ns, self._untimely_bits = latency_ns, _untimely_bits(latency_ns)
            if before is not None:
                self._close(before, begin.at_ns)
            if terms is None or before is None or not _has_same_slots(before, terms):
                self._lose_open()
                if terms is not None:
                    self._begin(terms, begin)
            else:
                self._align(before, terms, begin.at_ns)

    def finish(self, now_ns: int) -> Ledger:
        """End the count: skipped slots are lost, slots not yet due are not."""
        with self._lock:
            if self._terms is not None:
                self._close(self._terms, now_ns)
                self._lose_open()
                is_known = self._is_exact or self._clock.is_set
                if is_known and self._until is not None and self._next < self._until:
                    self._lose(self._next, -(-(self._until - self._next) // self._terms.every))
                    self._next = self._until
            return self._ledger()

    def _due_one(
        self, batch: Samples, options: list[bytes], arrival: Arrival
    ) -> tuple[Samples, list[bytes]]:
        """Count a batch of one event, without the cost of columns."""
        ((created_ns, received_ns, _, _, flags, _, _),) = batch.tolist()
        slot, terms = 0, self._terms
        if terms is not None:
            slot = slot_of(created_ns, terms.period, terms.phase_ns)
            if slot % terms.every:
                return batch[:0], []
        age_ns = None if flags & self._untimely_bits else arrival.age_ns(created_ns, received_ns)
        with self._lock:
            self._count(slot, arrival.arrived_ns(received_ns), age_ns)
        return batch, options

    # With the lock held.

    def _count_some(self, batch: Samples, slots: list[int], arrival: Arrival) -> None:
        """Count as many events at once as possible; halve the batch where that fails."""
        if self._terms is None or len(batch) <= SERIAL_EVENTS_MAX:
            self._count_each(batch, slots, arrival)
        elif not self._count_row(batch, slots, arrival):
            half = len(batch) // 2
            self._count_some(batch[:half], slots[:half], arrival)
            self._count_some(batch[half:], slots[half:], arrival)

    def _count_row(self, batch: Samples, slots: list[int], arrival: Arrival) -> bool:
        """Count many events at once, if they are consecutive and in time, and no slot closes; else
        return False."""
        terms, count = self._terms, len(batch)
        if terms is None or not self._clock.is_set:
            return False
        received_ns = batch["received_ns"]
        self._close(terms, arrival.arrived_ns(int(received_ns[0])))
        self._mark()
        ages_ns = received_ns.astype(np.int64) - batch["created_ns"].astype(np.int64)
        last = self._next + (count - 1) * terms.every
        if (
            slots != list(range(self._next, last + 1, terms.every))
            or (batch["flags"] & self._untimely_bits).any()
            or int(ages_ns.max()) + arrival.correction_ns > (self._latency_ns or NEVER_NS)
            or arrival.arrived_ns(int(received_ns.max())) >= self._close_ns
        ):
            return False
        self._newest_ns = arrival.arrived_ns(int(received_ns[-1]))
        self._clock.note_arrival(slots[0], arrival.arrived_ns(int(received_ns[0])))
        self._clock.note_arrival(last, self._newest_ns)
        self._next = last + terms.every
        self._delivered += count
        if arrival.correction_ns:
            ages_ns += arrival.correction_ns
        self._latencies.add_many(ages_ns)
        return True

    def _count_each(self, batch: Samples, slots: list[int], arrival: Arrival) -> None:
        rows = batch.tolist()
        for slot, row in zip(slots or repeat(0), rows, strict=False):
            created_ns, received_ns, flags = row[0], row[1], row[4]
            is_good = not flags & self._untimely_bits
            age_ns = arrival.age_ns(created_ns, received_ns) if is_good else None
            self._count(slot, arrival.arrived_ns(received_ns), age_ns)

    def _count(self, slot: int, arrived_ns: int, age_ns: int | None) -> None:
        """Count the first copy of a due event; its age at arrival is None if its stamp is not
        good."""
        terms = self._terms
        if terms is not None:
            if slot == self._next and arrived_ns < self._close_ns and self._clock.is_set:
                self._next = slot + terms.every  # The ordinary case: one after the other.
                self._newest_ns = arrived_ns
                self._clock.note_arrival(slot, arrived_ns)
            elif not self._place(terms, slot, arrived_ns):
                self._recovered += 1
                return
        self._delivered += 1
        if age_ns is None:
            self._unknown += 1
            return
        self._by_bits[(age_ns // NS_PER_US).bit_length() if age_ns > 0 else 0] += 1
        if 0 < self._latency_ns < age_ns:
            self._late += 1

    def _begin(self, terms: Terms, begin: StartTime) -> None:
        self._clock = SlotClock(terms.period)
        self._setback = ClockSetbackDetector()
        self._runs.renew(terms)
        self._newest_ns = begin.at_ns
        slot = slot_of(begin.stamp_ns, terms.period, terms.phase_ns)
        self._is_exact = begin.is_exact
        self._next = (slot // terms.every + 1) * terms.every
        # The nearest slot may be just before or just behind the promised instant.
        self._free = range(slot, slot + 1)
        self._free_until_ns = NEVER_NS
        self._clock.guess(slot, begin.at_ns)
        self._mark()

    def _place(self, terms: Terms, slot: int, arrived_ns: int) -> bool:
        """Place the slot; return False if it was closed before."""
        self._close(terms, arrived_ns)
        if not self._clock.is_set:
            self._place_first(terms, slot, arrived_ns)
        if slot >= self._next:
            self._advance(terms, slot, arrived_ns)
        elif slot in self._open:
            del self._open[slot]
        elif slot not in self._free or arrived_ns >= self._free_until_ns:
            return self._is_set_back(terms, slot, arrived_ns)
        self._mark()
        return True

    def _place_first(self, terms: Terms, slot: int, arrived_ns: int) -> None:
        self._clock.restart(slot, arrived_ns)
        if not self._is_exact or slot - self._next > OPEN_SLOTS_MAX * terms.every:
            self._next = slot
            is_early = self._lost == 0
            self._free = range(slot - FREE_SLOTS * terms.every, slot) if is_early else range(0)
            # Later ones are no stragglers, but events of a clock that was set back.
            self._free_until_ns = arrived_ns + self._latency_ns + SETTLE_NS

    def _advance(self, terms: Terms, slot: int, arrived_ns: int) -> None:
        if self._clock.is_ahead(slot, arrived_ns, terms.latency_ns):
            self._follow_clock(terms, slot, arrived_ns)
        else:
            self._clock.note_arrival(slot, arrived_ns)
            self._pass_over(terms.every, slot)
        self._next = slot + terms.every
        self._newest_ns = arrived_ns

    def _pass_over(self, every: int, slot: int) -> None:
        """Keep all due slots up to this one open for a while."""
        too_many = len(self._open) + (slot - self._next) // every - OPEN_SLOTS_MAX
        for _ in range(min(max(0, too_many), len(self._open))):
            self._lose_oldest()
        first = max(self._next, slot - OPEN_SLOTS_MAX * every)
        self._lose(self._next, (first - self._next) // every)
        self._open.update(dict.fromkeys(range(first, slot, every)))

    def _is_set_back(self, terms: Terms, slot: int, arrived_ns: int) -> bool:
        # The receiver takes none so old, unless its own clock was set back with the publisher's.
        # After a change of the divisor the next promised slot may be a latency ahead.
        newest = min(self._next - terms.every, self._clock.newest_due(arrived_ns))
        is_beyond = self._clock.slot_ns(newest) - self._clock.slot_ns(slot) > BEHIND_NS_MAX
        if not is_beyond and not self._setback.is_set_back(
            self._clock.slot_ns(slot), arrived_ns, self._newest_ns
        ):
            return False
        self._follow_clock(terms, slot, arrived_ns)
        self._next = slot + terms.every
        self._newest_ns = arrived_ns
        self._mark()
        return True

    def _follow_clock(self, terms: Terms, slot: int, arrived_ns: int) -> None:
        """Continue with the slots of a publisher's clock that was set.

        Slots that the clock skipped or repeated were not promised; those of real time were. Where
        only the publisher's clock was set back, routers and receiver drop the events of a second
        before they follow it.
        """
        lost_before = self._lost
        due = self._clock.newest_due(arrived_ns)
        if self._until is not None:
            due = min(due, self._until)
        self._lose_open()
        self._lose(self._next, max(0, (due - self._next) // terms.every))
        self._lost_to_clock += self._lost - lost_before
        self._free = range(0)
        self._clock.restart(slot, arrived_ns)

    def _align(self, before: Terms, terms: Terms, now_ns: int) -> None:
        """Change the divisor of due slots; the slots themselves stay the same."""
        both = lcm(before.every, terms.every)
        first = _up_to_multiple(self._next, both)
        self._open = {slot: None for slot in self._open if slot % terms.every == 0}
        # A change within a latency of the last one: its slots are still free to come.
        is_soon = bool(self._free) and self._free.stop == self._next
        begun = self._free.start if is_soon else self._next - before.every + 1
        soon = self._clock.newest_due(now_ns + terms.latency_ns) + 1
        self._next = _up_to_multiple(max(self._next, soon), terms.every)
        if both == terms.every:  # Slower: the routers leave out what is not due from now on.
            self._next = first
        self._free = range(begun, self._next)
        self._free_until_ns = NEVER_NS
        if self._clock.is_set:
            self._open.update(dict.fromkeys(range(first, self._next, both)))
        self._runs.renew(terms)
        self._mark()

    def _close(self, terms: Terms, now_ns: int) -> None:
        if now_ns < self._close_ns:
            return
        newest = self._clock.newest_due(now_ns - self._latency_ns - SETTLE_NS)
        if self._until is not None:
            newest = min(newest, self._until - 1)
        while self._open and next(iter(self._open)) <= newest:
            self._lose_oldest()
        if self._next <= newest:
            passed = (newest - self._next) // terms.every + 1
            self._lose(self._next, passed)
            self._next += passed * terms.every
        self._mark()

    def _mark(self) -> None:
        """Set when the next slot closes; a lower bound is enough."""
        oldest = min(next(iter(self._open), self._next), self._next)
        self._close_ns = self._clock.due_ns(oldest) + self._latency_ns + SETTLE_NS

    def _lose(self, first: int, count: int) -> None:
        if count:
            self._lost += count
            self._runs.add(first, count)

    def _lose_oldest(self) -> None:
        slot = next(iter(self._open))
        del self._open[slot]
        self._lose(slot, 1)

    def _lose_open(self) -> None:
        for slot in self._open:
            self._lose(slot, 1)
        self._open.clear()

    def _ledger(self) -> Ledger:
        return Ledger(
            expected=self._delivered + self._lost,
            delivered=self._delivered,
            late=self._late,
            lost=self._lost,
            unknown=self._unknown,
            recovered=self._recovered,
            latency_counts=self._latencies.counts(),
            gap_slots_max=self._runs.slots_max,
            gap_ended_ns=self._runs.ended_ns,
            lost_to_clock=self._lost_to_clock,
        )


class LatencyCounts:
    """Latencies of one tally by the law of `model/latency_histogram.py`.

    Counted under the tally's lock. `by_bits` has an entry for every length in bits, so that one
    event costs one addition, and no comparison with the last bucket.
    """

    __slots__ = ("_waiting", "by_bits")

    def __init__(self) -> None:
        self.by_bits = [0] * AGE_BITS_MAX
        self._waiting: list[NDArray[np.int64]] = []

    def add_many(self, ages_ns: NDArray[np.int64]) -> None:
        """Count a whole batch, later together with others."""
        self._waiting.append(ages_ns)
        if len(self._waiting) >= WAITING_BATCHES_MAX:
            self._count_waiting()

    def counts(self) -> tuple[int, ...]:
        """Return the counts by bucket, without the empty ones at the end."""
        if self._waiting:
            self._count_waiting()
        counts = [*self.by_bits[: BUCKETS - 1], sum(self.by_bits[BUCKETS - 1 :])]
        while counts and not counts[-1]:
            del counts[-1]
        return tuple(counts)

    def _count_waiting(self) -> None:
        ages_ns = np.concatenate(self._waiting)
        self._waiting.clear()
        # The exponent of a whole number is its length in bits; a fraction is below one.
        exponents = np.frexp(np.maximum(ages_ns, 0) / NS_PER_US)[1]
        for bits, count in enumerate(np.bincount(np.maximum(exponents, 0)).tolist()):
            if count:
                self.by_bits[bits] += count


class LossRuns:
    """Worst gap of a contract: the longest run of consecutive due slots that were lost.

    Of the newest hour that has a gap, by the slots' own times: a reader that reads often enough has
    the worst gap of every hour, and an old gap does not hide later ones. `slots_max` slots were
    lost in a row, up to the slot due at `ended_ns`, which was not lost or is not known yet.
    """

    __slots__ = ("_after", "_every", "_ns", "_per", "_phase_ns", "_slots", "ended_ns", "slots_max")

    def __init__(self) -> None:
        self.slots_max = 0
        self.ended_ns = 0
        self._after: int | None = None
        self._slots = 0

    def renew(self, terms: Terms) -> None:
        """Use the slots of these terms from now on; no run continues across the change."""
        self._ns, self._per = terms.period.seconds * NS_PER_S, terms.period.per_seconds
        self._phase_ns, self._every = terms.phase_ns, terms.every
        self._after = None

    def add(self, first: int, count: int = 1) -> None:
        """Add `count` consecutive lost slots; calls come in the order of slots."""
        self._slots = self._slots + count if first == self._after else count
        self._after = first + count * self._every
        ended_ns = self._phase_ns + self._after * self._ns // self._per
        if self._slots >= self.slots_max or ended_ns // HOUR_NS > self.ended_ns // HOUR_NS:
            self.slots_max, self.ended_ns = self._slots, ended_ns


def slots_of(created_ns: NDArray[np.uint64], period: Period, phase_ns: int) -> list[int]:
    """Return each event's slot by the law of `model/rate_law.py`, for a column of stamps.

    Computed in 64 bits where that is enough, and exact in any case.
    """
    if len(created_ns) <= SERIAL_EVENTS_MAX:
        return [slot_of(each, period, phase_ns) for each in created_ns.tolist()]
    whole_ns = period.seconds * NS_PER_S
    if (
        2 * whole_ns * period.per_seconds + whole_ns > INT64_MAX
        or int(created_ns.min()) < phase_ns
        or int(created_ns.max()) // whole_ns * period.per_seconds > INT64_MAX // 2
        or int(created_ns.max()) > INT64_MAX
    ):
        return [slot_of(each, period, phase_ns) for each in created_ns.tolist()]
    since_ns = created_ns.astype(np.int64) - phase_ns
    wholes, rest_ns = np.divmod(since_ns, whole_ns)
    nearest = (2 * rest_ns * period.per_seconds + whole_ns) // (2 * whole_ns)
    slots: list[int] = (wholes * period.per_seconds + nearest).tolist()
    return slots


def _untimely_bits(latency_ns: int) -> int:
    """Return the flags of events without a meaningful latency. No latency is promised for variables
    registered as replayed: where one is promised, an event that claims to be replayed is judged
    like any other."""
    return TIME_QUALITY_BITS if latency_ns else UNTIMELY_BITS


def _has_same_slots(one: Terms, other: Terms) -> bool:
    return (one.period, one.phase_ns) == (other.period, other.phase_ns)


def _up_to_multiple(slot: int, every: int) -> int:
    return -(-slot // every) * every
