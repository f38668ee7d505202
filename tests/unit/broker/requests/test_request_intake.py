"""Requests: signed by the end-point, forwarded by an edge it is attached to, answered once."""

from __future__ import annotations

import msgspec
import pytest

from gridstat.broker.records.answer_cache import ANSWERS_MAX
from gridstat.broker.settings import BrokerSettings, Quotas
from gridstat.model.errors import (
    CertificateRefused,
    LayoutError,
    MalformedFrame,
    NotAttached,
    NotAuthorised,
    QuotaReached,
    Refused,
    StorageFailed,
)
from gridstat.model.qos import ModalQos
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import (
    Attach,
    Detach,
    EndPointCommand,
    FindVariables,
    FoundOutcome,
    GrantedOutcome,
    LedgerEntry,
    PublishedOutcome,
    RefusedOutcome,
    ReportLedger,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
)
from gridstat.net.command.endpoint_signatures import signed_bytes
from gridstat.net.command.messages import Forward
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import (
    CENTRE,
    CERTIFICATE_END_S,
    CLOUD,
    PMU,
    VOLTAGE,
    WALL_NS,
    publish,
    subscribe,
    variable,
)


@pytest.fixture
def cloud() -> Conversation:
    found = pair()
    found.publish(VOLTAGE, "c1/e0")
    return found


def raw(cloud: Conversation, body: bytes, *, endpoint: str = PMU, edge: str = "c1/e0") -> int:
    cloud.request_id += 1
    signature = f"endpoint/{endpoint}".encode() + signed_bytes(endpoint, cloud.request_id, body)
    cloud.hear(
        edge,
        Forward(endpoint=endpoint, request_id=cloud.request_id, body=body, signature=signature),
    )
    return cloud.request_id


def test_a_request_that_another_key_signed_is_refused(cloud: Conversation) -> None:
    refused = refusal(cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/b")), key=CENTRE))
    assert (refused.code, "rule signature" in refused.reason) == (NotAuthorised.code, True)
    assert f"{PMU}/b" not in cloud.broker.registry.publications


def test_a_forged_request_cannot_read_a_kept_answer(cloud: Conversation) -> None:
    cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    again = cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE), request_id=cloud.request_id, key=PMU)
    assert refusal(again).code == NotAuthorised.code


def test_a_request_by_an_edge_where_it_is_not_attached_is_refused_as_not_attached(
    cloud: Conversation,
) -> None:
    """The end-point attaches anew then; the same request by its other edge may be granted."""
    wanted = publish(variable(f"{PMU}/b"))
    refused = refusal(cloud.ask(PMU, "c1/e2", wanted))
    assert (refused.code, "rule attachment" in refused.reason) == (NotAttached.code, True)
    cloud.ask(PMU, "c1/e0", wanted, request_id=cloud.request_id)
    assert f"{PMU}/b" in cloud.broker.registry.publications


def test_a_request_of_nobody_is_refused_as_not_attached(cloud: Conversation) -> None:
    assert refusal(cloud.ask("c1/nobody", "c1/e0", Unsubscribe())).code == NotAttached.code


def test_a_body_that_is_no_request_is_refused_with_its_code(cloud: Conversation) -> None:
    number = raw(cloud, b"\xc1not msgpack")
    assert refusal(cloud.answers[PMU, number]).code == MalformedFrame.code


def test_values_out_of_their_bounds_are_refused_with_their_own_code(cloud: Conversation) -> None:
    body = msgspec.msgpack.encode(
        {
            "type": "Subscribe",
            "subscriptions": [
                {
                    "type": "SubscriptionRequest",
                    "name": VOLTAGE,
                    "qos": {"modes": {0: {"every": 0}}},
                }
            ],
        }
    )
    number = raw(cloud, body, endpoint=CENTRE, edge="c1/e2")
    assert refusal(cloud.answers[CENTRE, number]).code == LayoutError.code


ENTRY = LedgerEntry(subscription_id=1)
REQUEST = SubscriptionRequest(name=VOLTAGE, qos=ModalQos())


