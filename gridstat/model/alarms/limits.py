"""Alarms of values: above or below a limit, outside a band, changing too fast.

The rate of change is the difference of the medians of the two halves of a window, divided by the
time between them: exact for a ramp, and robust against single outliers, since a median moves only
when half of its samples do. A straight line fitted to the window would follow every outlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gridstat.model.alarms.runs import Finding, Flags, Memory, Series, Values, onsets
from gridstat.model.rate_law import NS_PER_S

HALF_EVENTS_MIN: Final = 3
"""Minimum events of half a window; a median of fewer follows a single outlier."""
WINDOW_EVENTS_MAX: Final = 4_096
"""Maximum events of half a window; only the newest are used."""
_CELLS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Values outside low … high for a time; a threshold is a band with one end."""

    low: float
    high: float
    memory: Memory

    def look_back_ns(self, slot_ns: int) -> int:
        del slot_ns  # Values are checked one by one, at any rate.
        return self.memory.look_back_ns

    def findings(self, series: Series, from_ns: int, to_ns: int) -> list[Finding]:
        seen = series.between(from_ns - self.memory.look_back_ns, to_ns)
        is_low, is_high = seen.values < self.low, seen.values > self.high
        return [
            Finding(
                int(seen.times_ns[at]),
                float(seen.values[at]),
                self.low if is_low[at] else self.high,
            )
            for at in onsets(seen.times_ns, is_low | is_high, self.memory, from_ns, to_ns)
        ]


@dataclass(frozen=True, slots=True)
class RateOfChange:
    """A rise or fall of `per_s_max` a second or more, over a window."""

    per_s_max: float
    window_ns: int
    memory: Memory

    def look_back_ns(self, slot_ns: int) -> int:
        del slot_ns
        return self.memory.look_back_ns + self.window_ns

    def findings(self, series: Series, from_ns: int, to_ns: int) -> list[Finding]:
        after_ns = from_ns - self.memory.look_back_ns
        slopes = slopes_of(series.between(after_ns - self.window_ns, to_ns), self.window_ns)
        seen = series.between(after_ns, to_ns)
        slopes = slopes[len(slopes) - len(seen.times_ns) :]
        is_fast: Flags = np.abs(slopes) >= self.per_s_max
        return [
            Finding(int(seen.times_ns[at]), float(slopes[at]), self.per_s_max)
            for at in onsets(seen.times_ns, is_fast, self.memory, from_ns, to_ns)
        ]


def slopes_of(series: Series, window_ns: int) -> Values:
    """Return, for each event, the change a second over the window before; NaN with too few."""
    times_ns = series.times_ns
    ends = np.arange(1, len(times_ns) + 1)
    middles = np.searchsorted(times_ns, times_ns - window_ns // 2, side="right")
    starts = np.searchsorted(times_ns, times_ns - window_ns, side="right")
    early_ns, early = _medians(series, starts, middles)
    late_ns, late = _medians(series, middles, ends)
    slopes: Values = (late - early) / ((late_ns - early_ns) / NS_PER_S)
    return slopes


def _medians(
    series: Series, starts: np.ndarray[tuple[int], np.dtype[np.intp]], ends: np.ndarray
) -> tuple[Values, Values]:
    """Return median time and median value of the events from each start to before each end."""
    starts = np.maximum(starts, ends - WINDOW_EVENTS_MAX)
    counts = ends - starts
    times, values = np.full((2, len(starts)), np.nan)
    enough = np.flatnonzero(counts >= HALF_EVENTS_MIN)
    if not len(enough):
        return times, values
    width = int(counts.max())
    for part in np.array_split(enough, -(-len(enough) * width // _CELLS)):
        cells = starts[part, None] + np.arange(width)
        is_in = cells < ends[part, None]
        found = np.where(is_in, series.values[np.minimum(cells, len(series.values) - 1)], np.inf)
        found.sort(axis=1)
        rows = np.arange(len(part))
        low, high = (counts[part] - 1) // 2, counts[part] // 2
        values[part] = (found[rows, low] + found[rows, high]) / 2
        # Times are sorted already, and their differences are exact unless they are huge.
        first_ns = series.times_ns[starts[part] + low]
        last_ns = series.times_ns[starts[part] + high]
        origin_ns = series.times_ns[0]
        times[part] = (first_ns - origin_ns + (last_ns - origin_ns)) / 2
    return times, values
