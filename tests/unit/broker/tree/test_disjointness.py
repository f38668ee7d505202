"""Reports on routers that the paths of a contract share."""

from __future__ import annotations

from gridstat.broker.tree.current_paths import share_no_router
from gridstat.net.command.segment_messages import PathSegment, SegmentedPath
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import TreeWorld, channel, variable
from tests.unit.broker.tree.worlds import VOLTAGE, row_of_clouds


def through(*ends: tuple[str, str]) -> TreeWorld:
    clouds = [CloudStandIn(name, "root") for name in ("c1", "c2", "c3")]
    channels = [channel(*pair) for pair in ends]
    world = TreeWorld({"root": ("", ("c1", "c2", "c3"), channels)}, clouds)
    world.clouds["c1"].variables[VOLTAGE] = variable(VOLTAGE, 1)
    return world.start()


def test_two_ways_that_meet_at_a_border_router_are_not_called_node_disjoint() -> None:
    world = through(
        ("c1/b0", "c2/in"), ("c1/b1", "c2/in"), ("c2/out0", "c3/b0"), ("c2/out1", "c3/b1")
    )
    contract = world.subscribe("c3/d", VOLTAGE, redundancy=2)
    world.settle()
    granted = world.clouds["c3"].granted[contract]
    assert len(granted.paths) == 2
    assert not granted.is_node_disjoint


def test_two_ways_that_share_only_the_edges_at_their_ends_are_node_disjoint() -> None:
    world = row_of_clouds(3)
    contract = world.subscribe("c3/d", VOLTAGE, redundancy=2)
    world.settle()
    assert world.clouds["c3"].granted[contract].is_node_disjoint


def test_paths_that_end_at_one_edge_which_is_their_border_share_no_router() -> None:
    paths = [
        SegmentedPath(
            entry=0,
            exit=0,
            latency_us=1,
            pieces=(
                PathSegment("c1", (start, border), (1,), 1),
                PathSegment("root", (border, "c2/e"), (number,), 1),
                PathSegment("c2", ("c2/e",), (), 1),
            ),
        )
        for number, (start, border) in enumerate((("c1/e0", "c1/b0"), ("c1/e1", "c1/b1")), 2)
    ]
    assert share_no_router(paths)
