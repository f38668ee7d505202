"""The session of an end-point: attach, ask, repeat, come back."""

from __future__ import annotations

import pytest
from msgspec import structs

from gridstat.endpoint.request_table import WAITING_MAX, WINDOW
from gridstat.endpoint.session_events import (
    Answered,
    AttachRefused,
    EdgeAttached,
    EdgeLost,
    NoticeReceived,
    PublicationRestored,
    RegistrationsLost,
    Unanswered,
)
from gridstat.model.channel_security import NONE, SEALED_VERSION
from gridstat.model.errors import (
    EndPointExists,
    LimitReached,
    NotAttached,
    NotAuthorised,
    SecurityNotSatisfiable,
    StorageFailed,
)
from gridstat.model.qos import ModalQos
from gridstat.model.rate_law import Period
from gridstat.net.command.endpoint_messages import (
    Answer,
    Attach,
    ChangePublication,
    ChangeSubscription,
    ContractChanged,
    Detach,
    ModesChanged,
    Notify,
    Publish,
    RefusedOutcome,
    Subscribe,
    Unpublish,
    Unsubscribe,
)
from gridstat.net.command.endpoint_signatures import signed_bytes
from gridstat.net.command.machine import Received
from tests.unit.endpoint.scripted_cloud import (
    NAME,
    ScriptedCloud,
    attached,
    attached_cloud,
    granted,
    publish,
    published,
    subscribe,
)

EXISTS = RefusedOutcome(code=EndPointExists.code, reason="another process")
UNKNOWN = RefusedOutcome(code=NotAttached.code, reason="who are you?")
DISK_FULL = RefusedOutcome(code=StorageFailed.code, reason="nothing was changed: disk full")


@pytest.mark.feature("S0-24")
def test_a_new_session_attaches_for_the_first_time() -> None:
    cloud = ScriptedCloud()
    cloud.connect()
    (command,) = cloud.commands()
    assert isinstance(command, Attach)
    assert (command.edge, command.first_time, command.incarnation) == ("c1/e0", True, "first")
    assert cloud.words(cloud.answer(attached())) == [EdgeAttached("c1/e0", attached())]
    assert cloud.session.attached_edges == ("c1/e0",)


def test_each_request_is_signed_over_name_number_and_body() -> None:
    cloud = ScriptedCloud()
    cloud.connect()
    (_, submit) = cloud.submitted[0]
    assert submit.signature == signed_bytes(NAME, submit.request_id, submit.body)[:8]


def test_a_renewed_certificate_and_its_key_are_used_from_the_next_attach_on() -> None:
    cloud = ScriptedCloud()
    cloud.connect()
    cloud.answer(attached())
    cloud.certificate, cloud.sign = b"renewed", lambda words: words[-8:]
    cloud.ask(publish("a"))
    (_, before) = cloud.submitted[-1]
    assert before.signature == signed_bytes(NAME, before.request_id, before.body)[:8]
    cloud.cut()
    cloud.connect()
    command, (_, submit) = cloud.commands()[-1], cloud.submitted[-1]
    assert isinstance(command, Attach)
    assert command.certificate == b"renewed"
    assert submit.signature == signed_bytes(NAME, submit.request_id, submit.body)[-8:]


def test_the_second_edge_waits_until_the_first_has_been_answered() -> None:
    cloud = ScriptedCloud("c1/e0", "c1/e1")
    cloud.connect("c1/e1")
    cloud.connect("c1/e0")
    assert [edge for edge, _ in cloud.submitted] == ["c1/e1"]
    cloud.answer(attached("c1/e1"))
    assert [edge for edge, _ in cloud.submitted] == ["c1/e1", "c1/e0"]
    second = cloud.commands()[1]
    assert isinstance(second, Attach)
    assert not second.first_time
    cloud.answer(attached("c1/e0"))
    assert cloud.session.attached_edges == ("c1/e0", "c1/e1")


