"""The leaf broker end to end, without a network: who may talk, terms, tables, granted contracts."""

from __future__ import annotations

import msgspec
import pytest

from gridstat.broker.settings import BrokerSettings
from gridstat.model.errors import NoSuchRouter, NotAuthorised
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.net.command.endpoint_messages import GrantedOutcome, Subscribe, SubscriptionRequest
from gridstat.net.command.machine import Connected, Persist, Received, Send
from gridstat.net.command.messages import (
    Hello,
    Ping,
    ReportRouter,
    Survey,
    TableRefused,
)
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import (
    CENTRE,
    EVERY_MODE,
    PMU,
    VOLTAGE,
    publish,
    ring,
    subscribe,
    variable,
)


@pytest.fixture
def cloud() -> Conversation:
    return pair(settings=BrokerSettings("c1", modes_defined=EVERY_MODE))


@pytest.mark.feature("S0-8", "S3-51", "S3-40")
def test_a_subscription_is_granted_when_every_router_of_its_paths_has_confirmed(
    cloud: Conversation,
) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")

    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2))

    assert granted.variable == voltage
    assert len(granted.paths) == 2
    for path in granted.paths:
        hops = [*path.channel_ids, None]
        for router, channel_id in zip(path.routers, hops, strict=True):
            orders = [
                order
                for order in cloud.path_orders(router)
                if order.variable_id == voltage.variable_id
            ]
            assert voltage.variable_id in cloud.routers[router].table.variables
            assert channel_id is None or channel_id in {order.channel_id for order in orders}
    assert cloud.differing() == []


def test_nothing_is_granted_before_a_router_has_confirmed(cloud: Conversation) -> None:
    cloud.publish(VOLTAGE, "c1/e0")
    inner = ("c1/i0", "c1/i1")
    for name in inner:
        cloud.routers[name].is_silent = True

    assert cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE)) == ()

    for name in inner:
        cloud.confirm(name)
    (answer,) = cloud.answers[CENTRE, cloud.request_id]
    assert isinstance(answer, GrantedOutcome)


@pytest.mark.feature("S0-12", "S3-41")
def test_a_router_with_empty_state_gets_exactly_its_configured_channels() -> None:
    cloud = Conversation().start()

    for name, router in cloud.routers.items():
        out = {
            channel.channel_id for channel in cloud.channels_given if channel.from_router == name
        }
        back = {channel.channel_id for channel in cloud.channels_given if channel.to_router == name}
        assert set(router.table.channels) == out
        assert set(router.table.sources) == back
    order = cloud.routers["c1/e0"].table.channels[1]
    peer = cloud.routers["c1/i0"]
    assert (order.to, order.data_port, order.urgent_port) == ("c1/i0", peer.port, peer.port + 1)
    assert order.datagram_version == 3
    assert order.probe_interval_ms == 25


def test_a_channel_speaks_the_highest_version_that_both_ends_know() -> None:
    cloud = Conversation(ring(security="none"))
    cloud.routers["c1/i0"].versions = (1,)
    cloud.start()

    to_old = cloud.routers["c1/e0"].table.channels[1]
    assert (to_old.datagram_version, to_old.probe_interval_ms) == (1, 0)
    assert cloud.routers["c1/i0"].table.sources[1].silent_ms_max == 0
    assert cloud.routers["c1/e1"].table.channels[2].datagram_version == 2


def test_routers_upgraded_one_by_one_are_agreed_with_anew() -> None:
    cloud = Conversation(ring(security="none"))
    for router in cloud.routers.values():
        router.versions = (1,)
    cloud.start()

    for name in sorted(cloud.routers):
        cloud.disconnect(name)
        cloud.routers[name].crash()
        cloud.routers[name].versions = (1, 2)
        cloud.connect(name)
        cloud.settle()
        assert cloud.differing() == []

    versions = {
        order.datagram_version
        for router in cloud.routers.values()
        for order in router.table.channels.values()
    }
    assert versions == {2}


def test_each_router_holds_the_values_of_each_mode(cloud: Conversation) -> None:
    cloud.publish(VOLTAGE, "c1/e0")
    modes = {
        0: QosRequest(every=4, redundancy=2, priority=5),
        1: QosRequest(every=2, redundancy=1, priority=2),
    }
    request = SubscriptionRequest(name=VOLTAGE, qos=ModalQos(modes))

    (outcome,) = cloud.ask(CENTRE, "c1/e2", Subscribe(subscriptions=(request,)))

    assert isinstance(outcome, GrantedOutcome)
    first, second = outcome.paths
    here = {
        (order.every, order.modes, order.priority) for order in cloud.path_orders(first.routers[0])
    }
    there = {
        (order.every, order.modes, order.priority) for order in cloud.path_orders(second.routers[0])
    }
    assert here == {(4, 0b01, 5), (2, 0b10, 2)}
    assert there == {(4, 0b01, 5)}


def test_the_term_grows_durably_before_anything_is_sent() -> None:
    cloud = Conversation()
    cloud.is_journal_held = True
    cloud.carry_out(cloud.broker.start(0))
    for name in sorted(cloud.routers):
        cloud.connect(name)

    assert [type(said) for said in cloud.instructions] == [Persist]

    cloud.is_journal_held = False
    cloud.write()
    assert {router.accepted[0].term for router in cloud.routers.values()} == {1}
    cloud.kill_broker()
    cloud.start()
    assert {router.accepted[1].term for router in cloud.routers.values()} == {2}


