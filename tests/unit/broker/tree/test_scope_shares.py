"""Shares of channels between clouds: bounded by identity, and counted exactly."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.tree.tree_operations import HoldingBody, body_of, holding_with
from gridstat.model.errors import QuotaReached
from gridstat.net.command.segment_messages import Payer, Reserve
from lab.simulation.tree.properties.scope_shares import check_scope_shares
from tests.unit.broker.tree import worlds
from tests.unit.broker.tree.tree_world import qos_of, variable

if TYPE_CHECKING:
    from gridstat.net.command.endpoint_messages import RefusedOutcome
    from tests.unit.broker.tree.tree_world import TreeWorld

EVENT_BYTES = 28 + 16 + 24
"""Size of an event on a channel that is not sealed, as those with a bandwidth are here."""
RATE = 50
BANDWIDTH = 4 * RATE * EVENT_BYTES
"""A quarter of it is one variable."""
QUARTER = 250_000


@pytest.fixture
def world() -> TreeWorld:
    """Two clouds whose end-points have a quarter of each channel, which is one variable."""
    found = worlds.two_clouds(bandwidth_bytes_per_s=BANDWIDTH + 100)
    for cloud in found.clouds.values():
        cloud.share_ppm = QUARTER
    for number in range(2, 6):
        name = f"c1/pmu/v{number}"
        found.clouds["c1"].variables[name] = variable(name, 100 + number, RATE)
    return found


def subscribe(world: TreeWorld, subscriber: str, name: str, number: int, **qos: int) -> str:
    contract = world.subscribe(subscriber, name, number, **{"latency_us": 100_000, **qos})
    world.rest()
    return contract


def books(world: TreeWorld) -> dict[str, dict[str, Fraction]]:
    """Bytes a second by identity and channel."""
    channels = world.brokers["root"].machine.state.channels
    return {
        who: {channels.accounts[number].channel.label: used for number, used in found.items()}
        for who, found in channels.shares.books().items()
    }


def refusal(world: TreeWorld, contract: str) -> RefusedOutcome:
    return world.clouds["c2"].refused[contract].refused


def test_an_identity_has_its_share_of_each_channel_and_others_have_theirs(world: TreeWorld) -> None:
    names = [worlds.VOLTAGE, "c1/pmu/v2", "c1/pmu/v3"]
    contracts = [subscribe(world, "c2/sub", name, at) for at, name in enumerate(names, start=1)]
    assert books(world) == {
        "c2/sub": {"c1/b0→c2/b0": RATE * EVENT_BYTES, "c1/b1→c2/b1": RATE * EVENT_BYTES}
    }
    refused = refusal(world, contracts[2])
    assert refused.code == QuotaReached.code
    assert refused.reason.startswith("c2/sub may reserve 25 % of channel c1/b")
    assert "an access rule of cloud c2 with a higher capacity_share" in refused.reason
    other = subscribe(world, "c2/other", "c1/pmu/v3", 9)
    assert other in world.clouds["c2"].granted


def test_a_rule_of_the_subscribers_cloud_grants_more(world: TreeWorld) -> None:
    world.clouds["c2"].share_ppm = 10**6
    for number in range(2, 6):
        contract = subscribe(world, "c2/sub", f"c1/pmu/v{number}", number)
        assert contract in world.clouds["c2"].granted


def test_what_has_ended_is_given_back(world: TreeWorld) -> None:
    contract = subscribe(world, "c2/sub", worlds.VOLTAGE, 1, redundancy=2)
    assert books(world)
    world.end(contract)
    world.rest()
    assert books(world) == {}
    assert world.clouds["c2"].granted.keys() == set()
    again = subscribe(world, "c2/sub", "c1/pmu/v2", 2, redundancy=2)
    assert again in world.clouds["c2"].granted


def test_a_change_is_not_refused_for_what_it_replaces(world: TreeWorld) -> None:
    contract = subscribe(world, "c2/sub", worlds.VOLTAGE, 1, redundancy=2)
    world.clouds["c2"].granted.clear()
    subscribe(world, "c2/sub", worlds.VOLTAGE, 1, generation=1, redundancy=2, every=2)
    assert world.clouds["c2"].granted[contract].granted[0].every == 2
    half = Fraction(RATE * EVENT_BYTES, 2)
    assert books(world) == {"c2/sub": {"c1/b0→c2/b0": half, "c1/b1→c2/b1": half}}
    subscribe(world, "c2/sub", worlds.VOLTAGE, 1, generation=2, redundancy=2)
    assert world.clouds["c2"].granted[contract].granted[0].every == 1


def test_a_replan_is_not_refused_for_a_share(world: TreeWorld) -> None:
    first = subscribe(world, "c2/sub", worlds.VOLTAGE, 1)
    second = subscribe(world, "c2/sub", "c1/pmu/v2", 2)
    state = world.brokers["root"].machine.state
    held = state.holdings.current(first)
    assert held is not None
    (number,) = held.channel_ids
    world.clouds["c2"].tell_channel(number, is_up=False)
    world.say("c2")
    world.rest()
    used = {
        found.channel_ids
        for contract in (first, second)
        if (found := state.holdings.current(contract)) is not None
    }
    assert len(used) == 1
    check_scope_shares("root", world.brokers["root"].machine)
    kept = [each for _, _, each in world.sent if isinstance(each, Reserve) and each.is_kept]
    assert {message.contract for message in kept} == {first}


def test_what_a_pattern_catches_is_charged_to_the_publisher_too(world: TreeWorld) -> None:
    cloud = world.clouds["c2"]
    cloud.is_matching = True
    cloud.share_ppm = QUARTER
    for number in (2, 3):
        contract = subscribe(world, f"c2/sub{number}", f"c1/pmu/v{number}", number)
        assert contract in cloud.granted
    channels = world.brokers["root"].machine.state.channels
    caught = {
        each.channel.label: channels.shares.caught("c1/pmu", number)
        for number, each in channels.accounts.items()
    }
    assert {label: taken for label, taken in caught.items() if taken} == {
        "c1/b0→c2/b0": RATE * EVENT_BYTES,
        "c1/b1→c2/b1": RATE * EVENT_BYTES,
    }
    assert "c1/pmu" not in books(world), "its own contracts have an account of their own"
    refused = refusal(world, subscribe(world, "c2/sub4", "c1/pmu/v4", 4))
    assert refused.code == QuotaReached.code
    assert refused.reason.startswith("c1/pmu may let patterns reserve 25 %")
    assert "rule of cloud c1" in refused.reason
    cloud.is_matching = False
    named = subscribe(world, "c2/sub5", "c1/pmu/v5", 5)
    assert named in cloud.granted


@pytest.mark.parametrize("matching", [False, True])
def test_the_books_are_those_of_the_contracts_after_a_restart(
    world: TreeWorld, *, matching: bool
) -> None:
    cloud = world.clouds["c2"]
    cloud.is_matching = matching
    contract = subscribe(world, "c2/sub", worlds.VOLTAGE, 1)
    subscribe(world, "c2/other", "c1/pmu/v2", 2)
    before = books(world)
    world.kill("root")
    world.rest()
    assert books(world) == before
    check_scope_shares("root", world.brokers["root"].machine)
    world.disconnect("c2")
    world.end(contract)
    world.rest()
    check_scope_shares("root", world.brokers["root"].machine)
    assert "c2/sub" not in books(world)


def test_every_broker_of_a_deep_tree_charges_its_own_channels() -> None:
    world = worlds.deep_tree(bandwidth_bytes_per_s=10**6)
    world.clouds["c4"].is_matching = True
    world.clouds["c4"].share_ppm = QUARTER
    contract = world.clouds["c4"].ask("c4/sub", worlds.VOLTAGE, 1, 0, qos_of(latency_us=100_000))
    world.say("c4")
    world.rest()
    assert contract in world.clouds["c4"].granted
    payers = (Payer(name="c4/sub"), Payer(name="c1/pmu", share_ppm=10**6))
    charging = 0
    for name, process in world.brokers.items():
        check_scope_shares(name, process.machine)
        for holding in process.machine.state.holdings.of(contract):
            assert body_of(holding).payers == payers
            charging += bool(holding.channel_ids)
            if holding.channel_ids:
                shares = process.machine.state.channels.shares
                assert shares.books().keys() == {"c4/sub"}
                assert all(shares.caught("c1/pmu", number) for number in holding.channel_ids)
    assert charging > 1


def test_a_holding_of_an_earlier_release_is_charged_to_its_subscriber() -> None:
    body = HoldingBody(
        variable=variable("c1/pmu/v", 1), granted={}, scope_paths=(), paths=(), subscriber="c2/sub"
    )
    assert body_of(holding_with(("c2#1", 0), (), body)).payers == ()
    owned = HoldingBody(
        variable=body.variable,
        granted={},
        scope_paths=(),
        paths=(),
        subscriber="c2/sub",
        qos=qos_of(),
    )
    assert body_of(holding_with(("c2#1", 0), (), owned)).payers == (Payer(name="c2/sub"),)
