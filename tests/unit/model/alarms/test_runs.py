"""An alarm begins where the law says, however the time is cut into batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.alarms.limits import Limits, RateOfChange
from gridstat.model.alarms.runs import AlarmLaw, Memory, Series, onsets
from gridstat.model.alarms.silence import Silence
from gridstat.model.rate_law import NS_PER_S
from tests.unit.model.alarms.streams import START_NS, cuts, found_in_batches, sampled, series

if TYPE_CHECKING:
    from collections.abc import Callable

MEMORIES = st.builds(Memory, st.integers(0, 8), st.integers(1, 12), st.integers(1, 6))
STREAMS = st.lists(st.tuples(st.integers(1, 9), st.integers(-3, 3)), min_size=1, max_size=60).map(
    lambda steps: series(
        [int(time_ns) for time_ns in np.cumsum([step for step, _ in steps])],
        [float(value) for _, value in steps],
        slot_ns=2,
        since_ns=0,
    )
)


def onsets_by_the_words_of_the_law(
    instants: list[int], is_true: list[bool], memory: Memory
) -> list[int]:
    held = []
    for place, instant in enumerate(instants):
        start = place
        while (
            start > 0
            and is_true[start - 1]
            and instants[start] - instants[start - 1] <= memory.gap_ns
        ):
            start -= 1
        if is_true[place] and instant - instants[start] >= memory.hold_ns:
            held.append(instant)
    return [
        instant
        for instant in held
        if not any(instant - memory.clear_ns <= other < instant for other in held)
    ]


@given(STREAMS, MEMORIES)
def test_onsets_are_those_that_the_law_names(stream: Series, memory: Memory) -> None:
    is_true = stream.values > 0
    instants = stream.times_ns.tolist()
    places = onsets(stream.times_ns, is_true, memory, -1, instants[-1])
    expected = onsets_by_the_words_of_the_law(instants, is_true.tolist(), memory)
    assert stream.times_ns[places].tolist() == expected


LAWS = st.one_of(
    st.builds(Limits, st.just(-2.0), st.just(1.0), MEMORIES),
    st.builds(RateOfChange, st.sampled_from([1e8, 5e8]), st.integers(4, 30), MEMORIES),
    st.builds(Silence, st.integers(1, 3), st.integers(1, 12)),
)


@given(STREAMS, LAWS, st.data())
def test_any_cut_into_batches_finds_the_same_alarms(
    stream: Series, law: AlarmLaw, data: st.DataObject
) -> None:
    last = int(stream.times_ns[-1]) + 30
    ends = data.draw(cuts(0, last))
    assert found_in_batches(law, stream, ends) == list(law.findings(stream, -1, last))


MEMORY = Memory(hold_ns=NS_PER_S // 2, clear_ns=5 * NS_PER_S, gap_ns=NS_PER_S)


def onsets_s(law: AlarmLaw, stream: Series) -> list[float]:
    end_ns = int(stream.times_ns[-1])
    found = law.findings(stream, START_NS - 1, end_ns)
    return [(finding.onset_ns - START_NS) / NS_PER_S for finding in found]


def test_a_condition_that_lasts_is_told_once_after_its_hold() -> None:
    stream = sampled(lambda time_s: 61.0 if time_s >= 2 else 60.0, seconds=60)
    assert onsets_s(Limits(59.9, 60.1, MEMORY), stream) == [pytest.approx(2.5, abs=1e-6)]


def test_what_comes_back_soon_is_the_same_alarm_and_later_another() -> None:
    def value(time_s: float) -> float:
        return 59.0 if 2 <= time_s < 4 or 8 <= time_s < 9 or 20 <= time_s < 21 else 60.0

    onsets_found = onsets_s(Limits(59.9, 60.1, MEMORY), sampled(value, seconds=30))
    assert onsets_found == [pytest.approx(2.5, abs=1e-6), pytest.approx(20.5, abs=1e-6)]


def test_a_short_excursion_is_no_alarm() -> None:
    stream = sampled(lambda time_s: 61.0 if 2 <= time_s < 2.4 else 60.0, seconds=10)
    assert onsets_s(Limits(59.9, 60.1, MEMORY), stream) == []


def test_an_alarm_tells_which_limit_was_broken() -> None:
    stream = sampled(lambda time_s: 59.0 if time_s >= 2 else 60.0, seconds=10)
    (found,) = Limits(59.9, 60.1, MEMORY).findings(stream, START_NS, START_NS + 10 * NS_PER_S)
    assert (found.value, found.limit) == (59.0, 59.9)


def test_a_ramp_has_its_slope_and_a_wild_sample_has_none() -> None:
    law = RateOfChange(0.5, NS_PER_S // 2, Memory(0, 5 * NS_PER_S, NS_PER_S))
    ramp = sampled(lambda time_s: 60.0 - max(0.0, time_s - 2), seconds=10)
    (found,) = law.findings(ramp, START_NS, START_NS + 10 * NS_PER_S)
    assert 2.0 < (found.onset_ns - START_NS) / NS_PER_S < 2.5
    steady = law.findings(ramp, START_NS + 4 * NS_PER_S, START_NS + 10 * NS_PER_S)
    assert list(steady) == []
    wild = sampled(lambda time_s: 75.0 if 3.0 <= time_s < 3.03 else 60.0, seconds=10)
    assert max(wild.values) == 75.0
    assert onsets_s(law, wild) == []


def test_a_slow_ramp_is_no_alarm() -> None:
    law = RateOfChange(0.5, NS_PER_S // 2, Memory(0, 5 * NS_PER_S, NS_PER_S))
    assert onsets_s(law, sampled(lambda time_s: 60.0 - 0.49 * time_s, seconds=10)) == []


def test_silence_is_told_half_a_slot_after_the_last_slot_that_it_may_lack() -> None:
    law = Silence(slots=3, clear_ns=50)
    stream = series([0, 10, 20, 100, 110, 120], [0.0] * 6, slot_ns=10, since_ns=0)
    assert [found.onset_ns for found in law.findings(stream, -1, 200)] == [55, 155]


def test_a_silence_soon_after_another_is_the_same() -> None:
    law = Silence(slots=3, clear_ns=200)
    stream = series([0, 10, 20, 100, 110, 120], [0.0] * 6, slot_ns=10, since_ns=0)
    assert [found.onset_ns for found in law.findings(stream, -1, 200)] == [55]


@pytest.mark.parametrize("cut_ns", [-1, 20, 60, 90, 120])
def test_silence_after_an_excused_one_is_told_however_time_is_cut(cut_ns: int) -> None:
    """Excuse silence from 40 to 100; from 100 on nothing comes, and it is not excused."""
    law = Silence(slots=3, clear_ns=50)
    stream = series([0, 10, 20, 30, 100], [0.0] * 5, slot_ns=10, since_ns=0)

    def found(is_excused: Callable[[int], bool]) -> list[int]:
        spans = ((-1, cut_ns), (cut_ns, 300))
        return [
            each.onset_ns
            for from_ns, to_ns in spans
            for each in law.findings(stream, from_ns, to_ns, is_excused)
        ]

    assert found(lambda _: False) == [65], "what lasts is told once"
    assert found(lambda at_ns: 40 <= at_ns < 100) == [135]


def test_an_aperiodic_stream_may_be_silent() -> None:
    assert Silence(3, 50).findings(series([0, 10], [0.0, 0.0]), -1, 10_000) == []


def test_what_was_silent_before_the_look_back_is_not_told_again() -> None:
    law = Silence(slots=3, clear_ns=50)
    assert law.findings(series([], [], since_ns=0), 10_000, 20_000) == []
