"""Reports on the disjointness of a segment's paths, also after they have moved."""

from __future__ import annotations

import pytest
from msgspec import structs

from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId
from gridstat.model.qos import QosRequest
from gridstat.net.command.endpoint_messages import ContractChanged
from gridstat.net.command.messages import ChannelStateChanged
from gridstat.net.command.segment_messages import AskContract, Gate, Reserved, SegmentUp
from gridstat.net.command.tree_messages import OpenBorder, TreeJoined, WantBorders
from tests.unit.broker.segments.family import (
    ENTRIES,
    EXITS,
    FAR,
    IN,
    IN_TWO,
    OUT,
    OUT_TWO,
    Family,
    border,
    family,
)
from tests.unit.broker.stand_ins import CENTRE, subscribe

THIRD = (1 << 31) + 9


def test_two_gates_at_one_router_are_not_told_as_node_disjoint() -> None:
    cloud = family()
    opened = OpenBorder(term=cloud.parent_term, channels=(border(THIRD, "c3/b0", "c1/i0"),))
    cloud.say(opened)
    both = (ENTRIES[0], Gate(router="c1/i0", channel_id=THIRD))
    cloud.reserve("c9#1", entries=both, exits=EXITS)
    assert not cloud.last(Reserved).is_node_disjoint
    cloud.reserve("c9#2", entries=ENTRIES, exits=EXITS)
    assert cloud.last(Reserved).is_node_disjoint


@pytest.fixture
def crossed() -> Family:
    """A cloud with the ways a-m-x, b-n-y and b-m-y, crossed by two disjoint paths."""
    ways = ["am", "mx", "bn", "ny", "bm", "my"]
    routers = [Router(f"c1/{name}", RouterRole.INNER) for name in "abmnxy"]
    channels = [
        EventChannel(ChannelId(at), f"c1/{way[0]}", f"c1/{way[1]}", latency_us=500)
        for at, way in enumerate([*ways, *(way[::-1] for way in ways)], start=1)
    ]
    cloud = Family(topology=(routers, channels))
    cloud.start()
    join(cloud)
    entries = Gate(router="c1/a", channel_id=IN), Gate(router="c1/b", channel_id=IN_TWO)
    exits = Gate(router="c1/x", channel_id=OUT), Gate(router="c1/y", channel_id=OUT_TWO)
    cloud.reserve("c9#1", entries=entries, exits=exits)
    cloud.commit("c9#1")
    assert cloud.last(Reserved).is_node_disjoint
    return cloud


def join(cloud: Family) -> None:
    cloud.call_parent()
    cloud.say(TreeJoined(term=7, depth=1, above=("root",)))
    cloud.say(WantBorders(term=7, routers=tuple(f"c1/{name}" for name in "abxy")))
    channels = (
        border(IN, "c2/b", "c1/a"),
        border(IN_TWO, "c3/b", "c1/b"),
        border(OUT, "c1/x", "c4/b"),
        border(OUT_TWO, "c1/y", "c5/b"),
    )
    cloud.say(OpenBorder(term=7, channels=channels, is_whole=True))
    cloud.settle()


def fail(cloud: Family, start: str, end: str) -> None:
    number = cloud.broker.registry.channel_on[f"c1/{start}", f"c1/{end}", ""]
    cloud.hear(f"c1/{end}", ChannelStateChanged(channel_id=number, is_up=False))
    cloud.settle()


def test_a_segment_that_is_led_over_a_router_of_its_other_path_is_told_so(crossed: Family) -> None:
    count = len(crossed.heard(Reserved))
    fail(crossed, "b", "n")
    (told,) = crossed.heard(Reserved)[count:]
    assert (told.contract, told.generation, told.is_node_disjoint) == ("c9#1", 0, False)
    assert told.is_moved
    assert [path.pieces[0].routers[1] for path in told.paths] == ["c1/m", "c1/m"]


def test_a_segment_that_was_led_elsewhere_is_told_after_a_join(crossed: Family) -> None:
    crossed.lose_parent()
    fail(crossed, "b", "n")
    count = len(crossed.heard(Reserved))
    join(crossed)
    (told,) = crossed.heard(Reserved)[count:]
    assert not told.is_node_disjoint


def test_a_segment_that_moves_is_told_though_a_write_after_the_move_fails(crossed: Family) -> None:
    count = len(crossed.heard(Reserved))
    crossed.is_journal_held = True
    fail(crossed, "b", "n")
    entry, leaving = Gate(router="c1/a", channel_id=IN), Gate(router="c1/x", channel_id=OUT)
    crossed.reserve("c9#2", entries=(entry,), exits=(leaving,))
    crossed.write(1)
    crossed.settle()
    crossed.is_disk_full = True
    crossed.write()
    assert [told.is_moved for told in crossed.heard(Reserved)[count:]] == [True]


def test_a_segment_that_was_led_elsewhere_before_it_counted_is_told_before_it_is_up(
    crossed: Family,
) -> None:
    entries = Gate(router="c1/b", channel_id=IN_TWO)
    crossed.reserve("c9#2", entries=(entries,), exits=(Gate(router="c1/y", channel_id=OUT_TWO),))
    fail(crossed, "b", "n" if "c1/n" in crossed.last(Reserved).paths[0].pieces[0].routers else "m")
    count = len(crossed.words)
    crossed.commit("c9#2")
    told = [word for word in crossed.words[count:] if isinstance(word, Reserved | SegmentUp)]
    assert [type(word) for word in told] == [Reserved, SegmentUp]


def test_a_subscriber_hears_that_the_end_of_its_contract_is_not_disjoint_any_more() -> None:
    cloud = family()
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name, QosRequest(redundancy=2)))
    asked = cloud.last(AskContract)
    cloud.grant(asked, paths=2)
    registry = cloud.broker.registry
    segment = registry.subscriptions[registry.tree.segment(asked.contract, asked.generation)]
    segment.record = structs.replace(segment.record, is_node_disjoint=False)
    cloud.broker._tree.segment_changed(segment)
    cloud.carry_out(cloud.broker._context.end_turn())
    told = cloud.notices[CENTRE][-1]
    assert isinstance(told, ContractChanged)
    assert not told.granted.is_node_disjoint


def test_a_subscriber_hears_that_its_contract_is_led_elsewhere_by_other_clouds() -> None:
    cloud = family()
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name, QosRequest(redundancy=2)))
    asked = cloud.last(AskContract)
    cloud.grant(asked, paths=2)
    word = structs.replace(cloud.granted(asked, generation=0), is_node_disjoint=False)
    cloud.say(word)
    count = len(cloud.notices[CENTRE])
    cloud.say(word)
    assert len(cloud.notices[CENTRE]) == count
    told = cloud.notices[CENTRE][-1]
    assert isinstance(told, ContractChanged)
    assert not told.granted.is_node_disjoint
    held = cloud.broker.registry.tree.asked[told.granted.subscription_id].granted
    assert held is not None
    assert not held.is_node_disjoint
