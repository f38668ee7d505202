"""The latencies of one tally by the law of `model/latency_histogram.py`, kept cheaply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from gridstat.model.latency_histogram import BUCKETS, NS_PER_US

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIDE: Final = 64
"""So many bits have the microseconds of any age of two 64-bit stamps, and of any correction."""
WAITING_MAX: Final = 64
"""Batches that are counted together; NumPy is quick with many and slow to begin."""


class LatencyCounts:
    """Counted under the tally's lock. `by_bits` has a place for every length in bits, so that one
    event costs one addition, and no comparison with the last bucket."""

    __slots__ = ("_waiting", "by_bits")

    def __init__(self) -> None:
        self.by_bits = [0] * WIDE
        self._waiting: list[NDArray[np.int64]] = []

    def add_many(self, ages_ns: NDArray[np.int64]) -> None:
        """Count a whole batch, soon."""
        self._waiting.append(ages_ns)
        if len(self._waiting) >= WAITING_MAX:
            self._count_waiting()

    def told(self) -> tuple[int, ...]:
        """By buckets, without the empty ones at the end."""
        if self._waiting:
            self._count_waiting()
        counts = [*self.by_bits[: BUCKETS - 1], sum(self.by_bits[BUCKETS - 1 :])]
        while counts and not counts[-1]:
            del counts[-1]
        return tuple(counts)

    def _count_waiting(self) -> None:
        ages_ns = np.concatenate(self._waiting)
        self._waiting.clear()
        # The exponent of a whole number is its length in bits; a fraction is below one.
        exponents = np.frexp(np.maximum(ages_ns, 0) / NS_PER_US)[1]
        for bits, count in enumerate(np.bincount(np.maximum(exponents, 0)).tolist()):
            if count:
                self.by_bits[bits] += count