def test_the_second_edge_does_not_wait_for_ever() -> None:
    cloud = ScriptedCloud("c1/e0", "c1/e1")
    cloud.connect("c1/e0")
    cloud.connect("c1/e1")
    cloud.wait(2.5)
    assert {edge for edge, _ in cloud.submitted} == {"c1/e0", "c1/e1"}


@pytest.mark.feature("S0-118")
def test_after_a_lost_link_the_same_incarnation_attaches_again() -> None:
    cloud = attached_cloud()
    assert cloud.words(cloud.cut()) == [EdgeLost("c1/e0")]
    assert cloud.session.attached_edges == ()
    cloud.connect()
    (command,) = cloud.commands()
    assert isinstance(command, Attach)
    assert not command.first_time
    assert command.incarnation == "first"


def test_an_answer_comes_back_once_however_often_it_was_asked() -> None:
    cloud = attached_cloud()
    cloud.ask(subscribe("x"), token=9, within_s=30)
    cloud.wait(4)
    assert len(cloud.submitted) >= 3
    assert len({submit.request_id for _, submit in cloud.submitted}) == 1
    assert cloud.words(cloud.answer(granted("x", 5))) == [
        Answered(9, (granted("x", 5),), (b"newest",))
    ]
    assert cloud.words(cloud.answer(granted("x", 5))) == []
    cloud.submitted.clear()
    cloud.wait(20)
    assert cloud.submitted == []


def test_a_repetition_tries_the_other_edge() -> None:
    cloud = attached_cloud("c1/e0", "c1/e1")
    cloud.ask(subscribe("x"), within_s=30)
    cloud.wait(4)
    assert [edge for edge, _ in cloud.submitted][:3] == ["c1/e0", "c1/e1", "c1/e0"]


def test_repetitions_grow_rarer() -> None:
    cloud = attached_cloud()
    cloud.ask(subscribe("x"), within_s=100)
    cloud.wait(40)
    assert 5 <= len(cloud.submitted) <= 9


def test_a_request_whose_edge_is_lost_goes_to_the_other_at_once() -> None:
    cloud = attached_cloud("c1/e0", "c1/e1")
    cloud.ask(subscribe("x"))
    cloud.cut("c1/e0")
    assert [edge for edge, _ in cloud.submitted] == ["c1/e0", "c1/e1"]
    assert cloud.submitted[0][1] == cloud.submitted[1][1]


@pytest.mark.parametrize("code", [NotAuthorised.code, NotAttached.code])
def test_a_refusal_by_an_edge_that_a_request_has_left_does_not_hide_a_grant(code: int) -> None:
    """A broker that lost its journal knows us at the second edge, and at the first not yet."""
    cloud = attached_cloud("c1/e0", "c1/e1")
    cloud.ask(publish("a"), token=9, within_s=30)
    cloud.cut("c1/e0")
    assert [edge for edge, _ in cloud.submitted] == ["c1/e0", "c1/e1"]
    cloud.connect("c1/e0")
    refused = RefusedOutcome(code=code, reason="not attached to c1/e0, which forwards it")

    assert cloud.words(cloud.answer(refused, at=0)) == []

    assert cloud.words(cloud.answer(published("a"), at=1)) == [
        Answered(9, (published("a"),), (b"newest",))
    ]


def test_a_refusal_by_the_edge_where_a_request_waits_decides() -> None:
    cloud = attached_cloud("c1/e0", "c1/e1")
    cloud.ask(publish("a"), token=9, within_s=30)
    cloud.cut("c1/e0")
    refused = RefusedOutcome(code=NotAuthorised.code, reason="no rule lets you")
    assert cloud.words(cloud.answer(refused)) == [Answered(9, (refused,), (b"newest",))]


def test_an_answer_with_a_grant_decides_whichever_edge_brings_it() -> None:
    cloud = attached_cloud("c1/e0", "c1/e1")
    cloud.ask(publish("a", "b"), token=9, within_s=30)
    cloud.cut("c1/e0")
    cloud.connect("c1/e0")
    outcomes = published("a"), RefusedOutcome(code=NotAuthorised.code, reason="no rule lets you")
    assert cloud.words(cloud.answer(*outcomes, at=0)) == [Answered(9, outcomes, (b"newest",))]


