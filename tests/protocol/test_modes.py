"""Several tables live at once: a baseline and the active modes (S1 §7). Two subjects."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.core.rows import ChannelSpec, Route, Term
from tests.protocol.grids import (
    MS,
    PUBLISHER,
    SMALL,
    MakeCore,
    Subject,
    assert_reconciled,
    datagram,
    event,
    periodic,
    told,
)

PERIOD_MS = 100


def core_with(make_core: MakeCore, *channel_ids: int) -> Subject:
    core = make_core(SMALL)
    core.open_source(PUBLISHER, is_publisher=True)
    for channel_id in channel_ids:
        core.open_channel(ChannelSpec(channel_id))
    return core


def publish_slot(core: Subject, slot: int) -> None:
    created_ns = slot * PERIOD_MS * MS
    core.inject(datagram(PUBLISHER, event(1, created_ns)), now_ns=created_ns)


def slots_on(core: Subject, channel_id: int) -> list[int]:
    return [created // (PERIOD_MS * MS) for _, created in told(core.take_output(channel_id))]


def test_in_a_tree_of_depth_three_a_subscription_in_any_of_three_live_tables_flows(
    subject: MakeCore,
) -> None:
    core = core_with(subject, 1, 2, 3, 4, 5)
    routes = [Route(1 + level, (Term(1 + level, modes=2 << level),)) for level in range(4)]
    core.commit([periodic(1, PERIOD_MS, routes=(*routes, Route(5, (Term(1),))))])
    core.set_modes(0b01110)  # One mode of each broker above; the fourth mode rests.
    for slot in range(1, 13):
        publish_slot(core, slot)
    assert slots_on(core, 1) == list(range(1, 13))
    assert slots_on(core, 2) == [2, 4, 6, 8, 10, 12]
    assert slots_on(core, 3) == [3, 6, 9, 12]
    assert slots_on(core, 4) == []
    assert slots_on(core, 5) == list(range(1, 13))


@pytest.mark.feature("S1-31")
def test_two_modes_with_the_same_next_hop_send_one_copy(subject: MakeCore) -> None:
    core = core_with(subject, 1)
    terms = (Term(2, modes=0b010), Term(3, modes=0b100), Term(6))
    core.commit([periodic(1, PERIOD_MS, routes=(Route(1, terms),))])
    core.set_modes(0b110)
    for slot in range(1, 13):
        publish_slot(core, slot)
    assert slots_on(core, 1) == [2, 3, 4, 6, 8, 9, 10, 12]
    assert core.channel_counters(1)["due"] == 8
    assert_reconciled(core, [1])


def test_a_switch_takes_effect_with_the_next_event_and_the_baseline_stays(
    subject: MakeCore,
) -> None:
    core = core_with(subject, 1, 2, 3)
    routes = (Route(1, (Term(1, 2),)), Route(2, (Term(1, 4),)), Route(3, (Term(1),)))
    core.commit([periodic(1, PERIOD_MS, routes=routes)])
    for slot, modes in enumerate((2, 4, 6, 0), start=1):
        core.set_modes(modes)
        assert core.modes == modes
        publish_slot(core, slot)
    assert slots_on(core, 1) == [1, 3]
    assert slots_on(core, 2) == [2, 3]
    assert slots_on(core, 3) == [1, 2, 3, 4]


@dataclass(frozen=True)
class ForwardingSet:
    """One (mode, channel, rate) of a variable's mode holder."""

    mode: int
    channel_id: int
    every: int


forwarding_sets = st.lists(
    st.builds(
        ForwardingSet,
        mode=st.integers(0, 5),
        channel_id=st.integers(1, 4),
        every=st.integers(1, 8),
    ),
    max_size=12,
)


def model_of_the_source(sets: list[ForwardingSet], modes: set[int], slot: int) -> set[int]:
    """S1 §7, `on_event`: over all operating modes, conforming sets, with a sent-map."""
    sent: set[int] = set()
    for mode in sorted({0, *modes}):
        for each in sets:
            if each.mode != mode or slot % each.every != 0 or each.channel_id in sent:
                continue
            sent.add(each.channel_id)
    return sent


@pytest.mark.feature("S1-29")
@given(
    sets=forwarding_sets,
    steps=st.lists(st.sets(st.integers(1, 5)), min_size=1, max_size=30),
)
def test_forwarding_equals_the_model_of_mode_holders_and_sent_map(
    subject: MakeCore, sets: list[ForwardingSet], steps: list[set[int]]
) -> None:
    core = core_with(subject, 1, 2, 3, 4)
    routes = []
    for channel_id in range(1, 5):
        terms = tuple(Term(e.every, 1 << e.mode) for e in sets if e.channel_id == channel_id)
        if terms:
            routes.append(Route(channel_id, terms))
    core.commit([periodic(1, PERIOD_MS, routes=tuple(routes))])
    for slot, modes in enumerate(steps, start=1):
        core.set_modes(sum(1 << mode for mode in modes))
        publish_slot(core, slot)
        served = {i: slots_on(core, i) for i in range(1, 5)}
        expected = model_of_the_source(sets, modes, slot)
        assert {i: slots for i, slots in served.items() if slots} == {i: [slot] for i in expected}
