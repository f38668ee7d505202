"""Paths across clouds that run no common risk, whichever entry a cloud joins to which exit."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from gridstat.net.command.segment_messages import Reserve, Reserved
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import TreeWorld, channel
from tests.unit.broker.tree.worlds import VOLTAGE, inconsistencies, published, residue

if TYPE_CHECKING:
    from gridstat.model.cloud import EventChannel
    from gridstat.net.command.segment_messages import ContractGranted

DUCT = ("duct-7",)
CHANNELS = [
    channel("c1/out0", "c2/in0", risks=DUCT),
    channel("c1/out1", "c2/in1"),
    channel("c2/out0", "c3/in0", risks=DUCT),
    channel("c2/out1", "c3/in1"),
]
"""Two channels from each cloud to the next, of which two lie in one duct."""


@pytest.fixture
def row() -> TreeWorld:
    clouds = [CloudStandIn(name, "root") for name in ("c1", "c2", "c3")]
    return published(TreeWorld({"root": ("", ("c1", "c2", "c3"), CHANNELS)}, clouds)).start()


@pytest.fixture
def tall() -> TreeWorld:
    """Root over c1, c4 and mid, which is over c2 and c3: only the channels of root share a duct."""
    brokers: dict[str, tuple[str, tuple[str, ...], list[EventChannel]]] = {
        "root": (
            "",
            ("c1", "mid", "c4"),
            [
                channel("c1/out0", "c2/in0", risks=DUCT),
                channel("c1/out1", "c2/in1"),
                channel("c3/out0", "c4/in0", risks=DUCT),
                channel("c3/out1", "c4/in1"),
            ],
        ),
        "mid": (
            "root",
            ("c2", "c3"),
            [channel(f"c2/on{at}", f"c3/from{at}") for at in (0, 1)],
        ),
    }
    parents = {"c1": "root", "c2": "mid", "c3": "mid", "c4": "root"}
    clouds = [CloudStandIn(name, parent) for name, parent in parents.items()]
    world = published(TreeWorld(brokers, clouds)).start()
    world.rest()
    return world


def risks(world: TreeWorld, granted: ContractGranted) -> list[set[str]]:
    """Return the named risks of each path."""
    return [
        {
            risk
            for piece in path.pieces
            if piece.owner in world.brokers
            for number in piece.channel_ids
            for risk in _channel(world, piece.owner, number).risks
        }
        for path in granted.paths
    ]


def _channel(world: TreeWorld, owner: str, number: int) -> EventChannel:
    return world.brokers[owner].machine.state.channels.accounts[number].channel


def are_apart(world: TreeWorld, granted: ContractGranted) -> bool:
    return all(one.isdisjoint(other) for one, other in combinations(risks(world, granted), 2))


def paired(world: TreeWorld) -> set[str]:
    """Return the children that have been told which entry leads to which exit."""
    return {
        child
        for _, child, message in world.sent
        if isinstance(message, Reserve) and message.is_paired
    }


def test_a_cloud_joins_gates_as_planned_where_a_path_runs_one_risk_twice(row: TreeWorld) -> None:
    contract = row.subscribe("c3/d", VOLTAGE, redundancy=2)
    row.settle()
    granted = row.clouds["c3"].granted[contract]
    assert len(granted.paths) == 2
    assert are_apart(row, granted)
    assert paired(row) == {"c2"}
    assert inconsistencies(row) == []


def test_a_cloud_chooses_where_no_path_runs_a_risk_twice() -> None:
    clouds = [CloudStandIn(name, "root") for name in ("c1", "c2", "c3")]
    channels = [channel("c1/out0", "c2/in0", risks=DUCT), *CHANNELS[1:2], *CHANNELS[3:]]
    channels.append(channel("c2/out0", "c3/in0"))
    world = published(TreeWorld({"root": ("", ("c1", "c2", "c3"), channels)}, clouds)).start()
    contract = world.subscribe("c3/d", VOLTAGE, redundancy=2)
    world.settle()
    assert len(world.clouds["c3"].granted[contract].paths) == 2
    assert paired(world) == set()


def test_paths_that_an_older_cloud_joins_into_a_common_risk_are_not_granted(row: TreeWorld) -> None:
    row.clouds["c2"].is_older = True
    contract = row.subscribe("c3/d", VOLTAGE, redundancy=2)
    row.rest()
    assert contract in row.clouds["c3"].refused
    assert contract not in row.clouds["c3"].granted
    assert residue(row) == []


def test_a_broker_between_has_its_own_children_join_gates_as_its_parent_has_planned(
    tall: TreeWorld,
) -> None:
    contract = tall.subscribe("c4/d", VOLTAGE, redundancy=2)
    tall.settle()
    granted = tall.clouds["c4"].granted[contract]
    assert len(granted.paths) == 2
    assert are_apart(tall, granted)
    assert paired(tall) == {"mid", "c2", "c3"}
    assert inconsistencies(tall) == []


def test_a_broker_between_does_not_report_paths_that_older_clouds_join_otherwise(
    tall: TreeWorld,
) -> None:
    tall.clouds["c2"].is_older = True
    contract = tall.subscribe("c4/d", VOLTAGE, redundancy=2)
    tall.rest()
    granted = tall.clouds["c4"].granted.get(contract)
    assert granted is None or are_apart(tall, granted)
    asked = [
        message
        for _, child, message in tall.sent
        if child == "mid" and isinstance(message, Reserve) and message.is_paired
    ]
    assert asked
    reported = [
        {(path.entry, path.exit) for path in message.paths}
        for child, _, message in tall.sent
        if child == "mid" and isinstance(message, Reserved) and len(message.paths) > 1
    ]
    assert all(any(pairs == message.pairs for message in asked) for pairs in reported)


def test_a_broker_between_asks_anew_if_its_parent_wants_other_pairs(tall: TreeWorld) -> None:
    contract = tall.subscribe("c4/d", VOLTAGE, redundancy=2)
    tall.settle()
    (asked,) = [
        message
        for _, child, message in tall.sent
        if child == "mid" and isinstance(message, Reserve) and message.contract == contract
    ]
    holdings = tall.brokers["mid"].machine.state.holdings
    swapped = structs.replace(asked, exits=asked.exits[::-1])
    for message in (asked, swapped):
        tall.post("root", "mid", message)
        tall.settle()
        held = holdings.find(contract, 0)
        assert held is not None
        assert holdings.body(held).pairs == message.pairs
    asked_below = [message for _, child, message in tall.sent if child == "c2"]
    assert sum(isinstance(message, Reserve) for message in asked_below) == 2  # No vain round.
