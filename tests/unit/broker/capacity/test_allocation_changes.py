"""Live contracts: changed in place, moved off what failed, restored from the journal."""

from __future__ import annotations

import pytest
from msgspec import structs

from gridstat.broker.capacity.allocation import (
    Allocation,
    AllocationRequest,
    Refusal,
    is_node_disjoint,
    shares_edge,
)
from gridstat.broker.capacity.allocator import Allocator
from gridstat.broker.capacity.latency_promises import PathKey
from gridstat.model.errors import (
    BackPressured,
    ChannelFull,
    NoSuchSubscription,
    RedundancyNotSatisfiable,
)
from gridstat.model.qos import ModalQos, QosRequest
from tests.unit.broker.clouds import (
    DIAMOND,
    LADDER,
    LINE,
    ask,
    cloud,
    grant,
    numbers,
    refuse,
    variable,
    wide_enough,
)


def change(
    allocator: Allocator, number: int, qos: QosRequest | dict[int, QosRequest]
) -> Allocation | Refusal:
    request = allocator.contract(number).request
    modes = qos if isinstance(qos, dict) else {0: qos}
    return allocator.change(structs.replace(request, qos=ModalQos(modes)))


def changed(
    allocator: Allocator, number: int, qos: QosRequest | dict[int, QosRequest]
) -> Allocation:
    answer = change(allocator, number, qos)
    assert isinstance(answer, Allocation), answer
    return answer


def test_a_change_charges_old_and_new_until_it_is_settled() -> None:
    allocator = Allocator(cloud(LINE))
    grant(allocator, ask(1, variable(), ("a", "c"), QosRequest(every=3)))
    changed(allocator, 1, QosRequest(every=2))
    channel = allocator.resources.channel(1)
    assert channel.streams[1].counts.divisors(0) == (2, 3)
    allocator.release_retired(1)
    assert channel.streams[1].counts.divisors(0) == (2,)
    allocator.release_retired(1)
    assert channel.streams[1].counts.divisors(0) == (2,)


def test_a_refused_change_leaves_the_old_contract() -> None:
    allocator = Allocator(cloud(LINE, bandwidth=1_000))
    old = grant(allocator, ask(1, variable(), ("a", "c"), QosRequest(every=3)))
    before = numbers(allocator.resources)
    answer = change(allocator, 1, QosRequest(every=1))
    assert isinstance(answer, Refusal)
    assert answer.code == ChannelFull.code
    assert allocator.contract(1) == old
    assert numbers(allocator.resources) == before


def test_a_change_is_judged_without_the_old_contract() -> None:
    # Every 2nd and every 3rd together would not fit; the change itself does.
    allocator = Allocator(cloud(LINE, bandwidth=wide_enough(68 * 15)))
    grant(allocator, ask(1, variable(), ("a", "c"), QosRequest(every=3)))
    changed(allocator, 1, QosRequest(every=2))
    assert allocator.resources.channel(1).is_overloaded
    allocator.release_retired(1)
    assert not allocator.resources.channel(1).is_overloaded


def test_a_change_stays_on_its_paths_where_it_can() -> None:
    allocator = Allocator(cloud(DIAMOND))
    resources = allocator.resources
    resources.mark_channel(resources.channel_between("a", "b"), is_up=False)
    old = grant(allocator, ask(1, variable(), ("a", "d"), QosRequest(every=2)))
    resources.mark_channel(resources.channel_between("a", "b"), is_up=True)
    new = changed(allocator, 1, QosRequest(every=1))
    assert new.paths[0].routers == old.paths[0].routers == ("a", "c", "d")


def test_a_release_during_a_change_gives_both_back() -> None:
    allocator = Allocator(cloud(LINE))
    grant(allocator, ask(1, variable(), ("a", "c"), QosRequest(every=3)))
    changed(allocator, 1, QosRequest(every=2))
    allocator.release(1)
    assert numbers(allocator.resources) == numbers(cloud(LINE))


