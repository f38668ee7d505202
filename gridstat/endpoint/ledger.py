"""The ledger of one subscription: counts of what its contract promised and what was delivered.

Every due slot whose window is closed is expected; expected = delivered + lost, and none of the
counts ever falls, so that they can be summed up and compared by monitoring.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from gridstat.model.rate_law import NS_PER_S
from gridstat.model.short_text import short_repr
from gridstat.net.command.endpoint_messages import LedgerEntry
from gridstat.net.command.session_messages import MANY_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gridstat.endpoint.path_ledger import PathLedger
    from gridstat.net.command.endpoint_messages import PathEntry

HOUR_NS: Final = 3_600 * NS_PER_S
REPORT_BYTES_MAX: Final = 2 * 1024 * 1024
"""Largest size of one report's entries, estimated too high; half of a frame."""
ENTRY_BYTES: Final = 640
"""Upper bound of an entry's size, without its paths."""
PATH_BYTES: Final = 160
"""Upper bound of a path's size, without the names in it."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Counts since the subscription began; `copies` by edge router, in the order of attachment,
    `paths` by path, in the order of the contract and then those that it has left.

    `late` counts among the delivered, and only where the time stamp is good; `unknown` counts those
    where it is not. `extrapolated` values stand in for some of the lost or late. `recovered` events
    came when their slot was lost already: the application has them, the contract does not.
    `dropped` came in time, and were lost to a reader of the application that had fallen behind.
    `latency_counts` is the histogram (`model/latency_histogram.py`) of the delivered that are not
    unknown; `gap_slots_max` slots were lost in a row up to `gap_ended_ns`, the worst gap of the
    newest hour that has one. `lost_to_clock` counts among the lost: slots that passed while a clock
    of the publisher was set, up to the event by which the receiver followed it.
    """

    expected: int = 0
    delivered: int = 0
    late: int = 0
    lost: int = 0
    duplicate: int = 0
    extrapolated: int = 0
    unknown: int = 0
    recovered: int = 0
    dropped: int = 0
    copies: tuple[int, ...] = ()
    paths: tuple[PathLedger, ...] = ()
    latency_counts: tuple[int, ...] = ()
    gap_slots_max: int = 0
    gap_ended_ns: int = 0
    lost_to_clock: int = 0

    def __repr__(self) -> str:
        return short_repr(
            self,
            f"expected {self.expected} = delivered {self.delivered} + lost {self.lost}",
            *(
                f"{word} {number}"
                for word in ("lost_to_clock", "late", "recovered", "dropped", "extrapolated")
                if (number := getattr(self, word))
            ),
        )

    def __add__(self, other: Ledger) -> Ledger:
        if self == NOTHING:
            return other
        if other == NOTHING:
            return self
        worse = _worse_gap(self, other)
        return Ledger(
            expected=self.expected + other.expected,
            delivered=self.delivered + other.delivered,
            late=self.late + other.late,
            lost=self.lost + other.lost,
            duplicate=self.duplicate + other.duplicate,
            extrapolated=self.extrapolated + other.extrapolated,
            unknown=self.unknown + other.unknown,
            recovered=self.recovered + other.recovered,
            dropped=self.dropped + other.dropped,
            copies=_sums(self.copies, other.copies),
            paths=self.paths + other.paths,
            latency_counts=_sums(self.latency_counts, other.latency_counts),
            gap_slots_max=worse.gap_slots_max,
            gap_ended_ns=worse.gap_ended_ns,
            lost_to_clock=self.lost_to_clock + other.lost_to_clock,
        )

    @property
    def is_blank(self) -> bool:
        """True if nothing has been counted yet."""
        counts = self.expected, self.duplicate, self.extrapolated, self.recovered, self.dropped
        return not any(counts)

    def entry(self, subscription_id: int, asked_variable_id: int = 0) -> LedgerEntry:
        """Return the ledger as it is reported to the broker."""
        return LedgerEntry(
            subscription_id=subscription_id,
            expected=self.expected,
            delivered=self.delivered,
            late=self.late,
            lost=self.lost,
            duplicate=self.duplicate,
            extrapolated=self.extrapolated,
            unknown=self.unknown,
            recovered=self.recovered,
            dropped=self.dropped,
            copies=self.copies,
            paths=tuple([path.entry() for path in self.paths]),
            variable_id=asked_variable_id,
            latency_counts=self.latency_counts,
            gap_slots_max=self.gap_slots_max,
            gap_ended_ns=self.gap_ended_ns,
            lost_to_clock=self.lost_to_clock,
        )


NOTHING: Final = Ledger()


def frames_of(entries: Iterable[LedgerEntry]) -> Iterator[tuple[LedgerEntry, ...]]:
    """Yield entries for one report each, none larger than a frame."""
    some: list[LedgerEntry] = []
    size_bytes = 0
    for entry in entries:
        entry_bytes = ENTRY_BYTES + sum(_path_bytes(path) for path in entry.paths)
        if some and (len(some) == MANY_MAX or size_bytes + entry_bytes > REPORT_BYTES_MAX):
            yield tuple(some)
            some, size_bytes = [], 0
        some.append(entry)
        size_bytes += entry_bytes
    if some:
        yield tuple(some)


def _sums(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    if not (one and other):
        return one or other
    return tuple([a + b for a, b in zip_longest(one, other, fillvalue=0)])


def _worse_gap(one: Ledger, other: Ledger) -> Ledger:
    """Return the ledger with the longer gap of the same hour, else with the newer gap."""
    hours = one.gap_ended_ns // HOUR_NS, other.gap_ended_ns // HOUR_NS
    if hours[0] != hours[1]:
        return one if hours[0] > hours[1] else other
    return one if one.gap_slots_max >= other.gap_slots_max else other


def _path_bytes(path: PathEntry) -> int:
    return PATH_BYTES + 4 * (
        len(path.name) + sum(len(name) + 2 for name in (*path.routers, *path.channel_names))
    )
