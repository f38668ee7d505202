"""Histogram of latencies by powers of two of a microsecond: small, summable, good for quantiles.

Law: bucket 0 counts latencies below 1 us (also negative ones, from clocks that differ), bucket k
those from 2^(k-1) up to below 2^k us, and the last bucket all longer ones. Counts of two intervals
add up bucket by bucket, so that an hour is the difference of two readings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

BUCKETS: Final = 24
"""Number of buckets; the last begins at 4.2 s, far beyond the bounds of contracts."""
NS_PER_US: Final = 1_000


def bucket_of(latency_ns: int) -> int:
    """Return the bucket that counts a latency."""
    return min((max(0, latency_ns) // NS_PER_US).bit_length(), BUCKETS - 1)


def lower_us(bucket: int) -> int:
    """Return the shortest latency of a bucket."""
    assert 0 <= bucket < BUCKETS
    return 1 << bucket >> 1


def upper_us(bucket: int) -> int:
    """Return the end of a bucket; the last one counts as if it had one like the others."""
    assert 0 <= bucket < BUCKETS
    return 1 << bucket


def quantile_us(counts: Sequence[int], share: float) -> float | None:
    """Return the latency not exceeded by this share, interpolated evenly within a bucket."""
    assert 0 < share <= 1
    rank = share * sum(counts)
    before = 0
    for bucket, count in enumerate(counts):
        if count and before + count >= rank:
            inside = (rank - before) / count
            return lower_us(bucket) + inside * (upper_us(bucket) - lower_us(bucket))
        before += count
    return None


def longest_us(counts: Sequence[int]) -> int | None:
    """Return an upper bound of all latencies outside the last bucket."""
    filled = [bucket for bucket, count in enumerate(counts) if count]
    return upper_us(filled[-1]) if filled else None
