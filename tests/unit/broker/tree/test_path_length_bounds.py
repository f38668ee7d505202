"""Ways across many clouds: up to a bound they are granted, and beyond it refused, with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from msgspec import structs

from gridstat.broker.tree.tree_operations import (
    HoldingBody,
    HoldingTaken,
    Stage,
    body_of,
    encode,
    holding_with,
)
from gridstat.model.cloud import NAME_BYTES_MAX
from gridstat.model.errors import PathTooLong
from gridstat.model.qos import MODES_MAX, PATH_ROUTERS_MAX, REDUNDANCY_MAX, Qos
from gridstat.net.command.frames import FRAME_BYTES_MAX, frame
from gridstat.net.command.operator_messages import Explain
from gridstat.net.command.segment_messages import (
    PIECES_MAX,
    ContractGranted,
    PathSegment,
    Reserve,
    Reserved,
    SegmentedPath,
)
from lab.simulation.tree.properties.records import check_readable
from lab.simulation.world import PropertyBroken
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import (
    Process,
    TreeWorld,
    both_ways,
    through_bytes,
    variable,
)
from tests.unit.broker.tree.worlds import (
    VOLTAGE,
    caterpillar,
    inconsistencies,
    residue,
    row_of_clouds,
)

FAR_US = 1_000_000
EXPLAINED = 40
CLOUDS_MAX = PATH_ROUTERS_MAX // 2
"""Most clouds in a row: a path passes two routers of every cloud."""


@dataclass
class Winding(CloudStandIn):
    """Cloud that leads every path over so many routers, in so many pieces."""

    routers: int = 2
    pieces: int = 1

    def _reserve(self, key: tuple[str, int], message: Reserve) -> None:
        super()._reserve(key, message)
        answer = self.out.pop()
        assert isinstance(answer, Reserved)
        paths = tuple(self._wound(at, path) for at, path in enumerate(answer.paths))
        answer = self.segments[key].answer = structs.replace(answer, paths=paths)
        self.out.append(answer)

    def _wound(self, at: int, path: SegmentedPath) -> SegmentedPath:
        (piece,) = path.pieces
        inner = tuple(f"{self.name}/{at}-{number}" for number in range(self.routers - 2))
        routers = (piece.routers[0], *inner, piece.routers[-1])
        again = PathSegment(owner=self.name, routers=routers[-1:], channel_ids=(), latency_us=0)
        whole = structs.replace(piece, routers=routers)
        return structs.replace(path, pieces=(whole, *(again,) * (self.pieces - 1)))


def winding(routers: int, pieces: int = 1) -> TreeWorld:
    """Two clouds, the first of which winds its paths."""
    channels = [*both_ways("c1/a", "c2/a"), *both_ways("c1/b", "c2/b")]
    clouds = [
        Winding("c1", "root", routers=routers, pieces=pieces),
        Winding("c2", "root", routers=2, pieces=pieces),
    ]
    clouds[0].variables[VOLTAGE] = variable(VOLTAGE, 1)
    return TreeWorld({"root": ("", ("c1", "c2"), channels)}, clouds).start()


def asked(world: TreeWorld, cloud: str) -> str:
    contract = world.subscribe(f"{cloud}/d", VOLTAGE, redundancy=2, latency_us=FAR_US)
    world.rest()
    return contract


def restored(world: TreeWorld, name: str = "root") -> Process:
    """A new life of a broker, from what it has written."""
    before = world.brokers[name]
    after = Process(before.settings, before.children, before.channels)
    after.written = before.written
    after.restart()
    return after


def check_granted(world: TreeWorld, contract: str, *, routers: int, pieces: int) -> None:
    """Check that a contract is up, and that its owner reads it after a restart."""
    granted = world.clouds[contract.partition("#")[0]].granted[contract]
    assert {len(path.pieces) for path in granted.paths} == {pieces}
    assert inconsistencies(world) == []
    holding = restored(world).machine.state.holdings.current(contract)
    assert holding is not None
    found = [
        {name for piece in path.pieces for name in piece.routers} for path in body_of(holding).paths
    ]
    assert {len(names) for names in found} == {routers}
    world.end(contract)
    world.rest()
    assert residue(world) == []


def check_refused(world: TreeWorld, contract: str) -> None:
    """Check that nothing of a contract is left, and that the root can start again."""
    refused = world.clouds[contract.partition("#")[0]].refused[contract].refused
    assert refused.code == PathTooLong.code
    assert str(PATH_ROUTERS_MAX) in refused.reason
    assert refused.hint
    assert refused.bottleneck
    world.rest()
    assert residue(world) == []
    assert inconsistencies(world) == []
    near = world.subscribe("c2/d", VOLTAGE, 7, redundancy=1, latency_us=FAR_US)
    world.settle()
    assert near in world.clouds["c2"].granted or near in world.clouds["c2"].refused
    restored(world)


@pytest.mark.parametrize("count", [32, 33, CLOUDS_MAX])
def test_a_way_across_many_clouds_is_granted_and_read_back_after_a_restart(count: int) -> None:
    world = row_of_clouds(count)
    contract = asked(world, f"c{count}")
    check_granted(world, contract, routers=2 * count, pieces=2 * count - 1)


def test_the_owner_of_a_long_way_can_be_killed_and_confirms_it_again() -> None:
    world = row_of_clouds(CLOUDS_MAX)
    contract = asked(world, f"c{CLOUDS_MAX}")
    world.kill("root")
    world.rest()
    held = world.brokers["root"].machine.state.holdings.current(contract)
    assert held is not None
    assert inconsistencies(world) == []


@pytest.mark.parametrize("more", [1, 2])
def test_a_way_across_too_many_clouds_is_refused_with_a_reason(more: int) -> None:
    """One cloud too many is seen when all have answered, two when the way is planned."""
    count = CLOUDS_MAX + more
    world = row_of_clouds(count)
    contract = asked(world, f"c{count}")
    assert any(isinstance(word, Reserve) for _, _, word in world.sent) is (more == 1)
    check_refused(world, contract)


def test_a_way_of_as_many_routers_as_a_contract_names_is_granted() -> None:
    world = winding(PATH_ROUTERS_MAX - 2)
    check_granted(world, asked(world, "c2"), routers=PATH_ROUTERS_MAX, pieces=3)


def test_a_way_of_one_router_more_is_refused_with_a_reason() -> None:
    world = winding(PATH_ROUTERS_MAX - 1)
    check_refused(world, asked(world, "c2"))


def test_children_that_cut_a_short_way_into_too_many_pieces_are_refused() -> None:
    world = winding(2, pieces=PIECES_MAX // 2 + 1)
    check_refused(world, asked(world, "c2"))


def test_a_way_of_as_many_pieces_as_a_path_has_is_granted() -> None:
    world = winding(2, pieces=PIECES_MAX // 2)
    check_granted(world, asked(world, "c2"), routers=4, pieces=PIECES_MAX)


def test_a_way_through_a_tree_of_forty_levels_is_granted_and_read_back_by_every_broker() -> None:
    world = caterpillar(40)
    contract = asked(world, "c40")
    granted = world.clouds["c40"].granted[contract]
    assert {len(path.pieces) for path in granted.paths} == {79}
    assert inconsistencies(world) == []
    for name in world.brokers:
        holdings = restored(world, name).machine.state.holdings
        assert all(body_of(holding).paths for holding, _ in holdings.all())


def longest_path(index: int) -> SegmentedPath:
    """Return a path of the greatest length, with the longest names."""
    names = [f"{index}{at:03}".ljust(NAME_BYTES_MAX, "r") for at in range(PATH_ROUTERS_MAX)]
    latency_us = FAR_US
    pieces = [
        PathSegment(owner=names[0], routers=(names[0],), channel_ids=(), latency_us=latency_us)
    ]
    pieces += [
        PathSegment(owner=names[0], routers=routers, channel_ids=(1 << 31,), latency_us=latency_us)
        for one, other in pairwise(names)
        for routers in ((one, other), (other,))
    ]
    return SegmentedPath(entry=0, exit=0, latency_us=latency_us, pieces=tuple(pieces))


def test_the_longest_contract_fits_into_a_frame_and_into_a_record() -> None:
    paths = tuple(longest_path(index) for index in range(REDUNDANCY_MAX))
    assert {len(path.pieces) for path in paths} == {PIECES_MAX}
    granted = {mode: Qos(1, FAR_US, REDUNDANCY_MAX, 1) for mode in range(MODES_MAX)}
    word = ContractGranted(
        term=1,
        contract="c#1",
        generation=1,
        owner="root",
        variable=variable(VOLTAGE, 1),
        granted=granted,
        paths=paths,
    )
    assert len(frame(word)) < FRAME_BYTES_MAX // 2
    assert through_bytes(word) == word
    body = HoldingBody(variable=word.variable, granted=granted, scope_paths=(), paths=paths)
    assert body_of(holding_with(("c#1", 1), ("c",), body)) == body


def test_a_record_that_its_own_schema_does_not_read_is_found_when_it_is_to_be_written() -> None:
    path = longest_path(0)
    paths = (structs.replace(path, pieces=(*path.pieces, path.pieces[0])),)
    body = HoldingBody(variable=variable(VOLTAGE, 1), granted={}, scope_paths=(), paths=paths)
    holding = holding_with(("c#1", 1), ("c",), body)
    taken = encode(HoldingTaken(holding=holding, stage=Stage.COMMITTED))
    with pytest.raises(PropertyBroken, match="can be read"):
        check_readable("root", row_of_clouds(2).brokers["root"].machine, [taken])


def test_an_explanation_of_many_long_contracts_fits_into_a_frame_and_says_what_it_leaves_out() -> (
    None
):
    world = row_of_clouds(CLOUDS_MAX)
    for number in range(1, EXPLAINED + 1):
        world.subscribe(f"c{CLOUDS_MAX}/d", VOLTAGE, number, redundancy=2, latency_us=FAR_US)
        world.settle()
    answer = world.operate("root", Explain(request_id=0, name=VOLTAGE))
    assert len(frame(answer)) < FRAME_BYTES_MAX // 2
    assert answer.facts["left_out"] > 0
    assert len(answer.facts["contracts"]) + answer.facts["left_out"] == EXPLAINED