def test_what_is_asked_without_an_edge_waits_for_one() -> None:
    cloud = ScriptedCloud()
    cloud.ask(subscribe("x"))
    assert cloud.submitted == []
    cloud.attach()
    assert cloud.commands()[-1] == subscribe("x")


def test_what_nobody_answers_ends_at_its_deadline() -> None:
    cloud = ScriptedCloud()
    cloud.ask(subscribe("x"), token=4, within_s=3)
    assert cloud.words(cloud.wait(2.9)) == []
    assert cloud.words(cloud.wait(0.2)) == [Unanswered(4)]
    cloud.attach()
    assert [type(command) for command in cloud.commands()] == [Attach]


@pytest.mark.parametrize(
    ("asked", "late", "undone"),
    [
        (subscribe("x"), granted("x", 5), Unsubscribe(subscription_ids=(5,))),
        (publish(f"{NAME}/a"), published(f"{NAME}/a"), Unpublish(names=(f"{NAME}/a",))),
    ],
)
def test_what_is_granted_after_its_deadline_is_given_back(
    asked: Publish | Subscribe, late: object, undone: object
) -> None:
    cloud = attached_cloud()
    cloud.ask(asked, token=4, within_s=3)
    assert cloud.words(cloud.wait(3.1)) == [Unanswered(4)]
    assert cloud.words(cloud.answer(late)) == []  # type: ignore[arg-type]
    assert cloud.commands()[-1] == undone


def test_a_contract_that_was_changed_after_its_deadline_is_kept_and_its_owner_told() -> None:
    cloud = attached_cloud()
    cloud.ask(subscribe("x"), token=3)
    cloud.answer(granted("x", 5))
    cloud.ask(ChangeSubscription(subscription_id=5, qos=ModalQos()), token=4, within_s=3)
    assert cloud.words(cloud.wait(3.1)) == [Unanswered(4)]
    late = structs.replace(granted("x", 5), order=(2, 9))
    told = cloud.words(cloud.answer(late))
    assert told == [NoticeReceived(ContractChanged(granted=late, order=(2, 9)))]
    assert not any(isinstance(each, Unsubscribe) for each in cloud.commands())


def test_a_period_that_was_changed_after_its_deadline_holds_and_its_publisher_is_told() -> None:
    cloud = attached_cloud()
    name = f"{NAME}/a"
    cloud.ask(publish(name), token=3)
    cloud.answer(published(name))
    cloud.ask(ChangePublication(name=name, period=Period(1, 30)), token=4, within_s=3)
    assert cloud.words(cloud.wait(3.1)) == [Unanswered(4)]
    assert cloud.words(cloud.answer(published(name, 8))) == [
        PublicationRestored(name, published(name, 8))
    ]
    assert not any(isinstance(each, Unpublish) for each in cloud.commands())


def test_a_broker_that_cannot_write_is_asked_again_under_the_same_number() -> None:
    cloud = attached_cloud()
    cloud.ask(subscribe("a"), token=4, within_s=30)
    assert cloud.words(cloud.answer(DISK_FULL)) == []
    cloud.wait(3)
    assert len({submit.request_id for _, submit in cloud.submitted}) == 1
    assert len(cloud.submitted) > 1
    answered = Answered(4, (granted("a", 7),), (b"newest",))
    assert cloud.words(cloud.answer(granted("a", 7))) == [answered]


def test_when_time_is_up_the_application_hears_why_nobody_could_decide() -> None:
    cloud = attached_cloud()
    cloud.ask(publish(f"{NAME}/voltage"), token=4, within_s=3)
    cloud.answer(DISK_FULL)
    assert cloud.words(cloud.wait(3.1)) == [Answered(4, (DISK_FULL,))]


