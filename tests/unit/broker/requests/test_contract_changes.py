"""Live contracts end, one or all, and change in place: make before break, or as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.broker.records.operations import Unsubscribed
from gridstat.broker.settings import BrokerSettings
from gridstat.model.errors import (
    LatencyNotSatisfiable,
    LayoutError,
    NoSuchSubscription,
    StorageFailed,
)
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    DoneOutcome,
    GrantedOutcome,
    RefusedOutcome,
    Unsubscribe,
)
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import CENTRE, CLOUD, EVERY_MODE, PMU, VOLTAGE, subscribe

if TYPE_CHECKING:
    from gridstat.net.command.endpoint_messages import Outcome


@pytest.fixture
def cloud() -> Conversation:
    settings = BrokerSettings(CLOUD, modes_defined=EVERY_MODE)
    found = pair(bandwidth_bytes_per_s=100_000, settings=settings)
    found.publish(VOLTAGE, "c1/e0")
    return found


def tables(cloud: Conversation) -> dict[str, int]:
    return {name: router.table.digest for name, router in cloud.routers.items()}


def promised(cloud: Conversation) -> dict[int | str, object]:
    resources = cloud.broker.reservations.resources
    return {
        **{number: found.bytes.value for number, found in resources.channels.items()},
        **{name: found.events.value for name, found in resources.routers.items()},
    }


def change(cloud: Conversation, subscription_id: int, request: QosRequest) -> tuple[Outcome, ...]:
    command = ChangeSubscription(subscription_id=subscription_id, qos=ModalQos({0: request}))
    return cloud.ask(CENTRE, "c1/e2", command)


@pytest.mark.feature("S0-59", "S3-38")
def test_unsubscribing_restores_tables_and_resources_exactly(cloud: Conversation) -> None:
    before = tables(cloud), promised(cloud)
    first = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2, every=3))
    middle = tables(cloud), promised(cloud)
    second = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(every=2))

    one = Unsubscribe(subscription_ids=(second.subscription_id,))
    assert cloud.ask(CENTRE, "c1/e2", one) == (DoneOutcome(),)
    assert (tables(cloud), promised(cloud)) == middle
    two = Unsubscribe(subscription_ids=(first.subscription_id,))
    assert cloud.ask(CENTRE, "c1/e3", two) == (DoneOutcome(),)
    assert (tables(cloud), promised(cloud)) == before


@pytest.mark.feature("S0-59", "S0-45")
def test_unsubscribing_from_all_leaves_nothing(cloud: Conversation) -> None:
    before = tables(cloud), promised(cloud)
    for number in range(5):
        cloud.publish(f"{PMU}/v{number}", "c1/e0")
    with_publications = tables(cloud), promised(cloud)
    names = [f"{PMU}/v{number}" for number in range(5)]
    cloud.ask(CENTRE, "c1/e2", subscribe(*names, QosRequest(redundancy=2)))
    cloud.ask(CENTRE, "c1/e2", subscribe("c1/**"))

    assert cloud.ask(CENTRE, "c1/e2", Unsubscribe()) == (DoneOutcome(),)

    assert (tables(cloud), promised(cloud)) == with_publications != before
    assert cloud.broker.registry.subscriptions == {}
    assert cloud.broker.registry.patterns == {}


def test_what_is_named_often_in_one_request_ends_once(cloud: Conversation) -> None:
    """End a pattern, one of its two variables, and an unknown number in one request."""
    cloud.publish(f"{PMU}/more", "c1/e0")
    pattern = cloud.subscribe(CENTRE, "c1/e2", f"{PMU}/*").subscription_id
    numbers = {pattern, *cloud.broker.registry.subscriptions}
    cloud.settle()
    written = len(cloud.journal)
    ids = (pattern, max(numbers), 999) * 100
    outcomes = cloud.ask(CENTRE, "c1/e2", Unsubscribe(subscription_ids=ids))
    assert [type(outcome) for outcome in outcomes] == [
        DoneOutcome,
        DoneOutcome,
        RefusedOutcome,
    ] * 100
    ended = [cloud.broker.decode(data) for data in cloud.journal[written:]]
    assert [one.subscription_id for one in ended if isinstance(one, Unsubscribed)] == sorted(
        numbers
    )
    assert not cloud.broker.registry.subscriptions


def test_nobody_ends_or_changes_the_subscription_of_another(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    cloud.attach("c1/other", "c1/e2")
    ids = (granted.subscription_id, 999)
    outcomes = cloud.ask("c1/other", "c1/e2", Unsubscribe(subscription_ids=ids))
    assert [type(outcome) for outcome in outcomes] == [RefusedOutcome, RefusedOutcome]
    command = ChangeSubscription(subscription_id=granted.subscription_id, qos=ModalQos())
    refused = refusal(cloud.ask("c1/other", "c1/e2", command))
    assert refused.code == NoSuchSubscription.code
    assert granted.subscription_id in cloud.broker.registry.subscriptions


@pytest.mark.feature("S0-75")
def test_a_change_of_interval_is_up_everywhere_before_the_old_one_goes(
    cloud: Conversation,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(every=6))
    (path,) = granted.paths

    (outcome,) = change(cloud, granted.subscription_id, QosRequest(every=2))

    assert isinstance(outcome, GrantedOutcome)
    assert outcome.granted[0].every == 2
    for router in path.routers:
        assert {order.every for order in cloud.path_orders(router)} >= {2, 6}
    cloud.advance(1_000_000_000)
    cloud.settle()
    for router in cloud.routers:
        assert {order.every for order in cloud.path_orders(router)} <= {2}
    assert cloud.differing() == []


def test_the_old_paths_stay_while_no_router_confirms_the_new_ones(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(every=6))
    inner = granted.paths[0].routers[1]
    cloud.routers[inner].is_silent = True
    assert change(cloud, granted.subscription_id, QosRequest(every=2)) == ()

    for _ in range(3):
        cloud.advance(cloud.settings.confirm_within_ns)
    (outcome,) = cloud.answers[CENTRE, cloud.request_id]
    assert isinstance(outcome, GrantedOutcome)
    assert outcome.degraded == (f"router {inner} has not confirmed its part yet",)
    edge = granted.paths[0].routers[0]
    assert {order.every for order in cloud.path_orders(edge)} == {2, 6}

    cloud.confirm(inner)
    cloud.routers[inner].is_silent = False
    cloud.advance(1_000_000_000)
    cloud.settle()
    assert {order.every for order in cloud.path_orders(edge)} == {2}
    assert cloud.differing() == []


def test_a_priority_changes_on_a_live_path(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(priority=5))
    (outcome,) = change(cloud, granted.subscription_id, QosRequest(priority=1))
    assert isinstance(outcome, GrantedOutcome)
    assert outcome.subscription_id == granted.subscription_id
    cloud.advance(1_000_000_000)
    cloud.settle()
    edge = granted.paths[0].routers[0]
    assert {order.priority for order in cloud.path_orders(edge)} == {1}


def test_a_refused_change_leaves_the_old_contract(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(every=6))
    before = tables(cloud), promised(cloud)

    refused = refusal(change(cloud, granted.subscription_id, QosRequest(latency_us=1)))

    assert refused.code == LatencyNotSatisfiable.code
    assert (tables(cloud), promised(cloud)) == before
    record = cloud.broker.registry.subscriptions[granted.subscription_id].record
    assert record.granted == granted.granted


def test_both_generations_are_charged_until_the_old_one_has_gone(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(every=2))
    number = granted.paths[0].channel_ids[0]
    change(cloud, granted.subscription_id, QosRequest(every=3))
    carriage = cloud.broker.reservations.resources.channel(number)
    assert carriage.bytes.value == 68 * 40  # Every second and every third slot of sixty.
    cloud.advance(1_000_000_000)
    assert carriage.bytes.value == 68 * 20


def test_a_change_survives_a_kill_of_the_broker_at_once(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(every=6))
    change(cloud, granted.subscription_id, QosRequest(every=2))
    cloud.kill_broker()
    cloud.start()

    record = cloud.broker.registry.subscriptions[granted.subscription_id].record
    assert record.granted[0].every == 2
    cloud.advance(1_000_000_000)
    for router in cloud.routers:
        assert {order.every for order in cloud.path_orders(router)} <= {2}
    assert cloud.differing() == []


def test_a_change_to_too_many_qualities_leaves_the_old_contract(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    before = tables(cloud), promised(cloud)
    modes = {mode: QosRequest(every=2**mode, priority=1 + mode % 6) for mode in range(20)}
    command = ChangeSubscription(subscription_id=granted.subscription_id, qos=ModalQos(modes))
    refused = refusal(cloud.ask(CENTRE, "c1/e2", command))
    assert refused.code == LayoutError.code
    assert (tables(cloud), promised(cloud)) == before


def test_changes_of_one_contract_are_made_and_answered_one_after_another(
    cloud: Conversation,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(every=12))
    number = granted.subscription_id
    qualities = [QosRequest(every=2), QosRequest(latency_us=1), QosRequest(every=3)]
    sent = [
        cloud.send(
            CENTRE,
            "c1/e2",
            ChangeSubscription(subscription_id=number, qos=ModalQos({0: quality})),
        )
        for quality in qualities
    ]
    cloud.settle()

    answered = [found for _, _, found in cloud.answered_by if found in sent]
    assert answered == sent
    kinds = [type(cloud.answers[CENTRE, found][0]) for found in sent]
    assert kinds == [GrantedOutcome, RefusedOutcome, GrantedOutcome]
    assert cloud.broker.registry.subscriptions[number].record.granted[0].every == 3
    cloud.advance(1_000_000_000)
    cloud.settle()
    assert {order.every for order in cloud.path_orders(granted.paths[0].routers[0])} == {3}


def test_a_change_that_waited_for_another_survives_a_full_disk(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(every=12))
    number = granted.subscription_id
    cloud.is_journal_held = True
    first, second = (
        cloud.send(
            CENTRE,
            "c1/e2",
            ChangeSubscription(subscription_id=number, qos=ModalQos({0: QosRequest(every=every)})),
        )
        for every in (2, 3)
    )
    cloud.fail_first_write()
    cloud.is_journal_held = False
    cloud.write()
    cloud.settle()
    assert refusal(cloud.answers[CENTRE, first]).code == StorageFailed.code
    assert isinstance(cloud.answers[CENTRE, second][0], GrantedOutcome)


def test_redundancy_added_later_brings_a_second_path(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    (outcome,) = change(cloud, granted.subscription_id, QosRequest(redundancy=2))
    assert isinstance(outcome, GrantedOutcome)
    first, second = outcome.paths
    assert set(first.routers).isdisjoint(second.routers)


def carried_uncharged(cloud: Conversation) -> set[tuple[str, int, int]]:
    """Return orders of paths over channels between routers that are not charged."""
    channels = cloud.broker.reservations.resources.channels
    found = set()
    for name in cloud.routers:
        for order in cloud.broker.tables[name].wanted.paths.values():
            carriage = channels.get(order.channel_id)
            if carriage is not None and not carriage.serves(order.variable_id, {0: order.every}):
                found.add((name, order.channel_id, order.every))
    return found


def test_a_second_change_within_the_overlap_leaves_everything_charged_that_is_still_up(
    cloud: Conversation,
) -> None:
    empty = promised(cloud)
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2))
    change(cloud, granted.subscription_id, QosRequest(redundancy=2, every=2))
    for router in cloud.routers.values():
        router.is_silent = True
    request = ModalQos({0: QosRequest(redundancy=1, every=3)})
    second = ChangeSubscription(subscription_id=granted.subscription_id, qos=request)
    cloud.send(CENTRE, "c1/e2", second)
    for _ in range(10):
        cloud.advance(10_000_000)
        assert carried_uncharged(cloud) == set()
    everys = {
        order.every
        for name in cloud.routers
        for order in cloud.broker.tables[name].wanted.paths.values()
    }
    assert everys >= {2, 3}, "the routers have confirmed nothing, so both generations are up"
    cloud.ask(CENTRE, "c1/e2", Unsubscribe(subscription_ids=(granted.subscription_id,)))
    assert promised(cloud) == empty


def test_a_failed_second_change_gives_back_only_its_own(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2))
    change(cloud, granted.subscription_id, QosRequest(redundancy=1, every=2))
    during = promised(cloud)
    assert cloud.broker.reservations.retiring_claims(granted.subscription_id)
    cloud.is_disk_full = True
    change(cloud, granted.subscription_id, QosRequest(redundancy=1, every=3))
    assert promised(cloud) == during
    assert carried_uncharged(cloud) == set()
    cloud.ask(CENTRE, "c1/e2", Unsubscribe(subscription_ids=(granted.subscription_id,)))
    assert promised(cloud) == during, "the end of it could not be written either"
