"""Alarm of a sustained oscillation: amplitude and damping over a sliding window.

At instants that are whole multiples of `step`, the last `window` is evaluated, with ten low-passed
values a second. The condition is true in one of two cases, by the dominant mode:

- The oscillation stays: its damping is below the limit, its amplitude reaches the limit, and it is
  not much smaller at both ends of the window. An oscillation that has just begun is a disturbance.
  If an end is quieter than the mode predicts, modes only cancel there. An oscillation below twice
  the limit must have been the same in the previous window, since noise sustains well damped modes
  for one window.
- The oscillation grows: its damping is negative, its amplitude exceeds the limit at the late end,
  and each of the last periods is as high as the mode predicts. Waiting for the early end would take
  as long as the oscillation needs to grow as much again. A sudden step has no such periods.

No mode is fitted in quiet windows, nor at instants that cannot change the result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from gridstat.model.alarms.low_pass import KNOWN_SHARE_MIN, REACH_NS, TAPS, low_passed
from gridstat.model.alarms.ringdown import Mode, dominant_modes
from gridstat.model.alarms.runs import Finding, Flags, Memory, Series, Values, begins, held
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.model.alarms.runs import Times

EMPTY_SHARE_MAX: Final = 0.2
"""Maximum share of unknown values in an evaluated window."""
ENDS_SHARE_MIN: Final = 0.7
"""Minimum amplitude at both ends of a window, as a share of the limit."""
QUARTER_SHARE_MIN: Final = 0.8
"""Minimum range of values in the first and last quarter of a window, as a share of the amplitude: a
quarter holds at least half a period of all oscillations that the window is long enough for."""
LARGE_SHARE_MIN: Final = 2.0
"""Minimum amplitude for an alarm from one window, as a share of the limit. Noise sometimes sustains
a well damped mode at the limit for a window; smaller oscillations need the previous window too."""
SMALL_ENDS_SHARE_MIN: Final = 0.9
SAME_SHARE_MAX: Final = 0.03
"""Maximum change of a small oscillation's frequency from window to window, as a share."""
PEAK_SHARE: Final = 0.9
"""Share of an oscillation's height that is visible if its peak lies between two values."""
GROWTH_MIN: Final = 0.015
GROWTH_MAX: Final = 0.2
"""Range of negated damping ratios of a growing oscillation, without sudden steps."""
GROWN_SHARE_MIN: Final = 2.5
"""Minimum amplitude of a growing oscillation at the late end, as a share of the limit: noise makes
a well damped mode grow for a while too, but seldom this far."""
GROWN_PERIODS: Final = 4
GROWN_HEIGHTS: Final = (0.7, 1.4)
"""Range of a period's height, as a share of the height that the mode predicts."""
GROWN_HOLD_NS: Final = NS_PER_S
"""Hold time of growing oscillations, unless the rule's own is shorter."""
EVALUATED_AT_ONCE: Final = 4


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
        assert REACH_NS % self.bin_ns == 0
        assert self.memory.gap_ns >= self.step_ns

    def look_back_ns(self, slot_ns: int) -> int:
        del slot_ns
        before_ns = self.steps_before * self.step_ns
        return self.memory.look_back_ns + before_ns + self.window_ns + self.step_ns + 2 * REACH_NS

    @property
    def steps_before(self) -> int:
        """Number of steps from a window to the previous one."""
        return -(-self.window_ns // self.step_ns)

    def findings(self, series: Series, from_ns: int, to_ns: int) -> list[Finding]:
        first = -(-(from_ns - self.memory.look_back_ns) // self.step_ns) - self.steps_before
        instants_ns = np.arange(first, to_ns // self.step_ns + 1, dtype=np.int64) * self.step_ns
        new = int(np.searchsorted(instants_ns, from_ns, side="right"))
        if new == len(instants_ns) or not self._may_oscillate(series.values):
            return []
        windows = _Windows(self, series, instants_ns)
        is_held = self._held(windows, new)
        return [
            self._finding(int(instants_ns[at]), mode)
            for at in begins(instants_ns, is_held, self.memory, from_ns, to_ns)
            if (mode := windows.modes[at]) is not None
        ]

    def _may_oscillate(self, values: Values) -> bool:
        """Return whether the range of values suffices for an oscillation after the low-pass."""
        gain = float(np.abs(TAPS).sum()) / KNOWN_SHARE_MIN
        return len(values) > 0 and gain * float(np.ptp(values)) >= self.height_min

    @property
    def height_min(self) -> float:
        return 2 * self.amplitude_min * PEAK_SHARE

    def _held(self, windows: _Windows, new: int) -> Flags:
        """Return which instants are held, evaluated as far as new instants depend on it."""
        reach = -(-self.memory.hold_ns // self.step_ns)
        oldest = self.steps_before
        evaluated = max(oldest, new - 1)
        windows.evaluate([evaluated])
        if windows.is_true[evaluated]:
            windows.evaluate(range(max(oldest, evaluated - reach), new))
            is_held = windows.held()
            lasts_ns = int(windows.instants_ns[-1] - windows.instants_ns[evaluated])
            if is_held[evaluated] and lasts_ns <= self.memory.clear_ns:
                return is_held  # The alarm continues: no new one begins.
        windows.evaluate(range(new, len(windows.instants_ns)))
        if not windows.is_true[new:].any():
            return windows.is_true
        windows.evaluate(range(max(oldest, evaluated - reach), new))
        is_held = windows.held()
        if not is_held[new:].any():
            return is_held
        earliest = new + int(np.argmax(is_held[new:])) - self.memory.clear_ns // self.step_ns
        earliest = max(oldest, earliest)
        while evaluated > earliest and not is_held[earliest:new].any():
            evaluated -= EVALUATED_AT_ONCE
            windows.evaluate(range(max(oldest, evaluated - reach), new))
            is_held = windows.held()
        return is_held

    def stays(self, window: Values, mode: Mode) -> bool:
        quarter = len(window) // 4
        seen = min(np.ptp(window[:quarter]), np.ptp(window[-quarter:]))
        return bool(
            mode.amplitude >= self.amplitude_min
            and mode.amplitude_min >= self.amplitude_min * ENDS_SHARE_MIN
            and mode.damping_ratio < self.damping_max
            and seen >= QUARTER_SHARE_MIN * mode.amplitude_min
        )

    def is_large(self, mode: Mode) -> bool:
        least = self.amplitude_min * LARGE_SHARE_MIN
        return mode.amplitude >= least and mode.amplitude_min >= least * ENDS_SHARE_MIN

    def grows(self, window: Values, mode: Mode) -> bool:
        period = NS_PER_S / (mode.frequency_hz * self.bin_ns)
        if (
            not GROWTH_MIN <= -mode.damping_ratio <= GROWTH_MAX
            or mode.amplitude_last < self.amplitude_min * GROWN_SHARE_MIN
            or period * GROWN_PERIODS > len(window)
        ):
            return False
        ends = len(window) - np.rint(np.arange(GROWN_PERIODS) * period).astype(int)
        seen = np.array([np.ptp(window[end - int(period) : end]) for end in ends])
        # From a trough to the next peak, the amplitude grows by half a period.
        growth = np.exp(2 * np.pi * mode.damping_ratio * (0.25 + np.arange(GROWN_PERIODS)))
        shares = seen / (2 * mode.amplitude_last * growth)
        return bool(((shares >= GROWN_HEIGHTS[0]) & (shares <= GROWN_HEIGHTS[1])).all())

    def _finding(self, onset_ns: int, mode: Mode) -> Finding:
        note = f"{mode.frequency_hz:.2f} Hz, damping {100 * mode.damping_ratio:.1f} %"
        amplitude = mode.amplitude if mode.amplitude >= self.amplitude_min else mode.amplitude_last
        return Finding(onset_ns, amplitude, self.amplitude_min, note)


class _Windows:
    """Windows of one series, each evaluated at most once, on demand."""

    def __init__(self, law: Oscillation, series: Series, instants_ns: Times) -> None:
        self._law = law
        self.instants_ns = instants_ns
        self.modes: list[Mode | None] = [None] * len(instants_ns)
        self.is_true, self._stays, self._is_large, self._grows = (
            np.zeros(len(instants_ns), np.bool_) for _ in range(4)
        )
        width, stride = law.window_ns // law.bin_ns, law.step_ns // law.bin_ns
        first_ns = int(instants_ns[0]) - REACH_NS - law.window_ns + law.bin_ns
        count = (len(instants_ns) - 1) * stride + width
        values = low_passed(series, first_ns, count, law.bin_ns)
        self._windows = np.lib.stride_tricks.sliding_window_view(values, width)[::stride]
        self._is_due = self._has_range(self._windows[:, width // 2 :])
        self._is_due &= np.isnan(self._windows).mean(axis=1) <= EMPTY_SHARE_MAX

    def evaluate(self, positions: Sequence[int]) -> None:
        """Evaluate the condition at these instants."""
        self._fit(positions)
        small = [
            position
            for position in positions
            if self._stays[position] and not self._is_large[position]
        ]
        before = self._law.steps_before
        self._fit([position - back for position in small for back in (before, before // 2)])
        self.is_true[positions] = (self._stays & self._is_large | self._grows)[positions]
        for position in small:
            self.is_true[position] |= self._stayed(position)

    def _stayed(self, position: int) -> bool:
        """Return whether a small oscillation was equal one window ago, or large half of one ago."""
        before = self._law.steps_before
        now, halfway, early = (self.modes[position - back] for back in (0, before // 2, before))
        if now is None or halfway is None or not self._stays[position - before // 2]:
            return False
        if self._is_large[position - before // 2]:
            return True
        if early is None or not self._stays[position - before]:
            return False
        least = self._law.amplitude_min * SMALL_ENDS_SHARE_MIN
        apart_hz = max(abs(each.frequency_hz - now.frequency_hz) for each in (halfway, early))
        return (
            min(each.amplitude_min for each in (now, halfway, early)) >= least
            and apart_hz <= SAME_SHARE_MAX * now.frequency_hz
        )

    def held(self) -> Flags:
        memory = self._law.memory
        quick = replace(memory, hold_ns=min(memory.hold_ns, GROWN_HOLD_NS))
        return held(self.instants_ns, self.is_true, memory) | held(
            self.instants_ns, self._grows & self.is_true, quick
        )

    def _fit(self, positions: Sequence[int]) -> None:
        """Find the modes of all pending windows among these, in one batch."""
        due = sorted({position for position in positions if self._is_due[position]})
        if not due:
            return
        self._is_due[due] = False
        law = self._law
        windows = np.array([_filled(self._windows[position]) for position in due])
        found = dominant_modes(windows, law.bin_ns / NS_PER_S, law.low_hz, law.high_hz)
        for position, window, mode in zip(due, windows, found, strict=True):
            if mode is not None:
                self.modes[position] = mode
                self._grows[position] = law.grows(window, mode)
                self._stays[position] = law.stays(window, mode)
                self._is_large[position] = law.is_large(mode)

    def _has_range(self, windows: Values) -> Flags:
        """Return which windows have the range of an oscillation at the limit."""
        highest = np.where(np.isnan(windows), -np.inf, windows).max(axis=1)
        lowest = np.where(np.isnan(windows), np.inf, windows).min(axis=1)
        is_wide: Flags = highest - lowest >= self._law.height_min
        return is_wide


def _filled(window: Values) -> Values:
    """Return the window with unknown values interpolated linearly."""
    is_known = ~np.isnan(window)
    if is_known.all():
        return window
    positions = np.arange(len(window))
    return np.interp(positions, positions[is_known], window[is_known])
