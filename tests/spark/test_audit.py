"""The audit against an oracle that looks at every slot: resets, restarts, borders, silence."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from gridstat.model.latency_histogram import quantile_us
from gridstat.model.rate_law import Period
from gridstat.pipeline.schemas import AUDIT
from gridstat.pipeline.stages.audit import GAPS_COLUMNS, Witnesses, all_gaps, audit, worst_gaps
from gridstat.record.kinds import CONTRACTS, EVENTS, GAPS, LEDGERS, STREAMS
from tests.spark.audit_oracle import (
    COUNTS,
    HOUR_NS,
    due_slots,
    exact_latencies,
    hour_of,
    increases,
    missing_runs,
    promises,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from gridstat.record.kinds import RecordKind

pytestmark = pytest.mark.timeout(300)

Row = dict[str, Any]
SECOND_NS = 10**9
BEGAN_NS = 500_000 * HOUR_NS
UNTIL_NS = BEGAN_NS + 4 * HOUR_NS - 600 * SECOND_NS
OWN, TOLD, LATER, ALERT, SILENT = 1, 2, 3, 4, 5


def contract(subscription: int, at_s: float, **other: Any) -> Row:
    return {
        "time_ns": BEGAN_NS + round(at_s * SECOND_NS),
        "subscription": subscription,
        "endpoint": f"c1/desk-{subscription}",
        "variable": f"c1/hill/{subscription}",
        "publisher": "c1/hill",
        "value_type": "float64",
        "period_seconds": 3,
        "period_per_seconds": 2,
        "phase_ns": 7,
        "every": 2,
        "latency_ms": 20.0,
        "redundancy": 1,
        "priority": 3,
        "is_over": False,
    } | other


def ledger(subscription: int, at_s: float, *counts: int, **other: Any) -> Row:
    """Counts in the order expected, delivered, late, lost, duplicate; the rest is made of them."""
    named = dict(zip(COUNTS, [*counts, *[0] * len(COUNTS)], strict=False))
    return {
        "time_ns": BEGAN_NS + round(at_s * SECOND_NS),
        "subscription": subscription,
        "endpoint": f"c1/desk-{subscription}",
        "variable": f"c1/hill/{subscription}",
        "path": None,
        **named,
        "latency_counts": [0, 0, 0, named["delivered"] - named["late"], 0, named["late"]],
        "gap_slots_max": 0,
        "gap_ended_ns": 0,
    } | other


def contracts() -> list[Row]:
    aperiodic = {"period_seconds": None, "period_per_seconds": None, "every": 1}
    return [
        contract(OWN, 100.25),
        contract(TOLD, 100.25),
        contract(TOLD, 5_400.5, every=3, latency_ms=50.0),
        contract(LATER, 4_000.0, period_seconds=1, period_per_seconds=3, every=1),
        contract(LATER, 10_000.0, period_seconds=1, period_per_seconds=3, every=1, is_over=True),
        contract(ALERT, 200.0, **aperiodic),
        contract(SILENT, 3_600.0),
    ]


def ledgers() -> list[Row]:
    """TOLD is restarted in its second hour and not read in the third; LATER appears later."""
    worst = {"gap_slots_max": 4, "gap_ended_ns": BEGAN_NS + 3_900 * SECOND_NS + 7}
    newer = {"gap_slots_max": 2, "gap_ended_ns": BEGAN_NS + 11_700 * SECOND_NS + 7}
    return [
        ledger(TOLD, 105, 1_000, 990, 5, 10, 40),
        ledger(TOLD, 105, 1_000, 990, 5, 10, 40, path="path 1"),
        ledger(TOLD, 3_599, 2_160, 2_150, 9, 10, 50, latency_counts=None),
        ledger(TOLD, 3_600, 2_161, 2_151, 9, 10, 50),
        ledger(TOLD, 4_000, 2_300, 2_286, 9, 14, 50, **worst),
        ledger(TOLD, 4_100, 20, 20, 0, 0, 60, **worst),
        ledger(TOLD, 7_190, 900, 900, 0, 0, 60),
        ledger(TOLD, 11_800, 1_950, 1_948, 0, 2, 60, **newer),
        ledger(LATER, 4_050, 150, 150, 0, 0, 0),
        ledger(LATER, 7_200, 9_600, 9_600, 0, 0, 0),
        ledger(LATER, 9_999, 17_990, 17_990, 0, 0, 0),
        ledger(ALERT, 300, 4, 4, 0, 0, 0),
        ledger(ALERT, 3_500, 9, 9, 0, 0, 0),
        ledger(OWN, 105, 1, 1, 0, 0, 0),
        ledger(OWN, 3_600, 1_160, 1_100, 0, 60, 0),
    ]


def streams() -> list[Row]:
    own = contract(OWN, 100.25)
    named = {name: own[name] for name in STREAMS.schema.names if name in own}
    since_ns = {"since_ns": own["time_ns"]}
    return [
        {"stream": 11, **since_ns, **named},
        {"stream": 12, **named, "since_ns": BEGAN_NS + 9_000 * SECOND_NS, "every": 4},
    ]


def events() -> list[Row]:
    """The recorder's own events: none for 31 minutes across a border, some single ones missing,
    none while the recorder is away, and none at the end of the second stream."""
    chosen = random.Random(6)
    rows: list[Row] = []
    for stream, end_s in ((streams()[0], 9_000), (streams()[1], 13_000)):
        for slot in due_slots(stream, stream["since_ns"], BEGAN_NS + end_s * SECOND_NS):
            period = Period(stream["period_seconds"], stream["period_per_seconds"])
            created_ns = int(stream["phase_ns"] + slot * period.period_ns)
            at_s = (created_ns - BEGAN_NS) / SECOND_NS
            if 3_000 <= at_s < 4_860 or 8_000 <= at_s < 8_600 or chosen.random() < 0.01:
                continue
            stamp_ns = created_ns + chosen.randrange(-300_000_000, 300_000_000)
            rows.append(
                {
                    "stream": stream["stream"],
                    "created_ns": stamp_ns,
                    "received_ns": stamp_ns + chosen.randrange(200_000, 9_000_000),
                    "sequence": slot % 65_536,
                    "flags": 0b10 if chosen.random() < 0.05 else 0,
                    "word": slot,
                    "options": None,
                }
            )
    return rows


def unrecorded() -> list[Row]:
    def gap(from_s: float, to_s: float) -> Row:
        from_ns, to_ns = (BEGAN_NS + round(at * SECOND_NS) for at in (from_s, to_s))
        return {"from_ns": from_ns, "to_ns": to_ns, "reason": "down", "events": None}

    return [gap(8_000, 8_500), gap(8_200, 8_600), gap(8_300, 8_400), gap(3_599.5, 3_600.25)]


def frame(spark: SparkSession, kind: RecordKind, rows: list[Row]) -> DataFrame:
    values = [[row[name] for name in kind.schema.names] for row in rows]
    return spark.createDataFrame(values, from_arrow_schema(kind.schema))


@pytest.fixture(scope="module")
def witnesses(spark: SparkSession) -> Witnesses:
    return Witnesses(
        contracts=frame(spark, CONTRACTS, contracts()),
        ledgers=frame(spark, LEDGERS, ledgers()),
        streams=frame(spark, STREAMS, streams()),
        events=frame(spark, EVENTS, events()),
        unrecorded=frame(spark, GAPS, unrecorded()),
    )


@pytest.fixture(scope="module")
def table(witnesses: Witnesses) -> dict[tuple[int, int], Row]:
    found = audit(witnesses, UNTIL_NS)
    assert ", ".join(f"{name} {kind}" for name, kind in found.dtypes) == AUDIT.columns
    rows = [row.asDict() for row in found.collect()]
    keyed = {(row["subscription"], round(row["hour"].timestamp()) * SECOND_NS): row for row in rows}
    assert len(keyed) == len(rows)
    return keyed


@pytest.fixture(scope="module")
def gaps(witnesses: Witnesses) -> list[Row]:
    found = all_gaps(witnesses, UNTIL_NS)
    assert ", ".join(f"{name} {kind}" for name, kind in found.dtypes) == GAPS_COLUMNS
    return [row.asDict() for row in worst_gaps(found, 1_000).collect()]


def hour(table: dict[tuple[int, int], Row], subscription: int, number: int) -> Row:
    return table[subscription, BEGAN_NS + number * HOUR_NS]


def own_gaps() -> list[tuple[int, int, int]]:
    created: dict[int, list[int]] = {number: [] for number in (11, 12)}
    for row in events():
        created[row["stream"]].append(row["created_ns"])
    first, second = streams()
    away = [(gap["from_ns"], gap["to_ns"]) for gap in unrecorded()]
    found = missing_runs(first, created[11], second["since_ns"], away)
    return found + missing_runs(second, created[12], UNTIL_NS, away)


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
        if key[0] == OWN:
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
    assert max(found)[0] == 419, "until the next hour began, but for half a second"


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
        slots, from_ns, to_ns = worst[BEGAN_NS + number * HOUR_NS]
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
    assert found == pytest.approx([0.5, 0.25, 600.0, 0.0])


def test_a_contract_is_kept_only_if_nothing_was_late_or_lost_and_all_was_counted(
    table: dict[tuple[int, int], Row],
) -> None:
    assert hour(table, TOLD, 0)["is_kept"] is False, "some were late"
    assert hour(table, TOLD, 1)["is_kept"] is False, "some were lost"
    assert hour(table, LATER, 1)["is_kept"] is True
    assert hour(table, LATER, 2)["is_kept"] is True
    assert hour(table, ALERT, 0)["is_kept"] is True
    assert hour(table, OWN, 0)["is_kept"] is False
