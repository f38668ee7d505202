"""An answer that grants variables brings the newest event of each, flagged as cached."""

from __future__ import annotations

import msgspec
import pytest

from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, EventFlag, StatusEvent, StatusVariable, TimeQuality
from gridstat.net.codec.event import decode_event, encode_event
from gridstat.net.command.endpoint_messages import (
    ContractChanged,
    DoneOutcome,
    GrantedOutcome,
    Matched,
    Outcomes,
    PublishedOutcome,
    RefusedOutcome,
)
from gridstat.router.newest_events import BYTES_MAX, newest_for_answer, newest_for_notice


def variable(variable_id: int) -> StatusVariable:
    name = f"c1/pmu/{variable_id}"
    return StatusVariable(VariableId(variable_id), name, BuiltinType.FLOAT64, Period(1, 60))


def granted(variable_id: int) -> GrantedOutcome:
    return GrantedOutcome(subscription_id=1, variable=variable(variable_id))


def event(variable_id: int) -> bytes:
    return encode_event(
        StatusEvent(9, VariableId(variable_id), b"12345678", time_quality=TimeQuality.DEGRADED)
    )


def newest(variable_id: int) -> bytes | None:
    return None if variable_id == 3 else event(variable_id)


def body_of(message: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode(message)


def test_each_granted_variable_with_an_event_brings_it_flagged_as_cached() -> None:
    refused = RefusedOutcome(code=1039, reason="full")
    body = body_of(Outcomes(outcomes=(granted(1), refused, granted(3), granted(2))))
    events = [decode_event(raw) for raw in newest_for_answer(body, newest)]
    assert [event.variable_id for event in events] == [1, 2]
    assert {event.flags for event in events} == {EventFlag.CACHED}
    assert {event.time_quality for event in events} == {TimeQuality.DEGRADED}


@pytest.mark.parametrize(
    "body",
    [
        body_of(Outcomes(outcomes=(DoneOutcome(), PublishedOutcome(variable=variable(1))))),
        body_of(Outcomes(outcomes=(GrantedOutcome(subscription_id=1, variable=None),))),
        msgspec.msgpack.encode(
            {"type": "Outcomes", "outcomes": [{"type": "OfAnotherAge", "x": 1}]}
        ),
        b"",
        b"\xc1nonsense",
        msgspec.msgpack.encode([1, 2]),
    ],
)
def test_nothing_comes_with_an_answer_that_grants_nothing_or_cannot_be_read(body: bytes) -> None:
    assert newest_for_answer(body, newest) == ()


def test_a_caught_variable_brings_its_newest_event() -> None:
    [raw] = newest_for_notice(body_of(Matched(pattern_id=1, granted=granted(2))), newest)
    assert decode_event(raw).variable_id == 2


@pytest.mark.parametrize("body", [body_of(ContractChanged(granted=granted(1))), b"", b"\xc1"])
def test_other_notices_bring_none(body: bytes) -> None:
    assert newest_for_notice(body, newest) == ()


def test_the_bytes_of_one_message_are_bounded() -> None:
    body = body_of(Outcomes(outcomes=tuple(granted(number) for number in range(1_000))))
    large = bytes(6_000)
    events = newest_for_answer(body, lambda _: large)
    assert len(events) == BYTES_MAX // 6_000
