"""Policed events: reported once a second at most, in totals, to the sender on the channel."""

from __future__ import annotations

import msgspec
import pytest

from gridstat.model.errors import NotAuthorised
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import AttachedOutcome, Outcomes, RefusedOutcome
from gridstat.router.agent_events import SourcePoliced
from gridstat.router.core_work import CoreWork
from gridstat.router.policed_reports import (
    SENT_AGAIN_NS,
    SENT_MAX,
    UNSENT_OF_CHANNEL_MAX,
    PolicedEvents,
    PublisherChannels,
)
from gridstat.router.status_router import StatusRouter
from tests.unit.router.recording_core import RecordingCore


def attached(edge: str = "c1/e0", channel_id: int = 7) -> bytes:
    outcome = AttachedOutcome(
        edge=edge,
        host="127.0.0.1",
        data_port=1,
        urgent_port=2,
        up_channel_id=channel_id,
        down_channel_id=8,
    )
    return msgspec.msgpack.encode(Outcomes(outcomes=(outcome,)))


def test_what_has_grown_is_told_in_totals_and_nothing_else() -> None:
    events = PolicedEvents()
    assert events.judge({}, 5) == []
    first = {(7, 1): (2, {"slot": 3})}
    assert events.judge(first, 10) == [SourcePoliced(7, 1, 10, {"slot": 3})]
    assert events.judge(first, 20) == []
    assert events.judge({(7, 1): (2, {"slot": 3, "stamp": 1})}, 30) == [
        SourcePoliced(7, 1, 10, {"slot": 3, "stamp": 1})
    ]


def test_a_count_that_begins_anew_has_another_number() -> None:
    events = PolicedEvents()
    events.judge({(7, 1): (2, {"slot": 3})}, 10)
    assert events.judge({(7, 1): (6, {"slot": 3})}, 20) == [SourcePoliced(7, 1, 20, {"slot": 3})]
    events.judge({}, 30)
    assert events.judge({(7, 1): (8, {"slot": 4})}, 40) == [SourcePoliced(7, 1, 40, {"slot": 4})]


def test_the_core_is_asked_once_a_second() -> None:
    now_ns = [0]
    core = RecordingCore()
    work = CoreWork(StatusRouter("c1/e0", core, clock_ns=lambda: now_ns[0], in_memory=True))
    core.policed_events = {(7, 1): (2, {"slot": 1})}
    assert work.poll() == [SourcePoliced(7, 1, 0, {"slot": 1})]
    core.policed_events = {(7, 1): (2, {"slot": 9})}
    now_ns[0] = NS_PER_S - 1
    assert work.poll() == []
    now_ns[0] = NS_PER_S
    assert work.poll() == [SourcePoliced(7, 1, 0, {"slot": 9})]


def test_who_sends_on_a_channel_is_learnt_from_the_answer_to_its_attachment() -> None:
    channels = PublisherChannels("c1/e0")
    channels.learn("c1/pmu", attached())
    assert channels.endpoint_on(7) == "c1/pmu"
    channels.learn("c1/pmu", attached(channel_id=9))
    assert (channels.endpoint_on(7), channels.endpoint_on(9)) == (None, "c1/pmu")
    channels.forget("c1/pmu")
    channels.forget("c1/pmu")
    assert channels.endpoint_on(9) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"AttachedOutcome",
        attached("c1/e1"),
        attached()[:-3],
        msgspec.msgpack.encode(
            Outcomes(outcomes=(RefusedOutcome(code=NotAuthorised.code, reason="AttachedOutcome"),))
        ),
    ],
)
def test_other_answers_teach_nothing(body: bytes) -> None:
    channels = PublisherChannels("c1/e0")
    channels.learn("c1/pmu", body)
    assert channels.endpoint_on(7) is None


def publishers(*names: str) -> PublisherChannels:
    """Publishers attached to one edge, the first on channel 7, each further one on the next."""
    channels = PublisherChannels("c1/e0")
    for channel_id, name in enumerate(names, 7):
        channels.learn(name, attached(channel_id=channel_id))
    return channels


def report(channel_id: int, variable_id: int = 1) -> SourcePoliced:
    return SourcePoliced(channel_id, variable_id, 99, {"slot": 1})


def sent_again(channels: PublisherChannels, name: str, now_ns: int = 0) -> list[SourcePoliced]:
    """Reports that a publisher receives again after the loss of its session."""
    channels.keep_sent(name, now_ns)
    return channels.take_unsent(name)


def test_reports_sent_to_one_publisher_push_out_none_that_was_sent_to_another() -> None:
    channels = publishers("c1/pmu", "c1/storm")
    channels.note_sent("c1/pmu", report(7), 0)
    for number in range(2 * SENT_MAX):
        channels.note_sent("c1/storm", report(8, number), 0)
    assert sent_again(channels, "c1/pmu") == [report(7)]
    assert len(sent_again(channels, "c1/storm")) == UNSENT_OF_CHANNEL_MAX
    assert channels.reports_forgotten == 2 * SENT_MAX - UNSENT_OF_CHANNEL_MAX


def test_sent_reports_have_a_bound_for_all_publishers_and_forgotten_ones_are_counted() -> None:
    names = [f"c1/storm{number}" for number in range(20)]
    channels = publishers("c1/pmu", *names)
    channels.note_sent("c1/pmu", report(7), 0)
    for channel_id, name in enumerate(names, 8):
        for number in range(UNSENT_OF_CHANNEL_MAX):
            channels.note_sent(name, report(channel_id, number), 0)
    assert sent_again(channels, "c1/pmu") == [report(7)]
    kept = [sent_again(channels, name) for name in names]
    count = sum(len(each) for each in kept)
    assert SENT_MAX // 2 < count < SENT_MAX
    assert all(kept), "none loses all of its reports to others"
    assert all(each[-1].variable_id == UNSENT_OF_CHANNEL_MAX - 1 for each in kept), "the newest"
    assert channels.reports_forgotten == len(names) * UNSENT_OF_CHANNEL_MAX - count


def test_sent_reports_that_are_too_old_take_no_room() -> None:
    names = [f"c1/storm{number}" for number in range(SENT_MAX // UNSENT_OF_CHANNEL_MAX)]
    channels = publishers("c1/pmu", *names)
    for channel_id, name in enumerate(names, 8):
        for number in range(UNSENT_OF_CHANNEL_MAX):
            channels.note_sent(name, report(channel_id, number), 0)
    channels.note_sent("c1/pmu", report(7), SENT_AGAIN_NS + 1)
    assert channels.reports_forgotten == 0
    assert sent_again(channels, "c1/pmu", SENT_AGAIN_NS + 1) == [report(7)]
    assert sent_again(channels, names[0], SENT_AGAIN_NS) == []


def test_sent_reports_of_a_publisher_that_is_gone_take_no_room() -> None:
    channels = publishers("c1/pmu", "c1/gone")
    for _ in range(2 * SENT_MAX // UNSENT_OF_CHANNEL_MAX):
        for number in range(UNSENT_OF_CHANNEL_MAX):
            channels.note_sent("c1/gone", report(8, number), 0)
        channels.forget("c1/gone")
    channels.note_sent("c1/pmu", report(7), 0)
    assert channels.reports_forgotten == 0
    assert sent_again(channels, "c1/pmu") == [report(7)]
