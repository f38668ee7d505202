"""Four hours of five contracts, with everything in them that an audit could get wrong."""

from __future__ import annotations

import random
from typing import Any

from gridstat.model.rate_law import Period
from gridstat.record.record_kinds import STREAMS
from tests.spark.audit_oracle import COUNTS, HOUR_NS, due_slots, missing_runs

Row = dict[str, Any]
SECOND_NS = 10**9
BEGAN_NS = 500_000 * HOUR_NS
UNTIL_NS = BEGAN_NS + 4 * HOUR_NS - 600 * SECOND_NS
ARCHIVED_NS = UNTIL_NS - 100 * SECOND_NS
OWN, TOLD, LATER, ALERT, SILENT = 1, 2, 3, 4, 5
APERIODIC: Row = {"period_seconds": None, "period_per_seconds": None, "every": 1}


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
    return [
        contract(OWN, 100.25),
        contract(TOLD, 100.25),
        contract(TOLD, 5_400.5, every=3, latency_ms=50.0),
        contract(LATER, 4_000.0, period_seconds=1, period_per_seconds=3, every=1),
        contract(LATER, 11_000.0, period_seconds=1, period_per_seconds=3, every=1, is_over=True),
        contract(ALERT, 200.0, **APERIODIC),
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
        ledger(LATER, 10_800, 20_400, 20_400, 0, 0, 0),
        ledger(LATER, 10_999, 20_990, 20_990, 0, 0, 0),
        ledger(ALERT, 300, 4, 4, 0, 0, 0),
        ledger(ALERT, 3_500, 9, 9, 0, 0, 0),
        ledger(ALERT, 13_800, 12, 12, 0, 0, 0),
        ledger(OWN, 105, 1, 1, 0, 0, 0),
        ledger(OWN, 3_600, 1_160, 1_100, 0, 60, 0),
    ]


def streams() -> list[Row]:
    own, alert = contract(OWN, 100.25), contract(ALERT, 200.0, **APERIODIC)
    named = {name: own[name] for name in STREAMS.schema.names if name in own}
    other = {name: alert[name] for name in STREAMS.schema.names if name in alert}
    return [
        {"stream": 11, "since_ns": own["time_ns"], **named},
        {"stream": 12, **named, "since_ns": BEGAN_NS + 11_400 * SECOND_NS, "every": 4},
        {"stream": 13, "since_ns": alert["time_ns"], **other},
    ]


def events() -> list[Row]:
    """The recorder's own events: none for 71 minutes across two borders, some single ones missing,
    none while the recorder is away, none at the end of the second stream, and one alert, late."""
    chosen = random.Random(6)
    rows: list[Row] = []
    for stream, end_s in ((streams()[0], 11_400), (streams()[1], 13_000)):
        for slot in due_slots(stream, stream["since_ns"], BEGAN_NS + end_s * SECOND_NS):
            period = Period(stream["period_seconds"], stream["period_per_seconds"])
            created_ns = int(stream["phase_ns"] + slot * period.period_ns)
            at_s = (created_ns - BEGAN_NS) / SECOND_NS
            if 3_000 <= at_s < 7_250 or 8_000 <= at_s < 8_600 or chosen.random() < 0.01:
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
    alert = {"stream": 13, "created_ns": ARCHIVED_NS, "received_ns": ARCHIVED_NS + 1}
    return [*rows, alert | {"sequence": 0, "flags": 0b10, "word": 1, "options": None}]


def unrecorded() -> list[Row]:
    def gap(from_s: float, to_s: float) -> Row:
        from_ns, to_ns = (BEGAN_NS + round(at * SECOND_NS) for at in (from_s, to_s))
        return {"from_ns": from_ns, "to_ns": to_ns, "reason": "down", "events": None}

    later = [gap(10_799.5, 10_800.25), gap(11_500, 11_500.5)]
    return [gap(8_000, 8_500), gap(8_200, 8_600), gap(8_300, 8_400), *later]


def own_gaps() -> list[tuple[int, int, int]]:
    """Slots, beginning and end of each."""
    created: dict[int, list[int]] = {number: [] for number in (11, 12, 13)}
    for row in events():
        created[row["stream"]].append(row["created_ns"])
    first, second, _ = streams()
    away = [(gap["from_ns"], gap["to_ns"]) for gap in unrecorded()]
    found = missing_runs(first, created[11], second["since_ns"], away)
    return found + missing_runs(second, created[12], ARCHIVED_NS, away)
