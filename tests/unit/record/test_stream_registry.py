"""Stream of an event: one variable, one contract, one time span."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType
from gridstat.record.record_kinds import EVENTS, STREAMS
from gridstat.record.recorder import read_rows
from tests.unit.record.batches import BEGAN_NS
from tests.unit.record.samples import Clock, samples, variable
from tests.unit.record.test_recorder import recording

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "other",
    [
        {"period": Period(1, 60)},
        {"period": None},
        {"value_type": BuiltinType.FLOAT64},
        {"name": "c1/a/w"},
    ],
)
def test_other_terms_are_another_stream(tmp_path: Path, other: dict[str, Any]) -> None:
    with recording(tmp_path) as recorder:
        recorder.take(samples(0, 2))
        assert recorder.begin(variable(**other), 1, 7) == 1
        recorder.take(samples(2, 2))
        assert recorder.begin(variable(), 5, 7) == 2
        recorder.take(samples(4, 2))
    assert [row["stream"] for row in read_rows(tmp_path, EVENTS)] == [0, 0, 1, 1, 2, 2]
    assert [row["every"] for row in read_rows(tmp_path, STREAMS)] == [1, 1, 5]


def test_numbers_of_streams_survive_a_restart(tmp_path: Path) -> None:
    with recording(tmp_path) as recorder:
        assert recorder.begin(variable(2), 3, 8) == 1
        recorder.take(samples(0, 2, variable_id=2))
    with recording(tmp_path) as recorder:
        assert recorder.begin(variable(40, name="c1/a/v2"), 3, 8) == 1
        assert recorder.begin(variable(41), 3, 100) == 2
        recorder.take(samples(2, 2, variable_id=40))
    assert [row["stream"] for row in read_rows(tmp_path, STREAMS)] == [0, 1, 2]
    assert [row["stream"] for row in read_rows(tmp_path, EVENTS)] == [1] * 4


def test_another_contract_on_the_same_terms_is_another_stream(tmp_path: Path) -> None:
    with recording(tmp_path) as recorder:
        recorder.take(samples(0, 2))
    with recording(tmp_path) as recorder:
        assert recorder.begin(variable(), 1, 8) == 1
        recorder.take(samples(2, 2))
    rows = list(read_rows(tmp_path, STREAMS))
    assert [(row["stream"], row["subscription"]) for row in rows] == [(0, 7), (1, 8)]
    assert [row["stream"] for row in read_rows(tmp_path, EVENTS)] == [0, 0, 1, 1]


def test_terms_that_come_back_are_another_stream(tmp_path: Path) -> None:
    clock = Clock()
    with recording(tmp_path, clock=clock) as recorder:
        recorder.take(samples(0, 1))
        for number, period in enumerate((Period(1, 60), Period(1, 30)), start=1):
            clock.ns += 1_000
            assert recorder.begin(variable(period=period), 1, 7) == number
            recorder.take(samples(number, 1))
    since_ns = [row["since_ns"] - BEGAN_NS for row in read_rows(tmp_path, STREAMS)]
    assert since_ns == [0, 1_000, 2_000]
