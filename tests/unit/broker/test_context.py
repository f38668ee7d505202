"""Durable before told: nothing leaves before its operations are written, and a full disk undoes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.broker.records.operations import SNAPSHOT_MARK
from gridstat.broker.settings import BrokerSettings
from gridstat.model.cloud import Router, RouterRole
from gridstat.model.errors import StorageFailed
from gridstat.model.qos import QosRequest
from gridstat.model.rate_law import Period
from gridstat.net.command.endpoint_messages import (
    Attach,
    ChangePublication,
    ChangeSubscription,
    Detach,
    GrantedOutcome,
    PublishedOutcome,
    Unpublish,
    Unsubscribe,
)
from gridstat.net.command.machine import Persisted, Received, Send
from gridstat.net.command.messages import AddRouter
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import CENTRE, CLOUD, PMU, VOLTAGE, publish, subscribe, variable

if TYPE_CHECKING:
    from gridstat.net.command.endpoint_messages import EndPointCommand


@pytest.fixture
def cloud() -> Conversation:
    found = pair(bandwidth_bytes_per_s=100_000)
    found.publish(VOLTAGE, "c1/e0")
    found.subscribe(CENTRE, "c1/e2", VOLTAGE)
    return found


def state(cloud: Conversation) -> tuple[list[bytes], dict[object, object], dict[str, int]]:
    """Return the whole state: content of a snapshot, promises, orders."""
    resources = cloud.broker.reservations.resources
    promised: dict[object, object] = {
        **{number: found.bytes.value for number, found in resources.channels.items()},
        **{name: found.events.value for name, found in resources.routers.items()},
    }
    ordered = {name: cloud.broker.tables[name].wanted.digest for name in cloud.routers}
    return _without_numbers(cloud), promised, ordered


def _without_numbers(cloud: Conversation) -> list[bytes]:
    """A number that was skipped harms nobody, so numbers may differ."""
    return [found for found in cloud.broker.snapshot() if b"NumbersReached" not in found]


EVERYTHING: dict[str, tuple[str, str, EndPointCommand]] = {
    "publish": (PMU, "c1/e0", publish(variable(f"{PMU}/b"))),
    "subscribe": (CENTRE, "c1/e2", subscribe(VOLTAGE, QosRequest(redundancy=2))),
    "pattern": (CENTRE, "c1/e2", subscribe("c1/**")),
    "unsubscribe": (CENTRE, "c1/e2", Unsubscribe()),
    "change": (
        CENTRE,
        "c1/e2",
        ChangeSubscription(
            subscription_id=1, qos=subscribe(VOLTAGE, QosRequest(every=3)).subscriptions[0].qos
        ),
    ),
    "unpublish": (PMU, "c1/e0", Unpublish(names=(VOLTAGE,))),
    "change publication": (
        PMU,
        "c1/e0",
        ChangePublication(name=VOLTAGE, period=Period(1, 30)),
    ),
    "detach": (PMU, "c1/e0", Detach()),
    "attach": (
        "c1/new",
        "c1/e0",
        Attach(
            edge="c1/e0",
            certificate=b"endpoint/c1/new",
            incarnation="a",
            first_time=True,
            host="10.1.0.1",
            data_port=9_000,
            urgent_port=9_001,
            datagram_versions=(1, 2, 3),
            security="hop",
        ),
    ),
}


@pytest.mark.parametrize("what", EVERYTHING)
def test_a_full_disk_refuses_and_changes_nothing(cloud: Conversation, what: str) -> None:
    endpoint, edge, command = EVERYTHING[what]
    before = state(cloud)
    cloud.is_disk_full = True

    refused = refusal(cloud.ask(endpoint, edge, command))

    assert refused.code == StorageFailed.code
    assert state(cloud) == before
    assert cloud.differing() == []
    assert CENTRE not in cloud.notices


@pytest.mark.parametrize("what", EVERYTHING)
def test_when_the_disk_has_room_again_the_same_request_goes_through(
    cloud: Conversation, what: str
) -> None:
    endpoint, edge, command = EVERYTHING[what]
    cloud.is_disk_full = True
    cloud.ask(endpoint, edge, command)
    cloud.is_disk_full = False
    (outcome, *_) = cloud.ask(endpoint, edge, command, request_id=cloud.request_id)
    assert not hasattr(outcome, "code") or outcome.code == 0
    cloud.kill_broker()
    cloud.start()
    assert cloud.differing() == []


def test_all_that_was_decided_after_a_failed_operation_fails_with_it(
    cloud: Conversation,
) -> None:
    before = state(cloud)
    cloud.is_journal_held = True
    first = cloud.send(PMU, "c1/e0", publish(variable(f"{PMU}/b")))
    second = cloud.send(CENTRE, "c1/e2", subscribe(f"{PMU}/b"))  # It rests on the first.
    third = cloud.send(CENTRE, "c1/e2", subscribe(VOLTAGE))
    cloud.fail_first_write()
    cloud.write()  # The rest is of the epoch that failed.

    for endpoint, number in ((PMU, first), (CENTRE, second), (CENTRE, third)):
        assert refusal(cloud.answers[endpoint, number]).code == StorageFailed.code
    assert state(cloud) == before


def test_a_request_may_rest_on_one_that_is_not_yet_durable(cloud: Conversation) -> None:
    cloud.is_journal_held = True
    cloud.send(PMU, "c1/e0", publish(variable(f"{PMU}/b")))
    number = cloud.send(CENTRE, "c1/e2", subscribe(f"{PMU}/b"))
    assert not any(isinstance(said, Send) for said in cloud.instructions[-2:])
    cloud.is_journal_held = False
    cloud.write()
    cloud.settle()
    assert isinstance(cloud.answers[CENTRE, number][0], GrantedOutcome)


@pytest.mark.parametrize("what", EVERYTHING)
def test_nobody_hears_of_anything_before_it_is_durable(cloud: Conversation, what: str) -> None:
    endpoint, edge, command = EVERYTHING[what]
    cloud.is_journal_held = True
    said = len(cloud.instructions)
    cloud.ask(endpoint, edge, command)
    assert not any(isinstance(found, Send) for found in cloud.instructions[said:])


def test_a_journal_that_writes_on_after_a_failure_is_noted(cloud: Conversation) -> None:
    cloud.tell(Persisted(123_456))
    assert cloud.notes[-1].word == "journal_out_of_order"


def test_a_router_that_moves_while_the_disk_is_full_is_journalled_later(
    cloud: Conversation,
) -> None:
    cloud.is_disk_full = True
    cloud.disconnect("c1/i0")
    cloud.routers["c1/i0"].crash()
    cloud.connect("c1/i0")
    cloud.settle()
    assert cloud.differing() == []  # It is served all the same.

    cloud.is_disk_full = False
    assert isinstance(cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/b")))[0], PublishedOutcome)
    cloud.kill_broker()
    assert cloud.broker.registry.reports["c1/i0"].data_port == cloud.routers["c1/i0"].port


def test_where_a_router_listens_is_journalled_though_nothing_else_is_written_after_a_full_disk(
    cloud: Conversation,
) -> None:
    cloud.is_disk_full = True
    cloud.disconnect("c1/i0")
    cloud.routers["c1/i0"].crash()
    cloud.connect("c1/i0")
    cloud.settle()
    cloud.is_disk_full = False
    cloud.advance(cloud.settings.retry_after_ns)
    cloud.kill_broker()
    assert cloud.broker.registry.reports["c1/i0"].data_port == cloud.routers["c1/i0"].port


def test_the_journal_is_compacted_when_it_has_grown() -> None:
    cloud = pair(settings=BrokerSettings(CLOUD, snapshot_after=50))
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    for _ in range(60):
        granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
        cloud.ask(CENTRE, "c1/e2", Unsubscribe(subscription_ids=(granted.subscription_id,)))
    assert cloud.journal[0] == SNAPSHOT_MARK
    last = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    before = state(cloud)
    digests = {name: router.table.digest for name, router in cloud.routers.items()}

    cloud.kill_broker()
    cloud.start()

    assert {name: router.table.digest for name, router in cloud.routers.items()} == digests
    assert state(cloud)[1:] == before[1:]
    assert cloud.broker.registry.publications[VOLTAGE].variable == voltage
    assert list(cloud.broker.registry.subscriptions) == [last.subscription_id]
    assert cloud.subscribe(CENTRE, "c1/e2", VOLTAGE).subscription_id > last.subscription_id


def test_an_operator_too_is_told_of_a_full_disk(cloud: Conversation) -> None:
    cloud.is_disk_full = True
    router = Router("c1/new", RouterRole.INNER)
    cloud.tell(Received("operator/c1/alice", AddRouter(request_id=1, router=router)))
    (answer,) = cloud.operator_answers
    assert answer.refused is not None
    assert answer.refused.code == StorageFailed.code
    assert "c1/new" not in cloud.broker.registry.routers
