"""Number arguments of users: accepted if they are exact, refused with a reason if not."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import gridstat
from gridstat.endpoint.connection import Connection
from gridstat.endpoint.options import check_wait, periodic_variable, qos, subscription_spec
from gridstat.model.errors import InvalidPeriod, LayoutError, Misuse
from gridstat.model.extrapolation import Polynomial, PolynomialAverage
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, EventFlag, Field, FieldKind, RecordType, TimeQuality
from tests.unit.endpoint.paper_station import Station

FIFTY = [50, 50.0, Fraction(50), np.int64(50), np.uint8(50), np.float32(50), np.float64(50)]
STAMP_NS = 1_700_000_000_000_000_001
U64_MAX = 2**64 - 1
WHOLE_OPTIONS = ["every", "redundancy", "priority", "every_worst"]


@pytest.mark.parametrize("rate", FIFTY, ids=repr)
def test_a_rate_that_is_exactly_a_whole_number_is_taken(rate: Any) -> None:
    assert qos(rate=rate).interval == Period(1, 50)
    variable = periodic_variable("c1/a/v", BuiltinType.FLOAT64, {"rate": rate})
    assert variable.period == Period(1, 50)
    assert type(variable.period.per_seconds) is int


@pytest.mark.parametrize("rate", [29.97, 0.5, np.float64(29.97), np.float32(0.1)], ids=repr)
def test_a_rate_with_a_fraction_is_refused_with_the_exact_way_to_say_it(rate: Any) -> None:
    with pytest.raises(Misuse, match="a positive whole number or a Fraction") as refusal:
        qos(rate=rate)
    assert f'Fraction("{rate}")' in refusal.value.hint
    assert "Period(1_001, 30_000)" in refusal.value.hint


@pytest.mark.parametrize("two", [2, 2.0, np.int32(2), np.float64(2)], ids=repr)
def test_options_that_count_take_what_is_exactly_whole(two: Any) -> None:
    for option in WHOLE_OPTIONS:
        found = getattr(qos(**{option: two}), option)
        assert (found, type(found)) == (2, int)
    order = subscription_spec("c1/a/v", {"keep_events": two})
    assert (order.keep_events, type(order.keep_events)) == (2, int)
    assert type(Polynomial(order=two, points=4).order) is int
    assert PolynomialAverage(orders=(two,)).orders == (2,)
    assert type(gridstat.MovingAverage(two).points) is int
    assert type(Period(two, 1).seconds) is int
    assert type(Field("f", FieldKind.BYTES, two).length_bytes) is int


@pytest.mark.parametrize("bad", [2.5, True, "2", None, np.float64("nan"), np.True_], ids=repr)
def test_options_that_count_refuse_the_rest_by_name(bad: Any) -> None:
    for option in WHOLE_OPTIONS:
        with pytest.raises(LayoutError, match=f"{option} is .* whole number"):
            qos(**{option: bad})
    with pytest.raises(LayoutError, match=r"keep_events is .* whole number"):
        subscription_spec("c1/a/v", {"keep_events": bad})
    with pytest.raises(LayoutError, match=r"points is .* whole number"):
        gridstat.Average(bad)
    with pytest.raises(InvalidPeriod):
        Period(bad, 1)


def test_a_negative_number_of_kept_events_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(Misuse, match="keep_events is -1"):
        subscription_spec("c1/a/v", {"keep_events": -1})


@pytest.mark.parametrize("fifty", FIFTY, ids=repr)
def test_a_latency_may_be_any_number(fifty: Any) -> None:
    found = qos(latency_ms=fifty).latency_us
    assert (found, type(found)) == (50_000, int)


@pytest.mark.parametrize("bad", ["50", True, None, [50]], ids=repr)
def test_a_time_that_is_no_number_is_refused_by_name(bad: Any) -> None:
    with pytest.raises(LayoutError, match="latency_ms is"):
        qos(latency_ms=bad)
    with pytest.raises(LayoutError, match="timeout_s is"):
        check_wait("timeout_s", bad)


@pytest.mark.parametrize("bad", [0.1, 10, "1/10"], ids=repr)
def test_an_interval_that_is_no_period_is_refused_with_one(bad: Any) -> None:
    with pytest.raises(Misuse, match="interval is") as refusal:
        qos(interval=bad)
    assert "Period(1, 10)" in refusal.value.hint
    with pytest.raises(Misuse, match="period is"):
        periodic_variable("c1/a/v", BuiltinType.FLOAT64, {"period": bad})


# What is several, and what is one.


def test_a_name_where_a_list_of_names_is_wanted_is_refused() -> None:
    grid: Any = Connection(None)  # type: ignore[arg-type]
    for call in (grid.subscribe_many, grid.subscribe_later):
        with pytest.raises(Misuse, match="names is 'c1/a/v'") as refusal:
            call("c1/a/v")
        assert refusal.value.hint == "names=['c1/a/v']"
    with pytest.raises(Misuse, match="names is 'v'"):
        grid.publish_many("v", gridstat.FLOAT64, rate=1)


def test_a_derived_value_that_is_not_in_a_list_is_refused() -> None:
    with pytest.raises(Misuse, match="derived is 'average_10'"):
        subscription_spec("c1/a/v", {"derived": "average_10"})
    lone: Any = {"rate": 1, "derived": gridstat.MovingAverage(10)}
    with pytest.raises(Misuse, match="derived is MovingAverage"):
        periodic_variable("c1/a/v", BuiltinType.FLOAT64, lone)
    named: Any = {"rate": 1, "derived": ["average_10"]}
    with pytest.raises(Misuse, match="must be derivations"):
        periodic_variable("c1/a/v", BuiltinType.FLOAT64, named)


@pytest.mark.parametrize("bad", [{"rate": 10}, "wide-area", 10], ids=repr)
def test_a_quality_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(Misuse, match="must be a quality of service"):
        subscription_spec("c1/a/v", {"qos": bad})


# Time stamps.


@pytest.mark.parametrize("stamp", [np.int64(STAMP_NS), np.uint64(STAMP_NS), STAMP_NS], ids=repr)
def test_a_stamp_may_be_any_whole_number(stamp: Any) -> None:
    station = Station("c1/e0")
    assert station.publish().send(1.5, created_ns=stamp)
    ((_, _, words),) = station.open_senders[0].sent
    assert (words["created_ns"], type(words["created_ns"])) == (STAMP_NS, int)


BAD_STAMPS = [
    (1.7e9, "time.time_ns()"),
    (1.7e18, "no room for nanoseconds"),
    (np.float64(1), "no room for nanoseconds"),
    (datetime(2026, 1, 1, tzinfo=UTC), "timestamp()"),
    (np.datetime64("2026-01-01", "ns"), "datetime64[ns]"),
    ("2026-01-01", "time.time_ns()"),
    (True, "time.time_ns()"),
    (-1, "1970"),
    (2**64, "1970"),
    (np.int64(-1), "1970"),
]


@pytest.mark.parametrize(("stamp", "hint"), BAD_STAMPS, ids=repr)
def test_a_stamp_of_another_type_is_refused_with_a_hint(stamp: Any, hint: str) -> None:
    station = Station("c1/e0")
    publication = station.publish(derived=[gridstat.MovingAverage(2)])
    with pytest.raises(LayoutError, match=r"created_ns is .* nanoseconds since 1970") as refusal:
        publication.send(1.5, created_ns=stamp)
    assert hint in refusal.value.hint
    with pytest.raises(LayoutError, match=r"created_ns is .* nanoseconds since 1970"):
        station.book.send_many([publication], [1.5], [stamp])
    assert not station.open_senders[0].sent


def test_many_stamps_are_taken_where_they_are_whole_numbers() -> None:
    station = Station("c1/e0")
    publication = station.publish()
    for stamps in (STAMP_NS, [STAMP_NS], np.array([STAMP_NS]), np.array([STAMP_NS], np.uint64)):
        assert station.book.send_many([publication], [1.5], stamps) == 1
    assert station.book.send_many([publication], [1.5], [U64_MAX]) == 1
    stamps_sent = [words["created_ns"] for _, _, words in station.open_senders[0].sent]
    assert stamps_sent == [STAMP_NS] * 4 + [U64_MAX]


def test_as_many_stamps_as_publications_are_wanted() -> None:
    station = Station("c1/e0")
    with pytest.raises(LayoutError, match="1 publications and stamps of"):
        station.book.send_many([station.publish()], [1.5], [1, 2])


# Sequences, qualities and values.


@pytest.mark.parametrize("bad", [-1, 65_536, 1.5, "1", True], ids=repr)
def test_a_sequence_that_no_event_holds_is_refused(bad: Any) -> None:
    station = Station("c1/e0")
    with pytest.raises(LayoutError, match="sequence is"):
        station.publish().send(1.5, created_ns=1, sequence=bad)
    assert not station.open_senders[0].sent


@pytest.mark.parametrize("bad", [{"time_quality": 4}, {"time_quality": "bad"}, {"flags": 64}])
def test_a_quality_or_flag_that_no_event_holds_is_refused(bad: Any) -> None:
    station = Station("c1/e0")
    with pytest.raises(LayoutError, match="time_quality is") as refusal:
        station.publish().send(1.5, **bad)
    assert "TimeQuality.BAD" in refusal.value.hint
    assert not station.open_senders[0].sent


def test_a_quality_may_be_given_as_its_number() -> None:
    station = Station("c1/e0")
    plain: Any = int(TimeQuality.BAD)
    assert station.publish().send(1.5, time_quality=plain, flags=EventFlag.TEST)
    ((_, _, words),) = station.open_senders[0].sent
    assert words["flags"] == TimeQuality.BAD | EventFlag.TEST


@pytest.mark.parametrize(
    ("kind", "value", "sent"),
    [
        (BuiltinType.FLOAT64, np.float32(1.5), 1.5),
        (BuiltinType.FLOAT64, np.int16(3), 3.0),
        (BuiltinType.INT64, np.uint32(7), 7),
        (BuiltinType.BOOL, np.True_, True),
    ],
)
def test_a_numpy_number_is_sent_as_the_number_that_it_is(
    kind: BuiltinType, value: Any, sent: Any
) -> None:
    station = Station("c1/e0")
    assert station.publish(kind).send(value)
    ((_, found),) = station.sent()
    assert (found, type(found)) == (sent, type(sent))


@pytest.mark.parametrize("value", [np.datetime64(1, "ns"), np.timedelta64(1, "ns"), np.float64(1)])
def test_a_numpy_value_of_another_kind_is_refused(value: Any) -> None:
    station = Station("c1/e0")
    with pytest.raises(LayoutError):
        station.publish(BuiltinType.INT64).send(value)


def test_a_record_takes_numpy_numbers_in_its_fields() -> None:
    station = Station("c1/e0")
    record = RecordType("r", (Field("on", FieldKind.BOOL), Field("size", FieldKind.INT16)))
    numbers: Any = {"on": np.True_, "size": np.int64(-2)}
    assert station.publish(record).send(numbers)
    assert station.publish(record).send({"on": True, "size": -2})
    (_, first), (_, second) = station.sent()
    assert first == second


# Options of a subscription that would fail only after the grant.


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"on_event": 5}, "on_event is 5, and must be a function"),
        ({"on_violation": "print"}, "on_violation is 'print', and must be a function"),
        ({"extrapolate": gridstat.Polynomial}, "extrapolate is <class"),
        ({"extrapolate": "linear"}, "extrapolate is 'linear'"),
        ({"value_type": float}, "is no value type"),
        ({"derived": [gridstat.MovingAverage(10)]}, "derived is .* names of derived values"),
    ],
)
def test_an_option_of_another_type_is_refused_before_anything_is_sent(
    options: Any, text: str
) -> None:
    with pytest.raises(Misuse, match=text) as refusal:
        subscription_spec("c1/a/v", options)
    assert refusal.value.hint


def test_an_extrapolation_of_the_users_own_is_taken() -> None:
    class Last:
        points = 1

        def extrapolate(self, _times: Any, values: Any, _at: int) -> float:
            return float(values[-1])

    assert subscription_spec("c1/a/v", {"extrapolate": Last()}).handlers.extrapolate is not None
