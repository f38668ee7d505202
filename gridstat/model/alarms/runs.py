"""Onset of an alarm: a condition that holds for a time, after a time without it.

Law: a run is a sequence of true instants no further apart than `gap`. An instant is held when its
run has lasted for `hold` or longer. An alarm begins at a held instant without another held instant
in the `clear` before it. Runs closer than `clear` are therefore one alarm, a lasting alarm is
reported once, and no data older than hold + gap + clear matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Times: TypeAlias = NDArray[np.int64]
Values: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]

LONG_AGO_NS: Final = -(1 << 62)


@dataclass(frozen=True, slots=True)
class Series:
    """Events of one variable in order of time, no two of one instant, all of them finite.

    `slots_ns` is the time between two events due, 0 where none is known to be due. `since_ns` is
    when the variable began to be recorded.
    """

    times_ns: Times
    values: Values
    slots_ns: Times
    since_ns: int = LONG_AGO_NS

    def between(self, after_ns: int, to_ns: int) -> Series:
        """Return the events created after one instant and up to another."""
        low, high = np.searchsorted(self.times_ns, [after_ns, to_ns], side="right")
        part = slice(int(low), int(high))
        return Series(self.times_ns[part], self.values[part], self.slots_ns[part], self.since_ns)


@dataclass(frozen=True, slots=True)
class Finding:
    """Onset of an alarm: its time, the value, the exceeded limit, and a note for people."""

    onset_ns: int
    value: float
    limit: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """Durations: how long a condition must hold, must be absent, and what gap ends a run."""

    hold_ns: int
    clear_ns: int
    gap_ns: int

    def __post_init__(self) -> None:
        assert self.hold_ns >= 0
        assert self.clear_ns > 0
        assert self.gap_ns > 0

    @property
    def look_back_ns(self) -> int:
        return self.hold_ns + self.clear_ns + self.gap_ns


class AlarmLaw(Protocol):
    """Interface of all kinds of alarms."""

    def look_back_ns(self, slot_ns: int) -> int:
        """Return how far before an instant data matter for it."""

    def findings(self, series: Series, from_ns: int, to_ns: int) -> Sequence[Finding]:
        """Return the alarms that begin in (from_ns, to_ns], given all data of the look-back."""


def onsets(
    instants_ns: Times, is_true: Flags, memory: Memory, from_ns: int, to_ns: int
) -> NDArray[np.intp]:
    """Return the indices of instants in (from_ns, to_ns] at which an alarm begins."""
    if not is_true.any():
        return np.empty(0, np.intp)
    return begins(instants_ns, held(instants_ns, is_true, memory), memory, from_ns, to_ns)


def begins(
    instants_ns: Times, is_held: Flags, memory: Memory, from_ns: int, to_ns: int
) -> NDArray[np.intp]:
    """Return the same as `onsets`, for known held instants."""
    indices = np.flatnonzero(is_held)
    moments = instants_ns[indices]
    before = np.concatenate(([LONG_AGO_NS], moments[:-1]))
    is_new = (moments - before > memory.clear_ns) & (moments > from_ns) & (moments <= to_ns)
    return indices[is_new]


def held(instants_ns: Times, is_true: Flags, memory: Memory) -> Flags:
    """Return which instants end a run that has lasted long enough."""
    begins = is_true.copy()
    begins[1:] &= ~is_true[:-1] | (np.diff(instants_ns) > memory.gap_ns)
    indices = np.arange(len(instants_ns))
    first = np.maximum.accumulate(np.where(begins, indices, 0))
    return is_true & (instants_ns - instants_ns[first] >= memory.hold_ns)
