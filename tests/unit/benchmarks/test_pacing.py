"""Schedules of publishers: the load generator in virtual time, the closed loop, time stamps."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.plan import EVENT_BYTES, WIDE_EVENT_BYTES, fitting_period
from benchmarks.roles.pacing import flood, generate_load, is_in_slot, steady
from benchmarks.roles.streams import SLOTS_MAX, SLOTS_MIN, EventStream
from benchmarks.statistics import published_events_per_ms


class VirtualClock:
    """Clock that advances only with sleep or work."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_s(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.mark.feature("S0-133")
@given(st.integers(1, 240), st.integers(0, 50))
def test_the_load_generator_publishes_as_function_8_1_says(variables: int, cost_us: int) -> None:
    clock = VirtualClock()
    ran = generate_load(
        lambda _index: clock.sleep(cost_us * 1e-6), variables=variables, seconds=1.0, clock=clock
    )
    publish_ms = 1e3 * ran.publish_s / ran.cycles
    predicted = published_events_per_ms(variables, publish_ms)
    assert ran.sent / (ran.seconds * 1e3) == pytest.approx(predicted, rel=1e-6)


@pytest.mark.feature("S3-85")
@given(st.integers(1, 60), st.integers(1, 100))
def test_a_lag_between_variables_lowers_the_rate_as_the_formula_says(
    variables: int, lag_us: int
) -> None:
    clock = VirtualClock()
    ran = generate_load(
        lambda _index: None, variables=variables, seconds=1.0, clock=clock, lag_s=lag_us * 1e-6
    )
    predicted = published_events_per_ms(variables, variables * lag_us * 1e-3)
    assert ran.sent / (ran.seconds * 1e3) == pytest.approx(predicted, rel=1e-6)


@pytest.mark.feature("S0-133")
def test_the_load_generator_publishes_every_variable_in_each_cycle() -> None:
    clock = VirtualClock()
    seen: list[int] = []
    ran = generate_load(seen.append, variables=3, seconds=0.005, clock=clock)
    assert ran.cycles == 5
    assert seen == [0, 1, 2] * 5


def test_the_closed_loop_never_has_more_in_flight_than_allowed() -> None:
    sent, delivered, most = 0, 0, 0

    def send(events: int) -> int:
        nonlocal sent, most
        sent += events
        most = max(most, sent - delivered)
        return events

    def arrive() -> int:
        nonlocal delivered
        delivered = min(sent, delivered + 7)
        return delivered

    ran = flood(send, arrive, seconds=0.02, in_flight_max=64, chunk_max=40)
    assert ran.lost == 0
    assert ran.sent == sent == delivered
    assert 32 < most <= 64


def test_the_closed_loop_counts_what_never_arrives_as_lost() -> None:
    sent = 0

    def send(events: int) -> int:
        nonlocal sent
        sent += events
        return events

    ran = flood(send, lambda: sent // 2, seconds=0.01, in_flight_max=8, chunk_max=8)
    assert ran.lost == ran.sent - ran.sent // 2 > 0


def test_a_tick_that_a_stall_swallowed_is_not_made_up_for() -> None:
    calls: list[int] = []

    def send(call: int) -> int:
        calls.append(call)
        return 1

    ran = steady(send, tick_s=0.002, seconds=0.02)
    assert calls == list(range(len(calls)))
    assert ran.sent == len(calls) <= 10


@given(
    st.integers(1, 50),
    st.lists(st.integers(1, 64), min_size=1, max_size=30),
    st.sampled_from([1_000, 250_000]),
)
def test_events_of_one_variable_share_no_slot_and_leave_no_window(
    count: int, chunks: list[int], period_ns: int
) -> None:
    stream = EventStream(7, count, event_bytes=EVENT_BYTES, chunk_max=64, period_ns=period_ns)
    newest: dict[int, int] = {}
    for events in chunks:
        chunk = stream.take_since_last(events)
        for variable_id, created_ns in zip(chunk.ids, chunk.created_ns, strict=True):
            previous_ns = newest.get(int(variable_id))
            newest[int(variable_id)] = int(created_ns)
            if previous_ns is not None:
                slots = (int(created_ns) - previous_ns) / period_ns
                assert SLOTS_MIN - 0.1 <= slots <= SLOTS_MAX + 0.1
    assert set(newest) <= set(range(7, 7 + count))


def test_a_burst_is_created_at_one_instant() -> None:
    stream = EventStream(1, 10, event_bytes=EVENT_BYTES, chunk_max=10, period_ns=1_000)
    chunk = stream.take_at_once(10)
    assert len(set(chunk.created_ns.tolist())) == 1
    assert chunk.ids.tolist() == list(range(1, 11))
    assert stream.take_at_once(3).ids.tolist() == [1, 2, 3]


def test_wide_events_carry_their_options() -> None:
    stream = EventStream(1, 10, event_bytes=WIDE_EVENT_BYTES, chunk_max=4, period_ns=1_000)
    options = stream.take_at_once(3).options
    assert options is not None
    assert options.shape == (3, WIDE_EVENT_BYTES - EVENT_BYTES)
    assert options.dtype == np.uint8


@given(st.floats(1e-5, 10.0))
def test_a_fitting_period_leaves_room_for_jitter_and_for_stalls(spacing_s: float) -> None:
    seconds, per_seconds = fitting_period(spacing_s)
    slots = spacing_s * per_seconds / seconds
    assert 1 <= slots <= 32 or spacing_s >= 8


def test_aligned_ticks_lie_a_phase_after_whole_multiples_of_the_tick() -> None:
    ticks: list[tuple[int, float]] = []

    def send(tick: int) -> int:
        ticks.append((tick, time.time()))
        return 1

    steady(send, tick_s=0.02, seconds=0.1, is_aligned=True, phase_s=0.005)
    assert ticks
    # A stall makes a tick late, and none comes early.
    assert all(at_s >= tick * 0.02 + 0.005 - 1e-3 for tick, at_s in ticks)


def test_an_event_that_a_stall_has_pushed_into_the_next_slot_is_not_of_its_own() -> None:
    assert is_in_slot(10.0, 1_000, 0.01)
    assert is_in_slot(10.0049, 1_000, 0.01)
    assert not is_in_slot(10.0051, 1_000, 0.01)
    assert not is_in_slot(9.9949, 1_000, 0.01)
