"""Everybody who reads the same file numbers alike, and one shortest path serves a subscription."""

from __future__ import annotations

import pytest

from gridstat.console.config import default_grid_text, grid_from_text
from gridstat.console.grid import Endpoint, EventChannel, Grid, Pmu, Router, Subscriber
from gridstat.console.static_plan import shortest_way, static_plan
from gridstat.model.errors import ConfigurationError
from gridstat.model.rate_law import Period
from gridstat.router.forwarding_table import forwarding_rows

HOST = Endpoint("127.0.0.1")
TRIANGLE = Grid(
    name="triangle",
    routers=(Router("a", HOST), Router("b", HOST), Router("c", HOST)),
    channels=(
        EventChannel("a", "b"),
        EventChannel("b", "c"),
        EventChannel("c", "b"),
        EventChannel("a", "c"),
    ),
    pmus=(Pmu("x/y/p", "a", Period(1, 30), ("frequency", "voltage-angle")),),
    subscribers=(
        Subscriber("near", "b", ("**",), 1, HOST),
        Subscriber("far", "c", ("**/frequency",), 3, HOST),
    ),
    source="triangle.toml",
)


def test_the_way_has_the_fewest_channels() -> None:
    way = shortest_way(TRIANGLE, "a", "c")
    assert way == [EventChannel("a", "c")]
    assert shortest_way(TRIANGLE, "a", "a") == []


def test_there_is_no_way_against_a_channel() -> None:
    assert shortest_way(TRIANGLE, "c", "a") is None


def test_variables_and_channels_are_numbered_in_the_order_of_the_file() -> None:
    plan = static_plan(TRIANGLE)
    names = {variable.name: variable.variable_id for variable in plan.variables}
    assert names == {"x/y/p/frequency": 1, "x/y/p/voltage-angle": 2}
    assert plan.channel_of_pmu == {"x/y/p": 5}
    assert plan.channel_of_subscriber == {"near": 6, "far": 7}


def test_each_router_learns_the_paths_through_it_and_no_others() -> None:
    plan = static_plan(TRIANGLE)
    paths = {
        name: sorted(
            (path.variable_id, path.channel_id, path.every) for path in each.paths.values()
        )
        for name, each in plan.routers.items()
    }
    assert paths == {
        "a": [(1, 1, 1), (1, 4, 3), (2, 1, 1)],
        "b": [(1, 6, 1), (2, 6, 1)],
        "c": [(1, 7, 3)],
    }


def test_only_the_first_router_knows_the_publisher() -> None:
    plan = static_plan(TRIANGLE)
    assert [variable.source for variable in plan.routers["a"].variables] == [5, 5]
    assert [variable.source for variable in plan.routers["c"].variables] == [0]
    publishers = [source.channel_id for source in plan.routers["a"].sources if source.is_publisher]
    assert publishers == [5]


def test_a_source_knows_its_way_back() -> None:
    plan = static_plan(TRIANGLE)
    back = {source.channel_id: source.back_channel for source in plan.routers["c"].sources}
    assert back == {2: 3, 4: 0}


@pytest.mark.feature("S0-60")
def test_a_second_like_subscriber_adds_nothing_upstream() -> None:
    """A twin at the same router: it has paths of its own, and no row upstream changes."""
    grid = grid_from_text(default_grid_text(), file="default")
    archive = grid.subscribers[-1]
    twin = Subscriber("twin", archive.router, archive.patterns, archive.every, HOST)
    both = Grid(grid.name, grid.routers, grid.channels, grid.pmus, (*grid.subscribers, twin))
    before, after = static_plan(grid), static_plan(both)

    for name in ("west", "middle"):
        old, new = before.routers[name], after.routers[name]
        assert len(new.paths) > len(old.paths)
        old_rows = forwarding_rows(old.variables, old.paths.values())
        assert forwarding_rows(new.variables, new.paths.values()) == old_rows


def test_a_subscriber_that_cannot_be_reached_is_told() -> None:
    stranded = Grid(
        name="two",
        routers=TRIANGLE.routers,
        channels=(),
        pmus=TRIANGLE.pmus,
        subscribers=TRIANGLE.subscribers,
        source="two.toml",
    )
    with pytest.raises(ConfigurationError, match='no channels lead from router "a"') as caught:
        static_plan(stranded)
    assert "one-way" in caught.value.hint


def test_a_variable_nobody_takes_is_carried_by_its_first_router_only() -> None:
    lonely = Grid("one", TRIANGLE.routers, TRIANGLE.channels, TRIANGLE.pmus, ())
    plan = static_plan(lonely)
    assert len(plan.routers["a"].variables) == 2
    assert plan.routers["b"].variables == ()
