"""Stretches of time: the quick ways against the plain ones."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gridstat.pipeline.archive import NS_PER_S, Late
from gridstat.pipeline.time_spans import joined, touching, within

BOUND = st.one_of(st.none(), st.integers(-20, 20))
SPANS = st.lists(st.tuples(BOUND, BOUND), max_size=6).map(tuple)
TIMES = st.lists(st.integers(-25, 25), max_size=12)


def is_in(time_ns: int, span: tuple[int | None, int | None]) -> bool:
    low, high = span
    return (low is None or low <= time_ns) and (high is None or time_ns <= high)


@given(times_ns=TIMES, spans_ns=SPANS)
def test_a_time_is_within_if_it_is_within_one_of_the_spans(
    times_ns: list[int], spans_ns: tuple[tuple[int | None, int | None], ...]
) -> None:
    found = within(np.array(times_ns, dtype=np.int64), spans_ns).tolist()
    assert found == [any(is_in(time_ns, span) for span in spans_ns) for time_ns in times_ns]


@given(firsts_ns=TIMES, length_ns=st.integers(0, 10), spans_ns=SPANS)
def test_an_interval_touches_the_spans_if_one_of_its_instants_is_within(
    firsts_ns: list[int], length_ns: int, spans_ns: tuple[tuple[int | None, int | None], ...]
) -> None:
    first = np.array(firsts_ns, dtype=np.int64)
    wanted = [
        any(is_in(begin_ns + more, span) for span in spans_ns for more in range(length_ns + 1))
        for begin_ns in firsts_ns
    ]
    assert touching(first, first + length_ns, spans_ns).tolist() == wanted


def test_of_too_many_spans_the_nearest_are_joined() -> None:
    spans = [(0, 1), (10, 11), (13, 14), (30, 31), (33, 34)]
    assert joined(spans, 5) == spans
    assert joined(spans, 3) == [(0, 1), (10, 14), (30, 34)]
    assert joined(spans, 1) == [(0, 34)]


def test_seconds_scattered_over_a_day_are_looked_up_one_by_one() -> None:
    starts_s = tuple(range(0, 86_400, 1_300))
    assert len(starts_s) == 67
    spans = Late(starts_s, 1).spans_ns()
    assert sum(last - first + 1 for first, last in spans) == 67 * NS_PER_S
