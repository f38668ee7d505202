"""Impossible answers of children: brokers above them neither hang nor accept them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gridstat.model.errors import LatencyNotSatisfiable, Refused
from gridstat.model.paths.graph import WEIGHT_MAX
from gridstat.net.command.messages import Message
from gridstat.net.command.segment_messages import (
    AskContract,
    LookedUp,
    Nearness,
    PathSegment,
    Reserve,
    Reserved,
    SegmentedPath,
)
from gridstat.net.command.tree_messages import (
    GENERATION_ASKED_MAX,
    REPORTED_LATENCY_US_MAX,
    TERM_MAX,
    AbstractLink,
    AbstractLinksReported,
    TreeJoined,
)
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import TreeWorld, both_ways, qos_of, variable
from tests.unit.broker.tree.worlds import VOLTAGE, deep_tree, residue, row_of_clouds, two_clouds

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.net.command.tree_messages import TreeMessageBase


Paths = tuple[SegmentedPath, ...]


class Liar(CloudStandIn):
    """Cloud that reserves as requested, and reports other paths."""

    def __init__(self, name: str, lie: Callable[[Paths], Paths]) -> None:
        super().__init__(name, "root")
        self.lie = lie

    def _reserve(self, key: tuple[str, int], message: Reserve) -> None:
        super()._reserve(key, message)
        answer = self.out.pop()
        assert isinstance(answer, Reserved)
        self.out.append(msgspec.structs.replace(answer, paths=self.lie(answer.paths)))


def _led_back(paths: Paths) -> Paths:
    return tuple(msgspec.structs.replace(path, exit=path.entry) for path in paths)


def test_a_path_that_leads_back_to_where_it_came_in_is_refused() -> None:
    channels = [*both_ways("c1/a", "c2/a"), *both_ways("c2/b", "c3/b")]
    clouds = [CloudStandIn("c1", "root"), Liar("c2", _led_back), CloudStandIn("c3", "root")]
    clouds[0].variables[VOLTAGE] = variable(VOLTAGE, 1)
    world = TreeWorld({"root": ("", ("c1", "c2", "c3"), channels)}, clouds).start()
    contract = world.subscribe("c3/d", VOLTAGE)
    world.settle()
    assert world.clouds["c3"].refused[contract].refused.code == Refused.code
    world.rest()
    assert residue(world) == []


def _one_more(paths: Paths) -> Paths:
    return (*paths, msgspec.structs.replace(paths[0], entry=12_345))


def _one_twice(paths: Paths) -> Paths:
    return (paths[0],) * len(paths)


def _one_less(paths: Paths) -> Paths:
    return paths[1:]


def _by_another_exit(paths: Paths) -> Paths:
    return tuple(msgspec.structs.replace(path, exit=path.exit + 1) for path in paths)


def _with_piece(paths: Paths, **facts: Any) -> Paths:
    """Return the paths, each with one more piece at the router where it ends."""
    return tuple(
        msgspec.structs.replace(path, pieces=(*path.pieces, msgspec.structs.replace(last, **facts)))
        for path in paths
        for last in [msgspec.structs.replace(path.pieces[-1], channel_ids=(), latency_us=0)]
    )


def _over_a_strangers_router(paths: Paths) -> Paths:
    return _with_piece(paths, routers=(paths[0].pieces[-1].routers[-1], "c9/x"))


def _over_channels_to_nowhere(paths: Paths) -> Paths:
    """Many such would make a grant that goes into no frame."""
    routers = (paths[0].pieces[-1].routers[-1],)
    return _with_piece(paths, routers=routers, channel_ids=(1 << 62,) * 1_024)


@pytest.mark.parametrize("liar", ["c1", "c2"])
@pytest.mark.parametrize(
    "lie",
    [
        _one_more,
        _one_twice,
        _one_less,
        _by_another_exit,
        _over_a_strangers_router,
        _over_channels_to_nowhere,
    ],
)
def test_a_child_that_reserves_other_ways_than_it_was_asked_for_has_refused(
    liar: str, lie: Callable[[Paths], Paths]
) -> None:
    channels = [*both_ways("c1/b0", "c2/b0"), *both_ways("c1/b1", "c2/b1")]
    clouds = [
        Liar(name, lie) if name == liar else CloudStandIn(name, "root") for name in ("c1", "c2")
    ]
    clouds[0].variables[VOLTAGE] = variable(VOLTAGE, 1)
    world = TreeWorld({"root": ("", ("c1", "c2"), channels)}, clouds).start()
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.settle()
    assert world.clouds["c2"].refused[contract].refused.code == Refused.code
    assert "not_as_asked" in {note.word for note in world.brokers["root"].notes}
    world.rest()
    assert residue(world) == []


@dataclass
class Inventive(CloudStandIn):
    """Cloud that reports made-up reservations."""

    invent: Callable[[tuple[SegmentedPath, ...]], tuple[SegmentedPath, ...]] = tuple

    def _reserve(self, key: tuple[str, int], message: Reserve) -> None:
        super()._reserve(key, message)
        answer = self.out.pop()
        assert isinstance(answer, Reserved)
        self.out.append(msgspec.structs.replace(answer, paths=self.invent(answer.paths)))


def _by_another_gate(paths: tuple[SegmentedPath, ...]) -> tuple[SegmentedPath, ...]:
    return tuple(msgspec.structs.replace(path, exit=path.exit + 1_000) for path in paths)


def _from_nowhere(paths: tuple[SegmentedPath, ...]) -> tuple[SegmentedPath, ...]:
    more = msgspec.structs.replace(paths[0], entry=77, exit=78)
    return (*paths, more, more)


@pytest.mark.parametrize("liar", ["c1", "c2", "c3"])
@pytest.mark.parametrize("invent", [_by_another_gate, _from_nowhere])
def test_paths_that_nobody_asked_for_are_refused(
    liar: str, invent: Callable[[tuple[SegmentedPath, ...]], tuple[SegmentedPath, ...]]
) -> None:
    channels = [
        found
        for one, other in (("c1", "c2"), ("c2", "c3"))
        for at in (0, 1)
        for found in both_ways(f"{one}/out{at}", f"{other}/in{at}")
    ]
    names = ("c1", "c2", "c3")
    clouds = [
        Inventive(name, "root", invent=invent) if name == liar else CloudStandIn(name, "root")
        for name in names
    ]
    clouds[0].variables[VOLTAGE] = variable(VOLTAGE, 1)
    world = TreeWorld({"root": ("", names, channels)}, clouds).start()
    contract = world.subscribe("c3/d", VOLTAGE, redundancy=2)
    world.rest()
    assert world.clouds["c3"].refused[contract].refused.code == Refused.code
    assert residue(world) == []


def words(latency_us: int) -> list[TreeMessageBase]:
    """Return one message for each latency that a child may report."""
    near = Nearness(router="c1/b", latency_us=latency_us)
    way = AbstractLink(from_router="c1/a", to_router="c1/b", latency_us=latency_us)
    piece = PathSegment(owner="c1", routers=("c1/b",), channel_ids=(), latency_us=latency_us)
    quick = PathSegment(owner="c1", routers=("c1/b",), channel_ids=(), latency_us=0)
    path = SegmentedPath(entry=0, exit=0, latency_us=latency_us, pieces=(quick,))
    pieced = SegmentedPath(entry=0, exit=0, latency_us=0, pieces=(piece,))
    asked: dict[str, Any] = {"name": VOLTAGE, "subscriber": "c2/d", "qos": qos_of()}
    return [
        AbstractLinksReported(term=1, abstract_links=(way,)),
        LookedUp(term=1, lookup=1, starts=(near,)),
        AskContract(term=1, contract="c2#1", generation=0, ends=(near,), **asked),
        Reserved(term=1, contract="c2#1", generation=0, paths=(path,)),
        Reserved(term=1, contract="c2#1", generation=0, paths=(pieced,)),
    ]


@pytest.mark.parametrize("latency_us", [-1, REPORTED_LATENCY_US_MAX + 1])
def test_a_latency_below_nothing_or_beyond_all_is_malformed(latency_us: int) -> None:
    decoder = msgspec.msgpack.Decoder(Message)
    for word in words(latency_us):
        with pytest.raises(msgspec.ValidationError):
            decoder.decode(msgspec.msgpack.encode(word))


@pytest.mark.parametrize("pieces", [(), (PathSegment("c1", (), (), 1),)], ids=["none", "no router"])
def test_a_path_that_leads_nowhere_is_malformed(pieces: tuple[PathSegment, ...]) -> None:
    path = SegmentedPath(entry=0, exit=0, latency_us=1, pieces=pieces)
    word = Reserved(term=1, contract="c2#1", generation=0, paths=(path,))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.Decoder(Message).decode(msgspec.msgpack.encode(word))


@pytest.mark.parametrize("latency_us", [0, REPORTED_LATENCY_US_MAX])
def test_a_latency_that_can_be_is_read(latency_us: int) -> None:
    decoder = msgspec.msgpack.Decoder(Message)
    for word in words(latency_us):
        assert decoder.decode(msgspec.msgpack.encode(word)) == word


def test_what_can_be_told_of_latency_can_be_planned_with_also_if_it_counts_twice() -> None:
    assert 2 * REPORTED_LATENCY_US_MAX < WEIGHT_MAX


@pytest.mark.parametrize("where", ["abstract_links", "starts", "ends"])
def test_the_highest_latency_that_a_child_may_tell_ends_nobody(where: str) -> None:
    world = row_of_clouds(3)
    name = {"abstract_links": "c2", "starts": "c1", "ends": "c3"}[where]
    cloud = world.clouds[name]
    cloud.near_us = (
        REPORTED_LATENCY_US_MAX // 2 if where == "abstract_links" else REPORTED_LATENCY_US_MAX
    )
    if where == "abstract_links":
        cloud.retell()
        world.say(name)
    contract = world.subscribe("c3/d", VOLTAGE)
    world.rest()
    assert world.clouds["c3"].refused[contract].refused.code == LatencyNotSatisfiable.code


@pytest.mark.parametrize("liar", ["c1", "c4"])
def test_a_broker_in_the_middle_passes_on_no_latency_that_its_parent_would_not_read(
    liar: str,
) -> None:
    world = deep_tree()
    world.clouds[liar].near_us = REPORTED_LATENCY_US_MAX
    contract = world.subscribe("c4/d", VOLTAGE)
    world.rest()
    assert contract in world.clouds["c4"].refused


def test_an_abstract_link_from_a_router_to_itself_is_no_way() -> None:
    world = row_of_clouds(3)
    ways = [
        AbstractLink(from_router=one, to_router=other, latency_us=1)
        for one in world.clouds["c2"].borders
        for other in world.clouds["c2"].borders
    ]
    world.post("c2", "root", AbstractLinksReported(term=1, abstract_links=tuple(ways)))
    contract = world.subscribe("c3/d", VOLTAGE)
    world.settle()
    assert contract in world.clouds["c3"].granted


class Near(CloudStandIn):
    """Cloud that reports distances of its end-points to routers that are not its own."""

    said: tuple[str, ...] = ()

    def _say(self, message: Message) -> None:
        near = tuple(Nearness(router=name, latency_us=1) for name in self.said)
        match message:
            case AskContract():
                message = msgspec.structs.replace(message, ends=near)
            case LookedUp():
                message = msgspec.structs.replace(message, starts=near)
        super()._say(message)


@pytest.mark.parametrize("liar", ["c1", "c2"])
@pytest.mark.parametrize("router", ["(start)", "(end)", "c1/b0", "c2/b0", "c1/x", "c3/b0"])
def test_an_end_point_is_near_to_the_borders_of_its_own_child_only(liar: str, router: str) -> None:
    channels = [*both_ways("c1/b0", "c2/b0"), *both_ways("c1/b1", "c2/b1")]
    clouds = [Near("c1", "root"), Near("c2", "root")]
    clouds[liar == "c2"].said = (router, router)
    clouds[0].variables[VOLTAGE] = variable(VOLTAGE, 1)
    world = TreeWorld({"root": ("", ("c1", "c2"), channels)}, clouds).start()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    (path,) = world.clouds["c2"].granted[contract].paths
    assert [piece.owner for piece in path.pieces] == ["c1", "root", "c2"]


def asked(generation: int) -> AskContract:
    return AskContract(
        term=1,
        contract="c2#1",
        generation=generation,
        name=VOLTAGE,
        subscriber="c2/d",
        qos=qos_of(),
    )


@pytest.mark.parametrize(
    "word",
    [
        asked(-1),
        asked(GENERATION_ASKED_MAX + 1),
        msgspec.structs.replace(asked(0), term=-1),
        msgspec.structs.replace(asked(0), term=TERM_MAX + 1),
        TreeJoined(term=1, depth=-1, above=()),
        TreeJoined(term=1, depth=256, above=()),
    ],
)
def test_a_number_that_nobody_could_count_on_from_is_malformed(word: TreeMessageBase) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.Decoder(Message).decode(msgspec.msgpack.encode(word))


def test_the_highest_generation_that_may_be_asked_for_is_planned_anew_like_any_other() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE, generation=GENERATION_ASKED_MAX)
    world.settle()
    (path,) = world.clouds["c2"].granted[contract].paths
    world.clouds["c2"].tell_channel(path.exit or path.pieces[1].channel_ids[0], is_up=False)
    world.say("c2")
    world.rest()
    assert world.clouds["c2"].granted[contract].generation == GENERATION_ASKED_MAX + 1
