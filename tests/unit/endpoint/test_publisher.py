"""Publications: what is sent, when, under which identifier, and what is refused at once."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gridstat.endpoint.options import alert_variable, periodic_variable
from gridstat.endpoint.session_events import PublicationRestored
from gridstat.model.derived import Maximum, MovingAverage, RateOfChange
from gridstat.model.errors import LayoutError, Misuse, VariableExists
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.model.status import (
    BuiltinType,
    EventFlag,
    Field,
    FieldKind,
    RecordType,
    TimeQuality,
    ValueType,
)
from gridstat.net.codec.value import ValueCodec
from gridstat.net.command.endpoint_messages import (
    DoneOutcome,
    PublishedOutcome,
    RefusedOutcome,
    Unpublish,
)
from tests.unit.endpoint.paper_station import NAME, Station, attached, numbered

if TYPE_CHECKING:
    from gridstat.model.status import Value


@pytest.mark.feature("S1-5", "S0-28")
def test_a_value_goes_to_every_edge_with_the_same_stamp() -> None:
    station = Station("c1/e0", "c1/e1")
    assert station.publish().send(231.4)
    first, second = (sender.sent for sender in station.open_senders)
    assert first == second
    assert first[0][:2] == (5, 231.4)


@pytest.mark.feature("S0-23")
def test_the_stamp_is_of_this_instant_or_the_callers() -> None:
    station = Station("c1/e0")
    voltage = station.publish()
    voltage.send(1.0)
    voltage.send(2.0, created_ns=123)
    (_, _, now), (_, _, given) = station.open_senders[0].sent
    assert now["created_ns"] > NS_PER_S
    assert given["created_ns"] == 123


def test_time_quality_and_flags_share_a_byte() -> None:
    station = Station("c1/e0")
    station.publish().send(1.0, time_quality=TimeQuality.BAD, flags=EventFlag.TEST)
    assert station.open_senders[0].sent[0][2]["flags"] == 0b1010


@pytest.mark.feature("S0-28", "S1-5")
def test_send_says_false_while_no_edge_is_reachable() -> None:
    station = Station("c1/e0", "c1/e1")
    voltage = station.publish()
    station.channels.lose("c1/e0")
    assert voltage.send(1.0)
    station.channels.lose("c1/e1")
    assert not voltage.send(2.0)
    assert not station.channels.is_up
    station.channels.open("c1/e1", attached("c1/e1", 2))
    assert voltage.send(3.0)
    assert [value for _, value in station.sent()] == [1.0, 2.0, 3.0]


def test_without_an_edge_nothing_is_sent() -> None:
    assert not Station().publish().send(1.0)


def test_a_kernel_without_room_is_no_success() -> None:
    station = Station("c1/e0")
    station.senders[0].takes = False
    assert not station.publish().send(1.0)


@pytest.mark.feature("S0-120")
def test_an_edge_that_was_restarted_is_sent_to_at_its_new_ports() -> None:
    station = Station("c1/e0")
    station.channels.open("c1/e0", attached("c1/e0", 1, port=5_000))
    (sender,) = station.open_senders
    assert sender.address == ("127.0.0.1", 5_000, 5_001)


def test_copies_stay_recognisable_when_an_edge_joins_later() -> None:
    station = Station("c1/e0")
    voltage = station.publish()
    voltage.send(1.0)
    station.channels.open("c1/e1", attached("c1/e1", 2))
    voltage.send(2.0)
    # Both have counted from here on, so that equal sequences mean equal events.
    assert station.sent(0) == station.sent(1) == [(5, 2.0)]
    assert station.open_senders == station.senders


@pytest.mark.feature("S1-5")
@pytest.mark.parametrize(
    ("value_type", "value", "sent"),
    [
        (BuiltinType.FLOAT64, 2, 2.0),
        (BuiltinType.FLOAT64, np.float32(0.5), 0.5),
        (BuiltinType.INT64, -(2**63), -(2**63)),
        (BuiltinType.INT64, np.int16(3), 3),
        (BuiltinType.BOOL, True, True),
    ],
)
def test_each_type_is_sent_as_it_is(value_type: ValueType, value: Value, sent: object) -> None:
    station = Station("c1/e0")
    station.publish(value_type).send(value)
    ((_, found),) = station.sent()
    assert found == sent
    assert type(found) is type(sent)


@pytest.mark.parametrize(
    ("value_type", "value"),
    [
        (BuiltinType.FLOAT64, True),
        (BuiltinType.FLOAT64, "1"),
        (BuiltinType.INT64, 1.0),
        (BuiltinType.INT64, 2**63),
        (BuiltinType.BOOL, 1),
        (RecordType("r", (Field("a", FieldKind.INT8),)), {"a": 1_000}),
        (RecordType("r", (Field("a", FieldKind.INT8),)), {"b": 1}),
    ],
)
def test_a_value_of_another_type_is_refused_and_not_sent(value_type: ValueType, value: Any) -> None:
    station = Station("c1/e0")
    with pytest.raises(LayoutError):
        station.publish(value_type).send(value)
    assert station.sent() == []


@pytest.mark.feature("S0-30")
def test_derived_values_are_sent_behind_the_value() -> None:
    station = Station("c1/e0")
    voltage = station.publish(derived=[MovingAverage(2), RateOfChange(), Maximum(3)])
    for number, value in enumerate([1.0, 5.0, 3.0]):
        voltage.send(value, created_ns=number * NS_PER_S)
    codec = ValueCodec(voltage.variable)
    readings = [codec.decode(payload) for _, payload in station.sent()]
    assert [reading.value for reading in readings] == [1.0, 5.0, 3.0]
    assert [reading.derived for reading in readings] == [
        {"average_2": 1.0, "rate_of_change": 0.0, "maximum_3": 1.0},
        {"average_2": 3.0, "rate_of_change": 4.0, "maximum_3": 5.0},
        {"average_2": 4.0, "rate_of_change": -2.0, "maximum_3": 5.0},
    ]


def test_a_value_that_does_not_fit_is_not_derived_from() -> None:
    station = Station("c1/e0")
    voltage = station.publish(derived=[Maximum(3)])
    with pytest.raises(LayoutError):
        voltage.send(True)
    voltage.send(0.5)
    ((_, payload),) = station.sent()
    assert ValueCodec(voltage.variable).decode(payload).derived == {"maximum_3": 0.5}


@pytest.mark.feature("S0-27")
def test_an_alert_faster_than_its_minimum_interval_is_refused_at_once() -> None:
    station = Station("c1/e0")
    sag = station.accept(alert_variable(NAME, BuiltinType.BOOL, 3_600))
    assert sag.send(True)
    assert not sag.send(False)
    assert sag.refused_alerts == 1
    assert station.sent() == [(5, True)]
    assert station.open_senders[0].sent[0][2]["urgent"]


def test_an_alert_that_no_edge_took_may_be_sent_again_at_once() -> None:
    station = Station()
    sag = station.accept(alert_variable(NAME, BuiltinType.BOOL, 3_600))
    assert not sag.send(True)
    station.channels.open("c1/e0", attached("c1/e0", 1))
    assert sag.send(True)
    assert (sag.refused_alerts, station.sent()) == (0, [(5, True)])


def test_a_whole_number_beyond_float64_does_not_fit() -> None:
    station = Station("c1/e0")
    voltage = station.publish(BuiltinType.FLOAT64)
    with pytest.raises(LayoutError, match="too large"):
        voltage.send(10**400)
    assert station.sent() == []


def test_a_new_period_holds_from_the_announced_stamp_on() -> None:
    station = Station("c1/e0")
    voltage = station.publish()
    slower = numbered(voltage.variable, 6, Period(1, 30))
    station.cloud.ready.append((PublishedOutcome(variable=slower, from_ns=1_000),))
    voltage.change_period(Period(1, 30))
    for stamp_ns in (998, 999, 1_000, 1_001):
        voltage.send(1.0, created_ns=stamp_ns)
    assert [number for number, _ in station.sent()] == [5, 5, 6, 6]
    assert voltage.variable.period == Period(1, 30)


def test_an_event_stamped_before_a_change_bears_the_old_identifier_even_if_sent_after_it() -> None:
    station = Station("c1/e0")
    voltage = station.publish()
    slower = numbered(voltage.variable, 6, Period(1, 30))
    station.cloud.ready.append((PublishedOutcome(variable=slower, from_ns=1_000),))
    voltage.change_period(Period(1, 30))
    assert [voltage.identifier_at(at) for at in (999, 1_000, 998, 1_001)] == [5, 6, 5, 6]


@pytest.mark.parametrize("phase_ns", [-1, 10**30])
def test_a_phase_that_no_variable_has_is_refused_and_not_asked_for(phase_ns: int) -> None:
    station = Station("c1/e0")
    voltage = station.publish()
    with pytest.raises(LayoutError, match="phase_ns"):
        voltage.change_period(Period(1, 30), phase_ns=phase_ns)


def test_a_refused_period_changes_nothing() -> None:
    station = Station("c1/e0")
    voltage = station.publish()
    station.cloud.ready.append((RefusedOutcome(code=1000, reason="not now"),))
    with pytest.raises(Exception, match="not now"):
        voltage.change_period(Period(1, 30))
    voltage.send(1.0)
    assert station.sent() == [(5, 1.0)]


@pytest.mark.feature("S0-29")
def test_what_is_withdrawn_cannot_be_sent() -> None:
    station = Station("c1/e0")
    voltage = station.publish()
    station.cloud.ready.append((DoneOutcome(),))
    voltage.unpublish()
    voltage.unpublish()
    assert [type(each).__name__ for each in station.cloud.asked] == ["Publish", "Unpublish"]
    assert station.cloud.asked[-1] == Unpublish(names=(NAME,))
    with pytest.raises(Misuse, match="not published any more"):
        voltage.send(1.0)


def test_a_restored_publication_is_sent_under_its_new_identifier() -> None:
    station = Station("c1/e0")
    voltage = station.publish()
    refused = RefusedOutcome(code=VariableExists.code, reason="taken")
    station.book.restored(PublicationRestored(NAME, refused))
    assert not voltage.send(1.0)
    assert voltage.error_code == VariableExists.code
    again = PublishedOutcome(variable=numbered(voltage.variable, 9))
    station.book.restored(PublicationRestored(NAME, again))
    assert voltage.send(2.0)
    assert station.sent()[-1] == (9, 2.0)


def test_a_refused_publication_is_its_error() -> None:
    station = Station("c1/e0")
    station.cloud.ready.append((RefusedOutcome(code=VariableExists.code, reason="taken"),))
    asked = periodic_variable(NAME, BuiltinType.FLOAT64, {"rate": 60})
    (found,) = station.book.publish([(asked, ())])
    assert isinstance(found, VariableExists)


def test_many_values_leave_as_one_column() -> None:
    station = Station("c1/e0")
    loads = [station.publish() for _ in range(3)]
    assert station.book.send_many(loads, [1, 2, 3], created_ns=99) == 3
    assert station.sent() == [(5, 1.0), (5, 2.0), (5, 3.0)]
    assert station.book.send_many([], []) == 0


def test_many_values_are_stamped_after_all_that_is_done_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    station = Station("c1/e0", "c1/e1")
    loads = [station.publish() for _ in range(2)]
    reads = count(100)
    monkeypatch.setattr(time, "time_ns", lambda: next(reads))
    station.book.send_many(loads, [1.0, 2.0])
    last = next(reads) - 1
    assert last > 100  # The identifiers were looked up by an earlier one.
    for sender in station.open_senders:
        assert [words["created_ns"] for _, _, words in sender.sent] == [last, last]


def test_a_period_that_changes_under_many_values_keeps_identifier_and_stamp_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    station = Station("c1/e0")
    loads = [station.publish() for _ in range(2)]
    station.cloud.ready.append(
        (PublishedOutcome(variable=numbered(loads[1].variable, 6), from_ns=101),)
    )
    loads[1].change_period(Period(1, 30))
    reads = count(100)
    monkeypatch.setattr(time, "time_ns", lambda: next(reads))
    for _ in range(2):
        station.book.send_many(loads, [1.0, 2.0])
    told = [(number, words["created_ns"]) for number, _, words in station.open_senders[0].sent]
    assert told == [(5, 100), (5, 100), (5, 103), (6, 103)]


def test_many_values_of_mixed_kinds_leave_one_by_one() -> None:
    station = Station("c1/e0")
    mixed = [station.publish(), station.publish(derived=[Maximum(2)])]
    assert station.book.send_many(mixed, [1.0, 2.0]) == 2
    assert len(station.sent()) == 2


@pytest.mark.parametrize("values", [[1.0], [[1.0, 2.0]], [True, False], ["a", "b"]])
def test_a_column_that_does_not_fit_is_refused(values: Any) -> None:
    station = Station("c1/e0")
    loads = [station.publish(), station.publish()]
    with pytest.raises(LayoutError):
        station.book.send_many(loads, values)
    assert station.sent() == []


def test_events_of_a_replayed_variable_are_flagged_alone_and_as_columns() -> None:
    station = Station("c1/e0")
    live, replayed = station.publish(), station.publish(replay_speed=10)
    assert replayed.send(1.0, created_ns=99)
    assert station.book.send_many([replayed, replayed], [2.0, 3.0], created_ns=[100, 101]) == 2
    assert station.book.send_many([live, replayed], [4.0, 5.0], created_ns=102) == 2
    flags = [words["flags"] for _, _, words in station.open_senders[0].sent]
    assert flags == [EventFlag.REPLAYED] * 3 + [0, EventFlag.REPLAYED]


def test_a_sequence_of_the_callers_own_goes_to_every_edge() -> None:
    station = Station("c1/e0", "c1/e1")
    assert station.publish().send(1.0, created_ns=99, sequence=700)
    for sender in station.open_senders:
        assert [words["sequence"] for _, _, words in sender.sent] == [700]
