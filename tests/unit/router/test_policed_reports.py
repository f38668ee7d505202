"""Policed events: reported once a second at most, in totals, to the sender on the channel."""

from __future__ import annotations

import msgspec
import pytest

from gridstat.model.errors import NotAuthorised
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import AttachedOutcome, Outcomes, RefusedOutcome
from gridstat.router.agent_events import SourcePoliced
from gridstat.router.core_work import CoreWork
from gridstat.router.policed_reports import PolicedEvents, PublisherChannels
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
