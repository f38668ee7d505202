"""Alarms after each batch: in the table once, handed on once, whatever was killed in between."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.pipeline.alarm_rules import rules_from_text
from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.jobs.alarm_follower import SENT, AlarmFollower, numbered
from gridstat.pipeline.jobs.ingest import Ingest, IngestSettings
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.pipeline.schemas import ALARMS
from gridstat.record.status_file import STATUS_FILE
from tests.spark.ingest_logs import BEGAN_S, NS_PER_S, Made, record_events, record_streams, steady
from tests.spark.ingest_tables import table

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

STREAMS = 3
RULES = rules_from_text(
    """
[[rule]]
name = "high"
kind = "threshold"
variables = ["c1/*/*/frequency"]
above = 100.0
clear_s = 2.0

[[rule]]
name = "silent"
kind = "missing"
variables = ["c1/hill/pmu-2/frequency"]
slots = 10
clear_s = 2.0
""",
    file="rules",
)
WANTED = [
    ("high", "c1/hill/pmu-0/frequency", 4.0),
    ("high", "c1/hill/pmu-0/frequency", 17.0),
    ("high", "c1/hill/pmu-1/frequency", 4.0),
    ("high", "c1/hill/pmu-1/frequency", 12.0),
    ("silent", "c1/hill/pmu-2/frequency", 8.9),
]


class Listener:
    """Receiver of the handed-on alarms; fails on request."""

    def __init__(self, *, is_failing: bool = False) -> None:
        self.is_failing = is_failing
        self.identities: list[tuple[str, str, int, int]] = []

    def publish(self, alarms: pa.Table) -> None:
        if self.is_failing:
            raise ConnectionError("killed")
        columns = [
            alarms[name].to_pylist() for name in ("rule", "variable", "onset_ns", "sequence")
        ]
        self.identities += list(zip(*columns, strict=True))

    def heard(self) -> list[tuple[str, str, float]]:
        return sorted((rule, name, seconds(at)) for rule, name, at, _ in self.identities)


def seconds(onset_ns: int) -> float:
    return (onset_ns - BEGAN_S * NS_PER_S) / NS_PER_S


def recorded() -> list[Made]:
    """pmu-0 and pmu-1 rise at 4 s, pmu-1 again at 12 s and pmu-0 in the very last second; pmu-2
    says nothing from 7 to 11 s."""
    rows = []
    for row in steady(STREAMS, 18):
        since_s = seconds(row.created_ns)
        is_high = (4 <= since_s < 6 and row.stream < 2) or (12 <= since_s < 13 and row.stream == 1)
        is_high |= since_s >= 17 and row.stream == 0
        if not (row.stream == 2 and 7 <= since_s < 11):
            rows.append(replace(row, value=120.0) if is_high else row)
    return rows


@pytest.fixture
def folder(tmp_path: Path) -> PipelineFolder:
    place = PipelineFolder(tmp_path)
    record_streams(place.log, STREAMS)
    return place


def run(spark: SparkSession, folder: PipelineFolder, follower: AlarmFollower) -> None:
    Ingest(spark, folder, IngestSettings(rows_per_batch=130), followers=[follower]).run_to_end()


def stored(folder: PipelineFolder) -> list[tuple[str, str, float]]:
    rows = table(folder, "alarms").to_pylist()
    return sorted((row["rule"], row["variable"], seconds(row["onset_ns"])) for row in rows)


def test_alarms_are_stored_and_handed_on_once_each(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    record_events(folder.log, recorded(), rows_per_frame=30)
    listener = Listener()
    run(spark, folder, AlarmFollower(folder, RULES, publish=listener.publish))
    assert stored(folder) == WANTED
    assert listener.heard() == WANTED


def test_what_was_killed_before_it_was_handed_on_is_handed_on_later(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    record_events(folder.log, recorded(), rows_per_frame=30)
    failing = Listener(is_failing=True)
    with pytest.raises(Exception, match="killed"):
        run(spark, folder, AlarmFollower(folder, RULES, publish=failing.publish))
    listener = Listener()
    run(spark, folder, AlarmFollower(folder, RULES, publish=listener.publish))
    assert stored(folder) == WANTED
    assert listener.heard() == WANTED


def test_a_mark_of_what_was_sent_waits_for_the_publisher(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    """Run again after a kill: unsent alarms are published again, with the same identity."""
    record_events(folder.log, recorded(), rows_per_frame=30)
    first, second = Listener(), Listener()
    run(spark, folder, AlarmFollower(folder, RULES, publish=first.publish, is_sent=lambda: False))
    assert StoredTable(folder.tables, ALARMS).mark(SENT) is None
    run(spark, folder, AlarmFollower(folder, RULES, publish=second.publish))
    assert second.identities == first.identities
    assert stored(folder) == WANTED


def test_after_a_clean_end_nothing_is_handed_on_again(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    record_events(folder.log, recorded(), rows_per_frame=30)
    first, second = Listener(), Listener()
    follower = AlarmFollower(folder, RULES, publish=first.publish)
    run(spark, folder, follower)
    follower.settle()
    run(spark, folder, AlarmFollower(folder, RULES, publish=second.publish))
    assert first.heard() == WANTED
    assert second.heard() == []


def test_silence_of_all_is_told_while_the_recorder_is_at_work(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    record_events(folder.log, recorded(), rows_per_frame=30)
    now_ns = [(BEGAN_S + 60) * NS_PER_S]
    listener = Listener()
    follower = AlarmFollower(folder, RULES, publish=listener.publish)
    ingest = Ingest(spark, folder, followers=[follower], now_ns=lambda: now_ns[0])
    ingest.run_to_end()
    assert ingest.quiet_ns() == 0  # Nobody says that a recorder is at work.
    status = {"time_ns": now_ns[0], "recorded": ingest.archive.taken}
    (folder.log / STATUS_FILE).write_text(json.dumps(status))
    ingest._follow(ingest.quiet_ns())
    assert [one for one in listener.heard() if one not in WANTED] == [
        ("silent", "c1/hill/pmu-2/frequency", 19.9)
    ]
    now_ns[0] += 60 * NS_PER_S
    assert ingest.quiet_ns() == 0  # Its report is a minute old.


def test_alarms_of_one_instant_never_share_a_sequence(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    row = {
        "rule": "high",
        "kind": "threshold",
        "stream": 0,
        "onset_ns": BEGAN_S * NS_PER_S,
        "sequence": 7,
        "value": 1.0,
        "limit": 0.0,
        "severity": "warning",
        "text": "",
    }
    names = [f"c1/{hex(number * number)}" for number in range(3_000)]
    schema = StoredTable(folder.tables, ALARMS).empty().schema
    found = type(StoredTable(folder.tables, ALARMS).empty()).from_pylist(
        [{**row, "variable": name} for name in names], schema=schema
    )
    sequences = numbered(found)["sequence"].to_pylist()
    assert len(set(sequences)) == len(names)
