"""The alarm of a swing that does not die: amplitude and damping over a sliding window.

At instants that are whole multiples of `step`, the last `window` is looked at, ten values a second
behind a low-pass. An instant is true in one of two cases, by the dominant mode:

- It stays: damped less than the limit, as large as the limit, and at both ends of the window not
  much smaller; what has only just begun is a disturbance, not yet a swing that stays. If an end is
  quieter than the mode says, modes only cancel there. One smaller than twice the limit must have
  been the same in the window before, since noise keeps well damped modes up for one.
- It grows: damped negatively and larger than the limit at the late end, and each of the last
  periods is as high as the mode says. Waiting for the early end would take as long as the swing
  needs to grow by as much again. What begins at once has no such row of periods.

Nothing is fitted where it is quiet, nor at an instant that cannot change what is told.
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
"""Of the values of a window; with more unknown, nothing is said about it."""
ENDS_SHARE_MIN: Final = 0.7
"""Of the limit, that a swing must have at both ends of a window."""
QUARTER_SHARE_MIN: Final = 0.8
"""Of a mode's amplitude, that a quarter of the window at each end goes up and down: it holds half
a period, at least, of what the window is long enough for."""
LARGE_SHARE_MIN: Final = 2.0
"""Of the limit, that a swing must have to be told by one window. Noise keeps a well damped mode at
its limit for a window, now and then; what is smaller must have been there in the window before."""
SMALL_ENDS_SHARE_MIN: Final = 0.9
SAME_SHARE_MAX: Final = 0.03
"""Of its frequency, by which a small swing may differ from window to window."""
PEAK_SHARE: Final = 0.9
"""Of a swing's height that is left where its peak falls between two values."""
GROWTH_MIN: Final = 0.015
GROWTH_MAX: Final = 0.2
"""Damping ratios, their sign turned, of what grows and does not just begin."""
GROWN_SHARE_MIN: Final = 2.5
"""Of the limit, that a growing swing must have at the late end: noise, too, makes a well damped
mode grow for a while, and seldom as far as this."""
GROWN_PERIODS: Final = 4
GROWN_HEIGHTS: Final = (0.7, 1.4)
"""Of the height that the mode says a period has."""
GROWN_HOLD_NS: Final = NS_PER_S
"""Or the rule's own, if that is shorter."""
ASKED_AT_ONCE: Final = 4


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
        """From a window to the one before it."""
        return -(-self.window_ns // self.step_ns)

    def findings(self, series: Series, from_ns: int, to_ns: int) -> list[Finding]:
        first = -(-(from_ns - self.memory.look_back_ns) // self.step_ns) - self.steps_before
        instants_ns = np.arange(first, to_ns // self.step_ns + 1, dtype=np.int64) * self.step_ns
        new = int(np.searchsorted(instants_ns, from_ns, side="right"))
        if new == len(instants_ns) or not self._may_swing(series.values):
            return []
        looked = _Windows(self, series, instants_ns)
        is_held = self._held(looked, new)
        return [
            self._finding(int(instants_ns[at]), mode)
            for at in begins(instants_ns, is_held, self.memory, from_ns, to_ns)
            if (mode := looked.modes[at]) is not None
        ]

    def _may_swing(self, values: Values) -> bool:
        """Whether the low-pass can make a swing of the values at all."""
        gain = float(np.abs(TAPS).sum()) / KNOWN_SHARE_MIN
        return len(values) > 0 and gain * float(np.ptp(values)) >= self.height_min

    @property
    def height_min(self) -> float:
        return 2 * self.amplitude_min * PEAK_SHARE

    def _held(self, looked: _Windows, new: int) -> Flags:
        """Which instants are held, as far as it has a say on what is told of the new ones."""
        reach = -(-self.memory.hold_ns // self.step_ns)
        oldest = self.steps_before
        asked = max(oldest, new - 1)
        looked.ask([asked])
        if looked.is_true[asked]:
            looked.ask(range(max(oldest, asked - reach), new))
            is_held = looked.held()
            lasts_ns = int(looked.instants_ns[-1] - looked.instants_ns[asked])
            if is_held[asked] and lasts_ns <= self.memory.clear_ns:
                return is_held  # It goes on: nothing begins, whatever the new ones are.
        looked.ask(range(new, len(looked.instants_ns)))
        if not looked.is_true[new:].any():
            return looked.is_true
        looked.ask(range(max(oldest, asked - reach), new))
        is_held = looked.held()
        if not is_held[new:].any():
            return is_held
        earliest = new + int(np.argmax(is_held[new:])) - self.memory.clear_ns // self.step_ns
        earliest = max(oldest, earliest)
        while asked > earliest and not is_held[earliest:new].any():
            asked -= ASKED_AT_ONCE
            looked.ask(range(max(oldest, asked - reach), new))
            is_held = looked.held()
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
        # From a trough to the next peak it has grown by half a period.
        growth = np.exp(2 * np.pi * mode.damping_ratio * (0.25 + np.arange(GROWN_PERIODS)))
        shares = seen / (2 * mode.amplitude_last * growth)
        return bool(((shares >= GROWN_HEIGHTS[0]) & (shares <= GROWN_HEIGHTS[1])).all())

    def _finding(self, onset_ns: int, mode: Mode) -> Finding:
        note = f"{mode.frequency_hz:.2f} Hz, damping {100 * mode.damping_ratio:.1f} %"
        amplitude = mode.amplitude if mode.amplitude >= self.amplitude_min else mode.amplitude_last
        return Finding(onset_ns, amplitude, self.amplitude_min, note)


class _Windows:
    """The windows of one series, each looked at when it is asked for, once."""

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
        self._is_due = self._swings(self._windows[:, width // 2 :])
        self._is_due &= np.isnan(self._windows).mean(axis=1) <= EMPTY_SHARE_MAX

    def ask(self, places: Sequence[int]) -> None:
        """Says which of these instants are true."""
        self._fit(places)
        small = [place for place in places if self._stays[place] and not self._is_large[place]]
        before = self._law.steps_before
        self._fit([place - back for place in small for back in (before, before // 2)])
        self.is_true[places] = (self._stays & self._is_large | self._grows)[places]
        for place in small:
            self.is_true[place] |= self._stayed(place)

    def _stayed(self, place: int) -> bool:
        """Whether a small swing was the same in the window before, or large a moment ago."""
        before = self._law.steps_before
        now, halfway, early = (self.modes[place - back] for back in (0, before // 2, before))
        if now is None or halfway is None or not self._stays[place - before // 2]:
            return False
        if self._is_large[place - before // 2]:
            return True
        if early is None or not self._stays[place - before]:
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

    def _fit(self, places: Sequence[int]) -> None:
        """Finds the modes of those that are due, side by side."""
        due = sorted({place for place in places if self._is_due[place]})
        if not due:
            return
        self._is_due[due] = False
        law = self._law
        windows = np.array([_filled(self._windows[place]) for place in due])
        found = dominant_modes(windows, law.bin_ns / NS_PER_S, law.low_hz, law.high_hz)
        for place, window, mode in zip(due, windows, found, strict=True):
            if mode is not None:
                self.modes[place] = mode
                self._grows[place] = law.grows(window, mode)
                self._stays[place] = law.stays(window, mode)
                self._is_large[place] = law.is_large(mode)

    def _swings(self, windows: Values) -> Flags:
        """Whether it goes up and down as far as a swing at the limit would."""
        highest = np.where(np.isnan(windows), -np.inf, windows).max(axis=1)
        lowest = np.where(np.isnan(windows), np.inf, windows).min(axis=1)
        is_wide: Flags = highest - lowest >= self._law.height_min
        return is_wide


def _filled(window: Values) -> Values:
    """With lines over what is unknown."""
    is_known = ~np.isnan(window)
    if is_known.all():
        return window
    places = np.arange(len(window))
    return np.interp(places, places[is_known], window[is_known])
