"""Rows that a router's core cannot hold: only the end-points that need them are notified."""

from __future__ import annotations

from typing import Any

import pytest

from gridstat.broker.capacity.allocator import Allocator
from gridstat.broker.requests.pending_grants import GRANT_RETRY_TIMER
from gridstat.model.errors import RouterFull
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    ContractChanged,
    GrantedOutcome,
    RefusedOutcome,
    Unpublish,
    Unsubscribe,
)
from gridstat.net.command.machine import Received
from gridstat.net.command.messages import Explain, RemoveChannel, RemoveRouter, TableRefused
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.operators.test_operator_commands import code
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, subscribe

CURRENT = f"{PMU}/current"
NO_ROOM = "no room for so many variables"
WAY_ROUND_ID = 5_000


@pytest.fixture
def cloud() -> Conversation:
    found = pair()
    found.publish(VOLTAGE, "c1/e0")
    found.publish(CURRENT, "c1/e0")
    return found


def number_of(cloud: Conversation, name: str) -> int:
    return cloud.broker.registry.publications[name].variable.variable_id


def explained(cloud: Conversation, name: str) -> dict[str, Any]:
    cloud.tell(Received("operator/c1/alice", Explain(request_id=8, name=name)))
    (facts,) = cloud.operator_answers[-1].facts["subscriptions"]
    assert isinstance(facts, dict)
    return facts


def inner_router(cloud: Conversation, name: str, redundancy: int = 1) -> tuple[int, str]:
    """A contract that stands, and a router in the middle of its first path."""
    granted = cloud.subscribe(CENTRE, "c1/e2", name, QosRequest(redundancy=redundancy))
    return granted.subscription_id, granted.paths[0].routers[1]


def complain(cloud: Conversation, router: str) -> None:
    """Refuse the table once, as a router does first, and then confirm the rows that it can hold."""
    cloud.hear(router, TableRefused(number=1, code=4003, reason=NO_ROOM))
    cloud.settle()


def refuse_voltage(cloud: Conversation, *routers: str, is_refused: bool = True) -> None:
    """Let each of the routers refuse the row, or hold it again."""
    for router in routers:
        rows = {number_of(cloud, VOLTAGE): NO_ROOM} if is_refused else {}
        cloud.routers[router].refused = rows
        complain(cloud, router)


def told(cloud: Conversation) -> list[GrantedOutcome]:
    return [each.granted for each in cloud.notices[CENTRE] if isinstance(each, ContractChanged)]


def test_a_contract_moves_away_from_a_router_that_refuses_only_its_row(
    cloud: Conversation,
) -> None:
    number, router = inner_router(cloud, VOLTAGE)
    other = cloud.subscribe(CENTRE, "c1/e2", CURRENT)
    assert cloud.broker.tables[router].is_in_step

    refuse_voltage(cloud, router)
    cloud.advance(NS_PER_S)

    (now,) = told(cloud)[-1].paths
    assert told(cloud)[-1].subscription_id == number
    assert router not in now.routers
    assert told(cloud)[-1].degraded == ()
    assert explained(cloud, VOLTAGE)["state"] == "granted"
    assert cloud.broker.registry.subscriptions[other.subscription_id].record.generation == 0
    assert cloud.broker.tables[router].is_in_step
    assert cloud.differing() == []


def test_a_contract_without_a_way_round_stays_and_is_impaired_until_the_row_is_held(
    cloud: Conversation,
) -> None:
    inner_router(cloud, VOLTAGE)
    cloud.subscribe(CENTRE, "c1/e2", CURRENT)

    refuse_voltage(cloud, "c1/i0", "c1/i1")
    cloud.advance(NS_PER_S)

    found = cloud.broker.registry.subscriptions[1]
    router = found.record.paths[0].routers[1]
    assert not cloud.broker.tables[router].is_in_step
    words = f"router {router} cannot carry it: {NO_ROOM}"
    assert explained(cloud, VOLTAGE)["state"] == "impaired"
    assert explained(cloud, VOLTAGE)["degraded"] == [words]
    assert explained(cloud, CURRENT)["degraded"] == []
    assert told(cloud)[-1].degraded == (words,)

    refuse_voltage(cloud, "c1/i0", "c1/i1", is_refused=False)
    cloud.advance(NS_PER_S)

    assert cloud.broker.tables[router].is_in_step
    assert explained(cloud, VOLTAGE)["state"] == "granted"
    assert told(cloud)[-1].degraded == ()