def test_a_subscription_moves_to_the_new_identifier_of_its_variable() -> None:
    allocator = Allocator(cloud(LINE))
    grant(allocator, ask(1, variable(1, 30), ("a", "c")))
    answer = allocator.change(ask(1, variable(2, 60), ("a", "c")))
    assert isinstance(answer, Allocation)
    assert sorted(allocator.resources.channel(1).streams) == [1, 2]
    allocator.release_retired(1)
    assert sorted(allocator.resources.channel(1).streams) == [2]


def test_a_congested_channel_lets_a_change_take_less_but_not_more() -> None:
    allocator = Allocator(cloud(LINE))
    grant(allocator, ask(1, variable(), ("a", "c"), QosRequest(every=2)))
    allocator.resources.mark_back_pressure(1, is_on=True)
    answer = change(allocator, 1, QosRequest(every=1))
    assert isinstance(answer, Refusal)
    assert answer.code == BackPressured.code
    assert changed(allocator, 1, QosRequest(every=4)).granted[0].every == 4
    assert refuse(allocator, ask(2, variable(2), ("a", "c"))).code == BackPressured.code


def test_a_subscription_that_is_not_there_is_named() -> None:
    allocator = Allocator(cloud(LINE))
    with pytest.raises(NoSuchSubscription, match="subscription 7"):
        allocator.release(7)


# Failures.


def two_paths(allocator: Allocator) -> Allocation:
    return grant(allocator, ask(1, variable(), ("e0 e1", "e2 e3"), QosRequest(redundancy=2)))


TRIPLE = (("e0", "i0"), ("i0", "e1"), ("e0", "i1"), ("i1", "e1"), ("e0", "i2"), ("i2", "e1"))
"""Three ways between two edges."""


def test_a_failed_path_is_replaced_beside_the_one_that_stays() -> None:
    allocator = Allocator(cloud(TRIPLE))
    old = grant(allocator, ask(1, variable(), ("e0", "e1"), QosRequest(redundancy=2)))
    broken = old.paths[0].channel_ids[1]
    allocator.resources.mark_channel(broken, is_up=False)
    assert allocator.resources.promises.over(broken) == [PathKey(1, 0)]
    new = allocator.replace_path(1, 0)
    assert isinstance(new, Allocation)
    assert new.paths[1] == old.paths[1]
    assert new.paths[0].routers == ("e0", "i2", "e1")
    assert new.is_node_disjoint
    assert new.granted == old.granted
    # The old path is charged until it has been torn down.
    assert allocator.resources.channel(broken).streams
    allocator.release_retired(1)
    assert not allocator.resources.channel(broken).streams


def test_a_router_to_avoid_is_avoided_though_it_is_up() -> None:
    allocator = Allocator(cloud(TRIPLE))
    old = grant(allocator, ask(1, variable(), ("e0", "e1")))
    new = allocator.replace_path(1, 0, avoiding_routers=[old.paths[0].routers[1]])
    assert isinstance(new, Allocation)
    assert new.paths[0].routers[1] not in old.paths[0].routers


def test_all_paths_are_chosen_anew_where_the_staying_one_is_in_the_way() -> None:
    # What stays goes by x and y; any other way crosses it at x or at y.
    links = [("a", "z"), ("z", "d"), ("a", "x"), ("x", "y"), ("y", "d")]
    links += [("a", "p"), ("p", "y"), ("x", "q"), ("q", "d")]
    allocator = Allocator(cloud(links))
    resources = allocator.resources
    for name in ("p", "q"):
        resources.mark_router(name, is_up=False)
    old = grant(allocator, ask(1, variable(), ("a", "d"), QosRequest(redundancy=2)))
    assert [path.routers[1:-1] for path in old.paths] == [("z",), ("x", "y")]
    resources.mark_router("z", is_up=False)
    resources.mark_router("p", is_up=True)
    refusal = allocator.replace_path(1, 0)
    assert isinstance(refusal, Refusal)
    assert refusal.code == RedundancyNotSatisfiable.code
    resources.mark_router("q", is_up=True)
    new = allocator.replace_path(1, 0)
    assert isinstance(new, Allocation)
    assert {path.routers[1:-1] for path in new.paths} == {("p", "y"), ("x", "q")}
    assert new.is_node_disjoint


