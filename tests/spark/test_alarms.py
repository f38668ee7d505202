"""Disturbances of fifty seeds raise exactly the alarms that their physics asks for.

The same streams go through the laws as they stand and, all in one table, through Spark.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gridstat.console.simulation.disturbance import DURATION_S, KINDS
from gridstat.console.simulation.scenario import Scenario, Watch, scenarios
from gridstat.model.alarms.alarm_identity import sequence_of
from gridstat.model.alarms.runs import Series
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.model.status import EventFlag
from gridstat.pipeline.alarm_rules import load_rules, rules_from_text
from gridstat.pipeline.file_rows import FileRows, in_shares
from gridstat.pipeline.jobs.alarm_follower import recently_active
from gridstat.pipeline.schemas import ALARMS, column_names
from gridstat.pipeline.stages.alarm_evaluation import LOOK_BACK_NS_MAX, alarms, watched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from gridstat.pipeline.stages.alarm_evaluation import Watched

    Stage = Callable[..., DataFrame]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SEEDS = 52
START_NS = 1_700_000_000 * NS_PER_S
END_NS = START_NS + DURATION_S * NS_PER_S
WATCH = Watch(load_rules(), (0, 5, 6), ("frequency", "voltage-magnitude"), Period(1, 30))
FOR_EVER_NS = (1 << 63) - 1
SILENT = '[[rule]]\nname = "silent"\nkind = "missing"\nvariables = ["c1/**"]\nslots = 30\n'
HIGH = '[[rule]]\nname = "high"\nkind = "threshold"\nvariables = ["c1/**"]\nabove = 1.0\n'

Found = dict[tuple[str, str], list[float]]
"""Onsets in seconds from the start, by rule and variable."""


@pytest.fixture(scope="module")
def drawn() -> list[Scenario]:
    return scenarios(range(SEEDS), WATCH)


def variables(drawn: list[Scenario]) -> list[tuple[Scenario, int, str]]:
    return [
        (scenario, station, quantity)
        for scenario in drawn
        for station in WATCH.stations
        for quantity in WATCH.quantities
    ]


def check_truth(drawn: list[Scenario], found: Found) -> None:
    """Precision and recall are 1: every alarm is expected, and every expected one is there."""
    expected: dict[tuple[str, str], list[Any]] = {}
    for scenario in drawn:
        for alarm in scenario.alarms:
            expected.setdefault((alarm.rule, alarm.variable), []).append(alarm.span)
    assert found.keys() - expected.keys() == set()
    assert expected.keys() - found.keys() == set()
    for key, spans in expected.items():
        onsets_s = sorted(found[key])
        assert len(onsets_s) == len(spans), key
        for onset_s, span in zip(onsets_s, spans, strict=True):
            assert span.earliest_s <= onset_s <= span.latest_s, key


def test_the_draws_hold_every_kind_of_disturbance_and_alarm(drawn: list[Scenario]) -> None:
    assert len(drawn) >= 50
    assert {scenario.disturbance.kind for scenario in drawn} == set(KINDS)
    raised = Counter(alarm.rule for scenario in drawn for alarm in scenario.alarms)
    kinds = {rule.kind for rule in WATCH.rules if raised[rule.name] >= 5}
    assert kinds >= {"threshold", "rate", "missing", "frequency", "oscillation"}
    growing = [each for each in drawn if each.disturbance.case.phases[-1].damping_ratio < 0]
    assert any(alarm.rule == "oscillation" for each in growing for alarm in each.alarms)
    calm = [each for each in drawn if each.disturbance.kind == "ambient"]
    assert {alarm.rule for each in calm for alarm in each.alarms} <= {"silent-pmu"}


def test_the_laws_find_exactly_the_alarms_of_the_truth(drawn: list[Scenario]) -> None:
    found: Found = {}
    for scenario, station, quantity in variables(drawn):
        variable = WATCH.variable(scenario.seed, station, quantity)
        times_ns, values = scenario.stream(station, quantity, WATCH.period, START_NS)
        slots_ns = np.full(len(times_ns), NS_PER_S // 30, dtype=np.int64)
        series = Series(times_ns, values, slots_ns, START_NS)
        for rule in WATCH.rules:
            if rule.watches(variable):
                for finding in rule.law.findings(series, START_NS - 1, END_NS):
                    onset_s = (finding.onset_ns - START_NS) / NS_PER_S
                    found.setdefault((rule.name, variable), []).append(onset_s)
    check_truth(drawn, found)


def known(names: list[str], **changed: Any) -> list[dict[str, Any]]:
    row = {
        "period_seconds": 1,
        "period_per_seconds": 30,
        "phase_ns": 0,
        "every": 1,
        "since_ns": START_NS - 1,
        "until_ns": FOR_EVER_NS,
    }
    return [
        {"stream": number, "variable": name, **row, **changed} for number, name in enumerate(names)
    ]


def event_table(streams: list[tuple[Any, Any]], flags: EventFlag = EventFlag.NONE) -> pa.Table:
    return pa.table(
        {
            "stream": np.repeat(
                np.arange(len(streams), dtype=np.int32), [len(times) for times, _ in streams]
            ),
            "created_ns": np.concatenate([times for times, _ in streams]),
            "value": np.concatenate([values for _, values in streams]),
            "flags": np.full(sum(len(times) for times, _ in streams), int(flags), np.int16),
        }
    )


def test_the_stage_finds_exactly_the_alarms_of_the_truth(
    stage: Stage, drawn: list[Scenario]
) -> None:
    names = [WATCH.variable(each.seed, station, what) for each, station, what in variables(drawn)]
    rows = event_table(
        [
            each.stream(station, what, WATCH.period, START_NS)
            for each, station, what in variables(drawn)
        ]
    )
    seen = watched(WATCH.rules, known(names))
    frame = stage(rows, seen)
    assert frame.columns == list(column_names(ALARMS))
    found: Found = {}
    for row in frame.collect():
        found.setdefault((row.rule, row.variable), []).append((row.onset_ns - START_NS) / NS_PER_S)
        assert row.sequence == sequence_of(row.rule, row.variable)
        assert names[row.stream] == row.variable
        assert row.text.startswith(row.variable)
    check_truth(drawn, found)


@pytest.fixture
def stage(spark: SparkSession, tmp_path: Path) -> Stage:
    """The stage over an archive of one file with these rows."""

    def run(
        rows: pa.Table, seen: Watched, to_ns: int = END_NS, away_ns: Sequence[tuple[int, int]] = ()
    ) -> DataFrame:
        path = tmp_path / "rows.parquet"
        pq.write_table(rows, path)
        events = FileRows((str(path),), rows_max=rows.num_rows)
        return alarms(in_shares(spark, events), events, seen, (START_NS - 1, to_ns), away_ns)

    return run


def onsets_s(frame: Any) -> dict[str, float]:
    return {row.variable: (row.onset_ns - START_NS) / NS_PER_S for row in frame.collect()}


def test_a_variable_that_never_sent_anything_is_silent(stage: Stage) -> None:
    """Begin a contract in the interval; a variable whose contract is over owes nothing."""
    seen = watched(rules_from_text(SILENT, file="f"), known(["c1/a", "c1/b"], since_ns=START_NS))
    no_rows = event_table([([], [])])
    found = onsets_s(stage(no_rows, seen))
    assert found == {"c1/a": pytest.approx(30.5 / 30), "c1/b": pytest.approx(30.5 / 30)}
    over = known(["c1/a"], since_ns=START_NS, until_ns=START_NS + NS_PER_S)
    seen = watched(rules_from_text(SILENT, file="f"), over)
    assert onsets_s(stage(no_rows, seen)) == {}


def test_what_is_sent_for_a_test_is_no_silence_and_no_alarm(stage: Stage) -> None:
    seen = watched(rules_from_text(SILENT + HIGH, file="f"), known(["c1/a"]))
    times_ns = START_NS + np.arange(90) * NS_PER_S // 30
    to_ns = int(times_ns[-1])
    for flags, raised in ((EventFlag.NONE, ["high"]), (EventFlag.TEST, [])):
        rows = event_table([(times_ns, np.full(90, 2.0))], flags)
        assert [row.rule for row in stage(rows, seen, to_ns).collect()] == raised


def test_nobody_is_silent_while_nothing_was_recorded(stage: Stage) -> None:
    seen = watched(rules_from_text(SILENT, file="f"), known(["c1/a"]))
    slots = np.r_[0:100, 300:400]
    rows = event_table([(START_NS + slots * NS_PER_S // 30, np.zeros(200))])
    to_ns = int(rows["created_ns"][-1].as_py())
    found = stage(rows, seen, to_ns)
    assert onsets_s(found) == {"c1/a": pytest.approx((99 + 30.5) / 30)}
    gap = (START_NS + 3 * NS_PER_S, START_NS + 10 * NS_PER_S)
    assert onsets_s(stage(rows, seen, to_ns, [gap])) == {}


def test_who_does_not_come_back_with_the_recorder_is_silent(stage: Stage) -> None:
    """Withdraw at 3 s and subscribe again from 10 s on without events: one alarm then."""
    rules = rules_from_text(SILENT, file="f")
    (first,) = known(["c1/a"], since_ns=START_NS, until_ns=START_NS + 3 * NS_PER_S)
    (second,) = known(["c1/a"], since_ns=START_NS + 10 * NS_PER_S)
    seen = watched(rules, [first, second | {"stream": 1}])
    rows = event_table([(START_NS + np.arange(90) * NS_PER_S // 30, np.zeros(90))])
    to_ns = START_NS + 60 * NS_PER_S
    found = [row.onset_ns for row in stage(rows, seen, to_ns).collect()]
    assert [(onset_ns - START_NS) / NS_PER_S for onset_ns in found] == [
        pytest.approx(10 + 30.5 / 30)
    ]


def test_a_variable_goes_on_under_another_number(stage: Stage) -> None:
    """A new contract is a new stream, and a condition that lasts is still the same alarm."""
    rules = rules_from_text(HIGH, file="f")
    times_ns = START_NS + np.arange(60) * NS_PER_S // 30
    rows = event_table([(times_ns[:30], np.full(30, 2.0)), (times_ns[30:], np.full(30, 2.0))])
    seen = watched(rules, known(["c1/a", "c1/a"]))
    found = stage(rows, seen).collect()
    assert [(row.onset_ns, row.stream) for row in found] == [(START_NS, 0)]


def test_streams_that_are_long_over_are_forgotten_and_no_other() -> None:
    """Check that streams stay until the longest memory of a rule has passed."""
    rows = known(["c1/a", "c1/a", "c1/b"])
    rows[0]["until_ns"] = START_NS
    table = pa.Table.from_pylist(rows)
    for from_ns, streams in (
        (START_NS, [0, 1, 2]),
        (START_NS + LOOK_BACK_NS_MAX + 1, [0, 1, 2]),
        (START_NS + LOOK_BACK_NS_MAX + 2, [1, 2]),
    ):
        assert recently_active(table, from_ns).column("stream").to_pylist() == streams


def test_streams_that_nobody_watches_are_left_out() -> None:
    seen = watched(rules_from_text(HIGH, file="f"), known(["c1/a", "c2/a"]))
    assert [each.variable for each in seen.variables] == ["c1/a"]
    assert [each.stream for each in seen.streams] == [0]


def test_streams_too_slow_for_a_bounded_look_back_are_named() -> None:
    slow = known(["c1/a"], period_seconds=3_600, period_per_seconds=1)
    seen = watched(rules_from_text(SILENT, file="f"), slow)
    assert seen.too_slow == ("c1/a",)
    assert seen.variables == ()
    assert seen.look_back_ns <= LOOK_BACK_NS_MAX
