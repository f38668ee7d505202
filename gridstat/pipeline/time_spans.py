"""Spans of time: which times lie in a span, and which intervals touch one."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

Spans = tuple[tuple[int | None, int | None], ...]
"""Spans from first to last nanosecond; None means no bound. Spans may overlap."""
_LONG_AGO: Final = -(1 << 63)
_FAR_AWAY: Final = (1 << 63) - 1


def within(time_ns: NDArray[np.int64], spans_ns: Spans) -> NDArray[np.bool_]:
    """Return a mask of the times that lie in one of the spans."""
    return touching(time_ns, time_ns, spans_ns)


def touching(
    first_ns: NDArray[np.int64],
    last_ns: NDArray[np.int64],
    spans_ns: Iterable[tuple[int | None, int | None]],
) -> NDArray[np.bool_]:
    """Return a mask of the intervals, from first to last, that have an instant in one of the spans.

    An interval has one if, of the spans that begin by its last instant, one ends at or after its
    first; hence the number of spans hardly matters.
    """
    bounds = sorted(
        (_LONG_AGO if low is None else low, _FAR_AWAY if high is None else high)
        for low, high in spans_ns
        if low is None or high is None or low <= high
    )
    if not bounds:
        return np.zeros(len(first_ns), dtype=bool)
    lows = np.array([low for low, _ in bounds], dtype=np.int64)
    ends = np.maximum.accumulate(np.array([high for _, high in bounds], dtype=np.int64))
    begun = np.searchsorted(lows, last_ns, side="right")
    touches: NDArray[np.bool_] = (begun > 0) & (ends[np.maximum(begun - 1, 0)] >= first_ns)
    return touches


def joined(spans_ns: list[tuple[int, int]], spans_max: int) -> list[tuple[int, int]]:
    """The same spans in order, or, if they are too many, those joined that lie nearest."""
    assert spans_max > 0
    if len(spans_ns) <= spans_max:
        return spans_ns
    gaps = np.array([after[0] - before[1] for before, after in pairwise(spans_ns)])
    widest = np.sort(np.argsort(-gaps, kind="stable")[: spans_max - 1])
    firsts = [0, *(widest + 1).tolist()]
    lasts = [*widest.tolist(), len(spans_ns) - 1]
    return [
        (spans_ns[first][0], spans_ns[last][1]) for first, last in zip(firsts, lasts, strict=True)
    ]