def test_a_path_without_a_replacement_is_kept_and_nothing_changes() -> None:
    allocator = Allocator(cloud(LADDER))
    old = two_paths(allocator)
    allocator.resources.mark_router("i0", is_up=False)
    before = numbers(allocator.resources)
    index = next(at for at, path in enumerate(old.paths) if "i0" in path.routers)
    answer = allocator.replace_path(1, index)
    assert isinstance(answer, Refusal)
    assert answer.code == RedundancyNotSatisfiable.code
    assert allocator.contract(1) == old
    assert numbers(allocator.resources) == before
    assert [key.subscription_id for key in allocator.resources.promises.over("i0")] == [1]


def test_a_replacement_may_share_a_router_if_nothing_else_is_left_and_says_so() -> None:
    links = [("a", "b"), ("b", "d"), ("a", "c"), ("c", "d"), ("a", "x"), ("x", "b"), ("b", "y")]
    links += [("y", "d")]
    allocator = Allocator(cloud(links))
    resources = allocator.resources
    old = grant(allocator, ask(1, variable(), ("a", "d"), QosRequest(redundancy=2)))
    assert {path.routers[1] for path in old.paths} == {"b", "c"}
    index = next(at for at, path in enumerate(old.paths) if "c" in path.routers)
    resources.mark_router("c", is_up=False)
    new = allocator.replace_path(1, index)
    assert isinstance(new, Allocation)
    assert new.paths[index].routers == ("a", "x", "b", "y", "d")
    assert not new.is_node_disjoint
    assert new.shares_edge


def test_a_path_of_one_router_is_not_replaced_by_its_sibling_over_again() -> None:
    """Publisher and subscriber on the same two edges; one of them dies."""
    allocator = Allocator(cloud((("e0", "i0"), ("e1", "i0"))))
    request = AllocationRequest(
        subscription_id=1,
        variable=variable(),
        sources=("e0", "e1"),
        targets=("e0", "e1"),
        qos=ModalQos({0: QosRequest(redundancy=2, latency_us=1_000_000)}),
    )
    old = allocator.allocate(request)
    assert isinstance(old, Allocation)
    assert {path.routers for path in old.paths} == {("e0",), ("e1",)}
    allocator.resources.mark_router("e0", is_up=False)
    before = numbers(allocator.resources)
    answer = allocator.replace_path(1, [path.routers for path in old.paths].index(("e0",)))
    assert isinstance(answer, Refusal)
    assert answer.code == RedundancyNotSatisfiable.code
    assert allocator.contract(1) == old
    assert numbers(allocator.resources) == before


# The journal.


def test_a_restored_contract_is_charged_without_being_judged() -> None:
    first = Allocator(cloud(LADDER, bandwidth=50_000))
    two_paths(first)
    changed(first, 1, {0: QosRequest(every=2, redundancy=2)})
    first.release_retired(1)
    second = Allocator(cloud(LADDER, bandwidth=50_000))
    second.restore(first.contract(1))
    assert numbers(second.resources) == numbers(first.resources)
    cramped = Allocator(cloud(LADDER, bandwidth=10))
    cramped.restore(first.contract(1))
    assert cramped.resources.channel(first.contract(1).paths[0].channel_ids[0]).is_overloaded
    cramped.release(1)
    assert numbers(cramped.resources) == numbers(cloud(LADDER, bandwidth=10))


def test_disjointness_is_told_from_the_paths_themselves() -> None:
    contract = two_paths(Allocator(cloud(LADDER)))
    assert is_node_disjoint(contract.paths)
    assert not is_node_disjoint((contract.paths[0], contract.paths[0]))
    assert shares_edge((contract.paths[0], contract.paths[0]))
    assert not shares_edge(contract.paths[:1])
