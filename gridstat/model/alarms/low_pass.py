"""Samples of any rate as few equal ones, without the swings that few would take for slower ones.

A mean over each tenth of a second lets a fifth of 8 Hz through, which ten samples a second show as
2 Hz. Here samples are joined by lines on a grid of 10 ms and pass a windowed sinc (Kaiser): what
is faster than 7.5 Hz is a hundred times smaller after it, what is slower than 2.5 Hz is as before.
An output knows what lies `REACH_NS` around it and nothing else, so no batch sees another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from gridstat.model.alarms.runs import Series, Values

FINE_NS: Final = NS_PER_S // 100
HALF_TAPS: Final = 40
CUT_HZ: Final = 5.0
KAISER_BETA: Final = 6.0
GAP_NS_MAX: Final = 160_000_000
"""Samples further apart are not joined: a line is no guess at a swing of 2 Hz any more."""
REACH_NS: Final = HALF_TAPS * FINE_NS + 2 * NS_PER_S // 10
KNOWN_SHARE_MIN: Final = 0.5
"""Of the weight of an output, that must fall on known values."""


def _taps() -> Values:
    places = np.arange(-HALF_TAPS, HALF_TAPS + 1)
    taps: Values = np.sinc(2 * CUT_HZ * places * FINE_NS / NS_PER_S)
    taps *= np.kaiser(len(places), KAISER_BETA)
    taps /= taps.sum()
    return taps


TAPS: Final = _taps()


def low_passed(series: Series, first_ns: int, count: int, step_ns: int) -> Values:
    """Values at `count` instants from `first_ns` on; NaN where too little is known around."""
    assert step_ns % FINE_NS == 0
    fine = np.arange((count - 1) * (step_ns // FINE_NS) + len(TAPS), dtype=np.int64) * FINE_NS
    fine += first_ns - HALF_TAPS * FINE_NS
    seen = series.between(int(fine[0]) - GAP_NS_MAX - 1, int(fine[-1]) + GAP_NS_MAX)
    times_ns = seen.times_ns
    if len(times_ns) < 2:  # noqa: PLR2004 - A line has two ends.
        return np.full(count, np.nan)
    after = np.clip(np.searchsorted(times_ns, fine, side="left"), 1, len(times_ns) - 1)
    early_ns, late_ns = times_ns[after - 1], times_ns[after]
    is_known = (early_ns <= fine) & (fine <= late_ns) & (late_ns - early_ns <= GAP_NS_MAX)
    shares = (fine - early_ns) / (late_ns - early_ns)
    early = seen.values[after - 1]
    lines = np.where(is_known, early + (seen.values[after] - early) * shares, 0.0)
    return _weighed(lines, is_known.astype(np.float64), step_ns // FINE_NS)


def _weighed(lines: Values, known: Values, stride: int) -> Values:
    # Each sum in the same order wherever it stands, which a product of matrices does not promise.
    sums, weights = (
        np.einsum(
            "kn,n->k", np.lib.stride_tricks.sliding_window_view(each, len(TAPS))[::stride], TAPS
        )
        for each in (lines, known)
    )
    is_enough = weights >= KNOWN_SHARE_MIN
    means: Values = np.where(is_enough, sums / np.where(is_enough, weights, 1.0), np.nan)
    return means
