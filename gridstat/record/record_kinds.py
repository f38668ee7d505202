"""Kinds of records in a log, each with its own folder and columns.

A kind's version increases when its columns change. Readers know every version up to their own, and
refuse a newer one with a hint. Spark has no unsigned numbers, so all columns are signed.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from gridstat.model.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class RecordKind:
    """A schema by name and code; `time` is the column with the time of a record."""

    name: str
    code: int
    version: int
    time: str
    schema: pa.Schema


def _kind(name: str, code: int, time: str, columns: Mapping[str, pa.DataType]) -> RecordKind:
    fields = [
        pa.field(column, data_type, nullable=column in _MAY_BE_NULL)
        for column, data_type in columns.items()
    ]
    return RecordKind(name, code, 1, time, pa.schema(fields))


_MAY_BE_NULL: Final = frozenset(
    {
        "options",
        "period_seconds",
        "period_per_seconds",
        "latency_ms",
        "path",
        "latency_counts",
        "gap_slots_max",
        "gap_ended_ns",
        "events",
    }
)

EVENTS: Final = _kind(
    "events",
    1,
    "created_ns",
    {
        "stream": pa.int32(),
        "created_ns": pa.int64(),
        "received_ns": pa.int64(),
        "sequence": pa.int32(),
        "flags": pa.int16(),
        "word": pa.int64(),
        "options": pa.binary(),
    },
)
"""Received status events; `word` is the value's eight bytes, decoded by the stream's type."""

STREAMS: Final = _kind(
    "streams",
    2,
    "since_ns",
    {
        "stream": pa.int32(),
        "since_ns": pa.int64(),
        "variable": pa.string(),
        "value_type": pa.string(),
        "period_seconds": pa.int64(),
        "period_per_seconds": pa.int64(),
        "phase_ns": pa.int64(),
        "every": pa.int64(),
        "subscription": pa.int64(),
    },
)
"""Meaning of each stream number, on the disk before the stream's first event.

A stream is one variable under one contract. When its period, type or `every` changes, or another
subscription replaces it, a new number begins, even with earlier terms. Aperiodic variables (alerts)
have no period.
"""

LEDGERS: Final = _kind(
    "ledgers",
    3,
    "time_ns",
    {
        "time_ns": pa.int64(),
        "subscription": pa.int64(),
        "endpoint": pa.string(),
        "variable": pa.string(),
        "path": pa.string(),
        "expected": pa.int64(),
        "delivered": pa.int64(),
        "late": pa.int64(),
        "lost": pa.int64(),
        "duplicate": pa.int64(),
        "extrapolated": pa.int64(),
        "unknown": pa.int64(),
        "recovered": pa.int64(),
        "dropped": pa.int64(),
        "latency_counts": pa.list_(pa.int64()),
        "gap_slots_max": pa.int64(),
        "gap_ended_ns": pa.int64(),
    },
)
"""Counts of subscribers since each subscription began; they never decrease.

A row with a `path` counts events on that path, by its label of `model/path_label.py`.
`latency_counts` is the histogram of delivered events by powers of two of a microsecond.
`gap_slots_max` slots were lost in a row up to that of `gap_ended_ns`, the worst gap of the newest
hour with a gap.
"""

COUNTERS: Final = _kind(
    "counters",
    4,
    "time_ns",
    {
        "time_ns": pa.int64(),
        "router": pa.string(),
        "channel": pa.string(),
        "counter": pa.string(),
        "value": pa.int64(),
    },
)
"""Counters of routers and their channels since each router began."""

GAPS: Final = _kind(
    "gaps",
    5,
    "from_ns",
    {
        "from_ns": pa.int64(),
        "to_ns": pa.int64(),
        "reason": pa.string(),
        "events": pa.int64(),
    },
)
"""Intervals with unrecorded events, and the reason; `events` is null if unknown."""

CONTRACTS: Final = _kind(
    "contracts",
    6,
    "time_ns",
    {
        "time_ns": pa.int64(),
        "subscription": pa.int64(),
        "endpoint": pa.string(),
        "variable": pa.string(),
        "publisher": pa.string(),
        "value_type": pa.string(),
        "period_seconds": pa.int64(),
        "period_per_seconds": pa.int64(),
        "phase_ns": pa.int64(),
        "every": pa.int64(),
        "latency_ms": pa.float64(),
        "redundancy": pa.int32(),
        "priority": pa.int32(),
        "is_over": pa.bool_(),
    },
)
"""Every contract of the cloud as granted, again after each change, and when it has ended."""

KINDS: Final[Mapping[str, RecordKind]] = MappingProxyType(
    {kind.name: kind for kind in (EVENTS, STREAMS, LEDGERS, COUNTERS, GAPS, CONTRACTS)}
)


def kind_named(name: str) -> RecordKind:
    """Return the kind of this name; raise if there is none."""
    if name not in KINDS:
        raise UnknownName(f"no record kind {name!r}", hint=f"one of {', '.join(KINDS)}")
    return KINDS[name]
