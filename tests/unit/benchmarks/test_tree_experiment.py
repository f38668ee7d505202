"""The experiment of trees, once and tiny: every contract is granted, and every figure is there."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import tree_storms
from benchmarks.experiments.tree import TREE
from benchmarks.tree_country import Country, traffic
from benchmarks.tree_growth import Grown
from benchmarks.tree_memory import bytes_at_rest, bytes_per_subscription, reached_bytes
from benchmarks.tree_operations import messages_per_operation
from benchmarks.tree_storms import State, TreeSubscribers
from gridstat.broker.leaf_broker import LeafBroker
from gridstat.broker.tree.tree_operations import Holding
from lab.national_grid import GridSize, national_grid

if TYPE_CHECKING:
    import pytest

TINY: dict[str, int | str] = {
    "runs": 1,
    "subscriptions": 12,
    "clouds": "4,8",
    "routers": 5,
    "branching": 2,
    "pairs": 1,
    "takeovers": 0,
}


def subscribers_of(clouds: int, levels: int, branching: int = 3) -> TreeSubscribers:
    grid = national_grid(GridSize(clouds, 5, levels=levels, branching=branching))
    return TreeSubscribers(grid, grid.plan.clouds)


def test_the_experiment_of_trees_has_all_its_figures() -> None:
    told: list[float] = []
    figures = TREE.run(TINY, lambda share, _: told.append(share)).figures
    assert told == sorted(told)
    assert told[-1] == 1.0
    for name in (
        "subscriptions_per_s_depth2",
        "subscriptions_per_s_depth3",
        "subscriptions_per_s_depth4",
        "first_subscription_us",
        "messages_per_subscription",
        "messages_per_change",
        "messages_per_unsubscribe",
        "messages_per_flood",
        "memory_bytes_per_subscription",
        "memory_bytes_per_leaf_broker_8",
        "memory_bytes_per_qos_broker_8",
        "memory_bytes_root_flat_8",
        "messages_far_8",
        "clouds_crossed_far_8",
        "brokers_crossed_far_8",
        "us_per_cloud_crossed_far_8",
    ):
        assert float(figures[name]) > 0, name
    for name in ("clouds", "messages", "memory", "far", "per_cloud_crossed"):
        assert isinstance(figures[f"growth_exponent_{name}"], float), name
    assert "messages_per_publish" in figures
    assert "takeover_s" not in figures


def test_a_storm_in_a_plane_costs_messages_by_depth_and_not_by_clouds() -> None:
    def messages(clouds: int, levels: int) -> float:
        subscribers = subscribers_of(clouds, levels)
        pairs = subscribers.plane.grid.neighbours(0)[:1]
        subscribers.publish(pairs, 4)
        storm = subscribers.storm(pairs, 4)
        assert storm.granted == 4
        return storm.each(storm.tree_messages)

    assert messages(3, 2) == messages(6, 2) < messages(9, 3)


def test_every_storm_takes_variables_that_nobody_had_before() -> None:
    subscribers = subscribers_of(3, 2)
    pairs = [("c0", "c1"), ("c0", "c2")]
    for number in (1, 2):
        subscribers.publish(pairs, 4)
        assert subscribers.published == {"c0": 4 * number}
        storm = subscribers.storm(pairs, 8)
        assert (storm.granted, storm.clouds_crossed) == (8, 16)


def test_the_applications_of_a_cloud_take_the_same_variables() -> None:
    grid = national_grid(GridSize(3, 5, levels=2))
    subscribers = TreeSubscribers(grid, grid.plan.clouds, applications=2)
    subscribers.publish([("c0", "c1")], 3)
    assert subscribers.storm([("c0", "c1")], 6).granted == 6
    leaf = subscribers.plane.brokers["broker/c1"]
    assert isinstance(leaf, LeafBroker)
    names = [asked.record.name for asked in leaf.registry.tree.asked.values()]
    assert sorted(names) == sorted(2 * [f"c0/pmus/v{number}" for number in range(3)])


def test_first_contracts_tell_their_clouds_and_their_latency() -> None:
    subscribers = subscribers_of(9, 3)
    (first,) = subscribers.firsts([("c0", "c3")])
    assert first.clouds == ("c0", "c3")
    assert first.cpu_us > 0
    assert first.latency_us > 500


def test_the_clock_is_read_before_anything_is_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    subscribers = subscribers_of(2, 2)

    def clock() -> float:
        asked.append("clock")
        return 1.0

    def resident() -> int:
        asked.append("memory")
        return 0

    class Routers(dict[str, object]):
        def values(self) -> list[object]:  # type: ignore[override]
            asked.append("routers")
            return []

    monkeypatch.setattr(time, "process_time", clock)
    monkeypatch.setattr(tree_storms, "resident_bytes", resident)
    monkeypatch.setattr(subscribers.plane, "routers", Routers())
    State.of(subscribers.plane)
    assert asked[0] == "clock"
    assert set(asked[1:]) == {"routers", "memory"}


def test_memory_of_a_subscription_is_what_the_brokers_on_its_way_hold_more() -> None:
    each = bytes_per_subscription(subscribers_of(3, 2), [("c0", "c1")], 64)
    assert 2_000 < each < 40_000


def test_whatever_a_broker_can_reach_is_weighed_once_and_no_other_broker() -> None:
    name = "x" * 1_000
    holding = Holding(contract=name, generation=1, children=(name,), channel_ids=(), body=b"")
    alone = reached_bytes([name], set())
    assert 1_000 < alone < 1_100
    assert alone < reached_bytes([[holding], {1: name}], set()) < alone + 1_000
    assert reached_bytes([holding], {id(holding)}) == 0
    assert reached_bytes([partial(str.join, name), (lambda: name)], set()) > alone


def test_a_broker_at_rest_is_weighed_by_itself() -> None:
    few, many = bytes_at_rest(subscribers_of(3, 2)), bytes_at_rest(subscribers_of(30, 2, 0))
    assert 20_000 < few["leaf_broker"] < 1_000_000
    assert many["leaf_broker"] < 2 * few["leaf_broker"]
    assert many["root"] > 3 * few["root"]


def test_operations_cost_messages_by_the_brokers_that_take_part() -> None:
    few, many = (
        messages_per_operation(subscribers_of(clouds, 3), [("c0", "c1")]) for clouds in (9, 27)
    )
    for name in ("publish", "change", "unsubscribe", "flood"):
        assert few[name] == many[name], name
    assert few["publish"] < 0.1
    assert 0 < few["unsubscribe"] < few["change"]
    assert few["flood"] < few["flood_root"] < many["flood_root"]


def test_a_country_subscribes_mostly_to_the_clouds_beside() -> None:
    pairs = traffic(national_grid(GridSize(27, 5, levels=4, branching=3)))
    assert len(set(pairs)) == len(pairs)
    assert all((other, one) in pairs for one, other in pairs)
    country = Country(8, branching=2, subscriptions_per_cloud=16)
    figures = country.measure(lambda _, __: None)
    assert figures["full_subscriptions"] == 128
    assert figures["full_routers"] == 160
    assert float(figures["full_clouds_crossed"]) >= 2.0


def test_growth_is_the_power_by_which_the_cost_follows_the_size() -> None:
    assert Grown((10, 100, 1000), (5.0, 5.0, 5.0)).exponent == 0.0
    assert round(Grown((10, 100), (1.0, 10.0)).exponent, 9) == 1.0
