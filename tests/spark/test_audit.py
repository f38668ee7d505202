"""The audit against an oracle that looks at every slot: resets, restarts, borders, silence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from gridstat.broker.operators.survey import ledger_facts
from gridstat.console.daemons.ledger_rows import LedgerRows
from gridstat.model.identifiers import VariableId
from gridstat.model.latency_histogram import quantile_us
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from gridstat.net.command.endpoint_messages import LedgerEntry, PathEntry
from gridstat.pipeline.jobs.audit import Audited, base_and_later_ledgers, find_gaps, run_audit
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.pipeline.schemas import AUDIT
from gridstat.pipeline.stages.contract_audit import GAPS_COLUMNS, Witnesses, all_gaps, audit
from gridstat.record.record_kinds import CONTRACTS, EVENTS, GAPS, LEDGERS, STREAMS
from gridstat.record.stream_registry import StreamRegistry
from tests.spark.audit_case import (
    ALERT,
    BEGAN_NS,
    LATER,
    OWN,
    SECOND_NS,
    SILENT,
    TOLD,
    UNTIL_NS,
    contract,
    contracts,
    events,
    ledger,
    ledgers,
    own_gaps,
)
from tests.spark.audit_folder import record, record_all
from tests.spark.audit_oracle import (
    COUNTS,
    HOUR_NS,
    exact_latencies,
    hour_of,
    increases,
    promises,
)
from tests.spark.table_rows import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from gridstat.record.record_kinds import RecordKind

pytestmark = pytest.mark.timeout(300)

Row = dict[str, Any]
LATER_NS = BEGAN_NS + 10_900 * SECOND_NS
"""Time up to which events are recorded when the first audit runs."""


def frame(spark: SparkSession, kind: RecordKind, rows: list[Row]) -> DataFrame:
    values = [[row[name] for name in kind.schema.names] for row in rows]
    return spark.createDataFrame(values, from_arrow_schema(kind.schema))


@dataclass(frozen=True)
class Runs:
    """Results of two audits of one folder, the second after more was recorded."""

    folder: PipelineFolder
    first: Audited
    second: Audited


@pytest.fixture(scope="module")
def runs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = PipelineFolder(tmp_path_factory.mktemp("audit"))
    record_all(folder, 0, LATER_NS)
    first = run_audit(spark, folder)
    record_all(folder, LATER_NS, UNTIL_NS + 1)
    return Runs(folder, first, run_audit(spark, folder))


@pytest.fixture(scope="module")
def table(runs: Runs) -> dict[tuple[int, int], Row]:
    rows = rows_of(runs.folder.tables, AUDIT).to_pylist()
    keyed = {(row["subscription"], round(row["hour"].timestamp()) * SECOND_NS): row for row in rows}
    assert len(keyed) == len(rows)
    return keyed


@pytest.fixture(scope="module")
def gaps(spark: SparkSession, runs: Runs) -> list[Row]:
    found = find_gaps(spark, runs.folder, count=1_000)
    assert ", ".join(f"{name} {kind}" for name, kind in found.dtypes) == GAPS_COLUMNS
    return [row.asDict() for row in found.collect()]


def hour(table: dict[tuple[int, int], Row], subscription: int, number: int) -> Row:
    return table[subscription, BEGAN_NS + number * HOUR_NS]


def test_an_audit_goes_on_with_the_last_two_hours_that_were_audited(runs: Runs) -> None:
    """Check the hours alone; all other tests compare the results with an audit of everything."""
    assert (runs.first.from_ns, runs.first.hours) == (0, 4)
    assert (runs.second.from_ns, runs.second.hours) == (BEGAN_NS + 2 * HOUR_NS, 2)
    assert runs.second.until_ns == UNTIL_NS
    assert runs.second.broken > 0


def test_every_contract_has_a_row_for_every_hour_in_which_it_held(
    table: dict[tuple[int, int], Row],
) -> None:
    expected = promises(contracts(), UNTIL_NS)
    assert {key: row["expected_by_law"] for key, row in table.items()} == expected
    assert [hour(table, TOLD, number)["every"] for number in range(4)] == [2, 3, 3, 3]
    assert [hour(table, TOLD, number)["held_s"] for number in range(4)] == [
        3_499.75,
        3_600,
        3_600,
        3_000,
    ]


def test_counts_of_an_hour_are_the_increases_of_its_readings(
    table: dict[tuple[int, int], Row],
) -> None:
    expected = increases(ledgers())
    for key, row in table.items():
        if key not in expected:
            assert all(row[name] is None for name in COUNTS), key
            continue
        assert {name: row[name] for name in COUNTS} == expected[key].counts, key
        assert row["latency_counts"] == expected[key].latency_counts, key
    assert set(expected) <= set(table)


def test_a_reading_at_the_very_end_of_an_hour_belongs_to_it(
    table: dict[tuple[int, int], Row],
) -> None:
    assert hour(table, TOLD, 0)["expected"] == 1_161
    assert hour(table, LATER, 1)["expected"] == 9_600


def test_counts_that_begin_anew_are_not_taken_for_negative(
    table: dict[tuple[int, int], Row],
) -> None:
    restarted = hour(table, TOLD, 1)
    assert (restarted["expected"], restarted["lost"], restarted["duplicate"]) == (1_039, 4, 60)


def test_an_hour_without_a_reading_says_so_and_proves_nothing(
    table: dict[tuple[int, int], Row],
) -> None:
    for silent in (hour(table, TOLD, 2), hour(table, SILENT, 1)):
        assert silent["expected"] is None
        assert silent["latency_us_p50"] is None
        assert silent["is_kept"] is None
        assert silent["expected_by_law"] > 0


def test_latencies_are_exact_where_the_events_are_here_and_else_from_the_histogram(
    table: dict[tuple[int, int], Row],
) -> None:
    exact = exact_latencies(events())
    names = [f"latency_us_{name}" for name in ("p50", "p95", "p99", "max")]
    for key, row in table.items():
        found = [row[name] for name in names]
        if key[0] == OWN and key[1] in exact:
            assert row["is_exact"]
            assert found == pytest.approx(exact[key[1]], rel=1e-9, abs=1e-12)
        elif row["latency_counts"] is not None:
            assert not row["is_exact"]
            law = [quantile_us(row["latency_counts"], share) for share in (0.5, 0.95, 0.99)]
            assert found[:3] == [
                one if one is None else pytest.approx(one, rel=1e-9, abs=1e-12) for one in law
            ]


def test_gaps_of_the_recorders_own_streams_are_found_slot_by_slot(gaps: list[Row]) -> None:
    found = [(gap["slots"], gap["from_ns"], gap["to_ns"]) for gap in gaps if gap["is_exact"]]
    assert sorted(found) == sorted(own_gaps())
    assert max(found)[0] == 1_417, "for more than an hour before the audit that saw its end"


def test_gaps_of_others_are_those_that_they_told(gaps: list[Row]) -> None:
    told = [gap for gap in gaps if not gap["is_exact"]]
    assert [(gap["subscription"], gap["slots"]) for gap in told] == [(TOLD, 4), (TOLD, 2)]
    assert told[0]["to_ns"] == BEGAN_NS + 3_900 * SECOND_NS + 7
    # Four slots of which every second one is due, then two of which every third one is.
    assert [gap["seconds"] for gap in told] == [4 * 3.0, 2 * 4.5]


def test_the_worst_gaps_come_first(gaps: list[Row]) -> None:
    lengths = [gap["to_ns"] - gap["from_ns"] for gap in gaps]
    assert lengths == sorted(lengths, reverse=True)
    assert gaps[0]["gap_end"].timestamp() == pytest.approx(gaps[0]["to_ns"] / 1e9, abs=1e-6)


def test_an_hour_names_its_worst_gap_where_it_ended(table: dict[tuple[int, int], Row]) -> None:
    worst: dict[int, tuple[int, int, int]] = {}
    for run in own_gaps():
        at = hour_of(run[2])
        worst[at] = max(worst.get(at, (0, 0, 0)), run, key=lambda run: run[0])
    for number in range(4):
        row = hour(table, OWN, number)
        slots, from_ns, to_ns = worst.get(BEGAN_NS + number * HOUR_NS, (0, 0, 0))
        assert row["gap_slots_max"] == slots
        if slots > 1:
            assert row["gap_start"].timestamp() == pytest.approx(from_ns / 1e9, abs=1e-6)
            assert row["gap_s"] == pytest.approx((to_ns - from_ns) / 1e9, rel=1e-9)
    assert hour(table, TOLD, 1)["gap_slots_max"] == 4
    assert hour(table, LATER, 1)["gap_slots_max"] == 0


def test_time_without_a_record_counts_once_however_many_reasons_there_are(
    table: dict[tuple[int, int], Row],
) -> None:
    found = [hour(table, OWN, number)["unrecorded_s"] for number in range(4)]
    assert found == pytest.approx([0.0, 0.0, 600.5, 0.75])


def test_a_contract_is_kept_only_if_nothing_was_late_or_lost_and_all_was_counted(
    table: dict[tuple[int, int], Row],
) -> None:
    assert hour(table, TOLD, 0)["is_kept"] is False, "some were late"
    assert hour(table, TOLD, 1)["is_kept"] is False, "some were lost"
    assert hour(table, LATER, 1)["is_kept"] is True
    assert hour(table, LATER, 2)["is_kept"] is True
    assert hour(table, ALERT, 0)["is_kept"] is True
    assert hour(table, OWN, 0)["is_kept"] is False


@pytest.mark.parametrize(("until_s", "is_kept"), [(650, True), (3_700, None)])
def test_the_newest_reading_of_an_hour_that_goes_on_may_be_a_minute_old(
    spark: SparkSession, until_s: int, *, is_kept: bool | None
) -> None:
    read_s = until_s - 50 if is_kept else 3_550
    told = [ledger(8, 1, 1, 1), ledger(9, 5, 2, 2), ledger(9, read_s, read_s // 3, read_s // 3)]
    found = Witnesses(
        contracts=frame(spark, CONTRACTS, [contract(9, 0)]),
        ledgers=frame(spark, LEDGERS, told),
        streams=frame(spark, STREAMS, []),
        events=frame(spark, EVENTS, []),
        unrecorded=frame(spark, GAPS, []),
        archived_ns=0,
    )
    first = audit(found, BEGAN_NS + until_s * SECOND_NS).orderBy("hour").collect()[0]
    assert first.is_kept is is_kept


def test_the_contract_of_a_restarted_recorder_is_audited_from_its_own_events(
    spark: SparkSession,
) -> None:
    """The first is over only by the account that the second life asks for, ten seconds later."""
    again_ns, every_ns = BEGAN_NS + 2 * HOUR_NS, 3 * SECOND_NS
    of = StatusVariable(VariableId(1), "c1/hill/same", BuiltinType.FLOAT64, Period(3, 2))
    lives: list[Row] = []
    for subscription, since_ns in ((7, BEGAN_NS), (8, again_ns)):
        book = StreamRegistry(lives)
        book.begin(of, 2, subscription, since_ns)
        lives += book.unwritten()
    terms = {"variable": of.name, "phase_ns": 0, "endpoint": "c1/recorder"}
    held = [
        contract(7, 0, **terms),
        contract(8, 7_210, **terms),
        contract(7, 7_210, **terms, is_over=True),
    ]
    lost = {again_ns + number * every_ns for number in (100, 101, 102)}
    stamps = [
        (life["stream"], created_ns)
        for life in lives
        for created_ns in range(life["since_ns"], life["since_ns"] + HOUR_NS, every_ns)
        if created_ns not in lost
    ]
    usual = {"sequence": 0, "flags": 0, "word": 0, "options": None}
    heard = [
        usual | {"stream": number, "created_ns": at_ns, "received_ns": at_ns + 5_000_000}
        for number, at_ns in stamps
    ]
    away = {"from_ns": BEGAN_NS + HOUR_NS, "to_ns": again_ns, "reason": "down", "events": None}
    found = Witnesses(
        contracts=frame(spark, CONTRACTS, held),
        ledgers=frame(spark, LEDGERS, []),
        streams=frame(spark, STREAMS, lives),
        events=frame(spark, EVENTS, heard),
        unrecorded=frame(spark, GAPS, [away]),
        archived_ns=again_ns + HOUR_NS,
    )
    hours = audit(found, again_ns + HOUR_NS)
    assert ", ".join(f"{name} {kind}" for name, kind in hours.dtypes) == AUDIT.columns
    rows = {
        (row.subscription, round(row.hour.timestamp() * SECOND_NS) - BEGAN_NS): row
        for row in hours.collect()
    }
    own = rows[8, 2 * HOUR_NS]
    assert (own.is_exact, own.latency_us_p50, own.gap_slots_max) == (True, 5_000.0, 3)
    gaps = [(row.subscription, row.slots) for row in all_gaps(found, again_ns + HOUR_NS).collect()]
    assert gaps == [(8, 3)], "the first life owes nothing once the second has begun"


def test_an_audit_that_is_run_again_with_nothing_new_says_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Record a frame for each reading, so that each part of the log can be left out separately."""
    folder = PipelineFolder(tmp_path)
    record_all(folder, 0, UNTIL_NS + 1, frame_rows=1)

    def audited() -> tuple[Audited, list[Row], list[Row]]:
        done = run_audit(spark, folder)
        rows = rows_of(folder.tables, AUDIT).to_pylist()
        rows.sort(key=lambda row: (row["hour"], row["subscription"]))
        return done, rows, find_gaps(spark, folder, from_ns=done.from_ns).toArrow().to_pylist()

    whole, first, _ = audited()
    again, second, _ = audited()
    assert (whole.from_ns, again.from_ns) == (0, BEGAN_NS + 2 * HOUR_NS)
    told = [row["expected"] for row in first if row["subscription"] == TOLD]
    assert told == [1_161, 1_039, None, 1_050]
    assert [row["expected"] for row in second if row["subscription"] == TOLD] == told
    assert second == first