def test_a_term_that_cannot_be_stored_is_tried_again_and_nobody_hears_before() -> None:
    cloud = Conversation()
    cloud.is_disk_full = True
    cloud.start()
    assert not any(isinstance(said, Send) for said in cloud.instructions)

    cloud.is_disk_full = False
    cloud.advance(cloud.settings.retry_after_ns)
    cloud.settle()

    terms = {router.accepted[0].term for router in cloud.routers.values()}
    assert terms == {cloud.broker.registry.term}
    assert cloud.differing() == []


def test_a_stranger_that_calls_itself_router_is_sent_away(cloud: Conversation) -> None:
    hello = Hello(role="router", name="c1/x9", instance="1")
    cloud.tell(Connected("router/c1/x9", hello))
    report = ReportRouter(host="h", data_port=1, urgent_port=2, is_first_time=True)
    cloud.tell(Received("router/c1/x9", report))

    (closed,) = cloud.closed
    assert (closed.peer, closed.code) == ("router/c1/x9", NoSuchRouter.code)


@pytest.mark.parametrize("peer", ["endpoint/c1/north/pmu", "broker/c2"])
def test_only_routers_and_operators_have_business_with_a_broker(
    cloud: Conversation, peer: str
) -> None:
    role, _, name = peer.partition("/")
    cloud.tell(Connected(peer, Hello(role=role, name=name, instance="1")))
    cloud.tell(Received(peer, Survey(request_id=1)))

    assert {closed.code for closed in cloud.closed} == {NotAuthorised.code}
    assert "rule role" in cloud.closed[0].reason
    assert cloud.operator_answers == []


def test_a_router_may_not_speak_as_an_operator_nor_an_operator_as_a_router(
    cloud: Conversation,
) -> None:
    cloud.hear("c1/e0", Survey(request_id=1))
    cloud.tell(Received("operator/c1/alice", TableRefused(number=1, code=1, reason="")))
    cloud.tell(Received("operator/c1/alice", Ping(number=1)))

    assert [closed.peer for closed in cloud.closed] == [
        "router/c1/e0",
        "operator/c1/alice",
        "operator/c1/alice",
    ]


def test_a_refused_table_is_sent_whole_and_then_ever_more_rarely(cloud: Conversation) -> None:
    router = cloud.routers["c1/e0"]
    router.is_silent = True
    before = len(router.changes)

    for _ in range(3):
        cloud.hear("c1/e0", TableRefused(number=1, code=4003, reason="no room"))

    assert [change.begins_anew for change in router.changes[before:]].count(True) == 1
    assert "whole/c1/e0" in cloud.timers
    cloud.fire("whole/c1/e0")
    assert [change.begins_anew for change in router.changes[before:]].count(True) == 2


def test_a_router_whose_digest_is_not_what_was_sent_gets_the_whole_table(
    cloud: Conversation,
) -> None:
    router = cloud.routers["c1/e0"]
    router.table.clear()  # It forgot everything without telling.

    cloud.publish(VOLTAGE, "c1/e0")

    assert router.changes[-1].is_last
    assert any(change.begins_anew for change in router.changes[-5:])
    assert cloud.differing() == []


def test_a_second_report_in_one_session_is_ignored(cloud: Conversation) -> None:
    router = cloud.routers["c1/e0"]
    before = len(router.accepted)
    cloud.hear("c1/e0", router.report())
    assert len(router.accepted) == before


def test_a_router_that_obeys_a_newer_broker_is_noted(cloud: Conversation) -> None:
    cloud.disconnect("c1/e0")
    hello = Hello(role="router", name="c1/e0", instance="1")
    cloud.tell(Connected("router/c1/e0", hello))
    report = msgspec.structs.replace(cloud.routers["c1/e0"].report(), term=99)
    cloud.hear("c1/e0", report)
    (facts,) = [dict(note.facts) for note in cloud.notes if note.word == "newer_term"]
    assert (facts["router"], facts["term"]) == ("c1/e0", 99)
    assert "--begin-at-term" in str(facts["hint"])
    assert cloud.broker.survey()["highest_term_reported"] == 99


def test_a_broker_whose_journal_is_lost_begins_at_the_term_that_it_is_told() -> None:
    cloud = Conversation(settings=BrokerSettings("c1", term_min=8)).start()
    assert cloud.broker.registry.term == 8
    assert cloud.routers["c1/e0"].accepted[-1].term == 8
    (facts,) = [dict(note.facts) for note in cloud.notes if note.word == "term_raised"]
    assert facts == {"before": 0, "term": 8}
    cloud.kill_broker()
    cloud.start()
    assert cloud.broker.registry.term == 9  # The same number again is below the journal's.


def test_changes_are_coalesced_into_one_message_a_router(cloud: Conversation) -> None:
    names = [f"{PMU}/v{number}" for number in range(50)]
    for name in names:
        cloud.send(PMU, "c1/e0", publish(variable(name)))
    before = len(cloud.routers["c1/e0"].changes)
    cloud.settle()

    assert len(cloud.routers["c1/e0"].changes) == before + 1
    assert len(cloud.routers["c1/e0"].changes[-1].variables) == 50


def test_a_slow_router_gathers_changes_until_it_confirms(cloud: Conversation) -> None:
    router = cloud.routers["c1/e0"]
    router.is_silent = True
    before = len(router.changes)
    for number in range(20):
        cloud.send(PMU, "c1/e0", publish(variable(f"{PMU}/v{number}")))
        cloud.settle()

    assert len(router.changes) == before + 8
    cloud.confirm("c1/e0")
    cloud.settle()
    assert len(router.changes) == before + 9
    cloud.confirm("c1/e0")
    assert cloud.differing() == []
    assert len([key for key in cloud.answers if key[0] == PMU]) == 22
