"""Segments whose gates lie at one border router, or on the way of another path."""

from __future__ import annotations

from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId
from gridstat.net.command.segment_messages import Gate, NotReserved, Reserved
from gridstat.net.command.tree_messages import (
    AbstractLinksReported,
    OpenBorder,
    TreeJoined,
    WantBorders,
)
from tests.unit.broker.segments.family import IN, IN_TWO, OUT, OUT_TWO, Family, border

Place = tuple[str, int]


def cloud(*ways: str, entries: str, exits: str) -> Family:
    """Return a cloud with these one-way channels, and the gates at these routers."""
    names = sorted({name for way in ways for name in way} | set(entries + exits))
    routers = [Router(f"c1/{name}", RouterRole.INNER) for name in names]
    channels = [
        EventChannel(ChannelId(at), f"c1/{way[0]}", f"c1/{way[1]}", latency_us=500)
        for at, way in enumerate(ways, start=1)
    ]
    found = Family(topology=(routers, channels))
    found.start()
    found.call_parent()
    found.say(TreeJoined(term=7, depth=1, above=("root",)))
    wanted = tuple(f"c1/{name}" for name in sorted(set(entries + exits)))
    found.say(WantBorders(term=7, routers=wanted))
    opened = (
        *(
            border(number, f"c{2 + at}/b", f"c1/{name}")
            for at, (name, number) in enumerate(zip(entries, (IN, IN_TWO), strict=False))
        ),
        *(
            border(number, f"c1/{name}", f"c{4 + at}/b")
            for at, (name, number) in enumerate(zip(exits, (OUT, OUT_TWO), strict=False))
        ),
    )
    found.say(OpenBorder(term=7, channels=opened, is_whole=True))
    found.settle()
    return found


def reserve(found: Family, entries: str, exits: str) -> Reserved:
    """Reserve one path from each entry to some exit."""
    gates = [
        tuple(
            Gate(router=f"c1/{name}", channel_id=number)
            for name, number in zip(names, numbers, strict=False)
        )
        for names, numbers in ((entries, (IN, IN_TWO)), (exits, (OUT, OUT_TWO)))
    ]
    found.reserve("c9#1", entries=gates[0], exits=gates[1])
    assert not found.heard(NotReserved)
    return found.last(Reserved)


def names(answer: Reserved) -> list[str]:
    return sorted(
        "".join(name.removeprefix("c1/") for name in path.pieces[0].routers)
        for path in answer.paths
    )


def test_two_paths_between_one_entry_router_and_one_exit_router() -> None:
    found = cloud("am", "mx", "an", "nx", entries="aa", exits="xx")
    answer = reserve(found, "aa", "xx")
    assert names(answer) == ["amx", "anx"]
    assert {path.entry for path in answer.paths} == {IN, IN_TWO}
    assert {path.exit for path in answer.paths} == {OUT, OUT_TWO}
    assert not answer.is_node_disjoint


def test_a_path_crosses_the_entry_router_of_another() -> None:
    found = cloud("ab", "bm", "bn", "mx", "ny", entries="ab", exits="xy")
    answer = reserve(found, "ab", "xy")
    assert [name[0] for name in names(answer)] == ["a", "b"]
    assert not answer.is_node_disjoint


def test_entries_and_exits_at_one_router_need_no_channel() -> None:
    found = cloud("ab", "ba", entries="aa", exits="aa")
    answer = reserve(found, "aa", "aa")
    assert names(answer) == ["a", "a"]
    assert not answer.is_node_disjoint


def test_an_exit_router_is_passed_where_it_is_no_ones_end() -> None:
    found = cloud("ax", "xb", "bx", "by", entries="ab", exits="xy")
    answer = reserve(found, "ab", "xy")
    assert answer.is_node_disjoint
    assert names(answer) == ["ax", "by"]


def test_too_few_paths_are_refused_with_their_number() -> None:
    found = cloud("am", "mx", "xm", entries="aa", exits="xx")
    gates = [
        tuple(Gate(router=f"c1/{name}", channel_id=number) for number in numbers)
        for name, numbers in (("a", (IN, IN_TWO)), ("x", (OUT, OUT_TWO)))
    ]
    found.reserve("c9#1", entries=gates[0], exits=gates[1])
    refused = found.last(NotReserved)
    assert refused.limit == "REDUNDANCY"
    assert "1" in refused.refused.reason


def test_the_parent_hears_how_many_disjoint_paths_join_two_borders() -> None:
    found = cloud("am", "mx", "an", "nx", "xp", "pq", "qa", "mn", entries="a", exits="x")
    found.advance(1_000_000_000)
    links = {
        (one.from_router, one.to_router): (one.link_disjoint, one.node_disjoint)
        for one in found.last(AbstractLinksReported).abstract_links
    }
    assert links == {("c1/a", "c1/x"): (2, 2), ("c1/x", "c1/a"): (1, 1)}


def test_paths_that_meet_in_a_router_count_by_their_channels() -> None:
    ways = ("ap", "aq", "pm", "qm", "mr", "ms", "rx", "sx", "xa")
    found = cloud(*ways, entries="a", exits="x")
    found.advance(1_000_000_000)
    links = {
        one.from_router: (one.link_disjoint, one.node_disjoint)
        for one in found.last(AbstractLinksReported).abstract_links
    }
    assert links["c1/a"] == (2, 1)