def test_an_empty_folder_has_nothing_to_audit(spark: SparkSession, tmp_path: Path) -> None:
    folder = PipelineFolder(tmp_path)
    folder.log.mkdir()
    found = run_audit(spark, folder)
    assert (found.rows, found.hours, found.broken, found.untold) == (0, 0, 0, 0)
    assert find_gaps(spark, folder).toArrow().num_rows == 0


def test_each_of_two_paths_beside_each_other_keeps_its_last_reading(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What lies before the audited hours is kept by path: one lost all, the other nothing."""
    folder = PipelineFolder(tmp_path)
    rows, found = LedgerRows(0.0), list[Row]()
    for minute in range(3):
        paths = tuple(
            PathEntry(name, ("c1/e0", "c1/e1"), minute, minute - lost, lost, channel_names=names)
            for name, lost, names in (("path 1", 0, ()), ("path 2", minute, ("north",)))
        )
        entry = LedgerEntry(TOLD, expected=minute, delivered=minute, paths=paths)
        account = [contract(TOLD, 0) | {"ledger": ledger_facts(entry)}]
        found += rows.rows(account, BEGAN_NS + 60 * minute * SECOND_NS)
    record(folder, LEDGERS, found, 100)
    kept = base_and_later_ledgers(spark, folder, BEGAN_NS + HOUR_NS).collect()
    assert {row["path"]: (row["expected"], row["lost"]) for row in kept} == {
        None: (2, 0),
        "c1/e0>c1/e1": (2, 0),
        "c1/e0>#north>c1/e1": (2, 2),
    }