@pytest.mark.parametrize(
    "command",
    [
        ReportLedger(entries=(msgspec.structs.replace(ENTRY, copies=(1,) * 9),)),
        ReportLedger(entries=(msgspec.structs.replace(ENTRY, expected=-5),)),
        ReportLedger(entries=(msgspec.structs.replace(ENTRY, copies=(-1,)),)),
        Subscribe(subscriptions=(msgspec.structs.replace(REQUEST, label="x" * 256),)),
        Subscribe(subscriptions=(msgspec.structs.replace(REQUEST, name="x" * 256),)),
        Attach(edge="c1/e0", certificate=b"x" * 16_385, incarnation="a", first_time=True),
        Attach(edge="c1/e0", certificate=b"x", incarnation="a" * 129, first_time=True),
    ],
)
def test_what_is_longer_than_its_bound_is_refused_and_nothing_of_it_kept(
    cloud: Conversation, command: EndPointCommand
) -> None:
    size = len(cloud.journal)
    assert refusal(cloud.ask(PMU, "c1/e0", command)).code == MalformedFrame.code
    assert len(cloud.journal) == size


def word(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


DEEP = b"\x91" * 200_000 + b"\xc0"
SUBSCRIBE = (
    b"\x82" + word("type") + word("Subscribe") + word("subscriptions") + b"\x91\x83"
    + word("name") + word(VOLTAGE) + word("qos") + word({"modes": {0: {}}}) + word("value_type")
)  # fmt: skip
FIND = b"\x82" + word("type") + word("FindVariables") + word("pattern")
DETACH = b"\x82" + word("type") + word("Detach") + word("colour")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(DEEP, id="deep nesting"),
        pytest.param(SUBSCRIBE + DEEP, id="a deep type"),
        pytest.param(DETACH + DEEP, id="a deep unknown field"),
        pytest.param(FIND + b"\xa2\xff\xfe", id="bad UTF-8"),
        pytest.param(FIND + b"\xa3\xed\xa0\x80", id="a lone surrogate"),
        pytest.param(SUBSCRIBE + b"\x81\x80\x01", id="a map as a key"),
        pytest.param(SUBSCRIBE + b"\xd7\xff" + b"\xff" * 8, id="a time out of range"),
        pytest.param(SUBSCRIBE + b"\xcb\x7f\xf8" + bytes(6), id="a type that is not a number"),
        pytest.param(FIND + b"\xcf" + b"\xff" * 8, id="a huge number for a name"),
        pytest.param(FIND + word("c1/" + "x" * 1_000_000), id="a huge name"),
    ],
)
def test_hostile_bytes_are_refused_and_the_next_request_is_served(
    cloud: Conversation, body: bytes
) -> None:
    number = raw(cloud, body)
    assert isinstance(refusal(cloud.answers[PMU, number]), RefusedOutcome)
    assert isinstance(cloud.ask(PMU, "c1/e0", FindVariables(pattern="c1/**"))[0], FoundOutcome)


@pytest.mark.parametrize("number", [-1, -(2**63), 2**63, 2**64 - 1])
def test_a_number_that_no_clock_gives_is_refused(cloud: Conversation, number: int) -> None:
    forward = Forward(endpoint=PMU, request_id=number, body=FIND + word("c1/**"), signature=b"")
    cloud.hear("c1/e0", forward)
    assert refusal(cloud.answers[PMU, number]).code == MalformedFrame.code


