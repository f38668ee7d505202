"""The alarm of a swing that does not die: amplitude and damping over a sliding window.

At instants that are whole multiples of `step`, the last `window` is averaged into bins of equal
length, whole multiples too, so that no batch sees other bins than another. An instant is true when
the dominant mode is damped less than the limit, as large as the limit, and at both ends of the
window not much smaller: what has only just begun is a disturbance, not yet a swing that stays. If
an end is quieter than that, modes only cancel there. A quiet half costs nothing: nothing is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from gridstat.model.alarms.ringdown import Mode, dominant_mode
from gridstat.model.alarms.runs import Finding, Memory, Series, Values, onsets
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from gridstat.model.alarms.runs import Times

EMPTY_SHARE_MAX: Final = 0.2
"""Of the bins of a window; with more, nothing is said about it."""
ENDS_SHARE_MIN: Final = 0.7
"""Of the limit, that a swing must have at both ends of a window."""
QUARTER_SHARE_MIN: Final = 0.8
"""Of a mode's amplitude, that a quarter of the window at each end goes up and down: it holds half
a period, at least, of what the window is long enough for."""


@dataclass(frozen=True, slots=True)
class Oscillation:
    """A mode between `low_hz` and `high_hz` that is large and hardly damped, for a time."""

    amplitude_min: float
    damping_max: float
    low_hz: float
    high_hz: float
    window_ns: int
    step_ns: int
    bin_ns: int
    memory: Memory

    def __post_init__(self) -> None:
        assert self.window_ns % self.bin_ns == 0
        assert self.step_ns % self.bin_ns == 0
        assert self.memory.gap_ns >= self.step_ns

    def look_back_ns(self, slot_ns: int) -> int:
        del slot_ns
        return self.memory.look_back_ns + self.window_ns + self.step_ns

    def findings(self, series: Series, from_ns: int, to_ns: int) -> list[Finding]:
        first = -(-(from_ns - self.memory.look_back_ns) // self.step_ns)
        instants_ns = np.arange(first, to_ns // self.step_ns + 1, dtype=np.int64) * self.step_ns
        if not len(instants_ns) or not len(series.times_ns):
            return []
        bins = self._bins(series, int(instants_ns[0]) - self.window_ns, int(instants_ns[-1]))
        found = self._modes(bins, len(instants_ns))
        is_true = np.array([self._is_alarming(mode) for mode in found], dtype=np.bool_)
        places = onsets(instants_ns, is_true, self.memory, from_ns, to_ns)
        return [
            self._finding(int(instants_ns[at]), mode)
            for at in places
            if (mode := found[at]) is not None
        ]

    def _bins(self, series: Series, after_ns: int, to_ns: int) -> Values:
        """Means of (k - 1, k] bins from `after_ns` to `to_ns`; NaN where a bin is empty."""
        seen = series.between(after_ns, to_ns)
        means = np.full((to_ns - after_ns) // self.bin_ns, np.nan)
        if len(seen.times_ns):
            bins: Times = (seen.times_ns - after_ns - 1) // self.bin_ns
            starts = np.flatnonzero(np.diff(bins, prepend=-1))
            counts = np.diff(starts, append=len(bins))
            means[bins[starts]] = np.add.reduceat(seen.values, starts) / counts
        return means

    def _modes(self, bins: Values, count: int) -> list[Mode | None]:
        width, stride = self.window_ns // self.bin_ns, self.step_ns // self.bin_ns
        windows = np.lib.stride_tricks.sliding_window_view(bins, width)[::stride][:count]
        is_worth = self._swings(windows[:, : width // 2]) & self._swings(windows[:, width // 2 :])
        is_worth &= np.isnan(windows).mean(axis=1) <= EMPTY_SHARE_MAX
        return [
            self._mode(window) if worth else None
            for window, worth in zip(windows, is_worth, strict=True)
        ]

    def _swings(self, windows: Values) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether it goes up and down as far as a swing at the limit would."""
        highest = np.where(np.isnan(windows), -np.inf, windows).max(axis=1)
        lowest = np.where(np.isnan(windows), np.inf, windows).min(axis=1)
        is_wide: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
            highest - lowest >= 2 * self.amplitude_min * _BINNED_SHARE
        )
        return is_wide

    def _mode(self, window: Values) -> Mode | None:
        places = np.arange(len(window))
        is_known = ~np.isnan(window)
        whole = np.interp(places, places[is_known], window[is_known])
        mode = dominant_mode(whole, self.bin_ns / NS_PER_S, self.low_hz, self.high_hz)
        quarter = len(whole) // 4
        seen = min(np.ptp(whole[:quarter]), np.ptp(whole[-quarter:]))
        return mode if mode is not None and seen >= QUARTER_SHARE_MIN * mode.amplitude_min else None

    def _is_alarming(self, mode: Mode | None) -> bool:
        return (
            mode is not None
            and mode.amplitude >= self.amplitude_min
            and mode.amplitude_min >= self.amplitude_min * ENDS_SHARE_MIN
            and mode.damping_ratio < self.damping_max
        )

    def _finding(self, onset_ns: int, mode: Mode) -> Finding:
        note = f"{mode.frequency_hz:.2f} Hz, damping {100 * mode.damping_ratio:.1f} %"
        return Finding(onset_ns, mode.amplitude, self.amplitude_min, note)


_BINNED_SHARE: Final = 0.9
"""Of a swing's height that is left where its peak falls between two bins."""
