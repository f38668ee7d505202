"""National grids: as large as asked, connected, the same each time, each channel its owner's."""

from __future__ import annotations

import networkx
import pytest

from lab.errors import LabError
from lab.national_grid import GridSize, NationalGrid, broker_tree, national_grid
from lab.tree_plan import BORDER_BIT, cloud_of

SIZE = GridSize(clouds=16, routers_per_cloud=10, pmus_per_cloud=6, levels=3, branching=4)


def graph_of(grid: NationalGrid) -> networkx.DiGraph:
    graph = networkx.DiGraph()
    for cloud in grid.plan.clouds.values():
        graph.add_edges_from((one.from_router, one.to_router) for one in cloud.channels)
    for broker in grid.plan.brokers.values():
        graph.add_edges_from((one.from_router, one.to_router) for one in broker.channels)
    return graph


def test_a_grid_has_the_size_that_was_asked_for_and_is_one_piece() -> None:
    grid = national_grid(SIZE)
    assert len(grid.plan.clouds) == 16
    assert grid.router_count == 160
    assert {broker.depth for broker in grid.plan.brokers.values()} == {0, 1, 2}
    assert sum(len(pmus) for pmus in grid.pmus.values()) == 16 * 6
    assert networkx.is_strongly_connected(graph_of(grid))


def test_the_same_size_and_seed_give_the_same_grid_and_another_seed_another() -> None:
    assert national_grid(SIZE) == national_grid(SIZE)
    other = GridSize(clouds=16, routers_per_cloud=10, pmus_per_cloud=6, levels=3, seed=2)
    assert national_grid(other).plan.clouds != national_grid(SIZE).plan.clouds


def test_channels_between_clouds_are_owned_by_the_lowest_broker_above_both_ends() -> None:
    plan = national_grid(SIZE).plan
    for name, broker in plan.brokers.items():
        numbers = [channel.channel_id for channel in broker.channels]
        first = BORDER_BIT | broker.depth << 23 | 1
        assert numbers == list(range(first, first + len(numbers)))
        for channel in broker.channels:
            one, other = cloud_of(channel.from_router), cloud_of(channel.to_router)
            assert plan.common(one, other) == name
            assert plan.owner_of(one, channel.channel_id) == name
            assert channel.from_router in plan.clouds[one].borders


def test_neighbours_at_a_depth_have_their_lowest_common_broker_there() -> None:
    grid = national_grid(SIZE)
    for depth in (0, 1):
        pairs = grid.neighbours(depth)
        assert pairs
        assert all(grid.plan.brokers[grid.plan.common(*pair)].depth == depth for pair in pairs)


def test_a_tree_has_the_levels_asked_for_and_several_clouds_need_two() -> None:
    clouds = [f"c{number}" for number in range(27)]
    children = broker_tree(clouds, 4)
    assert next(iter(children)) == "root"
    below = [child for some in children.values() for child in some]
    assert sorted(set(below) - children.keys()) == sorted(clouds)
    with pytest.raises(LabError, match="two levels"):
        broker_tree(clouds, 1)
