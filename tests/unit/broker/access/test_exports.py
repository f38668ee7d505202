"""Access between clouds: the publisher's cloud lets out what its owner exports."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gridstat.broker.settings import AccessSettings
from gridstat.model.access_rules import AccessRule
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    GrantedOutcome,
    Unpublished,
)
from gridstat.net.command.machine import Received
from gridstat.net.command.operator_messages import (
    GrantAccess,
    RevokeAccess,
    SetFlooding,
    WhyAccess,
)
from gridstat.net.command.router_messages import ChannelStateChanged
from gridstat.net.command.segment_messages import AskContract, Lookup
from gridstat.net.command.tree_messages import NamesFound, WatchNames
from tests.unit.broker.access.ruled_cloud import not_allowed
from tests.unit.broker.stand_ins import subscribe
from tests.unit.broker.tree.family import Family

if TYPE_CHECKING:
    from gridstat.net.command.messages import OperatorCommand

VOLTAGE, CURRENT = "a/pmu/voltage", "a/pmu/current"
READER, STRANGER = "b/centre", "b/stranger"
EXPORT = AccessRule("export", READER, ("subscribe",), VOLTAGE)
OF_A = AccessRule("pmus", "a/pmu", ("publish",), "a/pmu/**")
OF_B = AccessRule("readers", "b/**", ("subscribe",), "**", priority_best=1)
NS_PER_S = 1_000_000_000


@pytest.fixture(params=[("root",), ("mid", "root")], ids=["one level", "two levels"])
def family(request: pytest.FixtureRequest) -> Family:
    """Clouds a and b, below the root directly or below brokers of their own."""
    return two_clouds(EXPORT, depth=len(request.param))


def two_clouds(*exports: AccessRule, depth: int = 1, channels: int = 1) -> Family:
    ways = {name: [(f"{name}/0", f"{name}/1"), (f"{name}/1", f"{name}/0")] for name in "ab"}
    parents = dict.fromkeys("ab", "root")
    if depth > 1:
        parents = {"a": "above-a", "b": "above-b", "above-a": "root", "above-b": "root"}
    borders = [
        (f"{one}/{at}", f"{two}/{at}") for at in range(channels) for one, two in ("ab", "ba")
    ]
    found = Family(parents, ways, {"root": borders})
    for name, rules in (("a", (OF_A, *exports)), ("b", (OF_B,))):
        leaf = found.leaves[name]
        access = AccessSettings(rules, is_enforced=True)
        leaf.settings = replace(leaf.settings, access=access)
        leaf.broker = leaf.new_broker()
    found.start()
    found.leaves["a"].attach("a/pmu", "a/0", data_port=0)
    found.leaves["a"].publish(VOLTAGE, "a/0")
    found.leaves["a"].publish(CURRENT, "a/0")
    for number, name in enumerate((READER, STRANGER)):
        found.leaves["b"].attach(name, "b/1", data_port=5_000 + 10 * number)
    found.settle()
    return found


def ask(family: Family, who: str, name: str, qos: QosRequest | None = None) -> Any:
    leaf = family.leaves["b"]
    number = leaf.send(who, "b/1", subscribe(name, qos))
    family.settle()
    return leaf.answers[who, number]


def operate(family: Family, broker: str, command: OperatorCommand) -> dict[str, Any]:
    answer = family.operate(broker, command)
    assert answer.refused is None, answer.refused
    return answer.facts


def taken(family: Family) -> set[tuple[str, str]]:
    asked = family.leaves["b"].broker.registry.tree.asked.values()
    return {(each.record.subscriber, each.record.name) for each in asked if each.granted}


def test_an_end_point_of_another_cloud_reads_only_what_is_exported_to_it(family: Family) -> None:
    assert isinstance(ask(family, READER, VOLTAGE)[0], GrantedOutcome)
    found = not_allowed(ask(family, READER, CURRENT))
    assert "gridstat access grant b-centre-subscribe-" in found.hint
    assert f" --at a --who '{READER}'" in found.hint
    not_allowed(ask(family, STRANGER, VOLTAGE))
    absent = not_allowed(ask(family, READER, "a/pmu/absent"))
    assert absent.reason == found.reason.replace("current", "absent")
    assert taken(family) == {(READER, VOLTAGE)}


def test_the_cloud_of_the_subscriber_decides_too(family: Family) -> None:
    operate(family, "b", RevokeAccess(request_id=1, identifier="readers"))
    not_allowed(ask(family, READER, VOLTAGE))


def test_a_priority_needs_the_exports_consent(family: Family) -> None:
    found = not_allowed(ask(family, READER, VOLTAGE, QosRequest(priority=1)))
    assert "priority 3 or below, not at 1" in found.reason


def test_a_contract_that_ends_before_other_clouds_answer_is_refused_by_the_rule(
    family: Family,
) -> None:
    family.separate("b")
    leaf = family.leaves["b"]
    number = leaf.send(READER, "b/1", subscribe(VOLTAGE))
    leaf.settle()
    assert (READER, number) not in leaf.answers
    family.ask("b", RevokeAccess(request_id=1, identifier="readers"))
    leaf.settle()
    family.heal()
    family.settle()
    found = not_allowed(leaf.answers[READER, number])
    assert "rule readers was revoked" in found.reason


def test_a_closer_bound_does_not_keep_a_contract_from_other_paths_after_a_failure() -> None:
    family = two_clouds(EXPORT, channels=2)
    assert isinstance(ask(family, READER, VOLTAGE)[0], GrantedOutcome)
    closer = replace(EXPORT, reserved_bytes_per_s=10)
    operate(family, "a", GrantAccess(request_id=1, rule=closer))
    state = family.brokers["root"].broker.state
    (number,) = used(family)
    to_router = state.channels.accounts[number].channel.to_router
    family.leaves["b"].hear(to_router, ChannelStateChanged(channel_id=number, is_up=False))
    family.settle()
    family.pass_time(10 * NS_PER_S)
    assert used(family) not in ([], [number])
    assert taken(family) == {(READER, VOLTAGE)}


def used(family: Family) -> list[int]:
    """Channels between the clouds that carry contracts."""
    state = family.brokers["root"].broker.state
    return [one for one in state.channels.accounts if list(state.holdings.over_channel(one))]


def test_a_revoked_export_ends_the_contract_in_words(family: Family) -> None:
    ask(family, READER, VOLTAGE)
    operate(family, "a", RevokeAccess(request_id=1, identifier="export"))
    family.pass_time(NS_PER_S)
    assert taken(family) == set()
    notices = [each for each in family.leaves["b"].notices[READER] if isinstance(each, Unpublished)]
    assert {each.code for each in notices} == {1015}
    assert "rule export was revoked or changed" in notices[0].reason
    for leaf in family.leaves.values():
        assert leaf.broker.registry.subscriptions == {}
    assert not len(family.brokers["root"].broker.state.holdings)


def test_a_revocation_while_the_tree_is_away_ends_the_contract_after_the_join(
    family: Family,
) -> None:
    ask(family, READER, VOLTAGE)
    family.separate("a")
    family.ask("a", RevokeAccess(request_id=1, identifier="export"))
    family.settle()
    assert family.leaves["a"].broker.registry.subscriptions == {}
    family.heal()
    family.pass_time(30 * NS_PER_S)
    assert taken(family) == set()


def test_a_revocation_in_the_subscribers_cloud_ends_the_contract_everywhere(
    family: Family,
) -> None:
    ask(family, READER, VOLTAGE)
    operate(family, "b", RevokeAccess(request_id=1, identifier="readers"))
    family.pass_time(NS_PER_S)
    for leaf in family.leaves.values():
        assert leaf.broker.registry.subscriptions == {}


def test_a_pattern_finds_only_names_that_are_exported_to_its_subscriber(family: Family) -> None:
    ask(family, READER, "a/**")
    assert taken(family) == {(READER, VOLTAGE)}
    ask(family, STRANGER, "**")
    assert taken(family) == {(READER, VOLTAGE)}
    more = AccessRule("more", "b/*", ("subscribe",), "a/pmu/*")
    operate(family, "a", GrantAccess(request_id=2, rule=more))
    family.settle()
    assert taken(family) == {
        (who, name) for who in (READER, STRANGER) for name in (VOLTAGE, CURRENT)
    }


def test_a_rule_for_anyone_of_any_cloud_serves_a_broker_that_does_not_tell_the_reader() -> None:
    family = two_clouds(EXPORT)
    leaf = family.leaves["a"]
    watch = WatchNames(term=9, watch="b#77", pattern="a/**")
    lookup = Lookup(term=9, lookup=1, name=VOLTAGE)
    sent = leaf.told_parent
    family._tell("a", received(watch))
    family._tell("a", received(lookup))
    assert [each for each in sent if isinstance(each, NamesFound)] == []
    assert sent[-1].refused.code == 1015  # type: ignore[union-attr]
    anyone = AccessRule("anyone", "**", ("subscribe",), "a/**", is_exported=True)
    family.ask("a", GrantAccess(request_id=1, rule=anyone))
    assert any(isinstance(each, NamesFound) for each in sent)
    family._tell("a", received(lookup))
    assert sent[-1].variable is not None  # type: ignore[union-attr]


def test_a_cloud_speaks_for_its_own_end_points_only() -> None:
    family = two_clouds(EXPORT)
    ask(family, READER, VOLTAGE)
    forged = next(
        AskContract(
            term=family.leaves["b"].broker.registry.term,
            contract="b#900",
            generation=1,
            name=VOLTAGE,
            subscriber="a/pmu",
            qos=each.record.qos,
        )
        for each in family.leaves["b"].broker.registry.tree.asked.values()
    )
    root = family.brokers["root"]
    before = len(root.broker.state.holdings)
    root.tell(Received("broker/b", forged))
    family.settle()
    assert len(root.broker.state.holdings) == before


def test_an_operator_floods_across_clouds_without_an_export() -> None:
    family = two_clouds()
    facts = operate(family, "root", SetFlooding(request_id=3, name=VOLTAGE))
    assert facts["modes"]


def test_why_says_what_the_publishers_cloud_would_need(family: Family) -> None:
    command = WhyAccess(request_id=4, who=STRANGER, action="subscribe", what=VOLTAGE)
    assert not operate(family, "a", command)["is_allowed"]
    assert operate(family, "b", command)["rule"]["name"] == "readers"


def change(family: Family, number: int, qos: QosRequest) -> Any:
    leaf = family.leaves["b"]
    command = ChangeSubscription(subscription_id=number, qos=ModalQos({0: qos}))
    request = leaf.send(READER, "b/1", command)
    family.settle()
    return leaf.answers[READER, request]


METERED = AccessRule("export", "b/**", ("subscribe",), "a/**", reserved_bytes_per_s=6_000)
"""One variable of the tests takes more than half of it."""


def test_an_export_bounds_what_one_reader_has_reserved_in_all() -> None:
    family = two_clouds(METERED)
    assert isinstance(ask(family, READER, VOLTAGE)[0], GrantedOutcome)
    found = not_allowed(ask(family, READER, CURRENT))
    assert "reserve 6000 bytes/s" in found.reason
    assert isinstance(ask(family, STRANGER, CURRENT)[0], GrantedOutcome)
    leaf = family.leaves["a"]
    before = dict(leaf.broker.permissions.reserved)
    leaf.kill_broker()
    assert leaf.broker.permissions.reserved == before
    operate(family, "a", RevokeAccess(request_id=1, identifier="export"))
    assert {who for who, _ in family.leaves["a"].broker.permissions.reserved} == {"a/pmu"}


@pytest.mark.parametrize("metered", ["a", "b"])
def test_a_changed_contract_across_clouds_is_counted_once(metered: str) -> None:
    family = two_clouds(AccessRule("export", "b/**", ("subscribe",), "a/**"))
    rule = replace(METERED, identifier="export" if metered == "a" else "readers")
    operate(family, metered, GrantAccess(request_id=1, rule=rule))
    granted = ask(family, READER, VOLTAGE)[0]
    assert isinstance(granted, GrantedOutcome)
    before = dict(family.leaves[metered].broker.permissions.reserved)
    assert any(who == READER for who, _ in before)
    same = QosRequest(latency_us=900_000)
    assert isinstance(change(family, granted.subscription_id, same)[0], GrantedOutcome)
    family.pass_time(NS_PER_S)
    assert family.leaves[metered].broker.permissions.reserved == before


def received(message: Any) -> Any:
    return Received("broker/root", message)
