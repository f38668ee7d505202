"""Schedule of PMUs: each measures at the instants of its period and phase, all at the same time.

Real PMUs do so by GPS. An instant is the exact middle of its slot, so that no rounding and no late
wake-up ever moves an event into another slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.model.rate_law import NS_PER_S, slot_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.console.grid import Pmu
    from gridstat.model.rate_law import Period

LATE_NS_MAX: Final = 5_000_000_000
"""Missed instants are made up for, unless the process slept longer than this."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Instant at which one PMU measures; `pmu` is its index in the schedule."""

    pmu: int
    slot: int
    created_ns: int


@dataclass(slots=True)
class Progress:
    """Slots that one PMU has published so far."""

    first_slot: int | None = None
    newest_slot: int = 0
    skipped: int = 0


class Schedule:
    """Each PMU's slots come out once each, in order, none before its instant."""

    def __init__(self, pmus: Sequence[Pmu], *, start_ns: int) -> None:
        self._pmus = pmus
        self._next = [slot_of(start_ns, pmu.period, pmu.phase_ns) + 1 for pmu in pmus]
        self.progress = [Progress() for _ in pmus]

    def next_ns(self) -> int | None:
        """Return when the next measurement is due; None if there is no PMU at all."""
        instants = (
            instant_ns(slot, pmu.period, pmu.phase_ns)
            for pmu, slot in zip(self._pmus, self._next, strict=True)
        )
        return min(instants, default=None)

    def take_due(self, now_ns: int) -> list[Measurement]:
        due: list[Measurement] = []
        for index, pmu in enumerate(self._pmus):
            oldest = slot_of(now_ns - LATE_NS_MAX, pmu.period, pmu.phase_ns)
            self.progress[index].skipped += max(0, oldest - self._next[index])
            slot = max(oldest, self._next[index])
            while (created_ns := instant_ns(slot, pmu.period, pmu.phase_ns)) <= now_ns:
                due.append(Measurement(index, slot, created_ns))
                slot += 1
            self._next[index] = slot
        due.sort(key=lambda measurement: measurement.created_ns)
        for measurement in due:
            progress = self.progress[measurement.pmu]
            progress.newest_slot = measurement.slot
            if progress.first_slot is None:
                progress.first_slot = measurement.slot
        return due


def instant_ns(slot: int, period: Period, phase_ns: int = 0) -> int:
    """The middle of a slot, cut to whole nanoseconds."""
    return phase_ns + slot * period.seconds * NS_PER_S // period.per_seconds
