"""The ledger of one subscription: what its contract promised, and what came of it.

Read from the receiving thread's own counters, so it costs an event nothing. Every due slot between
the first event and the newest whose time has passed is expected; expected = delivered + lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from gridstat.endpoint.delivery import TIME_QUALITY_BITS
from gridstat.model.rate_law import slot_of
from gridstat.net.command.endpoint_messages import LedgerEntry

if TYPE_CHECKING:
    from gridstat.core.samples import Samples, VariableCounters
    from gridstat.endpoint.deliverer import Arrival
    from gridstat.endpoint.violation import Terms


@dataclass(frozen=True, slots=True)
class Ledger:
    """Counts since the subscription began; `copies` by edge router, in the order of attachment.

    `late` counts among the delivered, and only where the time stamp is good; `unknown` counts those
    where it is not. `extrapolated` values stand in for some of the lost or late.
    """

    expected: int = 0
    delivered: int = 0
    late: int = 0
    lost: int = 0
    duplicate: int = 0
    extrapolated: int = 0
    unknown: int = 0
    copies: tuple[int, ...] = ()

    def __add__(self, other: Ledger) -> Ledger:
        if self == NOTHING:
            return other
        if other == NOTHING:
            return self
        copies = (a + b for a, b in zip_longest(self.copies, other.copies, fillvalue=0))
        return Ledger(
            expected=self.expected + other.expected,
            delivered=self.delivered + other.delivered,
            late=self.late + other.late,
            lost=self.lost + other.lost,
            duplicate=self.duplicate + other.duplicate,
            extrapolated=self.extrapolated + other.extrapolated,
            unknown=self.unknown + other.unknown,
            copies=tuple(copies),
        )

    @property
    def is_blank(self) -> bool:
        """Whether nothing has been counted yet."""
        return not (self.expected or self.duplicate or self.extrapolated or self.unknown)

    def entry(self, subscription_id: int) -> LedgerEntry:
        """As it is reported to the broker."""
        return LedgerEntry(
            subscription_id=subscription_id,
            expected=self.expected,
            delivered=self.delivered,
            late=self.late,
            lost=self.lost,
            duplicate=self.duplicate,
            extrapolated=self.extrapolated,
            unknown=self.unknown,
            copies=self.copies,
        )


NOTHING: Final = Ledger()


def ledger_of(counters: VariableCounters, terms: Terms | None, now_ns: int) -> Ledger:
    """The ledger of a variable; `terms` None if it is aperiodic, `now_ns` of the wall clock.

    Beyond the last event, slots count as lost once their latency has passed.
    """
    seen = counters["delivered"] + counters["ring_full"]
    lost = counters["missing"] + counters["ring_full"]
    if terms is not None and seen:
        lost += _silent_slots(counters["last_slot"], terms, now_ns)
    return Ledger(
        expected=counters["delivered"] + lost,
        delivered=counters["delivered"],
        late=counters["late"],
        lost=lost,
        duplicate=counters["duplicate"],
        unknown=counters["unknown"],
        copies=tuple(counters["copies"]),
    )


class Tally:
    """Counts and picks what is due to a subscription that shares its variable with a faster one of
    the same end-point; the receiver counts for the first of them."""

    def __init__(self) -> None:
        self._counted: VariableCounters = {
            "delivered": 0,
            "duplicate": 0,
            "late": 0,
            "unknown": 0,
            "missing": 0,
            "extra": 0,
            "ring_full": 0,
            "first_slot": 0,
            "last_slot": 0,
            "copies": [],
        }

    def due(
        self, batch: Samples, options: list[bytes], terms: Terms, arrival: Arrival
    ) -> tuple[Samples, list[bytes]]:
        """Only the events that are due, each counted."""
        picked = [
            index
            for index, (created_ns, received_ns, _, _, flags, _, _) in enumerate(batch.tolist())
            if self._count(
                slot_of(created_ns, terms.period, terms.phase_ns),
                terms,
                None if flags & TIME_QUALITY_BITS else arrival.age_ns(created_ns, received_ns),
            )
        ]
        return batch[picked], [options[index] for index in picked] if options else options

    def counters(self, terms: Terms | None) -> VariableCounters:
        """In the receiver's own words."""
        counted = self._counted.copy()
        if terms is not None and counted["delivered"]:
            first, last = counted["first_slot"], counted["last_slot"]
            due = last // terms.every - first // terms.every + 1
            counted["missing"] = max(0, due - counted["delivered"])
        return counted

    def _count(self, slot: int, terms: Terms, age_ns: int | None) -> bool:
        if slot % terms.every:
            return False
        counted = self._counted
        is_first = counted["delivered"] == 0
        counted["first_slot"] = slot if is_first else min(slot, counted["first_slot"])
        counted["last_slot"] = slot if is_first else max(slot, counted["last_slot"])
        counted["delivered"] += 1
        if age_ns is None:
            counted["unknown"] += 1
        elif age_ns > terms.latency_ns:
            counted["late"] += 1
        return True


def _silent_slots(last_slot: int, terms: Terms, now_ns: int) -> int:
    """Due slots behind the last event whose time has passed."""
    passed_ns = now_ns - terms.latency_ns - terms.phase_ns
    newest = int(passed_ns // terms.period.period_ns)
    return max(0, newest // terms.every - last_slot // terms.every)
