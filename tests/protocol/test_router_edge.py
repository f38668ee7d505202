"""Messages of an edge router between its end-points and the broker, without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from gridstat.model.errors import (
    MalformedFrame,
    NotAuthorised,
    QuotaReached,
    ShuttingDown,
    WrongCloud,
)
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.model.status import BuiltinType, StatusEvent, StatusVariable
from gridstat.net.codec.event import encode_event
from gridstat.net.command.endpoint_messages import (
    Answer,
    AttachedOutcome,
    EventsPoliced,
    GrantedOutcome,
    Matched,
    Notify,
    Outcomes,
    Unpublished,
)
from gridstat.net.command.frames import decode_notice
from gridstat.net.command.machine import Close, Send, SetTimer
from gridstat.net.command.router_messages import (
    AttachmentChanged,
    DetachEndPoint,
    Forward,
    Push,
    ReportRouter,
    Return,
    RouterAccepted,
    TableChanged,
)
from gridstat.router import EdgeBounds
from gridstat.router.agent_events import Drain, SourcePoliced
from gridstat.router.edge_attachments import KEPT_NS_MAX, AttachmentBounds
from gridstat.router.newest_events import as_cached
from gridstat.router.pending_requests import RequestBounds
from gridstat.router.policed_reports import SENT_AGAIN_NS, UNSENT_MAX, UNSENT_OF_CHANNEL_MAX
from tests.protocol.router_conversation import (
    BROKER,
    PMU,
    PMU_NAME,
    RouterConversation,
    closings,
    said_to,
)

if TYPE_CHECKING:
    from gridstat.net.command.messages import Message

VOLTAGE = StatusVariable(VariableId(5), "c1/pmu/u", BuiltinType.FLOAT64, Period(1, 60))
GRANTED = GrantedOutcome(subscription_id=1, variable=VOLTAGE)
EVENT = encode_event(StatusEvent(9, VariableId(5), b"12345678"))
NOTICE = msgspec.msgpack.encode(Unpublished(subscription_id=1, name="c1/pmu/u"))


def forward(request_id: int) -> Forward:
    return Forward(endpoint=PMU_NAME, request_id=request_id, body=b"body", signature=b"signed")


def answer_to(request_id: int, body: bytes = b"answer") -> Return:
    return Return(term=1, endpoint=PMU_NAME, request_id=request_id, body=body)


@pytest.fixture
def edge() -> RouterConversation:
    edge = RouterConversation(newest={5: EVENT}.get)
    edge.accept()
    edge.connect(PMU)
    return edge


@pytest.mark.feature("S3-43")
def test_an_end_point_attaches_to_an_edge_router_and_the_broker_hears_of_it() -> None:
    edge = RouterConversation()
    edge.accept()
    up, down = (AttachmentChanged(endpoint=PMU_NAME, is_up=is_up) for is_up in (True, False))
    assert edge.connect(PMU) == [Send(BROKER, up)]
    assert said_to(BROKER, edge.disconnect(PMU)) == [down]


@pytest.mark.feature("S3-42")
def test_a_signed_request_passes_to_the_broker_and_its_answer_back(
    edge: RouterConversation,
) -> None:
    assert edge.submit(1) == [Send(BROKER, forward(1))]
    said = edge.broker_says(answer_to(1))
    assert said == [Send(PMU, Answer(request_id=1, body=b"answer"))]


def test_a_repeated_request_is_repeated_to_the_broker_but_not_at_once(
    edge: RouterConversation,
) -> None:
    edge.submit(1)
    assert edge.submit(1) == []
    edge.now_ns += NS_PER_S
    assert edge.submit(1) == [Send(BROKER, forward(1))]


def test_an_end_point_has_only_so_many_requests_in_flight() -> None:
    edge = RouterConversation(edge_bounds=EdgeBounds(requests=RequestBounds(in_flight_max=2)))
    edge.accept()
    edge.connect(PMU)
    said = [message for number in (1, 2, 3) for message in said_to(BROKER, edge.submit(number))]
    assert said == [forward(1), forward(2)]
    assert said_to(BROKER, edge.broker_says(answer_to(1))) == [forward(3)]


@pytest.mark.feature("S0-115")
def test_requests_wait_for_the_broker_in_their_order_and_unanswered_ones_are_said_again(
    edge: RouterConversation,
) -> None:
    edge.submit(1)
    edge.submit(2)
    edge.broker_says(answer_to(1))
    edge.disconnect(BROKER)
    assert edge.submit(3) == []
    [report] = said_to(BROKER, edge.connect(BROKER))
    assert isinstance(report, ReportRouter)
    assert report.attached == (PMU_NAME,)
    assert edge.submit(4) == []
    said = edge.broker_says(RouterAccepted(term=1))
    assert said_to(BROKER, said) == [forward(2), forward(3), forward(4)]


def test_beyond_the_bound_the_oldest_request_goes_and_is_counted() -> None:
    bounds = EdgeBounds(requests=RequestBounds(of_endpoint_max=2))
    edge = RouterConversation(edge_bounds=bounds)
    edge.connect(PMU)
    for number in (1, 2, 3):
        edge.submit(number)
    assert said_to(BROKER, edge.accept()) == [forward(2), forward(3)]
    assert edge.agent.counters()["requests_dropped"] == 1


def test_requests_of_a_process_that_was_replaced_are_not_said_again(
    edge: RouterConversation,
) -> None:
    edge.disconnect(BROKER)
    edge.submit(1)
    edge.disconnect(PMU)
    edge.connect(PMU, instance="second")
    edge.submit(2)
    assert said_to(BROKER, edge.accept()) == [forward(2)]


def test_a_granted_subscription_brings_the_newest_event_of_its_variable(
    edge: RouterConversation,
) -> None:
    body = msgspec.msgpack.encode(Outcomes(outcomes=(GRANTED,)))
    [answer] = said_to(PMU, edge.broker_says(answer_to(1, body)))
    assert answer == Answer(request_id=1, body=body, newest=(as_cached(EVENT),))


def test_a_caught_variable_brings_its_newest_event(edge: RouterConversation) -> None:
    body = msgspec.msgpack.encode(Matched(pattern_id=1, granted=GRANTED))
    [told] = said_to(PMU, edge.broker_says(Push(term=1, endpoint=PMU_NAME, body=body)))
    assert told == Notify(body=body, newest=(as_cached(EVENT),))


def test_notices_wait_for_an_end_point_that_is_briefly_away(edge: RouterConversation) -> None:
    assert SetTimer("edge/expiry", KEPT_NS_MAX) in edge.disconnect(PMU)
    assert edge.broker_says(Push(term=1, endpoint=PMU_NAME, body=NOTICE)) == []
    assert said_to(PMU, edge.broker_says(answer_to(1))) == []
    assert said_to(PMU, edge.connect(PMU)) == [Notify(body=NOTICE)]
    assert edge.agent.counters()["answers_dropped"] == 1


def test_notices_do_not_wait_for_ever(edge: RouterConversation) -> None:
    edge.disconnect(PMU)
    edge.broker_says(Push(term=1, endpoint=PMU_NAME, body=NOTICE))
    edge.now_ns = KEPT_NS_MAX - 1
    assert edge.fire("edge/expiry") == [SetTimer("edge/expiry", KEPT_NS_MAX)]
    edge.now_ns = KEPT_NS_MAX
    assert edge.fire("edge/expiry") == []
    assert said_to(PMU, edge.connect(PMU)) == []
    assert edge.agent.counters()["notices_dropped"] == 1


def test_requests_of_an_end_point_that_has_been_away_too_long_are_not_said_again(
    edge: RouterConversation,
) -> None:
    edge.submit(1)
    edge.disconnect(PMU)
    edge.disconnect(BROKER)
    edge.now_ns = KEPT_NS_MAX
    edge.fire("edge/expiry")
    assert said_to(BROKER, edge.accept()) == []
    assert edge.agent.counters()["requests_pending"] == 0


def test_a_request_over_which_broker_after_broker_falls_is_said_to_three_of_them(
    edge: RouterConversation,
) -> None:
    edge.submit(1)
    for _ in range(2):
        edge.disconnect(BROKER)
        assert said_to(BROKER, edge.accept())[-1] == forward(1)
    edge.disconnect(BROKER)
    assert forward(1) not in said_to(BROKER, edge.accept())
    assert said_to(BROKER, edge.submit(2)) == [forward(2)]


@pytest.mark.parametrize("request_id", [-1, 2**63, 2**64 - 1])
def test_an_end_point_that_numbers_its_requests_beyond_any_clock_is_sent_away(
    edge: RouterConversation, request_id: int
) -> None:
    said = edge.submit(request_id)
    assert said_to(BROKER, said) == []
    assert [close.code for close in closings(said)] == [MalformedFrame.code]


def test_an_end_point_that_the_broker_sends_away_is_told_why_and_forgotten(
    edge: RouterConversation,
) -> None:
    edge.submit(1)
    order = DetachEndPoint(term=1, endpoint=PMU_NAME, code=1020, reason="another took over")
    assert edge.broker_says(order) == [Close(PMU, 1020, "another took over")]
    assert edge.submit(2) == []
    assert edge.disconnect(PMU) == []
    assert edge.broker_says(order) == []
    edge.disconnect(BROKER)
    assert said_to(BROKER, edge.accept()) == []


def test_the_broker_hears_that_one_whom_an_answer_attaches_is_not_here_any_more(
    edge: RouterConversation,
) -> None:
    """The edge has sent it away without a report, while its Attach was under way to the broker.

    The broker took it for present for ever: no session that could be lost was left.
    """
    edge.submit(1)
    edge.broker_says(DetachEndPoint(term=1, endpoint=PMU_NAME, code=1020, reason="attach anew"))
    gone = AttachmentChanged(endpoint=PMU_NAME, is_up=False)
    assert said_to(BROKER, edge.broker_says(answer_to(1))) == [gone]


def test_an_end_point_of_another_cloud_is_refused(edge: RouterConversation) -> None:
    [close] = closings(edge.connect("endpoint/c2/pmu"))
    assert close.code == WrongCloud.code


def test_an_end_point_that_says_what_only_a_router_may_is_sent_away(
    edge: RouterConversation,
) -> None:
    [close] = closings(edge.hear(PMU, TableChanged(number=1, digest=2)))
    assert (close.peer, close.code) == (PMU, NotAuthorised.code)
    assert "rule:" in close.reason


def test_so_many_end_points_and_no_more() -> None:
    bounds = EdgeBounds(attachments=AttachmentBounds(attached_max=1))
    edge = RouterConversation(edge_bounds=bounds)
    assert closings(edge.connect(PMU)) == []
    [close] = closings(edge.connect("endpoint/c1/second"))
    assert close.code == QuotaReached.code
    assert edge.agent.counters()["end_points"] == 1


@pytest.mark.feature("S3-53")
def test_a_draining_edge_sends_its_end_points_elsewhere_and_takes_no_new_ones(
    edge: RouterConversation,
) -> None:
    assert [(close.peer, close.code) for close in closings(edge.tell(Drain()))] == [
        (PMU, ShuttingDown.code)
    ]
    edge.disconnect(PMU)
    assert [close.code for close in closings(edge.connect(PMU))] == [ShuttingDown.code]


POLICED = SourcePoliced(7, 12, 99, {"slot": 3})


def attach(edge: RouterConversation, request_id: int, channel_id: int = 7) -> list[EventsPoliced]:
    """The publisher is attached on its channel; the reports of policed events that it gets."""
    outcome = AttachedOutcome(
        edge="c1/e0",
        host="127.0.0.1",
        data_port=1,
        urgent_port=2,
        up_channel_id=channel_id,
        down_channel_id=8,
    )
    body = msgspec.msgpack.encode(Outcomes(outcomes=(outcome,)))
    edge.submit(request_id)
    answer, *more = said_to(PMU, edge.broker_says(answer_to(request_id, body)))
    assert isinstance(answer, Answer)
    return policed_in(more)


def policed_in(messages: list[Message]) -> list[EventsPoliced]:
    notices = [decode_notice(each.body) for each in messages if isinstance(each, Notify)]
    return [each for each in notices if isinstance(each, EventsPoliced)]


def told_of(news: SourcePoliced) -> EventsPoliced:
    return EventsPoliced(
        edge="c1/e0", variable_id=news.variable_id, count_id=news.count_id, counts=news.counts
    )


def test_a_publisher_is_told_which_of_its_events_were_policed(edge: RouterConversation) -> None:
    assert attach(edge, 1) == []
    assert policed_in(said_to(PMU, edge.tell(POLICED))) == [told_of(POLICED)]


def test_a_publisher_that_is_away_is_told_when_it_is_back_and_only_the_newest(
    edge: RouterConversation,
) -> None:
    """The count does not grow again, so nothing else would bring it up."""
    attach(edge, 1)
    edge.disconnect(PMU)
    newer = SourcePoliced(7, 12, 99, {"slot": 5})
    other = SourcePoliced(7, 13, 99, {"stamp": 1})
    for news in (POLICED, newer, other):
        assert edge.tell(news) == []
    assert policed_in(said_to(PMU, edge.connect(PMU))) == [told_of(newer), told_of(other)]
    assert attach(edge, 2) == []


def test_a_kept_report_of_policed_events_does_not_follow_a_newer_one(
    edge: RouterConversation,
) -> None:
    """The publisher has a session again, and is not attached yet."""
    attach(edge, 1)
    edge.disconnect(PMU)
    edge.tell(POLICED)
    newer = SourcePoliced(7, 12, 99, {"slot": 5})
    reports = policed_in(said_to(PMU, [*edge.connect(PMU), *edge.tell(newer)]))
    assert [*reports, *attach(edge, 2)] == [told_of(POLICED), told_of(newer)]


def test_reports_of_policed_events_reach_a_publisher_that_is_back_while_the_broker_is_away(
    edge: RouterConversation,
) -> None:
    attach(edge, 1)
    edge.disconnect(BROKER)
    edge.disconnect(PMU)
    edge.tell(POLICED)
    assert policed_in(said_to(PMU, edge.connect(PMU))) == [told_of(POLICED)]
    for count in (5, 6):
        newer = SourcePoliced(7, 12, 99, {"slot": count})
        assert policed_in(said_to(PMU, edge.tell(newer))) == [told_of(newer)]


def test_a_report_that_a_dying_session_may_have_lost_is_sent_again_in_the_next(
    edge: RouterConversation,
) -> None:
    """The router notices a cut wire only after some silence, and the count does not grow again."""
    attach(edge, 1)
    newer = SourcePoliced(7, 12, 99, {"slot": 5})
    for news in (POLICED, newer):
        edge.tell(news)
    edge.disconnect(PMU)
    assert policed_in(said_to(PMU, edge.connect(PMU))) == [told_of(newer)]
    edge.now_ns += SENT_AGAIN_NS + 1
    edge.disconnect(PMU)
    assert policed_in(said_to(PMU, edge.connect(PMU))) == []


def test_a_report_is_sent_again_in_a_session_that_replaces_one_not_known_to_be_lost(
    edge: RouterConversation,
) -> None:
    attach(edge, 1)
    edge.tell(POLICED)
    assert policed_in(said_to(PMU, edge.connect(PMU))) == [told_of(POLICED)]


def test_a_new_process_gets_no_report_of_the_events_of_the_process_before(
    edge: RouterConversation,
) -> None:
    attach(edge, 1)
    edge.disconnect(PMU)
    edge.tell(POLICED)
    assert policed_in(said_to(PMU, edge.connect(PMU, instance="second"))) == []
    assert edge.agent.counters()["notices_dropped"] == 1
    own = SourcePoliced(7, 13, 99, {"slot": 1})
    assert policed_in(said_to(PMU, edge.tell(own))) == []
    assert attach(edge, 1) == [told_of(own)]


def test_a_publisher_of_which_a_new_edge_has_not_heard_yet_is_told_once_it_attaches(
    edge: RouterConversation,
) -> None:
    assert said_to(PMU, edge.tell(POLICED)) == []
    assert attach(edge, 1) == [told_of(POLICED)]


def test_a_publisher_that_was_detached_or_has_another_channel_is_told_nothing_old(
    edge: RouterConversation,
) -> None:
    attach(edge, 1)
    edge.disconnect(PMU)
    edge.tell(POLICED)
    edge.broker_says(DetachEndPoint(term=1, endpoint=PMU_NAME, code=1, reason="gone"))
    edge.connect(PMU)
    assert attach(edge, 2) == []
    edge.disconnect(PMU)
    edge.tell(POLICED)
    edge.connect(PMU, instance="second")
    assert attach(edge, 3, channel_id=9) == []
    assert attach(edge, 4) == []


def test_reports_for_absent_publishers_have_a_bound_and_dropped_ones_are_counted(
    edge: RouterConversation,
) -> None:
    for number in range(UNSENT_OF_CHANNEL_MAX + 2):
        edge.tell(SourcePoliced(7, number, 99, {"slot": 1}))
    assert edge.agent.counters()["notices_dropped"] == 2
    assert len(attach(edge, 1)) == UNSENT_OF_CHANNEL_MAX


def test_sent_reports_that_will_not_be_sent_again_are_counted(edge: RouterConversation) -> None:
    attach(edge, 1)
    for number in range(UNSENT_OF_CHANNEL_MAX + 2):
        edge.tell(SourcePoliced(7, number, 99, {"slot": 1}))
    assert edge.agent.counters()["reports_forgotten"] == 2
    edge.disconnect(PMU)
    assert len(policed_in(said_to(PMU, edge.connect(PMU)))) == UNSENT_OF_CHANNEL_MAX


@pytest.mark.parametrize("others", [1, 20], ids=["one other channel", "many other channels"])
def test_reports_of_other_channels_push_out_none_of_a_publisher_with_few(
    edge: RouterConversation, others: int
) -> None:
    attach(edge, 1)
    edge.disconnect(PMU)
    edge.tell(POLICED)
    for channel_id in range(50, 50 + others):
        for number in range(UNSENT_OF_CHANNEL_MAX + 1):
            edge.tell(SourcePoliced(channel_id, number, 99, {"slot": 1}))
    kept = min(others * UNSENT_OF_CHANNEL_MAX, UNSENT_MAX - 1)
    assert edge.agent.counters()["notices_dropped"] == others * (UNSENT_OF_CHANNEL_MAX + 1) - kept
    assert policed_in(said_to(PMU, edge.connect(PMU))) == [told_of(POLICED)]


def test_a_report_of_a_channel_of_which_nobody_is_known_does_not_wait_for_ever(
    edge: RouterConversation,
) -> None:
    other = SourcePoliced(7, 13, 99, {"slot": 1})
    assert edge.tell(POLICED) == [SetTimer("edge/expiry", KEPT_NS_MAX)]
    edge.now_ns = KEPT_NS_MAX - 1
    assert edge.tell(other) == []  # The timer runs already, and is not put off.
    edge.now_ns = KEPT_NS_MAX
    assert edge.fire("edge/expiry") == [SetTimer("edge/expiry", KEPT_NS_MAX)]
    assert edge.agent.counters()["notices_dropped"] == 1
    assert attach(edge, 1) == [told_of(other)]
    edge.now_ns = 2 * KEPT_NS_MAX
    assert edge.fire("edge/expiry") == []
    assert edge.agent.counters()["notices_dropped"] == 1


@pytest.mark.parametrize("is_detached", [True, False], ids=["detached", "away too long"])
def test_a_report_that_is_dropped_with_its_publisher_is_counted(
    edge: RouterConversation, *, is_detached: bool
) -> None:
    attach(edge, 1)
    edge.disconnect(PMU)
    edge.tell(POLICED)
    if is_detached:
        edge.broker_says(DetachEndPoint(term=1, endpoint=PMU_NAME, code=1, reason="gone"))
    else:
        edge.now_ns += KEPT_NS_MAX
        edge.fire("edge/expiry")
    assert edge.agent.counters()["notices_dropped"] == 1
