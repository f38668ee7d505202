"""Real brokers of four clouds and three levels, message by message through their bytes.

root ── west ── a, b          between west and east: a1→c0, b1→d0 and back (root)
     └─ east ── c, d          a0→b0, a1→b1 (west) and c0→d0, c1→d1 (east), and back
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.broker.tree.tree_operations import body_of
from gridstat.model.errors import ChannelFull, LatencyNotSatisfiable, NoSuchVariable
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    GrantedOutcome,
    Matched,
    RefusedOutcome,
    Unsubscribe,
)
from gridstat.net.command.machine import Received
from gridstat.net.command.router_messages import ChannelStateChanged
from gridstat.net.command.segment_messages import ContractGranted
from tests.unit.broker.stand_ins import subscribe
from tests.unit.broker.tree.family import Family
from tests.unit.broker.tree.worlds import is_charged

if TYPE_CHECKING:
    from gridstat.net.command.endpoint_messages import EndPointCommand, Outcome
    from gridstat.net.command.machine import Event

CLOUDS = ("a", "b", "c", "d")
PARENTS = {"a": "west", "b": "west", "c": "east", "d": "east", "west": "root", "east": "root"}


def _both(*ways: tuple[str, str]) -> list[tuple[str, str]]:
    return [found for one, other in ways for found in ((one, other), (other, one))]


def grid(bandwidths: dict[tuple[str, str], int] | None = None) -> Family:
    inside = {
        cloud: _both(
            (f"{cloud}/e", f"{cloud}/0"),
            (f"{cloud}/f", f"{cloud}/1"),
            (f"{cloud}/e", f"{cloud}/1"),
            (f"{cloud}/f", f"{cloud}/0"),
            (f"{cloud}/0", f"{cloud}/1"),
        )
        for cloud in CLOUDS
    }
    between = {
        "west": _both(("a/0", "b/0"), ("a/1", "b/1")),
        "east": _both(("c/0", "d/0"), ("c/1", "d/1")),
        "root": _both(("a/0", "c/0"), ("b/1", "d/1")),
    }
    family = Family(PARENTS, inside, between, bandwidths=bandwidths).start()
    family.pass_time(3_000_000_000)
    for cloud in CLOUDS:
        leaf = family.leaves[cloud]
        leaf.attach(f"{cloud}/pmu", f"{cloud}/e", f"{cloud}/f", data_port=0)
        leaf.attach(f"{cloud}/centre", f"{cloud}/e", f"{cloud}/f")
        leaf.publish(f"{cloud}/pmu/v", f"{cloud}/e")
    family.settle()
    return family


def ask(family: Family, cloud: str, command: EndPointCommand) -> tuple[Outcome, ...]:
    leaf = family.leaves[cloud]
    number = leaf.send(f"{cloud}/centre", f"{cloud}/e", command)
    family.settle()
    family.pass_time(6_000_000_000)
    return leaf.answers[f"{cloud}/centre", number]


def residue(family: Family) -> list[str]:
    found = []
    for name, node in family.brokers.items():
        state, survey = node.broker.state, node.broker.survey()
        found += [f"{name} holds {holding.key}" for holding, _ in state.holdings.all()]
        found += [
            f"{name} charges {account.channel.label}"
            for account in state.channels.accounts.values()
            if is_charged(account.carriage)
        ]
        found += [
            f"{name}: {survey[what]} {what}"
            for what in ("transactions", "releases")
            if survey[what]
        ]
    for name, leaf in family.leaves.items():
        found += [f"{name} holds {number}" for number in leaf.broker.registry.subscriptions]
        found += [
            f"{name}/{router} is ordered {order.path_id:x}"
            for router, stand_in in leaf.routers.items()
            for order in stand_in.table.paths.values()
        ]
    return found


@pytest.mark.parametrize(
    ("subscriber", "publisher"), [("b", "a"), ("d", "c"), ("d", "a"), ("a", "d"), ("c", "b")]
)
@pytest.mark.parametrize("redundancy", [1, 2])
def test_a_contract_between_clouds_is_granted_ordered_and_torn_down(
    subscriber: str, publisher: str, redundancy: int
) -> None:
    family = grid()
    name = f"{publisher}/pmu/v"
    (outcome,) = ask(family, subscriber, subscribe(name, QosRequest(redundancy=redundancy)))
    assert isinstance(outcome, GrantedOutcome), outcome
    assert outcome.variable is not None
    number = outcome.variable.variable_id
    assert len(outcome.paths) == redundancy
    for path in outcome.paths:
        assert path.routers[0].startswith(f"{publisher}/")
        assert path.routers[-1].startswith(f"{subscriber}/")
        assert len(path.channel_ids) == len(path.routers) - 1
        for router in path.routers:
            leaf = family.leaves[router.partition("/")[0]]
            assert any(
                order.variable_id == number for order in leaf.routers[router].table.paths.values()
            ), f"{router} forwards it"
    ask(family, subscriber, Unsubscribe(subscription_ids=(outcome.subscription_id,)))
    assert residue(family) == []


def test_a_change_of_quality_crosses_the_tree() -> None:
    family = grid()
    (first,) = ask(family, "d", subscribe("a/pmu/v", QosRequest(redundancy=1)))
    assert isinstance(first, GrantedOutcome)
    change = ChangeSubscription(
        subscription_id=first.subscription_id, qos=ModalQos({0: QosRequest(redundancy=2)})
    )
    (second,) = ask(family, "d", change)
    assert isinstance(second, GrantedOutcome), second
    assert (second.subscription_id, len(second.paths)) == (first.subscription_id, 2)
    ask(family, "d", Unsubscribe())
    assert residue(family) == []


def test_a_change_to_modes_of_different_redundancy_crosses_the_tree() -> None:
    family = grid()
    (first,) = ask(family, "d", subscribe("a/pmu/v", QosRequest(redundancy=1)))
    assert isinstance(first, GrantedOutcome)
    qos = ModalQos({0: QosRequest(redundancy=1, every=2), 1: QosRequest(redundancy=2)})
    change = ChangeSubscription(subscription_id=first.subscription_id, qos=qos)
    (second,) = ask(family, "d", change)
    assert isinstance(second, GrantedOutcome), second
    assert {mode: found.every for mode, found in second.granted.items()} == {0: 2, 1: 1}


@pytest.mark.feature("S0-5")
def test_a_full_channel_between_clouds_is_named_to_the_end_point() -> None:
    narrow = dict.fromkeys([("a/0", "c/0"), ("b/1", "d/1")], 1_000)
    family = grid(narrow)
    (outcome,) = ask(family, "d", subscribe("a/pmu/v"))
    assert isinstance(outcome, RefusedOutcome), outcome
    assert outcome.code == ChannelFull.code
    assert outcome.bottleneck in {"channel a/0→c/0", "channel b/1→d/1"}
    assert outcome.shortfall.endswith("bytes/s")
    assert residue(family) == []


@pytest.mark.parametrize("name", ["a/pmu/nothing", "z/pmu/v"])
def test_what_nobody_publishes_is_refused_across_clouds(name: str) -> None:
    family = grid()
    (outcome,) = ask(family, "d", subscribe(name))
    assert isinstance(outcome, RefusedOutcome), outcome
    assert outcome.code == NoSuchVariable.code
    assert residue(family) == []


def test_a_pattern_across_clouds_catches_what_is_there_and_what_comes() -> None:
    family = grid()
    ask(family, "d", subscribe("*/*/v"))
    assert _matched(family) == {f"{cloud}/pmu/v" for cloud in CLOUDS}
    publisher = family.leaves["b"]
    publisher.attach("b/new", "b/e", data_port=0)
    publisher.publish("b/new/v", "b/e")
    family.settle()
    family.pass_time(6_000_000_000)
    assert _matched(family) == {*(f"{cloud}/pmu/v" for cloud in CLOUDS), "b/new/v"}
    ask(family, "d", Unsubscribe())
    assert residue(family) == []


def _matched(family: Family) -> set[str]:
    return {
        found.granted.variable.name
        for found in family.leaves["d"].notices.get("d/centre", [])
        if isinstance(found, Matched) and found.granted.variable is not None
    }


@pytest.mark.feature("S0-129")
def test_a_channel_between_clouds_that_falls_silent_is_planned_round() -> None:
    family = grid()
    (outcome,) = ask(family, "d", subscribe("a/pmu/v"))
    assert isinstance(outcome, GrantedOutcome)
    state = family.brokers["root"].broker.state
    (used,) = [
        account.channel for account in state.channels.accounts.values() if account.carriage.streams
    ]
    silence(family, used.to_router, used.channel_id, is_up=False)
    family.settle()
    family.pass_time(6_000_000_000)
    (now,) = [
        account.channel for account in state.channels.accounts.values() if account.carriage.streams
    ]
    assert now.label != used.label
    assert len(list(state.holdings.all())) == 1
    survey = family.brokers["root"].broker.survey()
    assert [one["is_up"] for one in survey["channels"] if one["channel"] == used.label] == [False]
    ask(family, "d", Unsubscribe())
    assert residue(family) == []


def test_a_change_that_crosses_a_new_plan_on_its_way_is_answered_by_what_comes_of_it() -> None:
    family = grid()
    (outcome,) = ask(family, "d", subscribe("a/pmu/v"))
    assert isinstance(outcome, GrantedOutcome)
    leaf, tell, sent = family.leaves["d"], family.leaves["d"].tell, list[int]()
    qos = ModalQos({0: QosRequest(latency_us=10)})
    change = ChangeSubscription(subscription_id=outcome.subscription_id, qos=qos)

    def received_late(event: Event) -> None:
        if isinstance(event, Received) and isinstance(event.message, ContractGranted) and not sent:
            sent.append(0)
            sent[0] = leaf.send("d/centre", "d/e", change)
        tell(event)

    leaf.tell = received_late  # type: ignore[method-assign]
    accounts = family.brokers["root"].broker.state.channels.accounts.values()
    (used,) = [account.channel for account in accounts if account.carriage.streams]
    silence(family, used.to_router, used.channel_id, is_up=False)
    family.settle()
    family.pass_time(6_000_000_000)
    (answer,) = leaf.answers["d/centre", sent[0]]
    assert isinstance(answer, RefusedOutcome), answer
    assert answer.code == LatencyNotSatisfiable.code
    (found,) = leaf.broker.registry.tree.asked.values()
    assert found.record.qos == ModalQos({0: QosRequest()})


def silence(family: Family, router: str, channel_id: int, *, is_up: bool) -> None:
    leaf = family.leaves[router.partition("/")[0]]
    leaf.hear(router, ChannelStateChanged(channel_id=channel_id, is_up=is_up))


KILLED = ("root", "west", "east", "a", "b", "d")


@pytest.mark.parametrize("broker", KILLED)
@pytest.mark.parametrize("walk", ["subscribe", "change", "end"])
def test_any_broker_killed_after_any_message_ends_in_a_state_that_all_agree_on(
    broker: str, walk: str
) -> None:
    for point in range(KILLED.index(broker) % 4, 40, 4):
        family = grid()
        if walk != "subscribe":
            ask(family, "d", subscribe("a/pmu/v"))
        leaf = family.leaves["d"]
        command: EndPointCommand = subscribe("a/pmu/v", QosRequest(redundancy=2))
        if walk == "change":
            (number,) = leaf.broker.registry.tree.asked
            command = ChangeSubscription(
                subscription_id=number, qos=ModalQos({0: QosRequest(redundancy=2)})
            )
        elif walk == "end":
            command = Unsubscribe()
        asked = leaf.send("d/centre", "d/e", command)
        for _ in range(point):
            family.step()
        family.kill(broker)
        if ("d/centre", asked) not in leaf.answers:
            leaf.send("d/centre", "d/e", command, request_id=asked)  # As any end-point does.
        family.settle()
        family.pass_time(10_000_000_000)
        where = f"{broker} killed after {point} words of {walk}"
        if walk != "end":
            (outcome,) = leaf.answers["d/centre", asked]
            assert isinstance(outcome, GrantedOutcome), f"{where}: {outcome}"
            assert len(outcome.paths) == 2, where
            (holding,) = [one for one, _ in family.brokers["root"].broker.state.holdings.all()]
            assert len(body_of(holding).scope_paths) == 2, where
            ask(family, "d", Unsubscribe())
        assert residue(family) == [], where
