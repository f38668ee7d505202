"""Survey and explanation: the facts that people see are those that the broker acts on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gridstat.model.cloud import RouterRole
from gridstat.model.qos import QosRequest
from gridstat.net.command.endpoint_messages import LedgerEntry, PathEntry, ReportLedger
from gridstat.net.command.machine import Received
from gridstat.net.command.messages import (
    Account,
    BackPressureChanged,
    ChannelStateChanged,
    Explain,
    ReportCounters,
    Survey,
)
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, subscribe


@pytest.fixture
def cloud() -> Conversation:
    found = pair(bandwidth_bytes_per_s=100_000)
    found.publish(VOLTAGE, "c1/e0")
    return found


def survey(cloud: Conversation) -> dict[str, Any]:
    cloud.tell(Received("operator/c1/alice", Survey(request_id=7)))
    answer = cloud.operator_answers[-1]
    assert answer.request_id == 7
    json.dumps(answer.facts)  # It goes to JSON as it is.
    return answer.facts


def account(cloud: Conversation) -> dict[str, Any]:
    cloud.tell(Received("operator/c1/alice", Account(request_id=9)))
    return cloud.operator_answers[-1].facts


def explain(cloud: Conversation, name: str) -> dict[str, Any]:
    cloud.tell(Received("operator/c1/alice", Explain(request_id=8, name=name)))
    facts = cloud.operator_answers[-1].facts
    json.dumps(facts)
    return facts


@pytest.mark.feature("S0-2", "S1-2")
def test_the_inventory_and_the_roles_equal_the_given_cloud(cloud: Conversation) -> None:
    facts = survey(cloud)
    assert {one["name"]: one["role"] for one in facts["routers"]} == {
        router.name: router.role.value for router in cloud.routers_given
    }
    assert {one["label"] for one in facts["channels"]} == {
        channel.label for channel in cloud.channels_given
    }
    assert {one["name"]: one["edges"] for one in facts["end_points"]} == {
        PMU: ["c1/e0", "c1/e1"],
        CENTRE: ["c1/e2", "c1/e3"],
    }
    roles = {one["name"]: one["role"] for one in facts["routers"]}
    for one in facts["end_points"]:
        assert all(roles[edge] == RouterRole.EDGE.value for edge in one["edges"])


def test_a_survey_shows_what_is_connected_in_step_and_down(cloud: Conversation) -> None:
    cloud.disconnect("c1/i0")
    cloud.hear("c1/e2", ChannelStateChanged(channel_id=3, is_up=False))
    cloud.hear("c1/e1", BackPressureChanged(channel_id=2, is_on=True, queued_events=900))
    facts = survey(cloud)
    routers = {one["name"]: one for one in facts["routers"]}
    channels = {one["channel_id"]: one for one in facts["channels"]}
    assert (routers["c1/i0"]["is_up"], routers["c1/i0"]["is_connected"]) == (False, False)
    assert (routers["c1/i1"]["is_up"], routers["c1/i1"]["in_step"]) == (True, True)
    assert not channels[3]["is_up"]
    assert channels[2]["is_back_pressured"]
    assert channels[2]["datagram_version"] == 2


def test_a_survey_shows_the_digest_that_is_wanted_and_the_one_that_was_confirmed(
    cloud: Conversation,
) -> None:
    before = {one["name"]: one["digest"] for one in survey(cloud)["routers"]}
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    routers = {one["name"]: one for one in survey(cloud)["routers"]}
    assert all(one["digest"] == one["confirmed_digest"] for one in routers.values())
    for name in granted.paths[0].routers:
        assert routers[name]["digest"] != before[name]


def test_counters_and_ledgers_are_shown_as_reported(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    number = granted.paths[0].channel_ids[0]
    channel = next(one for one in cloud.channels_given if one.channel_id == number)
    cloud.hear(
        channel.from_router,
        ReportCounters(router={"in": 5}, channels={number: {"sent": 100}}),
    )
    heard = ReportCounters(sources={number: {"datagrams": 90, "lost": 10}})
    cloud.hear(channel.to_router, heard)
    entry = LedgerEntry(granted.subscription_id, expected=60, delivered=59, lost=1, dropped=7)
    other = LedgerEntry(subscription_id=99, expected=1)
    cloud.ask(CENTRE, "c1/e2", ReportLedger(entries=(entry, other)))

    facts = survey(cloud)
    shown = next(one for one in facts["channels"] if one["channel_id"] == number)
    assert (shown["loss_ratio"], shown["counters"]["sent"]) == (0.1, 100)
    (subscription,) = facts["subscriptions"]
    assert (subscription["ledger"]["expected"], subscription["ledger"]["lost"]) == (60, 1)
    assert subscription["ledger"]["dropped"] == 7
    router = next(one for one in facts["routers"] if one["name"] == channel.from_router)
    assert router["counters"] == {"in": 5}


def test_latencies_and_the_worst_gap_of_a_ledger_are_shown(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    entry = LedgerEntry(
        granted.subscription_id,
        expected=7,
        latency_counts=(0, 3, 2),
        gap_slots_max=2,
        gap_ended_ns=10**18,
    )
    cloud.ask(CENTRE, "c1/e2", ReportLedger(entries=(entry,)))
    (subscription,) = survey(cloud)["subscriptions"]
    told = subscription["ledger"]
    assert tuple(told["latency_counts"]) == (0, 3, 2)
    assert (told["gap_slots_max"], told["gap_ended_ns"]) == (2, 10**18)


def test_what_came_by_each_path_is_shown_by_the_survey_and_explained(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    assert [path.name for path in granted.paths] == ["path 1"]
    routers = granted.paths[0].routers
    path = PathEntry(name="path 1", routers=routers, expected=9, delivered=7, lost=2)
    entry = LedgerEntry(subscription_id=granted.subscription_id, expected=9, paths=(path,))
    cloud.ask(CENTRE, "c1/e2", ReportLedger(entries=(entry,)))
    (surveyed,) = survey(cloud)["subscriptions"]
    assert surveyed["ledger"]["paths"][0]["lost"] == 2
    (explained,) = explain(cloud, VOLTAGE)["subscriptions"]
    assert explained["ledger"] == surveyed["ledger"]


def test_nobody_writes_the_ledger_of_another(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    entry = LedgerEntry(subscription_id=granted.subscription_id, expected=1)
    cloud.ask(PMU, "c1/e0", ReportLedger(entries=(entry,)))
    assert survey(cloud)["subscriptions"][0]["ledger"] is None


def test_totals_count_everything(cloud: Conversation) -> None:
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    facts = survey(cloud)
    assert facts["totals"] == {
        "routers": 6,
        "channels": 18,
        "end_points": 2,
        "publications": 1,
        "subscriptions": 1,
        "segments": 0,
        "patterns": 0,
        "in_undefined_modes": 0,
    }
    assert (facts["cloud"], facts["term"]) == ("c1", 1)
    assert facts == cloud.broker.survey()


def test_an_explanation_shows_paths_budget_and_bottleneck(cloud: Conversation) -> None:
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2, every=2))
    facts = explain(cloud, VOLTAGE)
    assert (facts["publisher"], facts["edges"]) == (PMU, ["c1/e0", "c1/e1"])
    assert facts["variable"]["period"] == {"seconds": 1, "per_seconds": 60}
    (subscription,) = facts["subscriptions"]
    assert subscription["state"] == "granted"
    assert subscription["granted"][0]["every"] == 2
    assert len(subscription["paths"]) == 2
    for path in subscription["paths"]:
        assert sum(part["latency_us"] for part in path["parts"]) == path["latency_us"]
    assert subscription["bottleneck"]["used"] <= subscription["bottleneck"]["capacity"]
    used = {number for path in subscription["paths"] for number in path["channel_ids"]}
    assert {one["channel_id"] for one in facts["channels"]} == used


def test_an_explanation_tells_of_trouble_and_of_moves(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    number = granted.paths[0].channel_ids[0]
    receiver = next(one.to_router for one in cloud.channels_given if one.channel_id == number)
    cloud.hear(receiver, ChannelStateChanged(channel_id=number, is_up=False))
    cloud.settle()
    assert explain(cloud, VOLTAGE)["subscriptions"][0]["state"] == "moving"
    assert survey(cloud)["subscriptions"][0]["state"] == "moving"
    cloud.advance(1_000_000_000)
    cloud.settle()
    assert explain(cloud, VOLTAGE)["subscriptions"][0]["state"] == "granted"
    cloud.routers["c1/i0"].is_silent = cloud.routers["c1/i1"].is_silent = True
    cloud.send(CENTRE, "c1/e2", subscribe(VOLTAGE))
    cloud.settle()
    states = [one["state"] for one in explain(cloud, VOLTAGE)["subscriptions"]]
    assert "waiting for routers" in states


def test_an_account_says_with_the_counters_of_a_channel_how_much_it_may_carry(
    cloud: Conversation,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    number = granted.paths[0].channel_ids[0]
    channel = next(one for one in cloud.channels_given if one.channel_id == number)
    cloud.hear(channel.from_router, ReportCounters(channels={number: {"bytes_out": 100}}))
    cloud.hear(channel.to_router, ReportCounters(sources={number: {"datagrams": 9}}))
    told = [one for one in account(cloud)["counters"] if one["channel"]]
    sender = next(one for one in told if one["router"] == channel.from_router)
    receiver = next(one for one in told if one["router"] == channel.to_router)
    assert sender["counters"]["bytes_out"] == 100
    assert sender["counters"]["bandwidth_bytes_per_s"] == channel.bandwidth_bytes_per_s
    assert receiver["counters"] == {"heard_datagrams": 9}
