"""Segments whose parent says which entry is joined to which exit."""

from __future__ import annotations

import pytest
from msgspec import structs

from gridstat.broker.effects.contract_effects import allocation_of, uses_its_gates
from gridstat.model.errors import RedundancyNotSatisfiable
from gridstat.net.command.messages import ChannelStateChanged
from gridstat.net.command.segment_messages import Gate, NotReserved, Reserved, SegmentBroken
from tests.unit.broker.segments.family import FAR, IN, IN_TWO, OUT, OUT_TWO, Family
from tests.unit.broker.segments.test_shared_gates import cloud, names

WAYS_BESIDE = (
    *("am", "my", "bn", "nx"),
    *("as", "sv", "vy"),
    *("an", "ny", "bt", "tu", "ux"),
    *("ap", "px", "bq", "qy"),
)
"""Ways from a to y by m, by s and v, and by n; from b to x by n, and by t and u; and short ways
from a to x and from b to y."""
CROSSED = ("am", "mx", "an", "ny", "bm", "bn")
"""Ways by which either entry reaches either exit, in two disjoint ways."""


def reserve(found: Family, entries: str, exits: str, *, is_swapped: bool = False) -> None:
    """Reserve paths from each entry to the exit at its place, or to the other one."""
    into, onward = (
        [
            Gate(router=f"c1/{name}", channel_id=number)
            for name, number in zip(routers, numbers, strict=True)
        ]
        for routers, numbers in ((entries, (IN, IN_TWO)), (exits, (OUT, OUT_TWO)))
    )
    if is_swapped:
        onward.reverse()
    found.reserve("c9#1", entries=into, exits=onward, is_paired=True)


def pairs(answer: Reserved) -> dict[int, int]:
    return {path.entry: path.exit for path in answer.paths}


def fail(found: Family, start: str, end: str) -> None:
    number = found.broker.registry.channel_on[f"c1/{start}", f"c1/{end}", ""]
    found.hear(f"c1/{end}", ChannelStateChanged(channel_id=number, is_up=False))
    found.settle()


@pytest.mark.parametrize("is_swapped", [False, True])
def test_each_of_two_entries_at_one_router_leads_to_its_own_exit(is_swapped: bool) -> None:
    found = cloud("bx", entries="bb", exits="xb")
    reserve(found, "bb", "xb", is_swapped=is_swapped)
    wanted = {IN: OUT_TWO, IN_TWO: OUT} if is_swapped else {IN: OUT, IN_TWO: OUT_TWO}
    answer = found.last(Reserved)
    assert pairs(answer) == wanted
    assert all((len(path.pieces[0].routers) > 1) is (path.exit == OUT) for path in answer.paths)


@pytest.mark.parametrize("is_swapped", [False, True])
def test_each_of_two_entries_leads_to_its_own_exit_though_another_is_as_near(
    is_swapped: bool,
) -> None:
    found = cloud(*CROSSED, entries="ab", exits="xy")
    reserve(found, "ab", "xy", is_swapped=is_swapped)
    assert names(found.last(Reserved)) == (["any", "bmx"] if is_swapped else ["amx", "bny"])


def test_paths_that_would_only_join_the_gates_otherwise_are_refused() -> None:
    found = cloud("am", "mx", "bn", "ny", entries="ab", exits="xy")
    reserve(found, "ab", "xy", is_swapped=True)
    assert found.last(NotReserved).refused.code == RedundancyNotSatisfiable.code
    assert not found.heard(Reserved)


def test_a_repeated_request_with_other_pairs_is_another_request() -> None:
    found = cloud(*CROSSED, entries="ab", exits="xy")
    for is_swapped in (False, True, True, False):
        reserve(found, "ab", "xy", is_swapped=is_swapped)
        other = {IN: OUT_TWO, IN_TWO: OUT}
        assert (pairs(found.last(Reserved)) == other) is is_swapped
    assert len(found.broker.registry.subscriptions) == 1


def test_pairs_are_kept_after_a_restart() -> None:
    found = cloud(*CROSSED, entries="ab", exits="xy")
    reserve(found, "ab", "xy", is_swapped=True)
    found.kill_broker()
    (subscription,) = found.broker.registry.subscriptions.values()
    record = subscription.record
    assert allocation_of(record, FAR).request.is_paired
    assert uses_its_gates(record)
    assert not uses_its_gates(structs.replace(record, exits=record.exits[::-1]))


@pytest.mark.parametrize("is_whole_lost", [False, True])
def test_a_segment_moves_to_paths_that_join_its_gates_alike(is_whole_lost: bool) -> None:
    """Two shorter paths would join them otherwise."""
    found = cloud(*WAYS_BESIDE, entries="ab", exits="xy")
    reserve(found, "ab", "xy", is_swapped=True)
    assert names(found.last(Reserved)) == ["amy", "bnx"]
    found.commit("c9#1")
    fail(found, "m", "y")
    if is_whole_lost:
        fail(found, "a", "s")
    told = found.last(Reserved)
    assert told.is_moved
    assert names(told) == (["any", "btux"] if is_whole_lost else ["asvy", "bnx"])


def test_a_segment_whose_channel_has_left_the_file_finds_a_place_by_its_own_pairs() -> None:
    found = cloud(*WAYS_BESIDE, entries="ab", exits="xy")
    reserve(found, "ab", "xy", is_swapped=True)
    found.commit("c9#1")
    lost = {("c1/m", "c1/y"), ("c1/a", "c1/s")}
    found.channels_given = [
        one for one in found.channels_given if (one.from_router, one.to_router) not in lost
    ]
    found.kill_broker()
    assert found.broker.registry.unplaced
    found.carry_out(found.broker.start(found.now_ns))
    (subscription,) = found.broker.registry.subscriptions.values()
    ways = [path.routers for path in subscription.record.paths]
    assert sorted(way[0] + way[-1] for way in ways) == ["c1/ac1/y", "c1/bc1/x"]


def test_a_segment_does_not_move_to_paths_that_join_its_gates_otherwise() -> None:
    found = cloud("am", "my", "bn", "nx", "ap", "px", "bq", "qy", entries="ab", exits="xy")
    reserve(found, "ab", "xy", is_swapped=True)
    assert names(found.last(Reserved)) == ["amy", "bnx"]
    found.commit("c9#1")
    count = len(found.heard(Reserved))
    fail(found, "m", "y")
    assert not found.heard(Reserved)[count:]
    assert found.heard(SegmentBroken)
