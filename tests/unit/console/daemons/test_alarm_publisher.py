"""Alarms become alerts with the identity they were given; whatever happens to one is counted."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from gridstat.console.daemons.alarm_publisher import (
    OUTCOMES,
    Alarm,
    AlarmPublisher,
    FeedbackSettings,
    alert_name,
)
from gridstat.model.errors import EndPointExists, GridStatError, LinkDown, RouterFull

if TYPE_CHECKING:
    from gridstat.model.status import ValueType

S = 1_000_000_000
NOW_NS = 1_700_000_000 * S
LOW = Alarm("frequency-low", "c1/north/pmu-1/frequency", NOW_NS - 4 * S, 7, 49.7)
AT_ONCE = FeedbackSettings(settle_s=0, retry_s=0.001)


@dataclass
class PaperClock:
    steady: int = 5 * S
    posix: int = NOW_NS

    def steady_ns(self) -> int:
        return self.steady

    def posix_ns(self) -> int:
        return self.posix


@dataclass
class PaperAlert:
    name: str
    takes: list[bool] = field(default_factory=list)
    sent: list[tuple[float, int, int]] = field(default_factory=list)

    def send(self, value: float, *, created_ns: int, sequence: int) -> bool:
        if self.takes and not self.takes.pop(0):
            return False
        self.sent.append((value, created_ns, sequence))
        return True


@dataclass
class PaperGrid:
    problems: list[GridStatError] = field(default_factory=list)
    takes: list[bool] = field(default_factory=list)
    alerts: dict[str, PaperAlert] = field(default_factory=dict)
    is_closed: bool = False

    def publish_alert(
        self, name: str, value_type: ValueType, *, interval_s_min: float, is_belated: bool
    ) -> PaperAlert:
        assert interval_s_min > 0
        assert is_belated
        if self.problems:
            raise self.problems.pop(0)
        self.alerts[name] = PaperAlert(name, self.takes)
        return self.alerts[name]

    def close(self) -> None:
        self.is_closed = True


def test_an_alarm_is_sent_with_its_onset_as_stamp_and_its_own_sequence() -> None:
    grid = PaperGrid()
    publisher = AlarmPublisher(lambda: grid, AT_ONCE, PaperClock())
    assert publisher.offer(LOW) == "published"
    (alert,) = grid.alerts.values()
    assert alert.name == "alarms/frequency-low/north/pmu-1/frequency"
    assert alert.sent == [(49.7, LOW.onset_ns, 7)]


def test_one_alert_is_registered_for_each_rule_and_variable_and_no_more_than_the_bound() -> None:
    grid = PaperGrid()
    settings = FeedbackSettings(settle_s=0, variables_max=2)
    publisher = AlarmPublisher(lambda: grid, settings, PaperClock())
    offered = [LOW, LOW._replace(sequence=8), LOW._replace(rule="other"), LOW._replace(rule="3rd")]
    outcomes = [publisher.offer(alarm) for alarm in offered]
    assert outcomes == ["published", "published", "published", "no_room"]
    assert len(grid.alerts) == 2


def test_the_first_alarm_of_a_variable_waits_for_the_paths_of_its_subscribers() -> None:
    clock, grid = PaperClock(), PaperGrid()
    publisher = AlarmPublisher(lambda: grid, FeedbackSettings(settle_s=1), clock)
    assert publisher.offer(LOW) == clock.steady + S
    clock.steady += S
    assert publisher.offer(LOW) == "published"
    assert publisher.offer(LOW) == "published"


@pytest.mark.parametrize(("age_s", "outcome"), [(49, "published"), (51, "too_old")])
def test_an_alarm_beyond_the_memory_of_routers_is_history(age_s: int, outcome: str) -> None:
    publisher = AlarmPublisher(PaperGrid, AT_ONCE, PaperClock())
    assert publisher.offer(LOW._replace(onset_ns=NOW_NS - age_s * S)) == outcome


def test_while_the_grid_cannot_be_reached_an_alarm_waits_until_it_is_too_old() -> None:
    clock = PaperClock()
    tried: list[int] = []

    def attach() -> PaperGrid:
        tried.append(clock.steady)
        raise (LinkDown("no edge") if len(tried) % 2 else EndPointExists("not gone yet"))

    publisher = AlarmPublisher(attach, FeedbackSettings(retry_s=2), clock)
    while isinstance(outcome := publisher.offer(LOW), int):
        clock.posix += outcome - clock.steady
        clock.steady = outcome
    assert outcome == "too_old"
    assert len(tried) == 24


def test_an_alert_that_no_edge_takes_is_tried_again() -> None:
    grid = PaperGrid(takes=[False, False, True])
    with AlarmPublisher(lambda: grid, AT_ONCE, None) as publisher:
        alarm = LOW._replace(onset_ns=time.time_ns())
        assert publisher.publish([alarm]) == 1
        assert publisher.flush(20)
        assert publisher.counters() == counts(published=1)
    assert grid.is_closed


def test_a_refused_alert_is_counted_and_does_not_stop_the_others() -> None:
    grid = PaperGrid(problems=[RouterFull("no room")])
    with AlarmPublisher(lambda: grid, AT_ONCE) as publisher:
        alarms = [LOW._replace(rule=rule, onset_ns=time.time_ns()) for rule in ("a", "b")]
        publisher.publish(alarms)
        assert publisher.flush(20)
        assert publisher.counters() == counts(published=1, refused=1)


def test_a_table_of_alarms_is_taken_as_it_is_and_what_finds_no_room_is_counted() -> None:
    rows = [{**LOW._asdict(), "text": "low", "onset_ns": time.time_ns()} for _ in range(5)]
    settings = FeedbackSettings(settle_s=0, waiting_max=3)
    grid = PaperGrid()
    publisher = AlarmPublisher(lambda: grid, settings)
    assert publisher.publish(pa.Table.from_pylist(rows)) == 3
    assert publisher.counters() == counts(overflowed=2, waiting=3)
    with publisher:
        assert publisher.flush(20)
        assert publisher.counters() == counts(published=3, overflowed=2)


def test_an_alarm_without_a_value_is_sent_as_no_number() -> None:
    row = {**LOW._asdict(), "value": None, "onset_ns": time.time_ns()}
    schema = pa.schema([(name, pa.string()) for name in ("rule", "variable")])
    for name, kind in (("onset_ns", pa.int64()), ("sequence", pa.int32()), ("value", pa.float64())):
        schema = schema.append(pa.field(name, kind))
    grid = PaperGrid()
    with AlarmPublisher(lambda: grid, AT_ONCE) as publisher:
        publisher.publish(pa.Table.from_pylist([row], schema=schema))
        assert publisher.flush(20)
        assert publisher.is_idle()
    (alert,) = grid.alerts.values()
    assert math.isnan(alert.sent[0][0])


def test_closing_ends_the_thread_whatever_waits() -> None:
    publisher = AlarmPublisher(PaperGrid, FeedbackSettings(settle_s=3_600))
    with publisher:
        publisher.publish([LOW._replace(onset_ns=time.time_ns())])
        assert not publisher.flush(0.05)
        assert not publisher.is_idle()
    assert publisher.counters()["published"] == 0


def test_a_variable_of_one_part_keeps_its_name() -> None:
    assert alert_name("rule", "v") == "alarms/rule/v"


def counts(**some: int) -> dict[str, int]:
    return {**dict.fromkeys((*OUTCOMES, "waiting"), 0), **some}
