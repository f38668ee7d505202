"""Messages of a router's agent to its broker, one by one, without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import LimitReached, NotAuthorised, ShuttingDown, StaleTerm
from gridstat.model.keys.channel_keys import KeyNews, KeysFailed, SeedOver, SeedOverdue
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import Submit
from gridstat.net.command.machine import CancelTimer, Close, Note, Send, SetTimer
from gridstat.net.command.order_table import OrderTable
from gridstat.net.command.router_messages import (
    BackPressureChanged,
    ChangeTable,
    ChannelStateChanged,
    DetachEndPoint,
    Push,
    ReportCounters,
    ReportRouter,
    Return,
    RouterAccepted,
    TableChanged,
    TableRefused,
)
from gridstat.router.agent_events import (
    ApplyTable,
    CountersRead,
    Drain,
    Leave,
    ReadCounters,
    SetModes,
    SourceReceived,
    SourceSilent,
    TableApplied,
    TableFailed,
    WaterMarkCrossed,
)
from tests.protocol.router_conversation import (
    BROKER,
    EAST,
    PATH,
    VOLTAGE,
    WEST,
    RouterConversation,
    closings,
    said_to,
)

if TYPE_CHECKING:
    from gridstat.model.channel_security import Security
    from gridstat.router.channel_reports import ChannelNews

FIRST = ChangeTable(
    term=1, number=1, channels=(EAST,), sources=(WEST,), variables=(VOLTAGE,), paths=(PATH,)
)
CLOSING = ChangeTable(
    term=1, number=2, torn_down=(PATH.path_id,), closed_channels=(7,), closed_sources=(3,)
)


@pytest.fixture
def router() -> RouterConversation:
    return RouterConversation(is_edge=False)


@pytest.mark.feature("S0-117")
def test_a_new_process_reports_a_first_time_and_a_lost_session_does_not(
    router: RouterConversation,
) -> None:
    [report] = said_to(BROKER, router.connect(BROKER))
    assert report == ReportRouter(
        host="127.0.0.1",
        data_port=4_000,
        urgent_port=4_001,
        is_first_time=True,
        command_host="127.0.0.1",
        command_port=5_000,
        datagram_versions=(1, 2, 3),
        counts_data_as_life=True,
        takes_probe_interval=True,
        takes_delay=True,
    )
    router.broker_says(RouterAccepted(term=4, do_first_time=True))
    router.change(ChangeTable(term=4, number=1, channels=(EAST,)))
    router.disconnect(BROKER)
    [again] = said_to(BROKER, router.connect(BROKER))
    assert isinstance(again, ReportRouter)
    assert (again.is_first_time, again.term) == (False, 4)
    assert again.digest == router.agent.table.digest != 0


@pytest.mark.parametrize("security", ["hop", "none"])
def test_an_edge_reports_what_its_file_says_even_if_it_cannot_seal(security: Security) -> None:
    router = RouterConversation(datagram_versions=(1, 2), endpoint_security=security)
    [report] = said_to(BROKER, router.connect(BROKER))
    assert isinstance(report, ReportRouter)
    assert (report.datagram_versions, report.endpoint_security) == ((1, 2), security)


def test_a_report_that_was_never_answered_is_still_the_first(router: RouterConversation) -> None:
    router.connect(BROKER)
    router.disconnect(BROKER)
    [again] = said_to(BROKER, router.connect(BROKER))
    assert isinstance(again, ReportRouter)
    assert again.is_first_time


@pytest.mark.feature("S0-12", "S0-8")
def test_an_empty_router_gets_exactly_the_table_that_the_broker_wants(
    router: RouterConversation,
) -> None:
    wanted = OrderTable()
    wanted.apply(FIRST)
    router.accept()
    answers = [
        message for piece in wanted.whole(term=1, number=1) for message in router.change(piece)
    ]
    assert answers == [TableChanged(number=4, digest=wanted.digest)]
    assert router.agent.table.channels == {EAST.channel_id: EAST}
    assert router.agent.table.paths == wanted.paths


def test_a_change_is_acknowledged_only_after_the_commit(router: RouterConversation) -> None:
    router.accept()
    [applied] = router.broker_says(FIRST)
    assert isinstance(applied, ApplyTable)
    assert applied.change == FIRST
    digest = router.agent.table.digest
    changed = TableChanged(number=1, digest=digest)
    assert router.tell(TableApplied(applied.number)) == [Send(BROKER, changed)]


@pytest.mark.parametrize("number", [1, 3])
def test_a_repeat_or_a_gap_is_refused_and_a_whole_table_mends_it(
    router: RouterConversation, number: int
) -> None:
    router.accept()
    router.change(FIRST)
    before = router.agent.table.digest
    [refused] = router.change(ChangeTable(term=1, number=number, torn_down=(PATH.path_id,)))
    assert isinstance(refused, TableRefused)
    assert refused.number == number
    assert router.agent.table.digest == before
    assert router.change(ChangeTable(term=1, number=4, dropped=(1,))) == []
    [changed] = router.change(ChangeTable(term=1, number=5, begins_anew=True, channels=(EAST,)))
    assert changed == TableChanged(number=5, digest=router.agent.table.digest)
    assert router.agent.table.paths == {}


def test_what_the_core_cannot_hold_is_refused_with_its_reason(router: RouterConversation) -> None:
    router.accept()
    [applied] = router.broker_says(FIRST)
    assert isinstance(applied, ApplyTable)
    failure = TableFailed(applied.number, LimitReached.code, "no room")
    [refused] = said_to(BROKER, router.tell(failure))
    assert refused == TableRefused(number=1, code=LimitReached.code, reason="no room")
    assert router.agent.counters()["tables_refused"] == 1
    router.disconnect(BROKER)
    [report] = said_to(BROKER, router.connect(BROKER))
    assert isinstance(report, ReportRouter)
    assert report.digest != router.agent.table.digest


@pytest.mark.parametrize(
    "order",
    [
        ChangeTable(term=6, number=1),
        RouterAccepted(term=6),
        Return(term=6, endpoint="c1/a", request_id=1, body=b""),
        Push(term=6, endpoint="c1/a", body=b""),
        DetachEndPoint(term=6, endpoint="c1/a"),
    ],
)
def test_an_order_of_a_lower_term_ends_the_session(
    router: RouterConversation,
    order: ChangeTable | RouterAccepted | Return | Push | DetachEndPoint,
) -> None:
    router.accept(term=7)
    router.change(ChangeTable(term=7, number=1, channels=(EAST,)))
    said = router.broker_says(order)
    assert [(each.peer, each.code) for each in closings(said)] == [(BROKER, StaleTerm.code)]
    assert CancelTimer("counters") in said
    assert router.broker_says(ChangeTable(term=7, number=2, closed_channels=(7,))) == []
    assert router.agent.table.channels == {7: EAST}
    assert router.agent.term == 7


def test_the_highest_term_is_remembered_across_sessions_and_raised_by_a_newer_broker(
    router: RouterConversation,
) -> None:
    router.accept(term=7)
    router.disconnect(BROKER)
    said = router.accept(term=6)
    assert [close.code for close in closings(said)] == [StaleTerm.code]
    router.disconnect(BROKER)
    assert closings(router.accept(term=8)) == []
    router.disconnect(BROKER)
    [report] = said_to(BROKER, router.connect(BROKER))
    assert isinstance(report, ReportRouter)
    assert report.term == 8


def test_orders_before_acceptance_change_nothing(router: RouterConversation) -> None:
    router.connect(BROKER)
    [note] = router.broker_says(FIRST)
    assert isinstance(note, Note)
    assert len(router.agent.table) == 0


@pytest.mark.feature("S0-115")
def test_without_a_broker_nothing_is_forgotten_and_the_next_one_hears_how_things_are(
    router: RouterConversation,
) -> None:
    router.accept()
    router.change(FIRST)
    router.disconnect(BROKER)
    assert len(router.agent.table) == 4
    assert said_to(BROKER, router.tell(SourceSilent(WEST.channel_id, 104))) == []
    assert said_to(BROKER, router.tell(WaterMarkCrossed(EAST.channel_id, True, 800))) == []
    assert said_to(BROKER, router.accept()) == [
        ChannelStateChanged(channel_id=3, is_up=False, silent_ms=104),
        BackPressureChanged(channel_id=7, is_on=True, queued_events=800),
    ]


@pytest.mark.feature("S0-114", "S0-130")
def test_news_of_channels_is_told_at_once(router: RouterConversation) -> None:
    router.accept()
    router.change(FIRST)
    news: list[ChannelNews] = [
        SourceSilent(3, 120),
        SourceReceived(3),
        WaterMarkCrossed(7, True, 768),
        WaterMarkCrossed(7, False, 250),
    ]
    told = [message for each in news for message in said_to(BROKER, router.tell(each))]
    assert told == [
        ChannelStateChanged(channel_id=3, is_up=False, silent_ms=120),
        ChannelStateChanged(channel_id=3, is_up=True),
        BackPressureChanged(channel_id=7, is_on=True, queued_events=768),
        BackPressureChanged(channel_id=7, is_on=False, queued_events=250),
    ]


def test_a_congested_channel_that_is_closed_is_told_to_be_free(router: RouterConversation) -> None:
    """Opened again it has an empty queue, and nobody would say so."""
    router.accept()
    router.change(FIRST)
    router.tell(WaterMarkCrossed(7, True, 768))
    free = BackPressureChanged(channel_id=7, is_on=False, queued_events=0)
    assert free in router.change(CLOSING)


def test_news_of_a_channel_that_was_closed_is_not_told(router: RouterConversation) -> None:
    router.accept()
    router.change(FIRST)
    router.tell(SourceSilent(3, 120))
    router.tell(WaterMarkCrossed(7, True, 768))
    router.change(CLOSING)
    assert router.tell(SourceReceived(3)) == []
    assert router.tell(WaterMarkCrossed(7, False, 0)) == []
    router.disconnect(BROKER)
    assert said_to(BROKER, router.accept()) == []


def test_a_source_that_the_core_could_not_close_is_reported_when_it_is_named_again(
    router: RouterConversation,
) -> None:
    """The core never closed it, and says nothing new of it."""
    router.accept()
    router.change(FIRST)
    router.tell(SourceSilent(3, 120))
    router.broker_says(CLOSING)
    router.tell(TableFailed(2, LimitReached.code, "no room in the core"))
    assert router.tell(SourceReceived(3)) == []
    again = ChangeTable(term=1, number=3, begins_anew=True, sources=(WEST,))
    heard = ChannelStateChanged(channel_id=3, is_up=True)
    assert heard in router.change(again)


def test_a_source_that_the_core_has_closed_is_judged_anew_when_it_is_named_again(
    router: RouterConversation,
) -> None:
    router.accept()
    router.change(FIRST)
    router.tell(SourceSilent(3, 120))
    router.change(CLOSING)
    again = ChangeTable(term=1, number=3, sources=(WEST,))
    assert [type(each) for each in router.change(again)] == [TableChanged]


def test_counters_are_reported_every_second_while_there_is_a_broker(
    router: RouterConversation,
) -> None:
    said = router.accept()
    assert SetTimer("counters", NS_PER_S) in said
    assert SetModes(1) in said
    assert router.fire("counters") == [ReadCounters(), SetTimer("counters", NS_PER_S)]
    read = CountersRead(ReportCounters(router={"in": 5}, channels={7: {"sent": 2}}))
    [report] = said_to(BROKER, router.tell(read))
    assert isinstance(report, ReportCounters)
    assert report.router == {"in": 5, "tables_refused": 0, "terms_refused": 0}
    assert report.channels == {7: {"sent": 2}}
    assert CancelTimer("counters") in router.disconnect(BROKER)
    assert router.fire("counters") == []
    assert said_to(BROKER, router.tell(read)) == []


@pytest.mark.feature("S3-42", "S3-43")
def test_an_inner_router_refuses_end_points_and_names_the_rule(router: RouterConversation) -> None:
    [close] = closings(router.connect("endpoint/c1/pmu"))
    assert (close.peer, close.code) == ("endpoint/c1/pmu", NotAuthorised.code)
    assert "end-points attach to edge routers only" in close.reason
    submit = Submit(request_id=1, body=b"", signature=b"")
    assert router.hear("endpoint/c1/pmu", submit) == []
    assert router.disconnect("endpoint/c1/pmu") == []


@pytest.mark.parametrize("peer", ["operator/c1/alice", "router/c1/e9", "broker/c2"])
def test_anybody_else_is_refused_too(router: RouterConversation, peer: str) -> None:
    [close] = closings(router.connect(peer))
    assert (close.peer, close.code) == (peer, NotAuthorised.code)
    assert "rule:" in close.reason
    assert router.hear(peer, RouterAccepted(term=99)) == []
    assert router.agent.term == 0


def test_orders_for_an_edge_are_noted_by_an_inner_router(router: RouterConversation) -> None:
    router.accept()
    [note] = router.broker_says(Push(term=1, endpoint="c1/a", body=b""))
    assert isinstance(note, Note)
    [note] = router.broker_says(Submit(request_id=1, body=b"", signature=b""))
    assert isinstance(note, Note)


@pytest.mark.feature("S3-53")
def test_a_router_that_ends_takes_leave_of_its_broker(router: RouterConversation) -> None:
    assert router.tell(Leave()) == []
    router.accept()
    assert router.tell(Drain()) == []
    [close] = router.tell(Leave())
    assert isinstance(close, Close)
    assert (close.peer, close.code) == (BROKER, ShuttingDown.code)


@pytest.mark.feature("S3-44")
def test_the_agent_needs_no_network_and_repeats_itself_exactly() -> None:
    def conversation() -> list[object]:
        router = RouterConversation(is_edge=False)
        return [
            *router.accept(),
            *router.broker_says(FIRST),
            *router.tell(TableApplied(1)),
            *router.tell(SourceSilent(3, 120)),
            *router.disconnect(BROKER),
            *router.accept(term=2),
        ]

    assert conversation() == conversation()


@pytest.mark.parametrize(
    ("news", "word"),
    [
        (SeedOverdue(7, is_sender=True), "seed_overdue"),
        (SeedOver(7, is_sender=True), "seed_over"),
        (KeysFailed(7, is_sender=True, reason="no"), "keys_failed"),
    ],
)
def test_a_router_without_a_broker_warns_of_its_keys(
    router: RouterConversation, news: KeyNews, word: str
) -> None:
    [note] = router.tell(news)
    assert isinstance(note, Note)
    assert (note.word, note.is_warning) == (word, True)
    assert ("channel_id", 7) in note.facts
