"""Replay reads the archive in the order of stamps, in pieces of a bounded size, and only that."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from gridstat.model.errors import Misuse, UnknownName
from gridstat.model.rate_law import Period
from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.jobs.replay import APERIODIC, COLUMNS, ReplayRequest, ReplaySource
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.pipeline.schemas import EVENTS
from gridstat.record.log_writer import LogWriter
from gridstat.record.record_kinds import STREAMS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

S = 1_000_000_000
BEGAN_NS = 1_700_000_000 * S
PER_S = 10
NAMES = ("c1/hill/pmu-0/frequency", "c1/hill/pmu-1/breaker", "c1/dale/pmu-2/alarm")
SECONDS = 40


@pytest.fixture
def folder(tmp_path: Path) -> PipelineFolder:
    """An archive in two files whose events are out of order."""
    place = PipelineFolder(tmp_path)
    _record_streams(place)
    table = StoredTable(place.tables, EVENTS)
    slots = np.random.default_rng(5).permutation(SECONDS * PER_S)
    for part, some in enumerate(np.array_split(slots, 2)):
        table.append(pa.Table.from_pylist([_event(int(slot), part) for slot in some]))
    return place


def _record_streams(folder: PipelineFolder) -> None:
    facts = (
        (0, NAMES[0], "float64", 1, 2 * PER_S, 2),
        (1, NAMES[1], "int64", 1, PER_S, 1),
        (2, NAMES[2], "float64", None, None, 1),
    )
    rows = [
        {
            "stream": stream,
            "since_ns": BEGAN_NS,
            "variable": name,
            "value_type": kind,
            "period_seconds": seconds,
            "period_per_seconds": per_seconds,
            "phase_ns": 0,
            "every": every,
            "subscription": 100 + stream,
        }
        for stream, name, kind, seconds, per_seconds, every in facts
    ]
    with LogWriter(folder.log, STREAMS, now_ns=lambda: BEGAN_NS) as writer:
        writer.append(pa.RecordBatch.from_pylist(rows, schema=STREAMS.schema))


def _event(slot: int, part: int) -> dict[str, object]:
    created_ns = BEGAN_NS + slot * S // PER_S
    created = datetime.fromtimestamp(created_ns / S, UTC)
    stream = slot % 3
    return {
        "record": 1_000 * part + slot,
        "stream": stream,
        "variable": NAMES[stream],
        "created": created,
        "created_ns": created_ns,
        "received_ns": created_ns + 1,
        "sequence": slot,
        "flags": slot % 4,
        "value": float(slot),
        "word": slot,
        "options": None,
        "day": created.date(),
    }


def whole(*patterns: str) -> ReplayRequest:
    return ReplayRequest(BEGAN_NS, BEGAN_NS + SECONDS * S, patterns or ("**",))


def slots_of(source: ReplaySource, request: ReplayRequest) -> list[int]:
    found: list[int] = []
    for batch in source.events(request):
        assert tuple(batch.schema.names) == COLUMNS
        found += batch.column("word").to_pylist()
    return found


def test_all_events_come_by_stamp_whatever_the_order_of_the_archive(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    source = ReplaySource(spark, folder)
    assert slots_of(source, whole()) == list(range(SECONDS * PER_S))
    assert source.count(whole()) == SECONDS * PER_S


@pytest.mark.parametrize("rows_max", [1, 25, 133])
def test_pieces_are_bounded_and_together_all(
    spark: SparkSession, folder: PipelineFolder, rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ReplaySource(spark, folder, rows_max=rows_max)
    request = ReplayRequest(BEGAN_NS + 3 * S, BEGAN_NS + 12 * S)
    sizes: list[int] = []
    read = source._read

    def noted(*words: object) -> pa.Table:
        table = read(*words)  # type: ignore[arg-type]
        sizes.append(table.num_rows)
        return table

    monkeypatch.setattr(source, "_read", noted)
    assert slots_of(source, request) == list(range(3 * PER_S, 12 * PER_S))
    assert max(sizes) <= max(rows_max, PER_S)  # A second is never cut.


def test_only_the_interval_and_the_named_variables_are_replayed(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    source = ReplaySource(spark, folder)
    request = ReplayRequest(BEGAN_NS + S, BEGAN_NS + 2 * S, ("c1/hill/**",))
    assert slots_of(source, request) == [slot for slot in range(10, 20) if slot % 3 != 2]


def test_a_variable_is_described_as_it_was_recorded(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    alarm, frequency, breaker = ReplaySource(spark, folder).variables(whole())
    assert (frequency.name, frequency.value_type) == (NAMES[0], "float64")
    assert frequency.period == Period(1, PER_S)  # Every second slot of a period half as long.
    assert (breaker.value_type, breaker.streams) == ("int64", (1,))
    assert alarm.period == APERIODIC


def test_an_interval_without_events_is_empty(spark: SparkSession, folder: PipelineFolder) -> None:
    source = ReplaySource(spark, folder)
    assert slots_of(source, ReplayRequest(S, 2 * S)) == []


def test_what_cannot_be_replayed_is_said_in_plain_words(
    spark: SparkSession, folder: PipelineFolder, tmp_path: Path
) -> None:
    source = ReplaySource(spark, folder)
    with pytest.raises(UnknownName, match="c1/nowhere"):
        source.variables(whole("c1/nowhere/**"))
    with pytest.raises(UnknownName, match="no archive"):
        ReplaySource(spark, PipelineFolder(tmp_path / "empty")).variables(whole())
    with pytest.raises(Misuse):
        ReplayRequest(S, S)
