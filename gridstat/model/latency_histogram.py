"""Latencies counted by powers of two of a microsecond: small, summable, and good for quantiles.

Law: bucket 0 holds what took less than 1 us (or, by clocks that differ, less than nothing), bucket
k what took from 2^(k-1) up to below 2^k us, the last one all that took longer. Counts of two
stretches of time add up bucket by bucket, so that an hour is the difference of two readings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

BUCKETS: Final = 24
"""The last begins at 4.2 s: a contract that waits longer than that knows it is not kept."""
NS_PER_US: Final = 1_000


def bucket_of(latency_ns: int) -> int:
    """Where a latency is counted."""
    return min((max(0, latency_ns) // NS_PER_US).bit_length(), BUCKETS - 1)


def lower_us(bucket: int) -> int:
    """The shortest latency of a bucket."""
    assert 0 <= bucket < BUCKETS
    return 1 << bucket >> 1


def upper_us(bucket: int) -> int:
    """The end of a bucket; of the last one, which has none, as if it were like the others."""
    assert 0 <= bucket < BUCKETS
    return 1 << bucket


def quantile_us(counts: Sequence[int], share: float) -> float | None:
    """The latency that this share did not exceed; within a bucket as if they were spread evenly."""
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
    """No latency was longer than this, unless it is in the last bucket."""
    filled = [bucket for bucket, count in enumerate(counts) if count]
    return upper_us(filled[-1]) if filled else None
