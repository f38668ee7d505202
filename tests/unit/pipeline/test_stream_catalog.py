"""Time span in which a stream is expected, from the runs of recorders and the contracts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from gridstat.model.rate_law import Period
from gridstat.pipeline.alarm_rules import rules_from_text
from gridstat.pipeline.stages.alarm_evaluation import watched
from gridstat.pipeline.stages.rollup import complete, expected
from gridstat.pipeline.stream_catalog import FOR_EVER_NS, known_streams
from gridstat.record.log_settings import RecorderSettings
from gridstat.record.record_kinds import CONTRACTS
from gridstat.record.recorder import Recorder
from tests.unit.record.batches import BEGAN_NS
from tests.unit.record.samples import Clock, samples, variable

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.model.status import StatusVariable

NS_PER_S = 1_000_000_000
SILENT = '[[rule]]\nname = "silent"\nkind = "missing"\nvariables = ["c1/**"]\nslots = 30\n'
FIRST_S = -(-BEGAN_NS // NS_PER_S)
"""The first whole second after the begin."""


def contract(subscription: int, at_ns: int, *, is_over: bool) -> dict[str, Any]:
    return {
        "time_ns": at_ns,
        "subscription": subscription,
        "endpoint": "c1/recorder",
        "variable": "c1/a/v1",
        "publisher": "c1/a",
        "value_type": "int64",
        "period_seconds": 1,
        "period_per_seconds": 30,
        "phase_ns": 0,
        "every": 1,
        "latency_ms": None,
        "redundancy": 1,
        "priority": 1,
        "is_over": is_over,
    }


class Life:
    """A recorder that runs from second to second, counted from `FIRST_S`."""

    def __init__(self, folder: Path) -> None:
        self._clock = Clock()
        self.recorder = Recorder(folder, now_ns=self._clock, settings=RecorderSettings())

    def at(self, second: float) -> int:
        self._clock.ns = FIRST_S * NS_PER_S + round(second * NS_PER_S)
        return self._clock.ns

    def begin(self, second: float, subscription: int, of: StatusVariable | None = None) -> None:
        at_ns = self.at(second)
        self.recorder.begin(of or variable(), 1, subscription)
        self.recorder.take(samples(0, 1, at_ns=at_ns))

    def account(self, second: float, subscription: int, *, is_over: bool) -> None:
        row = contract(subscription, self.at(second), is_over=is_over)
        self.recorder.put(CONTRACTS, [row])


def spans_s(folder: Path) -> list[tuple[float, float | None]]:
    """Return the time span of each stream, by number."""
    return [
        (_second(row["since_ns"]) or 0, _second(row["until_ns"]))
        for row in known_streams(folder).to_pylist()
    ]


def _second(at_ns: int) -> float | None:
    return None if at_ns == FOR_EVER_NS else (at_ns - FIRST_S * NS_PER_S) / NS_PER_S


def due(folder: Path, second: int) -> list[int | None]:
    start_ns = (FIRST_S + second) * NS_PER_S
    return [expected(row, start_ns, 1) for row in known_streams(folder).to_pylist()]


def is_held(folder: Path, second: int) -> bool:
    """Return whether silence that begins then is reported."""
    known = known_streams(folder).to_pylist()
    (found,) = watched(rules_from_text(SILENT, file="f"), known).variables
    return found.is_held((FIRST_S + second) * NS_PER_S)


@pytest.fixture
def two_lives(tmp_path: Path) -> Path:
    """Record subscription 7 until second 10, then 8 from second 20 on, with the first one's end."""
    first = Life(tmp_path)
    first.begin(0, 7)
    first.account(5, 7, is_over=False)
    first.recorder.close()
    second = Life(tmp_path)
    second.begin(20, 8)
    second.account(21, 8, is_over=False)
    second.account(21, 7, is_over=True)
    second.recorder.close()
    return tmp_path


def test_a_stream_is_expected_in_the_second_run_of_a_recorder(two_lives: Path) -> None:
    assert spans_s(two_lives) == [(0, 20), (20, None)]
    assert due(two_lives, 5) == [30, 0]
    assert due(two_lives, 100) == [0, 30]


def test_a_silent_stream_has_a_row_in_the_second_run_of_a_recorder(two_lives: Path) -> None:
    heard = pa.table(
        {
            "stream": pa.array([99], pa.int32()),
            "start_ns": pa.array([(FIRST_S + 100) * NS_PER_S]),
            "count": pa.array([30]),
            **{name: pa.array([1.0]) for name in ("mean", "minimum", "maximum", "deviation")},
            **{name: pa.array([1.0]) for name in ("p95", "first", "last")},
            **{name: pa.array([1.0]) for name in ("latency_ms_mean", "latency_ms_max")},
        }
    )
    known = known_streams(two_lives)
    other = {**known.to_pylist()[1], "stream": 99, "variable": "c1/a/other"}
    streams = pa.concat_tables([known, pa.Table.from_pylist([other], schema=known.schema)])
    rows = complete(heard, streams, 1).to_pylist()
    assert [(row["stream"], row["count"], row["expected"]) for row in rows] == [
        (99, 30, 30),
        (1, 0, 30),
    ]


def test_silence_in_the_second_run_of_a_recorder_is_not_excused(two_lives: Path) -> None:
    assert is_held(two_lives, 100)


def test_terms_that_come_back_are_expected_again(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.begin(0, 7)
    life.begin(10, 7, variable(period=Period(1, 60)))
    life.begin(20, 7)
    life.recorder.close()
    assert spans_s(tmp_path) == [(0, 10), (10, 20), (20, None)]
    assert [due(tmp_path, second) for second in (5, 15, 25)] == [
        [30, 0, 0],
        [0, 60, 0],
        [0, 0, 30],
    ]


def test_nothing_is_due_between_two_contracts(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.begin(0, 7)
    life.account(10, 7, is_over=True)
    life.begin(80, 8)
    life.recorder.close()
    assert spans_s(tmp_path) == [(0, 10), (80, None)]
    assert [is_held(tmp_path, second) for second in (9, 11, 79, 81)] == [True, False, False, True]


def test_a_contract_that_is_in_the_account_again_is_not_over(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.begin(0, 7)
    life.account(10, 7, is_over=True)
    life.account(15, 7, is_over=False)
    life.recorder.close()
    assert spans_s(tmp_path) == [(0, None)]


def test_the_end_of_an_earlier_contract_of_the_same_number_is_not_ours(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.account(-10, 7, is_over=True)
    life.begin(0, 7)
    life.recorder.close()
    assert spans_s(tmp_path) == [(0, None)]
