"""Ledgers for the log: a reading a minute, and whatever an account by the hour must not miss."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from gridstat.console.daemons.ledger_rows import HOUR_NS, NS_PER_S, LedgerRows
from gridstat.net.command.endpoint_messages import LedgerEntry, PathEntry
from gridstat.record.record_kinds import LEDGERS
from tests.unit.console.daemons.test_recorder_rows import contract

NOON_S = 12 * 3_600
PATH = PathEntry("path 1", ("c1/e0", "c1/e1"), expected=9, delivered=8, lost=1)


def account(expected: int, number: int = 1, **counts: Any) -> list[Any]:
    counts.setdefault("delivered", expected)
    return [contract(number, ledger=LedgerEntry(number, expected=expected, **counts))]


def told(rows: list[dict[str, Any]]) -> list[tuple[float, int]]:
    """Return the time of each row, in seconds since noon, and the events expected by then."""
    pa.RecordBatch.from_pylist(rows, schema=LEDGERS.schema)
    return [(row["time_ns"] / NS_PER_S - NOON_S, row["expected"]) for row in rows]


def at(second: float) -> int:
    return round((NOON_S + second) * NS_PER_S)


def test_a_ledger_is_told_with_a_row_for_each_path_that_counts() -> None:
    silent = PathEntry("path 2", is_counted=False)
    rows = LedgerRows(0.0)
    first = account(10, lost=1, paths=(PATH, silent), latency_counts=(0, 9))
    found = rows.rows([*first, contract(2)], 5)
    pa.RecordBatch.from_pylist(found, schema=LEDGERS.schema)
    assert [(row["path"], row["expected"], row["lost"]) for row in found] == [
        (None, 10, 1),
        ("c1/e0>c1/e1", 9, 1),
    ]
    assert found[0]["latency_counts"] == [0, 9]
    assert found[0]["gap_ended_ns"] is None
    assert rows.rows(first, 6) == []
    later = account(11, lost=1, paths=(PATH,), latency_counts=(0, 9))
    assert [row["expected"] for row in rows.rows(later, 7)] == [11]


def test_a_ledger_without_loss_is_told_once_a_minute() -> None:
    rows = LedgerRows(60.0)
    found = [row for step in range(25) for row in rows.rows(account(step), at(5.0 * step))]
    assert told(found) == [(0, 0), (60, 12), (120, 24)]


@pytest.mark.parametrize("trouble", ["late", "lost", "unknown", "dropped", "gap_slots_max"])
def test_a_new_loss_is_told_at_once(trouble: str) -> None:
    rows = LedgerRows(60.0)
    found = rows.rows(account(1), at(0))
    found += rows.rows(account(2, **{trouble: 1}), at(5))
    found += rows.rows(account(3, **{trouble: 1}), at(10))
    assert told(found) == [(0, 1), (5, 2)]


def test_the_last_reading_of_an_hour_is_told_also_of_an_idle_contract() -> None:
    rows = LedgerRows(60.0)
    idle = account(7, 2)
    steps = range(3_500, 3_620, 5)
    found = [row for step in steps for row in rows.rows(account(step) + idle, at(step))]
    busy = [row for row in found if row["subscription"] == 1]
    assert told(busy) == [(3_500, 3_500), (3_560, 3_560), (3_595, 3_595)]
    assert told([row for row in found if row not in busy]) == [(3_500, 7), (3_595, 7)]
    assert [row["time_ns"] for row in found] == sorted(row["time_ns"] for row in found)
    assert at(3_600) % HOUR_NS == 0


def test_the_last_reading_of_a_contract_that_is_over_is_told() -> None:
    rows = LedgerRows(60.0)
    rows.rows(account(1) + account(1, 2), at(0))
    rows.rows(account(8) + account(5, 2), at(5))
    assert told(rows.rows(account(9), at(10))) == [(5, 5)]
    assert rows.rows(account(9), at(15)) == []


def test_a_ledger_that_begins_anew_is_told_before_and_after() -> None:
    rows = LedgerRows(60.0)
    rows.rows(account(100), at(0))
    rows.rows(account(130), at(5))
    assert told(rows.rows(account(4), at(10))) == [(5, 130), (10, 4)]


def test_what_was_read_last_is_told_before_a_recorder_ends() -> None:
    rows = LedgerRows(60.0)
    rows.rows(account(1), at(0))
    rows.rows(account(6), at(5))
    assert told(rows.rest()) == [(5, 6)]
    assert rows.rest() == []


def test_a_clock_that_is_set_back_silences_no_ledger() -> None:
    rows = LedgerRows(60.0)
    found = rows.rows(account(1), at(600)) + rows.rows(account(2), at(0))
    assert told(found) == [(600, 1), (0, 2)]