def test_a_contract_that_comes_with_an_answer_nobody_waits_for_is_given_back() -> None:
    cloud = attached_cloud()
    cloud.ask(subscribe("a"))
    cloud.answer(granted("a", 7))
    assert cloud.words(cloud.answer(granted("a", 7))) == []
    assert cloud.commands()[-1] == subscribe("a"), "the one we know of is ours"
    cloud.answer(granted("a", 8))
    assert cloud.commands()[-1] == Unsubscribe(subscription_ids=(8,))


def test_the_numbers_in_flight_span_no_more_than_a_window() -> None:
    cloud = attached_cloud()
    for token in range(WINDOW + 5):
        cloud.ask(subscribe(str(token)), token)
    assert len(cloud.submitted) == WINDOW
    cloud.answer(granted("1", 1), at=1)
    assert len(cloud.submitted) == WINDOW
    cloud.answer(granted("0", 2), at=0)
    assert len(cloud.submitted) == WINDOW + 2


def test_who_asks_faster_than_served_is_told_so() -> None:
    cloud = ScriptedCloud()
    for token in range(WAITING_MAX):
        cloud.ask(subscribe("x"), token)
    cloud.ask(subscribe("x"), token=-1)
    (refused,) = cloud.words(cloud.said)
    assert isinstance(refused, Answered)
    assert refused.token == -1
    assert isinstance(refused.outcomes[0], RefusedOutcome)
    assert refused.outcomes[0].code == LimitReached.code


def test_a_refused_attachment_is_told_and_tried_again_under_a_new_number() -> None:
    cloud = ScriptedCloud()
    cloud.connect()
    assert cloud.words(cloud.answer(EXISTS)) == [AttachRefused("c1/e0", EXISTS)]
    cloud.wait(3)
    first, second, *_ = [submit.request_id for _, submit in cloud.submitted]
    assert second > first
    assert cloud.words(cloud.answer(attached())) == [EdgeAttached("c1/e0", attached())]


@pytest.mark.parametrize("version", range(SEALED_VERSION))
def test_an_attachment_whose_channels_are_not_sealed_is_refused_and_tried_again(
    version: int,
) -> None:
    cloud = ScriptedCloud()
    cloud.connect()
    cloud.ask(publish("a"))
    plain = structs.replace(attached(), datagram_version=version)
    (told,) = cloud.words(cloud.answer(plain))
    assert isinstance(told, AttachRefused)
    assert told.refused.code == SecurityNotSatisfiable.code
    assert "not sealed" in told.refused.reason
    assert "check the edge router" in told.refused.hint
    assert not cloud.session.attached_edges
    assert all(isinstance(each, Attach) for each in cloud.commands()), "nothing is published"
    cloud.wait(30)
    cloud.answer(attached())
    assert list(cloud.session.attached_edges) == ["c1/e0"]


def test_an_end_point_that_demands_no_sealed_channels_attaches_to_plain_ones() -> None:
    cloud = ScriptedCloud(security=NONE)
    cloud.connect()
    plain = structs.replace(attached(), datagram_version=1)
    assert cloud.words(cloud.answer(plain)) == [EdgeAttached("c1/e0", plain)]


def test_an_attachment_that_was_under_way_keeps_its_number_with_the_same_edge_process() -> None:
    cloud = ScriptedCloud()
    cloud.connect(instance="one")
    cloud.cut()
    cloud.connect(instance="one")
    cloud.cut()
    cloud.connect(instance="two")
    first, second, third = [submit.request_id for _, submit in cloud.submitted]
    assert first == second < third


def test_a_broker_that_does_not_know_us_is_attached_to_anew_and_asked_again() -> None:
    cloud = attached_cloud()
    cloud.ask(subscribe("x"), token=3)
    assert cloud.words(cloud.answer(UNKNOWN)) == [EdgeLost("c1/e0")]
    assert isinstance(cloud.commands()[-1], Attach)
    cloud.answer(attached(code=1))
    assert cloud.commands()[-1] == subscribe("x")
    assert cloud.words(cloud.answer(granted("x", 5))) == [
        Answered(3, (granted("x", 5),), (b"newest",))
    ]