def test_two_routers_that_refuse_a_row_do_not_send_its_contract_to_and_fro(
    cloud: Conversation,
) -> None:
    number, _ = inner_router(cloud, VOLTAGE)
    refuse_voltage(cloud, "c1/i0", "c1/i1")
    cloud.advance(600 * NS_PER_S)
    assert cloud.broker.registry.subscriptions[number].record.generation <= 12


def test_a_refusal_that_is_repeated_with_every_table_is_looked_at_once(
    cloud: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner_router(cloud, VOLTAGE)
    refuse_voltage(cloud, "c1/i0", "c1/i1")
    cloud.advance(NS_PER_S)
    searches = 0
    search = Allocator.replace_path

    def counted(self: Allocator, *args: Any, **kwargs: Any) -> Any:
        nonlocal searches
        searches += 1
        return search(self, *args, **kwargs)

    monkeypatch.setattr(Allocator, "replace_path", counted)
    for _ in range(20):
        both = QosRequest(redundancy=2)
        number = cloud.subscribe(CENTRE, "c1/e2", CURRENT, both).subscription_id
        cloud.ask(CENTRE, "c1/e2", Unsubscribe(subscription_ids=(number,)))
    assert searches == 0


def test_a_router_that_refused_a_row_is_avoided_for_a_while_only(cloud: Conversation) -> None:
    number, router = inner_router(cloud, VOLTAGE)
    refuse_voltage(cloud, router)
    cloud.advance(NS_PER_S)
    avoided = cloud.broker.reservations.allocator.avoided_routers
    variable_id = number_of(cloud, VOLTAGE)
    assert avoided.of(variable_id) == {router}
    cloud.advance(60 * NS_PER_S)
    assert avoided.of(variable_id) == frozenset()
    assert cloud.broker.registry.subscriptions[number].record.generation == 1


def test_a_withdrawn_variable_is_not_remembered_for_what_refused_its_row(
    cloud: Conversation,
) -> None:
    _, router = inner_router(cloud, VOLTAGE)
    refuse_voltage(cloud, router)
    rows = cloud.broker.reservations.allocator.avoided_routers
    cloud.advance(60 * NS_PER_S)  # It would be avoided for longer next time.
    assert rows.counts == {(router, number_of(cloud, VOLTAGE)): 1}

    cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))
    assert VOLTAGE not in cloud.broker.registry.publications
    cloud.advance(1_000 * NS_PER_S)
    assert rows.counts == {}


def test_a_removed_router_is_not_remembered_for_what_it_refused(cloud: Conversation) -> None:
    _, router = inner_router(cloud, VOLTAGE)
    refuse_voltage(cloud, router)
    cloud.advance(60 * NS_PER_S)
    rows = cloud.broker.reservations.allocator.avoided_routers
    assert rows.counts
    for channel in cloud.channels_given:
        start, end = channel.from_router, channel.to_router
        if router in (start, end):
            assert code(cloud, RemoveChannel(request_id=1, from_router=start, to_router=end)) == 0
    assert code(cloud, RemoveRouter(request_id=2, name=router)) == 0
    assert rows.counts == {}


def test_a_new_process_of_a_router_is_asked_again(cloud: Conversation) -> None:
    _, router = inner_router(cloud, VOLTAGE)
    refuse_voltage(cloud, router)
    cloud.advance(NS_PER_S)
    cloud.disconnect(router)
    cloud.routers[router].crash()
    cloud.connect(router)
    cloud.settle()
    avoided = cloud.broker.reservations.allocator.avoided_routers
    assert avoided.of(number_of(cloud, VOLTAGE)) == frozenset()


@pytest.mark.parametrize("is_killed", [False, True], ids=["alive", "killed"])
def test_a_new_contract_whose_path_has_a_refused_row_is_granted_another_way(
    cloud: Conversation, *, is_killed: bool
) -> None:
    cloud.routers["c1/i0"].refused = {number_of(cloud, VOLTAGE): NO_ROOM}

    voltage, current = cloud.ask(
        CENTRE, "c1/e2", subscribe(VOLTAGE, CURRENT), request_id=WAY_ROUND_ID
    )

    assert isinstance(voltage, GrantedOutcome)
    assert isinstance(current, GrantedOutcome)
    assert "c1/i0" not in voltage.paths[0].routers
    assert voltage.degraded == current.degraded == ()
    if is_killed:
        cloud.kill_broker()
        cloud.start()
        again = cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE, CURRENT), request_id=WAY_ROUND_ID)
        assert again == (voltage, current)
    cloud.advance(NS_PER_S)
    assert list(cloud.broker.registry.subscriptions) == [1, 2]
    assert cloud.differing() == []


