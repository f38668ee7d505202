"""Low-pass filter and resampling: samples of any rate to few equidistant ones, without aliasing.

A mean over each tenth of a second passes a fifth of 8 Hz, which ten samples a second show as 2 Hz.
Here samples are interpolated linearly on a grid of 10 ms and pass a windowed sinc (Kaiser), which
attenuates frequencies above 7.5 Hz by a hundred and leaves those below 2.5 Hz unchanged. An output
depends only on samples within `REACH_NS`, so batches are independent.
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
"""Maximum gap for interpolation: across a longer one, a line is no estimate of 2 Hz."""
REACH_NS: Final = HALF_TAPS * FINE_NS + 2 * NS_PER_S // 10
KNOWN_SHARE_MIN: Final = 0.5
"""Minimum share of an output's weight on known values."""


def _taps() -> Values:
    positions = np.arange(-HALF_TAPS, HALF_TAPS + 1)
    taps: Values = np.sinc(2 * CUT_HZ * positions * FINE_NS / NS_PER_S)
    taps *= np.kaiser(len(positions), KAISER_BETA)
    taps /= taps.sum()
    return taps


TAPS: Final = _taps()


def low_passed(series: Series, first_ns: int, count: int, step_ns: int) -> Values:
    """Return values at `count` instants from `first_ns` on; NaN where too few are known."""
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
    # The order of each sum is the same everywhere, which a matrix product does not guarantee.
    sums, weights = (
        np.einsum(
            "kn,n->k", np.lib.stride_tricks.sliding_window_view(each, len(TAPS))[::stride], TAPS
        )
        for each in (lines, known)
    )
    is_enough = weights >= KNOWN_SHARE_MIN
    means: Values = np.where(is_enough, sums / np.where(is_enough, weights, 1.0), np.nan)
    return means
