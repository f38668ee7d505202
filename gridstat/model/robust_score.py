"""How unusual a value is beside others of its kind, by numbers that the unusual ones do not move.

Law: score = 0.6745 (value - median) / MAD, where MAD is the median of the distances from the median
and 0.6745 makes it a number of standard deviations for values that are spread normally. Mean and
deviation (S2 §3.5) are moved by the very outliers they are to find. Taken over from there: at least
six values, and where all are alike none is an outlier.
"""

from __future__ import annotations

from typing import Final

NORMAL_QUARTILE: Final = 0.6744897501960817
SCORE_LIMIT: Final = 6.0
"""Rarely reached by chance: of minutes that are spread normally one in a thousand years."""
VALUES_MIN: Final = 6


def robust_score(value: float, median: float, spread: float) -> float:
    """How many deviations a value is away; `spread` is the median distance from the median."""
    assert spread >= 0
    return NORMAL_QUARTILE * (value - median) / spread if spread else 0.0


def is_outlier(score: float, values: int, *, limit: float = SCORE_LIMIT) -> bool:
    """Whether so far away is too far; `values` is how many there are to compare with."""
    return values >= VALUES_MIN and abs(score) > limit
