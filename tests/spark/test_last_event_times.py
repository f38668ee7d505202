"""Last event of each stream: far back, in any file, and only of due slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.last_event_times import last_event_times
from gridstat.pipeline.schemas import EVENTS
from gridstat.pipeline.stream_catalog import FOR_EVER_NS

if TYPE_CHECKING:
    from pathlib import Path

SECOND_NS = 10**9
HOUR_S = 3_600
BEFORE_NS = 10 * HOUR_S * SECOND_NS


def stream(number: int, **other: Any) -> dict[str, Any]:
    return {
        "stream": number,
        "period_seconds": 1,
        "period_per_seconds": 1,
        "phase_ns": 0,
        "every": 2,
        "since_ns": 0,
        "until_ns": FOR_EVER_NS,
    } | other


def archive(tables: Path, *files: list[tuple[int, float]]) -> StoredTable:
    """Archive one file for each list of streams and seconds."""
    table = StoredTable(tables, EVENTS)
    for file in files:
        rows = [
            {"stream": number, "created_ns": round(at_s * SECOND_NS), "day": 0}
            for number, at_s in file
        ]
        table.append(pa.Table.from_pylist(rows, schema=table.empty().schema))
    return table


def heard(table: StoredTable, *streams: dict[str, Any]) -> dict[int, float | None]:
    found = last_event_times(table, pa.Table.from_pylist(list(streams)), BEFORE_NS).to_pylist()
    return {
        row["stream"]: None if row["heard_ns"] is None else row["heard_ns"] / SECOND_NS
        for row in found
    }


def test_the_last_event_before_is_found_however_old_and_in_whichever_file(tmp_path: Path) -> None:
    table = archive(
        tmp_path,
        [(1, 4 * HOUR_S), (1, 4 * HOUR_S - 2), (2, 4 * HOUR_S)],
        # One file reaches further than the next, and yet the next has the newer event.
        [(2, 100), (3, 9 * HOUR_S)],
        [(2, 8 * HOUR_S + 0.25)],
        [(1, 10 * HOUR_S), (2, 11 * HOUR_S)],
    )
    found = heard(table, stream(1), stream(2), stream(3))
    assert found == {1: 4 * HOUR_S, 2: 8 * HOUR_S + 0.25, 3: 9 * HOUR_S}


def test_an_event_of_no_due_slot_or_from_before_the_stream_does_not_count(tmp_path: Path) -> None:
    table = archive(tmp_path, [(1, 100), (1, 101), (2, 100), (3, 11 * HOUR_S)])
    found = heard(table, stream(1), stream(2, since_ns=101 * SECOND_NS), stream(3))
    assert found == {1: 100, 2: None, 3: None}
    assert heard(archive(tmp_path / "empty"), stream(1)) == {1: None}


def test_a_stream_that_is_over_or_has_no_period_is_not_sought(tmp_path: Path) -> None:
    table = archive(tmp_path, [(1, 100), (2, 100), (3, 100)])
    over = stream(1, until_ns=BEFORE_NS - 2 * SECOND_NS)
    just_over = stream(2, until_ns=BEFORE_NS - SECOND_NS)
    aperiodic = stream(3, period_seconds=None, period_per_seconds=None)
    assert heard(table, over, just_over, aperiodic) == {2: 100}
