"""The burst of synchronised publishers: who may meet, and how many at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gridstat.broker.capacity.bursts import INSTANT_NS, Burst, may_meet, phase_class
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from tests.unit.broker.clouds import variable

ALL_MODES = (frozenset(range(1, 64)),)


def test_an_alert_may_meet_every_phase() -> None:
    alert = StatusVariable(
        VariableId(9), "c1/alert", BuiltinType.BOOL, None, is_alert=True, interval_ns_min=10**9
    )
    early, late = phase_class(variable()), phase_class(variable(2, phase_ns=10_000_000))
    assert not may_meet(early, late)
    assert may_meet(phase_class(alert), early)
    assert may_meet(phase_class(alert), late)


def test_a_phase_of_a_slow_variable_may_fall_on_a_slot_of_a_fast_one() -> None:
    fast = phase_class(variable(1, 50))
    assert may_meet(fast, phase_class(variable(2, 25, phase_ns=20_000_000)))
    assert not may_meet(fast, phase_class(variable(2, 25, phase_ns=10_000_000)))


def test_odd_phases_fall_into_few_classes() -> None:
    found = {phase_class(variable(1, 1, phase_ns=7_919 * number)) for number in range(50_000)}
    assert len(found) <= 1_000


def test_phases_two_instants_apart_do_not_meet() -> None:
    first, second, third = (
        phase_class(variable(1, 50, phase_ns=phase_ns)) for phase_ns in (0, 1_000_000, 2_000_000)
    )
    assert may_meet(first, second)
    assert not may_meet(first, third)


periods = st.builds(Period, st.integers(1, 4), st.integers(1, 120))
phases = st.integers(0, 10**8)


@given(periods, periods, phases, phases)
def test_variables_that_meet_within_their_first_slots_are_known_to(
    one: Period, other: Period, phase_ns: int, other_phase_ns: int
) -> None:
    first = StatusVariable(VariableId(1), "c1/a", BuiltinType.BOOL, one, phase_ns)
    second = StatusVariable(VariableId(2), "c1/b", BuiltinType.BOOL, other, other_phase_ns)
    nearest = min(
        abs(phase_ns + a * one.period_ns - other_phase_ns - b * other.period_ns)
        for a in range(12)
        for b in range(12)
    )
    if nearest < INSTANT_NS - 1:  # A phase is cut to whole nanoseconds within its period.
        assert may_meet(phase_class(first), phase_class(second))


memberships = st.lists(
    st.tuples(
        st.sampled_from([0, 5_000_000, 10_000_000]),
        st.sampled_from([25, 50, 100]),
        st.sampled_from([(0,), (1,), (1, 2), (2,)]),
    ),
    max_size=10,
)


@given(memberships)
def test_a_burst_is_the_same_whatever_came_and_went_before(
    members: list[tuple[int, int, tuple[int, ...]]],
) -> None:
    def filled(extra: bool) -> Burst:
        burst = Burst(ALL_MODES)
        if extra:
            for phase_ns, hertz, modes in reversed(members):
                burst.add(phase_class(variable(1, hertz, phase_ns=phase_ns)), 70, modes)
        for phase_ns, hertz, modes in members:
            burst.add(phase_class(variable(1, hertz, phase_ns=phase_ns)), 68, modes)
        if extra:
            for phase_ns, hertz, modes in members:
                burst.remove(phase_class(variable(1, hertz, phase_ns=phase_ns)), 70, modes)
        return burst

    assert filled(extra=True).worst() == filled(extra=False).worst()


def test_hundreds_of_phases_on_one_channel_are_kept_apart() -> None:
    burst = Burst(ALL_MODES)
    for number in range(400):
        burst.add(phase_class(variable(1, 1, phase_ns=number * 2_500_000)), 68, (0,))
    assert burst.worst() == (1, 68)
