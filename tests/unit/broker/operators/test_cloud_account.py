"""The account of a cloud: every contract on some page, once, and all counters on the first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gridstat.broker.operators import cloud_account
from gridstat.model.qos import QosRequest
from gridstat.net.command.endpoint_messages import LedgerEntry, PathEntry, ReportLedger
from gridstat.net.command.machine import Received
from gridstat.net.command.messages import Account, ReportCounters
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE


@pytest.fixture
def cloud() -> Conversation:
    found = pair(bandwidth_bytes_per_s=100_000)
    found.publish(VOLTAGE, "c1/e0")
    return found


def page(cloud: Conversation, after: int = 0) -> dict[str, Any]:
    cloud.tell(Received("operator/c1/recorder", Account(request_id=7, after=after)))
    answer = cloud.operator_answers[-1]
    assert answer.request_id == 7
    json.dumps(answer.facts)  # It goes to JSON as it is.
    return answer.facts


def test_a_contract_is_told_in_numbers_with_its_ledger(cloud: Conversation) -> None:
    granted = cloud.subscribe(
        CENTRE, "c1/e2", VOLTAGE, QosRequest(every=2, latency_us=50_000, redundancy=2, priority=4)
    )
    entry = LedgerEntry(granted.subscription_id, expected=60, delivered=59, lost=1)
    cloud.ask(CENTRE, "c1/e2", ReportLedger(entries=(entry,)))
    (found,) = page(cloud)["contracts"]
    ledger = found.pop("ledger")
    assert found == {
        "subscription": granted.subscription_id,
        "endpoint": CENTRE,
        "variable": VOLTAGE,
        "publisher": PMU,
        "value_type": "float64",
        "period_seconds": 1,
        "period_per_seconds": 60,
        "phase_ns": 0,
        "every": 2,
        "latency_ms": 50.0,
        "redundancy": 2,
        "priority": 4,
    }
    assert (ledger["expected"], ledger["delivered"], ledger["lost"]) == (60, 59, 1)


def test_pages_tell_every_contract_once(
    cloud: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [cloud.subscribe(CENTRE, "c1/e2", VOLTAGE).subscription_id for _ in range(7)]
    monkeypatch.setattr(cloud_account, "PAGE_CONTRACTS_MAX", 3)
    pages = [page(cloud)]
    while pages[-1]["next"]:
        pages.append(page(cloud, pages[-1]["next"]))
    told = [[each["subscription"] for each in one["contracts"]] for one in pages]
    assert told == [numbers[:3], numbers[3:6], numbers[6:]]


def test_ledgers_with_many_paths_make_shorter_pages(
    cloud: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    routers = tuple(f"c1/i{number}" for number in range(50))
    paths = tuple(PathEntry(f"path {number}", (*routers, f"c1/{number}")) for number in range(16))
    for _ in range(4):
        granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
        entry = LedgerEntry(granted.subscription_id, expected=1, paths=paths)
        cloud.ask(CENTRE, "c1/e2", ReportLedger(entries=(entry,)))
    monkeypatch.setattr(cloud_account, "PAGE_BYTES_MAX", 30_000)
    first = page(cloud)
    assert len(first["contracts"]) == 2
    assert len(page(cloud, first["next"])["contracts"]) == 2


def test_counters_are_on_the_first_page_by_router_and_channel(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    number = granted.paths[0].channel_ids[0]
    channel = next(one for one in cloud.channels_given if one.channel_id == number)
    sent = {number: {"sent": 100}, 65_000: {"sent": 7}}
    cloud.hear(channel.from_router, ReportCounters(router={"in": 5}, channels=sent))
    cloud.hear(channel.to_router, ReportCounters(sources={number: {"lost": 10}}))
    told = page(cloud)["counters"]
    counted = {(one["router"], one["channel"]): one["counters"] for one in told}
    assert counted[channel.from_router, ""] == {"in": 5}
    assert counted[channel.from_router, channel.label]["sent"] == 100
    assert counted[channel.to_router, channel.label]["heard_lost"] == 10
    assert len([key for key in counted if key[0] == channel.from_router]) == 2
    assert page(cloud, granted.subscription_id)["counters"] == []