def test_a_number_a_day_ahead_is_refused_and_bars_nobody(cloud: Conversation) -> None:
    ahead = WALL_NS + 25 * 3_600 * NS_PER_S
    refused = refusal(cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/b")), request_id=ahead))
    assert (refused.code, "rule number" in refused.reason) == (NotAuthorised.code, True)
    cloud.ask(PMU, "c1/e0", Detach())
    assert cloud.attach(PMU, "c1/e0", incarnation="b")


def test_a_certificate_that_expires_after_its_end_point_has_attached_proves_no_more(
    cloud: Conversation,
) -> None:
    cloud.now_ns = CERTIFICATE_END_S * NS_PER_S - WALL_NS
    cloud.publish(f"{PMU}/b", "c1/e0")
    cloud.now_ns += 1
    refused = refusal(cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/c"))))
    assert (refused.code, "has expired" in refused.reason) == (CertificateRefused.code, True)
    assert f"{PMU}/c" not in cloud.broker.registry.publications


def test_a_name_longer_than_any_is_refused(cloud: Conversation) -> None:
    forward = Forward(endpoint="c1/" + "x" * 70_000, request_id=7, body=word(1), signature=b"")
    cloud.hear("c1/e0", forward)
    assert refusal(cloud.answers[forward.endpoint, 7]).code == MalformedFrame.code


def test_a_fault_of_the_broker_over_one_request_leaves_no_trace_and_serves_the_next(
    cloud: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    cloud.may_fail = True
    with monkeypatch.context() as faulty:
        faulty.setattr(cloud.broker._publications, "_match_patterns", fail)
        assert refusal(cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/b")))).code == Refused.code
    assert "request_failed" in [note.word for note in cloud.notes]
    assert f"{PMU}/b" not in cloud.broker.registry.publications
    assert isinstance(cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/b")))[0], PublishedOutcome)

    with monkeypatch.context() as faulty:
        faulty.setattr(cloud.broker._requests, "_check", fail)
        refused = refusal(cloud.ask(PMU, "c1/e0", FindVariables(pattern="c1/**")))
        assert refused.code == MalformedFrame.code
    assert isinstance(cloud.ask(PMU, "c1/e0", FindVariables(pattern="c1/**"))[0], FoundOutcome)


def test_unknown_fields_of_a_request_are_ignored(cloud: Conversation) -> None:
    body = msgspec.msgpack.encode({"type": "FindVariables", "pattern": "c1/**", "colour": 7})
    number = raw(cloud, body)
    assert isinstance(cloud.answers[PMU, number][0], FoundOutcome)


def test_a_repeated_request_is_answered_and_not_done_again(cloud: Conversation) -> None:
    first = cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    again = cloud.ask(CENTRE, "c1/e3", subscribe(VOLTAGE), request_id=cloud.request_id)
    assert again == first
    assert cloud.answered_by[-1][0] == "c1/e3"
    assert len(cloud.broker.registry.subscriptions) == 1


def test_a_request_repeated_while_it_is_decided_is_answered_to_both_edges(
    cloud: Conversation,
) -> None:
    cloud.is_journal_held = True
    number = cloud.send(CENTRE, "c1/e2", subscribe(VOLTAGE))
    cloud.send(CENTRE, "c1/e3", subscribe(VOLTAGE), request_id=number)
    cloud.is_journal_held = False
    cloud.write()
    cloud.settle()

    edges = [edge for edge, endpoint, found in cloud.answered_by if found == number]
    assert edges == ["c1/e2", "c1/e3"]
    assert len(cloud.broker.registry.subscriptions) == 1


def test_a_repeated_request_is_answered_after_a_restart_of_the_broker_too(
    cloud: Conversation,
) -> None:
    first = cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    number = cloud.request_id
    cloud.kill_broker()
    cloud.start()
    again = cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE), request_id=number)
    assert again == first
    assert len(cloud.broker.registry.subscriptions) == 1


def test_a_refused_request_stays_refused_after_a_restart_of_the_broker(
    cloud: Conversation,
) -> None:
    name = f"{PMU}/later"
    first = cloud.ask(CENTRE, "c1/e2", subscribe(name))
    number = cloud.request_id
    cloud.publish(name, "c1/e0")
    cloud.kill_broker()
    cloud.start()
    again = cloud.ask(CENTRE, "c1/e3", subscribe(name), request_id=number)
    assert again == first
    assert cloud.broker.registry.subscriptions == {}


def test_a_broker_that_cannot_write_refuses_nothing_as_if_it_could(cloud: Conversation) -> None:
    """Check a broker that may have been replaced without knowing; only the journal decides."""
    cloud.is_journal_held = True
    assert cloud.ask(CENTRE, "c1/e2", subscribe(f"{PMU}/nothing")) == ()


def test_a_request_older_than_all_that_are_kept_is_a_replay(cloud: Conversation) -> None:
    number = cloud.send(PMU, "c1/e0", FindVariables(pattern="c1/**"))
    for _ in range(ANSWERS_MAX):
        cloud.send(PMU, "c1/e0", FindVariables(pattern="c1/**"))
    refused = refusal(cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/b")), request_id=number))
    assert (refused.code, "rule replay" in refused.reason) == (NotAuthorised.code, True)


def test_a_request_of_an_earlier_process_is_a_replay_after_it_has_left(cloud: Conversation) -> None:
    old = cloud.request_id
    cloud.ask(PMU, "c1/e0", Detach())
    cloud.attach(PMU, "c1/e0", incarnation="b")
    refused = refusal(cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/b")), request_id=old))
    assert "rule replay" in refused.reason


def test_a_farewell_said_again_does_not_send_the_next_process_away(cloud: Conversation) -> None:
    cloud.ask(PMU, "c1/e0", Detach())
    farewell = cloud.request_id
    cloud.attach(PMU, "c1/e0", incarnation="b")
    cloud.publish(VOLTAGE, "c1/e0")
    refused = refusal(cloud.ask(PMU, "c1/e0", Detach(), request_id=farewell))
    assert "rule replay" in refused.reason
    assert VOLTAGE in cloud.broker.registry.publications


def test_a_request_whose_answer_no_snapshot_keeps_is_not_done_again() -> None:
    cloud = pair(settings=BrokerSettings(CLOUD, subscribe_at_once=300))
    cloud.publish(VOLTAGE, "c1/e0")
    names = [f"{PMU}/v{number}" for number in range(300)]
    cloud.ask(PMU, "c1/e0", publish(*[variable(name) for name in names]))
    cloud.ask(CENTRE, "c1/e2", subscribe(*names))
    number = cloud.request_id
    cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    cloud.journal[:] = cloud.broker.snapshot()
    cloud.kill_broker()
    cloud.start()
    refused = refusal(cloud.ask(CENTRE, "c1/e2", subscribe(*names), request_id=number))
    assert "rule replay" in refused.reason
    assert len(cloud.broker.registry.subscriptions) == 301


def test_a_long_look_up_is_not_kept_and_may_be_repeated(cloud: Conversation) -> None:
    names = [f"{PMU}/v{number}" for number in range(100)]
    cloud.ask(PMU, "c1/e0", publish(*[variable(name) for name in names]))
    first = cloud.ask(CENTRE, "c1/e2", FindVariables(pattern="c1/**"))
    number = cloud.request_id
    assert number not in cloud.broker.registry.endpoints[CENTRE].answer_cache.held
    again = cloud.ask(CENTRE, "c1/e2", FindVariables(pattern="c1/**"), request_id=number)
    assert again == first


def test_requests_may_overtake_each_other(cloud: Conversation) -> None:
    late = cloud.request_id + 1
    cloud.request_id += 5
    cloud.ask(PMU, "c1/e0", FindVariables(pattern="c1/**"))
    outcomes = cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/b")), request_id=late)
    assert isinstance(outcomes[0], PublishedOutcome)


def test_an_end_point_cannot_pile_up_requests() -> None:
    cloud = pair(settings=BrokerSettings(CLOUD, quotas=Quotas(pending_requests_max=3)))
    cloud.is_journal_held = True
    for number in range(3):
        cloud.send(PMU, "c1/e0", publish(variable(f"{PMU}/v{number}")))
    refused = refusal(cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/v3"))))
    assert refused.code == QuotaReached.code
    cloud.is_journal_held = False
    cloud.write()
    cloud.settle()
    outcomes = cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/v3")))
    assert isinstance(outcomes[0], PublishedOutcome)


def test_more_than_a_request_may_hold_is_refused(cloud: Conversation) -> None:
    (one,) = subscribe(VOLTAGE).subscriptions
    refused = refusal(cloud.ask(CENTRE, "c1/e2", Subscribe(subscriptions=(one,) * 1_001)))
    assert refused.code == QuotaReached.code


def test_what_an_edge_forwards_before_it_has_reported_waits_for_its_report(
    cloud: Conversation,
) -> None:
    cloud.disconnect("c1/e2")
    assert cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE)) == ()
    number = cloud.request_id
    cloud.connect("c1/e2")
    cloud.settle()
    outcomes = cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE), request_id=number)
    assert isinstance(outcomes[0], GrantedOutcome)


def test_a_farewell_said_again_is_not_answered_before_the_first_is_durable(
    cloud: Conversation,
) -> None:
    cloud.is_journal_held = True
    farewell = cloud.send(PMU, "c1/e0", Detach())
    cloud.send(PMU, "c1/e1", Detach(), request_id=farewell)
    another = cloud.send(PMU, "c1/e1", Detach())
    assert not {(PMU, farewell), (PMU, another)} & cloud.answers.keys()

    cloud.is_disk_full = True
    cloud.is_journal_held = False
    cloud.write()
    for number in (farewell, another):
        assert refusal(cloud.answers[PMU, number]).code == StorageFailed.code
    assert PMU in cloud.broker.registry.endpoints
