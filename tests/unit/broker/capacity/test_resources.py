"""Resources of a cloud: topology at run time, claims, bursts, and exact accounts."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.broker.capacity.allocator import Allocator
from gridstat.broker.capacity.resources import Claim
from gridstat.model.cloud import EventChannel, Router
from gridstat.model.errors import LayoutError, NoSuchChannel, NoSuchRouter, StillInUse
from gridstat.model.identifiers import ChannelId
from gridstat.model.qos import QosRequest
from tests.unit.broker.clouds import DIAMOND, LINE, ask, cloud, grant, numbers, variable


def claim(number: int, everys: dict[int, int], *, hertz: int = 30, phase_ns: int = 0) -> Claim:
    """A variable from a over b to c of the line, for a subscriber of its own."""
    taken = variable(number, hertz, phase_ns=phase_ns)
    return Claim(taken, ("a", "b", "c"), (1, 3), everys, (f"s{number}",))


@pytest.mark.feature("S0-4")
def test_residuals_match_the_calculation_by_hand_after_several_set_ups() -> None:
    resources = cloud(LINE, bandwidth=10_000)
    resources.take([claim(1, {0: 1}), claim(2, {0: 3}), claim(2, {0: 8})])
    # 30/s whole, and 5/12 of 30/s for every 3rd or 8th; 68 bytes each.
    events = 30 + Fraction(5, 12) * 30
    assert resources.channel(1).bytes.value == 68 * events
    assert resources.channel(3).shortfall() == 68 * events + 100 - 10_000
    assert resources.channel(2).bytes.value == 0
    # In from the publishers at full rate, then out; in and out; in and to the subscribers.
    assert resources.router("a").events.value == 60 + events
    assert resources.router("b").events.value == 2 * events
    assert resources.router("c").events.value == 2 * events


@pytest.mark.feature("S0-137")
def test_the_union_of_two_divisors_is_charged_and_not_the_faster_alone() -> None:
    resources = cloud(LINE)
    resources.take([claim(1, {0: 3})])
    faster_alone = resources.channel(1).bytes.value
    resources.take([claim(1, {0: 8})])
    assert resources.channel(1).bytes.value == faster_alone * Fraction(5, 4)


def test_modes_of_one_set_share_their_room() -> None:
    resources = cloud(LINE)
    resources.take([claim(1, {1: 1}), claim(2, {2: 1}), claim(3, {0: 1})])
    assert resources.channel(1).bytes.value == 2 * 30 * 68


def test_modes_of_different_sets_add_up() -> None:
    resources = cloud(LINE, mode_sets=(frozenset({1}), frozenset({2})))
    resources.take([claim(1, {1: 1}), claim(2, {2: 1})])
    assert resources.channel(1).bytes.value == 2 * 30 * 68


def test_a_mode_pays_only_for_what_the_baseline_does_not_carry() -> None:
    resources = cloud(LINE)
    resources.take([claim(1, {0: 2}), claim(1, {5: 3})])
    assert resources.channel(1).bytes.value == Fraction(2, 3) * 30 * 68


def test_a_publication_loads_its_edge_before_anybody_takes_it() -> None:
    resources = cloud(LINE)
    resources.publish(variable(hertz=50), ("a", "b"))
    assert resources.router("a").events.value == 50
    resources.take([claim(1, {0: 1}, hertz=50)])
    assert resources.router("a").events.value == 100
    resources.give_back([claim(1, {0: 1}, hertz=50)])
    resources.unpublish(variable(hertz=50), ("a", "b"))
    assert resources.router("a").events.value == 0
    assert resources.router("b").events.value == 0


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(1, 12)), max_size=12))
def test_claims_given_back_in_any_order_restore_every_number(
    taken: list[tuple[int, int, int]],
) -> None:
    resources = cloud(LINE, bandwidth=1_000)
    resources.take([claim(9, {0: 2, 2: 1})])
    before = numbers(resources)
    claims = [claim(number, {mode: every}) for number, mode, every in taken]
    resources.take(claims)
    resources.give_back(sorted(claims, key=lambda one: (sorted(one.everys.items()), one.routers)))
    assert numbers(resources) == before


def test_a_router_or_channel_that_carries_something_cannot_be_removed() -> None:
    resources = cloud(LINE)
    allocator = Allocator(resources)
    grant(allocator, ask(1, variable(), ("a", "c")))
    with pytest.raises(StillInUse):
        resources.remove_channel(1)
    with pytest.raises(StillInUse):
        resources.remove_router("b")
    allocator.release(1)
    for number in (1, 2, 3, 4):
        resources.remove_channel(number)
    resources.remove_router("b")
    assert sorted(resources.routers) == ["a", "c"]


def test_a_router_with_channels_is_removed_after_them() -> None:
    with pytest.raises(StillInUse) as caught:
        cloud(LINE).remove_router("a")
    assert "channels first" in caught.value.hint


def test_what_is_not_there_is_named() -> None:
    resources = cloud(LINE)
    with pytest.raises(NoSuchRouter, match="there is no router x"):
        resources.remove_router("x")
    with pytest.raises(NoSuchChannel, match="there is no channel 99"):
        resources.remove_channel(99)
    with pytest.raises(NoSuchChannel, match="a→c"):
        resources.channel_between("a", "c")
    with pytest.raises(NoSuchRouter):
        resources.add_channel(EventChannel(ChannelId(9), "a", "x"))
    with pytest.raises(LayoutError):
        resources.add_router(Router("a"))
    with pytest.raises(LayoutError):
        resources.add_channel(EventChannel(ChannelId(9), "a", "b"))


def test_a_router_added_at_run_time_offers_its_paths() -> None:
    resources = cloud([("a", "b")])
    allocator = Allocator(resources)
    resources.add_router(Router("c"))
    resources.add_channel(EventChannel(ChannelId(7), "b", "c"))
    assert grant(allocator, ask(1, variable(), ("a", "c"))).paths[0].channel_ids == (1, 7)
    assert resources.channel_between("b", "c") == 7


def test_what_is_down_or_congested_is_not_used() -> None:
    resources = cloud(DIAMOND)
    over_b = resources.channel_between("a", "b")
    resources.mark_channel(over_b, is_up=False)
    resources.mark_back_pressure(resources.channel_between("c", "d"), is_on=True)
    assert resources.unusable_channels() == {over_b, resources.channel_between("c", "d")}
    assert resources.down_channels() == {over_b}
    resources.mark_router("c", is_up=False)
    assert resources.down_routers() == {"c"}


def test_the_graph_is_kept_until_the_topology_changes() -> None:
    resources = cloud(LINE)
    before = resources.graph()
    resources.take([claim(1, {0: 1})])
    assert resources.graph() is before
    resources.mark_channel(1, is_up=False)
    assert resources.graph() is before
    resources.add_router(Router("d"))
    assert resources.graph() is not before


def test_a_fresh_graph_is_built_only_when_a_prediction_has_moved() -> None:
    resources = cloud(LINE)
    before = resources.graph(is_fresh=True)
    assert resources.graph(is_fresh=True) is before
    resources.take([claim(1, {0: 1}, hertz=30_000)])
    assert resources.is_graph_old
    assert resources.graph(is_fresh=True) is not before


def test_a_burst_counts_one_event_of_each_synchronised_variable() -> None:
    resources = cloud(LINE, bandwidth=1_000_000)
    resources.take([claim(1, {0: 1}), claim(2, {0: 5}), claim(3, {0: 1}, hertz=50)])
    assert resources.channel(1).burst.worst() == (3, 3 * 68)


def test_variables_of_different_phase_do_not_meet() -> None:
    resources = cloud(LINE, bandwidth=1_000_000)
    resources.take([claim(1, {0: 1}), claim(2, {0: 1}, phase_ns=10_000_000)])
    assert resources.channel(1).burst.events == 1


def test_variables_of_modes_that_exclude_each_other_do_not_meet() -> None:
    resources = cloud(LINE, bandwidth=1_000_000)
    resources.take([claim(1, {1: 1}), claim(2, {2: 1}), claim(3, {0: 1, 1: 1})])
    assert resources.channel(1).burst.events == 2


def test_every_variable_of_a_subscriber_is_delivered_once() -> None:
    resources = cloud(LINE)
    allocator = Allocator(resources)
    grant(allocator, ask(1, variable(), ("a", "c"), subscriber="s"))
    before = numbers(resources)
    grant(allocator, ask(2, variable(), ("a", "c"), QosRequest(every=2), subscriber="s"))
    assert numbers(resources)["routers"] == before["routers"]
