"""Time of each stream's last event before an instant, from the newest files that have one.

A reader of a part of the archive learns here where a gap began that reaches into that part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gridstat.model.rate_law import NS_PER_S, Period, slot_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.pipeline.delta_tables import StoredTable

LAST_EVENT_TIMES: Final = "stream int, heard_ns bigint"
_SCHEMA: Final = pa.schema({"stream": pa.int32(), "heard_ns": pa.int64()})
_Stream = dict[str, Any]


def last_event_times(events: StoredTable, streams: pa.Table, before_ns: int) -> pa.Table:
    """Return a row for each periodic stream that has not ended by then, as `LAST_EVENT_TIMES`.

    `heard_ns` is the stamp of its last event in a due slot before, null if there was none since
    the stream began. `streams` are those of `known_streams`.
    """
    open_streams = {
        row["stream"]: row
        for row in streams.to_pylist()
        if row["period_seconds"] is not None and row["until_ns"] + _interval_ns(row) > before_ns
    }
    last_ns_of = dict.fromkeys(open_streams, -1)
    for path, newest_ns in _newest_first(events, before_ns):
        # No file from here on has anything newer.
        sought = {
            number: row
            for number, row in open_streams.items()
            if max(last_ns_of[number], row["since_ns"]) < newest_ns
        }
        if not sought:
            break
        file = pq.read_table(
            events.folder / path,
            columns=["stream", "created_ns"],
            filters=[("created_ns", "<", before_ns), ("stream", "in", list(sought))],
            partitioning=None,
        )
        for number, created_ns in _last_due(file, sought):
            last_ns_of[number] = max(last_ns_of[number], created_ns)
    rows = [
        {"stream": number, "heard_ns": None if last_ns < 0 else last_ns}
        for number, last_ns in last_ns_of.items()
    ]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _newest_first(events: StoredTable, before_ns: int) -> Iterator[tuple[str, int]]:
    """Files that may have events before, each with a bound of their stamps."""
    files = events.files()
    wanted = set(events.paths("created_ns", [(None, before_ns - 1)]))
    newest = files.column("max.created_ns").to_pylist() if wanted else []
    bounds = [
        (before_ns if highest_ns is None else min(highest_ns + 1, before_ns), path)
        for path, highest_ns in zip(files.column("path").to_pylist(), newest, strict=False)
        if path in wanted
    ]
    for bound_ns, path in sorted(bounds, reverse=True):
        yield path, bound_ns - 1


def _last_due(file: pa.Table, sought: dict[int, _Stream]) -> Iterator[tuple[int, int]]:
    numbers, stamps_ns = (file.column(name).to_numpy() for name in ("stream", "created_ns"))
    order = np.lexsort((stamps_ns, numbers))
    numbers, stamps_ns = numbers[order], stamps_ns[order]
    for number, stream in sought.items():
        first, after = np.searchsorted(numbers, [number, number + 1]).tolist()
        for index in reversed(range(first, after)):
            created_ns = int(stamps_ns[index])
            if created_ns >= stream["since_ns"] and _is_due(stream, created_ns):
                yield number, created_ns
                break


def _is_due(stream: _Stream, created_ns: int) -> bool:
    slot = slot_of(created_ns, _period(stream), stream["phase_ns"])
    return slot % int(stream["every"]) == 0


def _interval_ns(stream: _Stream) -> int:
    period = _period(stream)
    return -(-period.seconds * NS_PER_S * int(stream["every"]) // period.per_seconds)


def _period(stream: _Stream) -> Period:
    return Period(stream["period_seconds"], stream["period_per_seconds"])
