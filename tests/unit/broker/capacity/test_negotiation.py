"""Negotiation: levels between desired and worst, chains of divisors, and explanatory texts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.broker.capacity.negotiation import Band, band_of, differences
from gridstat.model.errors import IntervalNotSatisfiable
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import Period
from gridstat.model.sparse_law import is_carried

PERIOD = Period(1, 100)


def band(modes: dict[int, QosRequest] | QosRequest) -> Band:
    return band_of(ModalQos(modes if isinstance(modes, dict) else {0: modes}), PERIOD)


def test_without_a_worst_there_is_one_level() -> None:
    narrow = band(QosRequest(every=3))
    assert not narrow.is_wide
    assert narrow.level(0, 0, is_slow=False) == narrow.last(0) == narrow.desired


def test_latency_goes_first_and_redundancy_one_path_at_a_time() -> None:
    wide = band(QosRequest(latency_us=10, latency_us_worst=90, redundancy=3, redundancy_worst=1))
    levels = [(level[0].redundancy, level[0].latency_us) for level in wide.levels_of(0)]
    assert levels == [(3, 10), (3, 90), (2, 10), (2, 90), (1, 10), (1, 90)]


def test_divisors_double_until_the_worst_is_reached() -> None:
    wide = band(QosRequest(every=3, every_worst=40))
    steps = range(wide.every_steps + 1)
    assert [wide.last(step)[0].every for step in steps] == [3, 6, 12, 24, 40]


qualities = st.dictionaries(
    st.integers(0, 5),
    st.builds(
        lambda every, more: QosRequest(every=every, every_worst=every + more),
        st.integers(1, 100),
        st.integers(0, 500),
    ),
    min_size=1,
)


@given(qualities)
def test_at_every_level_the_divisors_form_a_chain_within_the_band(
    modes: dict[int, QosRequest],
) -> None:
    wide = band(modes)
    for step in range(wide.every_steps + 1):
        level = wide.last(step)
        divisors = sorted(qos.every for qos in level.values())
        assert all(slower % faster == 0 for faster, slower in pairwise(divisors))
        assert all(qos.every <= wide.worst[mode].every for mode, qos in level.items())
    reached = wide.level(wide.every_steps, 0, is_slow=True)
    assert min(qos.every for qos in reached.values()) == min(
        qos.every for qos in wide.worst.values()
    )


def test_priority_is_always_granted_as_desired() -> None:
    wide = band(QosRequest(priority=2, priority_worst=6, every_worst=4))
    assert {wide.last(step)[0].priority for step in range(wide.every_steps + 1)} == {2}


def test_an_interval_below_the_period_and_below_the_worst_is_an_error() -> None:
    with pytest.raises(IntervalNotSatisfiable):
        band(QosRequest(interval=Period(1, 200)))
    with pytest.raises(IntervalNotSatisfiable):
        band(QosRequest(interval=Period(1, 400), interval_worst=Period(1, 200)))


def test_an_aperiodic_variable_takes_every_event() -> None:
    assert band_of(ModalQos({0: QosRequest(every=5)}), None).desired[0].every == 1


def test_differences_name_the_mode_the_change_and_the_reason() -> None:
    wide = band({2: QosRequest(every_worst=8, redundancy=2, redundancy_worst=1)})
    words = differences(wide.desired, wide.last(wide.every_steps), "channel a→b is full")
    assert words == (
        "mode 2: redundancy 2 lowered to 1: channel a→b is full",
        "mode 2: every 1 lowered to every 8: channel a→b is full",
    )


FAST = Period(1, 4_800)


def test_a_divisor_that_cores_would_lose_is_granted_as_one_that_they_carry() -> None:
    sparse = band_of(ModalQos({0: QosRequest(every=500)}), FAST)
    assert sparse.desired[0].every == sparse.worst[0].every == 250
    assert sparse.notes == (
        "every 500 rounded down to 250, since sparser events could not be distinguished from "
        "forged time stamps",
    )
    asked = QosRequest(interval=Period(1, 1))
    assert band_of(ModalQos({0: asked}), FAST).desired[0].every == 240


def test_no_level_of_a_band_has_a_divisor_that_cores_would_lose() -> None:
    wide = band_of(ModalQos({0: QosRequest(every=100, every_worst=6_000)}), FAST)
    found = [wide.last(step)[0].every for step in range(wide.every_steps + 1)]
    assert found == [100, 200, 200, 200, 200, 200, 200]


def test_a_divisor_without_one_below_the_window_is_refused_with_a_hint() -> None:
    with pytest.raises(IntervalNotSatisfiable) as refused:
        band_of(ModalQos({0: QosRequest(every=257)}), FAST)
    assert "every 255th slot" in refused.value.hint


@st.composite
def requests(draw: st.DrawFn) -> QosRequest:
    every = draw(st.integers(1, 300) | st.sampled_from([512, 890, 1_024, 2_000, 3_840, 9_600]))
    return QosRequest(every=every, every_worst=every * draw(st.sampled_from([1, 2, 3, 8, 60])))


@given(
    st.dictionaries(st.integers(1, 4), requests(), min_size=1),
    st.sampled_from([60, 500, 1_000, 1_280, 1_281, 4_800, 10_000]),
)
def test_every_divisor_that_is_granted_in_any_mode_is_carried_by_cores(
    modes: dict[int, QosRequest], hertz: int
) -> None:
    period = Period(1, hertz)
    try:
        found = band_of(ModalQos(modes), period)
    except IntervalNotSatisfiable:
        assert not all(is_carried(each.every or 1, period) for each in modes.values())
        return
    for steps in range(found.every_steps + 1):
        for level in found.levels_of(steps):
            assert all(is_carried(qos.every, period) for qos in level.values())


@pytest.mark.parametrize("hertz", [500, 4_800])
def test_a_chain_of_divisors_leaves_none_that_cores_would_lose(hertz: int) -> None:
    modes = {1: QosRequest(every=178), 2: QosRequest(every=1_024)}
    found = band_of(ModalQos(modes), Period(1, hertz)).level(0, 0, is_slow=False)
    assert all(is_carried(qos.every, Period(1, hertz)) for qos in found.values())
    assert found[2].every % found[1].every == 0 or found[1].every % found[2].every == 0


def test_an_aperiodic_variable_is_taken_whole_or_not_at_all() -> None:
    aperiodic = band_of(ModalQos({0: QosRequest(every_worst=8)}), None)
    assert aperiodic.every_steps == 0
    assert aperiodic.worst[0].every == 1
