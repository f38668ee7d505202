"""Rows for the log out of a broker's account: each fact once, until it changes or is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gridstat.broker.operators.survey import ledger_facts
from gridstat.console.daemons.recorder_rows import AccountRows
from gridstat.record.record_kinds import CONTRACTS, COUNTERS
from tests.unit.record.samples import variable

if TYPE_CHECKING:
    from gridstat.net.command.endpoint_messages import LedgerEntry


def contract(number: int = 1, *, every: int = 1, ledger: LedgerEntry | None = None) -> Any:
    return {
        "subscription": number,
        "endpoint": "c1/desk",
        "variable": "c1/a/v",
        "publisher": "c1/a",
        "value_type": "float64",
        "period_seconds": 1,
        "period_per_seconds": 30,
        "phase_ns": 0,
        "every": every,
        "latency_ms": 20.0,
        "redundancy": 2,
        "priority": 3,
        "ledger": None if ledger is None else ledger_facts(ledger),
    }


def told(rows: list[dict[str, Any]]) -> list[tuple[int, int, bool]]:
    pa.RecordBatch.from_pylist(rows, schema=CONTRACTS.schema)
    return [(row["subscription"], row["every"], row["is_over"]) for row in rows]


def test_a_contract_is_told_when_it_is_new_when_it_changes_and_when_it_is_over() -> None:
    rows = AccountRows()
    assert told(rows.contract_rows([contract(1), contract(2)], 5)) == [(1, 1, False), (2, 1, False)]
    assert told(rows.contract_rows([contract(1), contract(2)], 6)) == []
    assert told(rows.contract_rows([contract(1, every=3), contract(2)], 7)) == [(1, 3, False)]
    assert told(rows.contract_rows([contract(1, every=3)], 8)) == [(2, 1, True)]
    assert told(rows.contract_rows([contract(1, every=3)], 9)) == []
    assert rows.contracts == 1


def test_a_contract_that_ended_while_no_recorder_ran_is_over() -> None:
    before = AccountRows()
    known = before.contract_rows([contract(1), contract(2), contract(3)], 5)
    known += before.contract_rows([contract(1), contract(2)], 6)
    after = AccountRows(known)
    assert told(after.contract_rows([contract(1)], 7)) == [(2, 1, True)]


def test_an_end_that_we_are_told_of_is_told_once_whatever_an_older_account_says() -> None:
    rows = AccountRows()
    rows.contract_rows([contract(1, every=3), contract(2)], 5)
    rows.end(variable(), 1, 1, 6)
    assert told(rows.ended_rows()) == [(1, 3, True)], "on the terms of the account"
    assert told(rows.ended_rows()) == []
    assert told(rows.contract_rows([contract(1, every=3), contract(2)], 7)) == []
    assert told(rows.contract_rows([contract(2)], 8)) == []
    assert told(rows.contract_rows([contract(1), contract(2)], 9)) == [(1, 1, False)]


def test_the_end_of_a_contract_that_no_account_has_named_is_told() -> None:
    rows = AccountRows(end_point="c1/recorder")
    rows.end(variable(period=None), 4, 9, 6)
    (row,) = ended = rows.ended_rows()
    assert told(ended) == [(9, 4, True)]
    assert (row["endpoint"], row["variable"], row["period_seconds"]) == (
        "c1/recorder",
        "c1/a/v1",
        None,
    )
    assert told(rows.contract_rows([contract(9)], 7)) == []


def test_a_counter_is_told_when_it_has_moved() -> None:
    rows = AccountRows()
    first = [{"router": "c1/e0", "channel": "", "counters": {"in": 5, "out": 2**64 - 1}}]
    found = rows.counter_rows(first, 5)
    pa.RecordBatch.from_pylist(found, schema=COUNTERS.schema)
    assert [(row["counter"], row["value"]) for row in found] == [("in", 5), ("out", 2**63 - 1)]
    second = [{"router": "c1/e0", "channel": "", "counters": {"in": 6, "out": 2**64 - 1}}]
    assert [row["value"] for row in rows.counter_rows(second, 6)] == [6]


def test_a_counter_that_moves_after_a_rest_comes_with_its_last_reading_before() -> None:
    rows = AccountRows()

    def told_at(time_ns: int, **counts: int) -> list[tuple[int, str, int]]:
        facts = [{"router": "c1/e0", "channel": "", "counters": counts}]
        found = rows.counter_rows(facts, time_ns)
        return [(row["time_ns"], row["counter"], row["value"]) for row in found]

    assert told_at(5, seen=1, sent=1) == [(5, "seen", 1), (5, "sent", 1)]
    assert told_at(6, seen=1, sent=1) == []
    assert told_at(7, sent=1) == [], "of the other nothing is heard"
    assert told_at(9, seen=4, sent=2) == [
        (6, "seen", 1),
        (7, "sent", 1),
        (9, "seen", 4),
        (9, "sent", 2),
    ]
    assert told_at(10, seen=5, sent=2) == [(10, "seen", 5)], "its last reading is written down"
