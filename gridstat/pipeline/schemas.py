"""Every table that the pipeline keeps, once: columns, the day that partitions it, what it holds.

Tables are Delta, one folder each, and any reader of Delta may read them. Times that a person reads
are UTC timestamps in microseconds; `_ns` columns are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Name and columns of a table; `key` identifies a row, `day` partitions it."""

    name: str
    columns: str
    key: tuple[str, ...]
    partitions: tuple[str, ...] = ("day",)
    version: int = 1
    """Goes up when columns change; a table of a newer version than ours is left alone."""
    hours_kept: int = 24
    """Hours for which an older version of the table can be read."""


RECORDED: Final = (
    "record bigint, stream int, variable string, created timestamp, created_ns bigint, "
    "received_ns bigint, sequence int, flags smallint, value double, word bigint, options binary"
)
"""Events as the data source gives them; `record` is the event's number in the log."""

EVENTS: Final = TableSchema("events", f"{RECORDED}, day date", key=("record",))
"""The archive: every good event once."""

QUARANTINE: Final = TableSchema(
    "quarantine",
    f"{RECORDED}, reason string, day date",
    key=("record",),
    partitions=("reason", "day"),
)
"""Every event that is not in the archive, and why; its day is that of its arrival."""

ROLLUP: Final = (
    "variable string, stream int, window_start timestamp, window_s int, count bigint, "
    "expected bigint, completeness double, mean double, minimum double, maximum double, "
    "deviation double, p95 double, first double, last double, latency_ms_mean double, "
    "latency_ms_max double"
)
"""One window of one stream. `deviation` is the sample standard deviation, null below two values;
`p95` interpolates linearly between ranks; `expected` counts the slots due in the window."""

ROLLUP_KEY: Final = ("stream", "window_start")
ROLLUP_1S: Final = TableSchema("rollup_1s", f"{ROLLUP}, day date", key=ROLLUP_KEY)
ROLLUP_1M: Final = TableSchema("rollup_1m", f"{ROLLUP}, day date", key=ROLLUP_KEY)
ROLLUP_1H: Final = TableSchema("rollup_1h", f"{ROLLUP}, day date", key=ROLLUP_KEY)
ROLLUP_LIVE: Final = TableSchema("rollup_live", ROLLUP, key=ROLLUP_KEY, partitions=(), hours_kept=1)
"""Seconds that may still change, replaced with every batch; old versions have no reader."""

ALARMS: Final = TableSchema(
    "alarms",
    "rule string, kind string, variable string, stream int, onset timestamp, onset_ns bigint, "
    "sequence int, value double, limit double, severity string, text string, day date",
    key=("rule", "variable", "onset_ns"),
)
"""Each alarm once; (onset_ns, sequence) is also the identity of its status alert."""

AUDIT: Final = TableSchema(
    "audit",
    "hour timestamp, subscription bigint, endpoint string, variable string, publisher string, "
    "every bigint, interval_s double, latency_ms double, held_s double, expected_by_law bigint, "
    "expected bigint, delivered bigint, late bigint, lost bigint, duplicate bigint, "
    "extrapolated bigint, unknown bigint, recovered bigint, dropped bigint, "
    "latency_counts array<bigint>, latency_us_p50 double, latency_us_p95 double, "
    "latency_us_p99 double, latency_us_max double, is_exact boolean, gap_slots_max bigint, "
    "gap_start timestamp, gap_s double, unrecorded_s double, is_kept boolean, day date",
    key=("subscription", "endpoint", "variable", "hour"),
)
"""Promised and delivered figures of each contract and hour; null if no source reports the
figure."""

# Results of mining, replaced each time.

AVERAGES: Final = TableSchema(
    "averages",
    "device string, variable string, span string, span_start timestamp, count bigint, "
    "expected bigint, completeness double, mean double, minimum double, maximum double, "
    "deviation double",
    key=("variable", "span", "span_start"),
    partitions=(),
)
"""Every variable on average by hour, day and week; `deviation` as in rollups."""

PROFILES: Final = TableSchema(
    "profiles",
    "device string, variable string, weekday int, hour int, windows bigint, count bigint, "
    "mean double, minimum double, maximum double, deviation double, median double, mad double",
    key=("variable", "weekday", "hour"),
    partitions=(),
)
"""Usual values of a variable at an hour of the day; weekday 1 is Monday, 0 is any day. `median` is
of the windows' means, `mad` the median distance from it."""

CORRELATIONS: Final = TableSchema(
    "correlations",
    "variable string, other string, correlation double, seconds bigint, first_second timestamp, "
    "last_second timestamp",
    key=("variable", "other"),
    partitions=(),
)
"""Pearson's correlation of two variables over the seconds in which both have events."""

ANOMALIES: Final = TableSchema(
    "anomalies",
    "device string, variable string, window_start timestamp, window_s int, value double, "
    "usual double, mad double, score double, day date",
    key=("variable", "window_start"),
)
"""Windows that lie far from what is usual at that hour; `score` counts deviations."""

BOTTLENECKS: Final = TableSchema(
    "bottlenecks",
    "place int, router string, channel string, seconds double, due bigint, sent bigint, "
    "dropped bigint, dropped_share double, queued_max bigint, "
    "bytes_per_s_mean double, bytes_per_s_max double, bandwidth_bytes_per_s bigint, "
    "share_max double",
    key=("router", "channel"),
    partitions=(),
    version=2,
)
"""Channels of routers, the narrowest first; `share_max` is null if no bandwidth was declared."""

TABLES: Final[Mapping[str, TableSchema]] = MappingProxyType(
    {
        table.name: table
        for table in (
            EVENTS,
            QUARANTINE,
            ROLLUP_1S,
            ROLLUP_1M,
            ROLLUP_1H,
            ROLLUP_LIVE,
            ALARMS,
            AUDIT,
            AVERAGES,
            PROFILES,
            CORRELATIONS,
            ANOMALIES,
            BOTTLENECKS,
        )
    }
)


def column_names(table: TableSchema) -> list[str]:
    return [name for name, _ in columns_of(table)]


def columns_of(table: TableSchema) -> list[tuple[str, str]]:
    """Name and type of each column."""
    columns = (column.split() for column in table.columns.split(","))
    return [(name, kind) for name, kind in columns]
