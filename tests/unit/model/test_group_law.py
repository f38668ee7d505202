"""Sets of variables, and the proposal when variables form none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.errors import GroupMismatch
from gridstat.model.group_law import Member, common_interval, group_slot, member_every
from gridstat.model.rate_law import NS_PER_S, Period

PERIODS = st.builds(Period, st.just(1), st.sampled_from([10, 25, 30, 50, 60, 120]))


def test_a_multiple_of_the_period_takes_every_nth_slot() -> None:
    assert member_every(Period(1, 10), Member("a", Period(1, 60))) == 6
    assert member_every(Period(1, 60), Member("a", Period(1, 60))) == 1


def test_an_interval_that_is_no_multiple_is_refused_with_one_that_is() -> None:
    with pytest.raises(GroupMismatch) as refused:
        member_every(Period(1, 15), Member("b", Period(1, 50)), [Member("a", Period(1, 60))])
    assert "1/10 s is a multiple" in refused.value.hint


def test_an_interval_shorter_than_the_period_is_refused() -> None:
    with pytest.raises(GroupMismatch, match="1/120 s is not a multiple of a's period of 1/60 s"):
        member_every(Period(1, 120), Member("a", Period(1, 60)))


def test_unequal_phases_are_refused_with_the_groups_phase() -> None:
    member, other = Member("b", Period(1, 60), 5), Member("a", Period(1, 60), 0)
    with pytest.raises(GroupMismatch, match="phase 5 ns") as refused:
        member_every(Period(1, 60), member, [other])
    assert "phase_ns=0" in refused.value.hint


def test_periods_without_a_multiple_in_bounds_say_so() -> None:
    far = [Period(4_294_967_291, 1), Period(4_294_967_279, 1)]
    assert common_interval(far) is None
    with pytest.raises(GroupMismatch) as refused:
        member_every(Period(1, 1), Member("b", far[0]), [Member("a", far[1])])
    assert "no common multiple" in refused.value.hint


@given(periods=st.lists(PERIODS, min_size=1, max_size=5), asked=PERIODS)
def test_a_proposal_is_always_accepted(periods: list[Period], asked: Period) -> None:
    proposed = common_interval(periods, asked)
    assert proposed is not None
    assert proposed.period_ns >= asked.period_ns
    members = [Member(str(index), period) for index, period in enumerate(periods)]
    for index, member in enumerate(members):
        assert member_every(proposed, member, members[:index]) >= 1


@pytest.mark.feature("S0-43")
@given(
    periods=st.lists(PERIODS, min_size=2, max_size=4),
    slot=st.integers(10**9, 2 * 10**9),
    jitters=st.lists(st.floats(-0.49, 0.49), min_size=4, max_size=4),
)
def test_jittered_stamps_of_one_instant_belong_to_one_set(
    periods: list[Period], slot: int, jitters: list[float]
) -> None:
    interval = common_interval(periods)
    assert interval is not None
    centre = slot * interval.seconds * NS_PER_S // interval.per_seconds
    for period, jitter in zip(periods, jitters, strict=False):
        created_ns = centre + int(jitter * float(period.period_ns))
        member = Member("m", period)
        assert group_slot(created_ns, member, member_every(interval, member)) == slot


def test_an_event_between_two_sets_belongs_to_none() -> None:
    member = Member("m", Period(1, 60))
    assert group_slot(NS_PER_S // 60, member, 6) is None
    assert group_slot(NS_PER_S // 10, member, 6) == 1


def test_a_group_without_members_keeps_the_interval_it_was_given() -> None:
    assert common_interval([], Period(1, 10)) == Period(1, 10)