def test_a_request_by_an_edge_that_the_broker_forgot_goes_to_the_other_with_its_number() -> None:
    cloud = attached_cloud("c1/e0", "c1/e1")
    cloud.ask(publish("c1/a"), token=3)
    assert cloud.words(cloud.answer(UNKNOWN)) == [EdgeLost("c1/e0")]
    (_, first), (attaching, _), (other, again) = cloud.submitted
    assert (attaching, other) == ("c1/e0", "c1/e1")
    assert isinstance(cloud.commands()[1], Attach)
    assert again == first
    assert cloud.words(cloud.answer(published("c1/a"))) == [
        Answered(3, (published("c1/a"),), (b"newest",))
    ]


@pytest.mark.parametrize("is_late", [False, True])
def test_an_edge_that_the_broker_forgot_does_not_refuse_what_the_other_may_grant(
    *, is_late: bool
) -> None:
    cloud = attached_cloud("c1/e0", "c1/e1")
    cloud.ask(publish("c1/a"), token=3, within_s=1)
    cloud.cut("c1/e0")
    if is_late:
        assert cloud.words(cloud.wait(1.1)) == [Unanswered(3)]
    cloud.connect("c1/e0")
    assert cloud.words(cloud.answer(UNKNOWN, at=0)) == []
    said = cloud.words(cloud.answer(published("c1/a"), at=1))
    if is_late:
        assert cloud.commands()[-1] == Unpublish(names=("c1/a",))
    else:
        assert said == [Answered(3, (published("c1/a"),), (b"newest",))]


def test_who_has_said_farewell_does_not_attach_again_to_a_broker_that_let_it_go() -> None:
    cloud = attached_cloud()
    cloud.ask(subscribe("x"), token=3)
    cloud.ask(Detach(), token=4)
    assert cloud.words(cloud.answer(UNKNOWN, at=0)) == [Answered(3, (UNKNOWN,), (b"newest",))]
    assert [type(command) for command in cloud.commands()] == [Subscribe, Detach]


def test_a_broker_that_never_knows_us_is_believed_in_the_end() -> None:
    cloud = attached_cloud()
    cloud.ask(subscribe("x"), token=3)
    for _ in range(3):
        cloud.answer(UNKNOWN)
        cloud.answer(attached(code=1))
    assert cloud.words(cloud.answer(UNKNOWN)) == [Answered(3, (UNKNOWN,), (b"newest",))]


def test_notices_reach_the_application() -> None:
    cloud = attached_cloud()
    notice = ModesChanged(modes=5, next_modes=9)
    assert cloud.words(cloud.tell(notice)) == [NoticeReceived(notice, ())]


@pytest.mark.parametrize(
    "message",
    [
        Answer(request_id=1_001, body=b"\xc1"),
        Answer(request_id=9, body=b"\x81\xa8outcomes\x90"),
        Notify(body=b"\xc1"),
        Notify(body=b"\x81\xa4type\xa6Future"),
    ],
)
def test_words_that_mean_nothing_to_us_change_nothing(message: Answer | Notify) -> None:
    cloud = attached_cloud()
    cloud.ask(subscribe("x"))
    assert cloud.words(cloud.handle(Received("router/c1/e0", message))) == []
    assert cloud.words(cloud.answer(granted("x", 5))) != []


def test_a_stranger_is_not_listened_to() -> None:
    cloud = attached_cloud()
    assert cloud.connect("c1/e9") == []
    assert cloud.cut("c1/e9") == []
    assert cloud.tell(ModesChanged(modes=1), edge="c1/e9") == []


def test_an_idle_session_sets_no_timer() -> None:
    cloud = attached_cloud()
    assert cloud.wait(0.1) == []


def test_lost_registrations_are_told_before_the_edge_counts_as_attached() -> None:
    cloud = ScriptedCloud()
    cloud.attach(known_since=5)
    cloud.ask(publish("c1/a"))
    cloud.answer(published("c1/a"))
    cloud.cut()
    said = cloud.words(cloud.attach(known_since=9))
    assert [type(word) for word in said] == [RegistrationsLost, EdgeAttached]
