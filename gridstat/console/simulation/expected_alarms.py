"""Alarms that a disturbance must raise, computed from its physics; doubtful cases are rejected.

Nothing here uses the laws of alarms: limits are held against the motion itself, without noise, on
a finer grid; swings against the system's own modes. Each comes with a margin, for the noise of
measuring and for the samples between. What lies within a margin is undecidable, and such a draw
is thrown away and drawn again, so that what is left has one right answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from gridstat.console.simulation.modes import true_modes
from gridstat.console.simulation.swing import STEP_S, STEPS_PER_S
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gridstat.console.simulation.disturbance import Disturbance
    from gridstat.console.simulation.modes import TrueMode
    from gridstat.console.simulation.swing import Array, Motion
    from gridstat.model.alarms.limits import Limits, RateOfChange
    from gridstat.model.alarms.oscillation import Oscillation

    Flags = NDArray[np.bool_]

SAMPLES_S: Final = 2 / 30
"""Two samples of the slowest stream: how much longer or shorter a condition may seem."""
CHANGE_MARGIN: Final = 0.12
AMPLITUDE_MARGIN: Final = 0.25
DAMPING_MARGIN: Final = 0.012
CLEAR_MARGIN_S: Final = 0.5
LARGE_SHARE: Final = 2.0
"""Multiple of the limit; a smaller swing may be noise that drives a mode, for as long as a
window."""
SETTLED_S: Final = 2.0
"""Seconds after which swings within an area have decayed and those between areas are left."""


class Undecidable(Exception):  # noqa: N818 - It says what it is.
    """Disturbance that is too close to a limit to have one right answer."""


@dataclass(frozen=True, slots=True)
class Span:
    """An alarm must begin between two times."""

    earliest_s: float
    latest_s: float


def spans_of_limits(law: Limits, signal: Array, margin: float) -> list[Span]:
    """The alarms of a value beyond its limits."""
    surely = (signal < law.low - margin) | (signal > law.high + margin)
    maybe = (signal < law.low + margin) | (signal > law.high - margin)
    return _spans(surely, maybe, law.memory.hold_ns / NS_PER_S, law.memory.clear_ns / NS_PER_S)


def spans_of_change(law: RateOfChange, signal: Array) -> list[Span]:
    """The alarms of a slope, taken between the middles of the halves of the window."""
    window_s = law.window_ns / NS_PER_S
    times_s = np.arange(len(signal)) * STEP_S
    late = np.interp(times_s - window_s / 4, times_s, signal)
    early = np.interp(times_s - 3 * window_s / 4, times_s, signal)
    slopes = np.abs(late - early) / (window_s / 2)
    slack = CHANGE_MARGIN * law.per_s_max
    surely, maybe = slopes >= law.per_s_max + slack, slopes >= law.per_s_max - slack
    hold_s = law.memory.hold_ns / NS_PER_S
    # A curve's medians run ahead of its middles, or behind, by up to a quarter of the window.
    return [
        Span(found.earliest_s - window_s / 4, found.latest_s + window_s / 4)
        for found in _spans(surely, maybe, hold_s, law.memory.clear_ns / NS_PER_S)
    ]


class Swings:
    """The modes of one disturbance, held against rules on oscillation at any station."""

    def __init__(self, disturbance: Disturbance, motion: Motion) -> None:
        self._start_s = disturbance.step * STEP_S
        self._cleared = disturbance.cleared_step - disturbance.case.phases[-1].first_step
        self._cleared_s = disturbance.cleared_step * STEP_S
        self._disturbance, self._motion = disturbance, motion
        self._modes: list[TrueMode] | None = [] if disturbance.kind == "ambient" else None

    def spans(self, law: Oscillation, station: int) -> list[Span]:
        if self._modes is None:  # Not before anybody asks: most draws are undecidable without.
            self._modes = true_modes(self._disturbance.case, self._motion)
        doubtful = [mode for mode in self._modes if self._is_doubtful(mode, law, station)]
        if not doubtful:
            return []
        if len(doubtful) > 1:
            raise Undecidable("two badly damped swings")
        amplitudes_hz = doubtful[0].amplitudes_hz[:, station]
        reached_s, latest_s = self._reached_and_latest_s(amplitudes_hz, law)
        if not self._is_sure(doubtful[0], law, station, reached_s):
            raise Undecidable("a swing near its limit")
        self._check_return(amplitudes_hz, law, latest_s)
        return [Span(self._start_s + law.memory.hold_ns / NS_PER_S, self._cleared_s + latest_s)]

    def _reached_and_latest_s(self, amplitudes_hz: Array, law: Oscillation) -> tuple[float, float]:
        """Return when the swing is clearly large, and one window later; or above its limit, and two
        windows later."""
        after_hz = amplitudes_hz[self._cleared :]
        settled = round(SETTLED_S * STEPS_PER_S)
        for share, windows in ((LARGE_SHARE, 1), (1.0, 2)):
            is_above = after_hz >= share * law.amplitude_min * (1 + AMPLITUDE_MARGIN)
            reached_s = (settled + int(np.argmax(is_above[settled:]))) * STEP_S
            more_ns = windows * law.window_ns + law.memory.hold_ns + law.step_ns
            latest_s = reached_s + more_ns / NS_PER_S
            latest = round(latest_s * STEPS_PER_S)
            if is_above.any() and latest < len(after_hz) and is_above[latest]:
                return reached_s, latest_s
        raise Undecidable("a swing near its limit")

    def _is_doubtful(self, mode: TrueMode, law: Oscillation, station: int) -> bool:
        """Return whether a correct law could raise an alarm for the mode."""
        largest = mode.amplitudes_hz[self._cleared :, station].max()
        return bool(
            mode.damping_ratio < law.damping_max + DAMPING_MARGIN
            and largest >= law.amplitude_min * (1 - AMPLITUDE_MARGIN)
        )

    def _check_return(self, amplitudes_hz: Array, law: Oscillation, latest_s: float) -> None:
        """One that sinks towards its limit must not be there any more when it could be new."""
        after_hz = amplitudes_hz[self._cleared + round(latest_s * STEPS_PER_S) :]
        is_low = after_hz < law.amplitude_min * (1 + AMPLITUDE_MARGIN)
        clear_s = law.memory.clear_ns / NS_PER_S - CLEAR_MARGIN_S
        if is_low.any():
            again_hz = after_hz[int(np.argmax(is_low)) + round(clear_s * STEPS_PER_S) :]
            if (again_hz >= law.amplitude_min * (1 - AMPLITUDE_MARGIN)).any():
                raise Undecidable("a swing that sinks slowly")

    def _is_sure(self, mode: TrueMode, law: Oscillation, station: int, reached_s: float) -> bool:
        """Return whether every correct law must raise an alarm, if the swing is large for long
        enough."""
        reached = self._cleared + round(reached_s * STEPS_PER_S)
        others = [
            other.amplitudes_hz[reached, station]
            for other in self._modes or ()
            if other is not mode
        ]
        return bool(
            mode.damping_ratio < law.damping_max - DAMPING_MARGIN
            and law.low_hz * 1.1 < mode.frequency_hz < law.high_hz / 1.1
            and mode.amplitudes_hz[reached, station] > 2 * max(others, default=0.0)
        )


def _spans(surely: Flags, maybe: Flags, hold_s: float, clear_s: float) -> list[Span]:
    """Return one span for each alarm: a cluster of possible steps that has certain steps within."""
    possible_s = np.flatnonzero(_held(maybe, max(0.0, hold_s - SAMPLES_S))) * STEP_S
    certain_s = np.flatnonzero(_held(surely, hold_s + SAMPLES_S)) * STEP_S
    places = np.flatnonzero(np.diff(possible_s) > clear_s - CLEAR_MARGIN_S) + 1
    spans: list[Span] = []
    ended_s = -clear_s
    for cluster_s in np.split(possible_s, places) if len(possible_s) else []:
        first_s, last_s = float(cluster_s[0]), float(cluster_s[-1])
        sure_s = certain_s[(certain_s >= first_s) & (certain_s <= last_s)]
        if not len(sure_s):
            raise Undecidable("a value near its limit")
        if np.diff([first_s, *sure_s, last_s]).max() > clear_s - CLEAR_MARGIN_S:
            raise Undecidable("a value that stays near its limit")
        if spans and first_s - ended_s < clear_s + CLEAR_MARGIN_S:
            raise Undecidable("a value that comes back to its limit")
        spans.append(Span(first_s - SAMPLES_S, float(sure_s[0]) + SAMPLES_S))
        ended_s = last_s
    return spans


def _held(is_true: Flags, least_s: float) -> Flags:
    """Return a mask of the steps that end a run of at least this length."""
    places = np.arange(len(is_true))
    last_false = np.maximum.accumulate(np.where(is_true, -1, places))
    held: Flags = is_true & ((places - last_false - 1) * STEP_S >= least_s - STEP_S / 2)
    return held
