"""Robust outlier score of a value among others of its kind.

Law: score = 0.6745 (value - median) / MAD, where MAD is the median of the distances from the median
and 0.6745 makes the score a number of standard deviations for a normal distribution. Outliers do
not move the median, but they move mean and deviation (S2 §3.5). As there, at least six values are
needed, and where all values are equal none is an outlier.
"""

from __future__ import annotations

from typing import Final

NORMAL_QUARTILE: Final = 0.6744897501960817
SCORE_LIMIT: Final = 6.0
"""Limit rarely exceeded by chance: one normally distributed minute in a thousand years."""
VALUES_MIN: Final = 6


def robust_score(value: float, median: float, spread: float) -> float:
    """Return the distance of a value in deviations; `spread` is the MAD."""
    assert spread >= 0
    return NORMAL_QUARTILE * (value - median) / spread if spread else 0.0


def is_outlier(score: float, values: int, *, limit: float = SCORE_LIMIT) -> bool:
    """Return whether a score is an outlier's; `values` is the number of compared values."""
    return values >= VALUES_MIN and abs(score) > limit
