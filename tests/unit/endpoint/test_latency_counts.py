"""The histogram of a tally is that of the law, whether events come one by one or in batches."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gridstat.endpoint.tally import WAITING_BATCHES_MAX, LatencyCounts
from gridstat.model.latency_histogram import BUCKETS, bucket_of

EDGES = [edge for bits in range(45) for edge in (1_000 * 2**bits - 1, 1_000 * 2**bits)]


def by_law(ages_ns: list[int]) -> tuple[int, ...]:
    counts = [0] * BUCKETS
    for age_ns in ages_ns:
        counts[bucket_of(age_ns)] += 1
    while counts and not counts[-1]:
        counts.pop()
    return tuple(counts)


@given(st.lists(st.integers(-(10**9), 2**45) | st.sampled_from(EDGES)))
def test_a_batch_counts_as_the_law_says(ages_ns: list[int]) -> None:
    counts = LatencyCounts()
    counts.add_many(np.array(ages_ns, np.int64))
    assert counts.counts() == by_law(ages_ns)


def test_many_batches_are_counted_without_being_asked_for() -> None:
    counts = LatencyCounts()
    for _ in range(WAITING_BATCHES_MAX):
        counts.add_many(np.array([1_000], np.int64))
    assert counts.by_bits[1] == WAITING_BATCHES_MAX
    assert counts.counts() == (0, WAITING_BATCHES_MAX)