def test_a_full_disk_keeps_a_way_round_from_being_answered_until_it_is_durable(
    cloud: Conversation,
) -> None:
    cloud.routers["c1/i0"].refused = {number_of(cloud, VOLTAGE): NO_ROOM}
    cloud.routers["c1/i0"].is_silent = True
    asked = cloud.send(CENTRE, "c1/e2", subscribe(VOLTAGE))
    cloud.settle()
    cloud.is_disk_full = True
    cloud.routers["c1/i0"].is_silent = False
    cloud.confirm("c1/i0")
    cloud.advance(NS_PER_S)
    assert (CENTRE, asked) not in cloud.answers

    cloud.is_disk_full = False
    cloud.advance(10 * NS_PER_S)
    granted = cloud.only(GrantedOutcome, cloud.answers[CENTRE, asked])
    assert "c1/i0" not in granted.paths[0].routers
    assert cloud.differing() == []


def test_an_answer_reports_the_old_path_if_the_journal_did_not_take_the_new_one(
    cloud: Conversation,
) -> None:
    """The router holds the row by the time that the write would be tried again."""
    cloud.routers["c1/i0"].refused = {number_of(cloud, VOLTAGE): NO_ROOM}
    cloud.routers["c1/i0"].is_silent = True
    asked = cloud.send(CENTRE, "c1/e2", subscribe(VOLTAGE))
    cloud.settle()
    cloud.is_disk_full = True
    cloud.routers["c1/i0"].is_silent = False
    cloud.confirm("c1/i0")
    assert (CENTRE, asked) not in cloud.answers

    refuse_voltage(cloud, "c1/i0", is_refused=False)
    cloud.fire(GRANT_RETRY_TIMER)
    cloud.settle()
    granted = cloud.only(GrantedOutcome, cloud.answers[CENTRE, asked])
    held = cloud.broker.registry.subscriptions[granted.subscription_id].record
    assert [path.routers for path in granted.paths] == [path.routers for path in held.paths]


def test_a_new_contract_whose_only_path_has_a_refused_row_is_refused_with_the_reason(
    cloud: Conversation,
) -> None:
    edge = cloud.routers["c1/e0"]
    cloud.routers["c1/e1"].refused = edge.refused = {number_of(cloud, VOLTAGE): NO_ROOM}

    voltage, current = cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE, CURRENT))

    assert isinstance(voltage, RefusedOutcome)
    assert voltage.code == RouterFull.code
    assert voltage.reason.endswith(f"cannot carry {VOLTAGE}: {NO_ROOM}")
    assert isinstance(current, GrantedOutcome)
    assert current.degraded == ()
    assert list(cloud.broker.registry.subscriptions) == [current.subscription_id]


def test_a_second_contract_goes_round_a_row_that_is_refused_already(cloud: Conversation) -> None:
    _, router = inner_router(cloud, VOLTAGE)
    refuse_voltage(cloud, router)

    second = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(every=3))

    assert router not in second.paths[0].routers
    assert second.degraded == ()


def test_a_second_contract_that_cannot_go_round_a_refused_row_is_refused_with_the_reason(
    cloud: Conversation,
) -> None:
    inner_router(cloud, VOLTAGE)
    refuse_voltage(cloud, "c1/i0", "c1/i1")

    refused = refusal(cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE)))

    assert refused.code == RouterFull.code
    assert refused.reason.endswith(f"cannot carry {VOLTAGE}: {NO_ROOM}")


def test_old_paths_stay_while_a_row_of_the_new_ones_is_refused(cloud: Conversation) -> None:
    number, _ = inner_router(cloud, VOLTAGE)
    for router in cloud.routers.values():
        router.refused = {number_of(cloud, VOLTAGE): NO_ROOM}
    qos = ModalQos({0: QosRequest(every=3)})
    changed = ChangeSubscription(subscription_id=number, qos=qos)
    granted = cloud.only(GrantedOutcome, cloud.ask(CENTRE, "c1/e2", changed))
    assert any("has not confirmed its part yet" in words for words in granted.degraded)
    cloud.advance(10 * cloud.settings.confirm_within_ns)
    found = cloud.broker.registry.subscriptions[number]
    assert found.retiring

    for name, router in cloud.routers.items():
        router.refused = {}
        complain(cloud, name)
    cloud.advance(10 * cloud.settings.confirm_within_ns)
    assert not found.retiring
    assert cloud.differing() == []
