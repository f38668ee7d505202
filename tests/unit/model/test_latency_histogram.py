"""Latencies by powers of two of a microsecond, and what can be read from their counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.latency_histogram import (
    BUCKETS,
    bucket_of,
    longest_us,
    lower_us,
    quantile_us,
    upper_us,
)


@given(st.integers(0, 2**40))
def test_a_latency_lies_within_its_bucket(latency_ns: int) -> None:
    bucket = bucket_of(latency_ns)
    assert lower_us(bucket) <= latency_ns // 1_000
    assert latency_ns // 1_000 < upper_us(bucket) or bucket == BUCKETS - 1


def test_the_edges_belong_to_the_bucket_above() -> None:
    assert [bucket_of(us * 1_000) for us in (0, 1, 2, 3, 4, 7, 8)] == [0, 1, 2, 2, 3, 3, 4]
    assert bucket_of(1_999) == 1
    assert bucket_of(-5_000_000) == 0, "by clocks that differ it came before it was sent"
    assert bucket_of(2**62) == BUCKETS - 1


def test_buckets_leave_no_latency_out() -> None:
    assert lower_us(0) == 0
    assert [upper_us(at) for at in range(BUCKETS - 1)] == [lower_us(at) for at in range(1, BUCKETS)]


def test_a_quantile_is_spread_evenly_within_its_bucket() -> None:
    counts = [0, 0, 0, 100, 0, 100]
    assert quantile_us(counts, 0.25) == pytest.approx(6.0)
    assert quantile_us(counts, 0.5) == pytest.approx(8.0)
    assert quantile_us(counts, 0.75) == pytest.approx(24.0)
    assert quantile_us(counts, 1.0) == pytest.approx(32.0)
    assert longest_us(counts) == 32


def test_nothing_counted_has_no_latency() -> None:
    assert quantile_us([], 0.5) is None
    assert quantile_us([0, 0], 0.5) is None
    assert longest_us([0]) is None


@given(st.lists(st.integers(0, 9), min_size=1, max_size=BUCKETS), st.floats(0.01, 1.0))
def test_a_quantile_never_falls_with_its_share(counts: list[int], share: float) -> None:
    found, half = quantile_us(counts, share), quantile_us(counts, share / 2)
    if sum(counts):
        assert found is not None
        assert half is not None
        assert half <= found
