"""Bounds on the size of one request."""

from __future__ import annotations

import pytest

from gridstat.model.errors import QuotaReached
from gridstat.net.command.endpoint_messages import (
    EndPointCommand,
    LedgerEntry,
    ReportLedger,
    Unpublish,
    Unsubscribe,
)
from gridstat.net.command.endpoint_signatures import signed_bytes
from gridstat.net.command.messages import MANY_MAX, Forward
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import PMU, publish, subscribe, variable


@pytest.fixture
def cloud() -> Conversation:
    return pair()


def many(kind: str, count: int) -> EndPointCommand:
    names = tuple(f"{PMU}/v{number}" for number in range(count))
    match kind:
        case "publications":
            return publish(*(variable(name) for name in names))
        case "names":
            return Unpublish(names=names)
        case "subscriptions":
            return subscribe(*(f"{name}/**" for name in names))
        case "subscription ids":
            return Unsubscribe(subscription_ids=tuple(range(1, count + 1)))
        case _:
            return ReportLedger(entries=tuple(LedgerEntry(number) for number in range(count)))


@pytest.mark.parametrize(
    "kind", ["publications", "names", "subscriptions", "subscription ids", "entries"]
)
def test_a_request_for_too_many_things_is_refused_and_the_limit_is_named(
    cloud: Conversation, kind: str
) -> None:
    before = len(cloud.journal)
    refused = refusal(cloud.ask(PMU, "c1/e0", many(kind, MANY_MAX + 1)))
    assert refused.code == QuotaReached.code
    assert refused.reason == f"a request has at most {MANY_MAX:,} {kind}"
    assert refused.hint == "ask in several requests"
    assert len(cloud.journal) == before
    outcomes = cloud.ask(PMU, "c1/e0", many(kind, MANY_MAX))
    assert outcomes
    assert "a request has at most" not in str(outcomes)


def test_too_many_things_are_refused_before_any_of_them_is_read(cloud: Conversation) -> None:
    announced = b"\xdd\xff\xff\xff\xff"  # An array of four thousand million, and nothing in it.
    body = b"\x82\xa4type\xabUnsubscribe\xb0subscription_ids" + announced
    number = cloud.request_id = cloud.request_id + 1
    signature = f"endpoint/{PMU}".encode() + signed_bytes(PMU, number, body)
    forward = Forward(endpoint=PMU, request_id=number, body=body, signature=signature)
    cloud.hear("c1/e0", forward)
    assert refusal(cloud.answers[PMU, number]).code == QuotaReached.code
