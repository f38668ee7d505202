"""Oracle of an audit: it looks at every slot and every reading one by one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gridstat.model.rate_law import Period, slot_of

HOUR_NS = 3_600 * 10**9
COUNTS = (
    "expected",
    "delivered",
    "late",
    "lost",
    "duplicate",
    "extrapolated",
    "unknown",
    "recovered",
    "dropped",
)
Row = dict[str, Any]


@dataclass
class Counted:
    """The increases of one subscription in one hour."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    latency_counts: list[int] = field(default_factory=lambda: [0] * 24)


def hour_of(instant_ns: int) -> int:
    return instant_ns // HOUR_NS * HOUR_NS


def increases(ledgers: list[Row]) -> dict[tuple[int, int], Counted]:
    """Return the increases by subscription and hour, reading after reading."""
    whole = [row for row in ledgers if row["path"] is None]
    oldest_ns = min(row["time_ns"] for row in whole)
    newest: dict[int, Row] = {}
    found: dict[tuple[int, int], Counted] = defaultdict(Counted)
    for row in sorted(whole, key=lambda row: row["time_ns"]):
        before = newest.get(row["subscription"])
        newest[row["subscription"]] = row
        if before is None and row["time_ns"] == oldest_ns:
            continue
        is_new = before is None or any(row[name] < before[name] for name in COUNTS)
        hour = found[row["subscription"], hour_of(row["time_ns"] - 1)]
        for name in COUNTS:
            hour.counts[name] += row[name] - (0 if is_new or before is None else before[name])
        now = [*(row["latency_counts"] or []), *[0] * 24][:24]
        past = [0] * 24 if is_new or before is None else before["latency_counts"] or []
        past = [*past, *[0] * 24][:24]
        for at in range(24):
            hour.latency_counts[at] += now[at] - past[at]
    return dict(found)


def due_slots(row: Row, from_ns: int, to_ns: int) -> list[int]:
    """Every due slot of a contract or stream between two instants, the second left out."""
    period = Period(row["period_seconds"], row["period_per_seconds"])
    first = slot_of(from_ns, period, row["phase_ns"]) - 2
    found = []
    for slot in range(first, slot_of(to_ns, period, row["phase_ns"]) + 3):
        instant_ns = row["phase_ns"] + slot * period.period_ns
        if from_ns <= instant_ns < to_ns and slot % row["every"] == 0:
            found.append(slot)
    return found


def promises(contracts: list[Row], until_ns: int) -> dict[tuple[int, int], int | None]:
    """Return the number of promised slots by subscription and hour."""
    found: dict[tuple[int, int], int | None] = {}
    rows = sorted(contracts, key=lambda row: row["time_ns"])
    for at, row in enumerate(rows):
        later = [one for one in rows[at + 1 :] if one["subscription"] == row["subscription"]]
        end_ns = min([until_ns, *[one["time_ns"] for one in later]])
        hour_ns = hour_of(row["time_ns"])
        while not row["is_over"] and hour_ns < end_ns:
            key = row["subscription"], hour_ns
            stretch = max(row["time_ns"], hour_ns), min(end_ns, hour_ns + HOUR_NS)
            if row["period_seconds"] is None:
                found[key] = None
            else:
                found[key] = (found.get(key) or 0) + len(due_slots(row, *stretch))
            hour_ns += HOUR_NS
    return found


def missing_runs(
    stream: Row, created_ns: list[int], end_ns: int, away: list[tuple[int, int]]
) -> list[tuple[int, int, int]]:
    """Slots in a row, first instant and the instant after, of all that is missing of a stream."""
    period = Period(stream["period_seconds"], stream["period_per_seconds"])
    came = {slot_of(stamp, period, stream["phase_ns"]) for stamp in created_ns}
    due = due_slots(stream, stream["since_ns"], end_ns)
    every = stream["every"]

    def instant_ns(slot: int) -> int:
        return int(stream["phase_ns"] + slot * period.period_ns)

    def is_known(slot: int) -> bool:
        return not any(from_ns <= instant_ns(slot) < to_ns for from_ns, to_ns in away)

    found = []
    for run in _in_rows([slot for slot in due if slot not in came], every):
        is_at_end = run[0] == due[0] or run[-1] == due[-1]
        if is_at_end and instant_ns(run[-1] + every) - instant_ns(run[0]) <= 2 * 10**9:
            continue
        found += [
            (len(part), instant_ns(part[0]), instant_ns(part[-1] + every))
            for part in _in_rows([slot for slot in run if is_known(slot)], every)
        ]
    return found


def _in_rows(slots: list[int], every: int) -> list[list[int]]:
    rows: list[list[int]] = []
    for slot in slots:
        if rows and rows[-1][-1] == slot - every:
            rows[-1].append(slot)
        else:
            rows.append([slot])
    return rows


def exact_latencies(events: list[Row]) -> dict[int, list[float]]:
    """p50, p95, p99 and the longest in microseconds by hour, of events with a good stamp."""
    by_hour: dict[int, list[float]] = defaultdict(list)
    for row in events:
        if row["flags"] & 0b11 == 0:
            latency_us = (row["received_ns"] - row["created_ns"]) / 1e3
            by_hour[hour_of(row["created_ns"])].append(latency_us)
    return {
        hour: [*np.percentile(values, [50, 95, 99]).tolist(), max(values)]
        for hour, values in by_hour.items()
    }
