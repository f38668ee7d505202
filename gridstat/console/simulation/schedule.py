"""Schedule of PMUs: each measures at the instants of its period and phase, all at the same time.

Real PMUs do so by GPS. An instant is the exact middle of its slot, so that no rounding and no late
wake-up ever moves an event into another slot. The slot of an instant that has passed too long ago
is left out, as a PMU that was held up sends no old frames.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gridstat.model.rate_law import NS_PER_S, slot_of
from gridstat.model.stamp_law import DELAY_MS_DEFAULT, NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gridstat.console.grid import Pmu
    from gridstat.model.rate_law import Period

LATE_NS_MAX: Final = DELAY_MS_DEFAULT * NS_PER_MS // 2
"""Age from which a measurement is left out. The first router drops events of twice this age, so
the other half is for the way to it."""
GAPS_MAX: Final = 512
"""Gaps of which a PMU's progress knows the slots; of older ones it knows how many there were."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Instant at which one PMU measures; `pmu` is its index in the schedule."""

    pmu: int
    slot: int
    created_ns: int


@dataclass(slots=True)
class Progress:
    """Slots that one PMU has published or left out so far.

    `left_out` counts all slots that were left out; `gaps` are the first and the last slot of the
    newest gaps, in order.
    """

    first_slot: int | None = None
    newest_slot: int = 0
    left_out: int = 0
    gaps: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=GAPS_MAX))

    def publish(self, slot: int) -> None:
        self.newest_slot = slot
        if self.first_slot is None:
            self.first_slot = slot

    def leave_out(self, first: int, last: int) -> None:
        self.left_out += last - first + 1
        if self.gaps and self.gaps[-1][1] == first - 1:
            first = self.gaps.pop()[0]
        self.gaps.append((first, last))


class Schedule:
    """Each PMU's slots come out at most once each, in order, none before its instant."""

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

    def take_due(self, clock_ns: Callable[[], int]) -> Iterator[Measurement]:
        """Yield the measurements to publish now, and count them as published.

        The clock is read again for each one, since the process may be held up between two.
        """
        for measurement in self._due(clock_ns()):
            progress = self.progress[measurement.pmu]
            if measurement.created_ns < clock_ns() - LATE_NS_MAX:
                progress.leave_out(measurement.slot, measurement.slot)
            else:
                progress.publish(measurement.slot)
                yield measurement

    def _due(self, now_ns: int) -> list[Measurement]:
        """Return the measurements of all instants up to now, but those of far too long ago."""
        due: list[Measurement] = []
        for index, pmu in enumerate(self._pmus):
            slot = self._next[index]
            oldest = slot_of(now_ns - LATE_NS_MAX, pmu.period, pmu.phase_ns)
            if slot < oldest:
                self.progress[index].leave_out(slot, oldest - 1)
                slot = oldest
            while (created_ns := instant_ns(slot, pmu.period, pmu.phase_ns)) <= now_ns:
                due.append(Measurement(index, slot, created_ns))
                slot += 1
            self._next[index] = slot
        due.sort(key=lambda measurement: measurement.created_ns)
        return due


def instant_ns(slot: int, period: Period, phase_ns: int = 0) -> int:
    """The middle of a slot, cut to whole nanoseconds."""
    return phase_ns + slot * period.seconds * NS_PER_S // period.per_seconds
