"""Contracts of random trees have the paths that the wires allow; a difference is reported."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.tree import path_planner
from gridstat.broker.tree.transaction import Transaction
from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId
from lab.simulation.tree.disjoint.__main__ import main
from lab.simulation.tree.disjoint.contracts import judged_tree
from lab.simulation.tree.disjoint.wire_flow import Allowed, Ends, allowed
from lab.tree_plan import BorderLink, CloudPlan, plan_tree

if TYPE_CHECKING:
    from gridstat.broker.tree.path_planner import Use

SEEDS = (0, 2, 9, 12, 49)
CONTRACTS = 5


@pytest.mark.parametrize("seed", SEEDS)
def test_every_contract_has_the_paths_that_the_wires_allow(seed: int) -> None:
    assert [str(found) for found in judged_tree(seed, CONTRACTS) if found.fault] == []


def test_a_planner_that_passes_each_border_once_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def one_copy(from_router: str, to_router: str, count: int) -> list[Use]:
        del count
        return [(from_router, to_router, 0)]

    monkeypatch.setattr(path_planner, "_copies", one_copy)
    assert main(["--first", str(SEEDS[0]), "--trees", "1", "--contracts", str(CONTRACTS)]) == 1
    assert "wires allow" in capsys.readouterr().out


def test_a_broker_that_counts_paths_within_their_bound_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    count_paths = Transaction.count_paths

    def within_the_bound(self: Transaction) -> bool:
        is_more = count_paths(self)
        if is_more:
            desired = self.qualities[0]
            self.qualities[-1] = {
                mode: replace(qos, latency_us=desired[mode].latency_us)
                for mode, qos in self.quality.items()
            }
        return is_more

    monkeypatch.setattr(Transaction, "count_paths", within_the_bound)
    assert main(["--first", "19", "--trees", "1", "--contracts", "10"]) == 1
    assert "refused for a wrong reason" in capsys.readouterr().out


def cloud(name: str, *ways: str) -> CloudPlan:
    routers = sorted({end for way in ways for end in way.split("-")})
    return CloudPlan(
        name,
        routers=tuple(Router(f"{name}/{one}", RouterRole.INNER) for one in routers),
        channels=tuple(
            EventChannel(ChannelId(at), f"{name}/{way[0]}", f"{name}/{way[-1]}")
            for at, way in enumerate(ways, start=1)
        ),
        edges=(f"{name}/e",),
        borders=(f"{name}/b",),
    )


def test_the_oracle_counts_paths_through_one_border_by_their_channels() -> None:
    clouds = {name: cloud(name, "e-b", "b-e", "e-i", "i-b", "b-i", "i-e") for name in ("a", "c")}
    links = [BorderLink("a/b", "c/b", 100), BorderLink("a/b", "c/i", 100)]
    plan = plan_tree({"root": ("a", "c")}, clouds, links)
    assert allowed(plan, Ends(("a/e",), ("c/e",)))[:2] == (1, 2)


def test_the_oracle_knows_no_path_that_comes_back_to_where_it_began() -> None:
    clouds = {
        "a": replace(cloud("a", "e-b", "x-y"), borders=("a/b", "a/x", "a/y")),
        "c": cloud("c", "b-i", "i-b"),
        "d": cloud("d", "b-e"),
    }
    there = [BorderLink("a/b", "c/b", 100), BorderLink("c/i", "a/x", 100)]
    plan = plan_tree({"root": ("a", "c", "d")}, clouds, [*there, BorderLink("a/y", "d/b", 100)])
    assert allowed(plan, Ends(("a/e",), ("d/e",)))[:2] == (0, 0)
    plan = plan_tree({"root": ("a", "c", "d")}, clouds, [*there, BorderLink("c/i", "d/b", 100)])
    assert allowed(plan, Ends(("a/e",), ("d/e",)))[:2] == (1, 1)


def test_the_oracle_counts_channels_beside_each_other_and_ducts_once() -> None:
    clouds = {"a": cloud("a", "e-b", "b-e"), "c": cloud("c", "e-b", "b-e")}
    found = clouds["a"].channels[0]
    beside = replace(found, channel_id=ChannelId(9), name="2", latency_us=30)
    clouds["a"] = replace(clouds["a"], channels=(*clouds["a"].channels, beside))
    clouds["c"] = replace(
        clouds["c"],
        channels=(
            *clouds["c"].channels,
            replace(clouds["c"].channels[1], channel_id=ChannelId(9), name="2"),
        ),
    )
    links = [BorderLink("a/b", "c/b", 100, name=name) for name in ("", "2", "3")]
    ends = Ends(("a/e",), ("c/e",))
    assert allowed(plan_tree({"root": ("a", "c")}, clouds, links), ends) == Allowed(1, 2, 100)
    for duct in ("duct-a-out", "duct-a-in"):
        channels = [
            replace(one, risks=(duct,)) if one.to_router == "a/b" else one
            for one in clouds["a"].channels
        ]
        inside = {**clouds, "a": replace(clouds["a"], channels=tuple(channels))}
        plan = plan_tree({"root": ("a", "c")}, inside, links)
        assert allowed(plan, ends) == Allowed(1, 1, 100)
