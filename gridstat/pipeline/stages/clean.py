"""Clean: which recorded events are good, why the others are not, and which came before.

No row is dropped: a bad one gets a `reason`, and goes to quarantine instead of the archive. All
rows of a stream are judged together, as Arrow batches: numbers that change from batch to batch are
no part of Spark's plan then, which would be compiled anew for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gridstat.model.status import EventFlag
from gridstat.pipeline.schemas import RECORDED
from gridstat.pipeline.time_spans import touching, within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from gridstat.model.plausibility import TimeBounds
    from gridstat.pipeline.time_spans import Spans

INPUT: Final = RECORDED
OUTPUT: Final = f"{RECORDED}, reason string, day date"

UNKNOWN_STREAM: Final = "unknown_stream"
IMPLAUSIBLE_TIME: Final = "implausible_time"
NOT_FINITE: Final = "not_finite"
DUPLICATE: Final = "duplicate"
REASONS: Final = (UNKNOWN_STREAM, IMPLAUSIBLE_TIME, NOT_FINITE, DUPLICATE)
"""In the order in which they are looked for."""

IDENTITY: Final = ("stream", "created_ns", "sequence")
"""Two events with the same are one event that came twice."""
NS_PER_DAY: Final = 86_400_000_000_000
ROWS_PER_BATCH: Final = 65_536


@dataclass(frozen=True, slots=True)
class KnownRows:
    """Where to find what was archived before: the rows of some files within some time."""

    paths: tuple[str, ...] = ()
    spans_ns: Spans = ((None, None),)


@dataclass(frozen=True, slots=True)
class Judgement:
    """By what a batch is judged."""

    bounds: TimeBounds
    known: KnownRows
    from_record: int = 0
    """Rows before this one are done with."""
    quarantined: int = 0
    """Bad rows before this one are in quarantine already."""


def clean(recorded: DataFrame, by: Judgement) -> DataFrame:
    """Every row with its `reason`, null if it is good, and the day under which it is kept."""
    by_stream = recorded.repartition("stream")
    return by_stream.mapInArrow(partial(judge, by=by), OUTPUT)


def judge(batches: Iterable[pa.RecordBatch], *, by: Judgement) -> Iterator[pa.RecordBatch]:
    """All rows of some streams, judged; runs in a task."""
    found = list(batches)
    if not found:
        return
    rows = pa.Table.from_batches(found)
    rows = _only(rows, _numbers(rows, "record") >= by.from_record)
    codes = reason_codes(rows, by.bounds)
    codes[duplicates(rows, codes == 0, by)] = 1 + REASONS.index(DUPLICATE)
    time_ns = np.where(codes == 0, _numbers(rows, "created_ns"), _numbers(rows, "received_ns"))
    reasons = pa.DictionaryArray.from_arrays(
        pa.array(np.maximum(codes - 1, 0), mask=codes == 0), pa.array(REASONS)
    )
    judged = rows.append_column("reason", reasons.cast(pa.string())).append_column(
        "day", pa.array((time_ns // NS_PER_DAY).astype(np.int32)).cast(pa.date32())
    )
    is_done = (codes != 0) & (_numbers(rows, "record") < by.quarantined)
    yield from _only(judged, ~is_done).to_batches(ROWS_PER_BATCH)


def reason_codes(rows: pa.Table, bounds: TimeBounds) -> NDArray[np.int8]:
    """0 for a good row, else one more than the place of its reason; of the row alone."""
    value = rows.column("value").fill_null(0.0).to_numpy()  # Null: a type that is no number.
    is_known = rows.column("variable").is_valid().to_numpy()
    return np.select(
        [~is_known, ~is_plausible_time(rows, bounds), ~np.isfinite(value)],
        [np.int8(1), np.int8(2), np.int8(3)],
        np.int8(0),
    ).astype(np.int8)


def is_plausible_time(rows: pa.Table, bounds: TimeBounds) -> NDArray[np.bool_]:
    """The law of `model/plausibility.py`, for many rows."""
    created_ns, received_ns = _numbers(rows, "created_ns"), _numbers(rows, "received_ns")
    is_replayed = _numbers(rows, "flags") & int(EventFlag.REPLAYED) != 0
    is_ahead = created_ns > received_ns + bounds.ahead_ns_max
    is_behind = created_ns < received_ns - bounds.behind_ns_max
    plausible: NDArray[np.bool_] = ~is_ahead & (is_replayed | ~is_behind)
    return plausible


def duplicates(rows: pa.Table, is_good: NDArray[np.bool_], by: Judgement) -> NDArray[np.int64]:
    """Places of good rows of whose identity there is an earlier record, here or known."""
    places = np.flatnonzero(is_good)
    if not len(places):
        return places
    known = known_rows(by.known, by.from_record)
    columns = [
        np.concatenate([known[name], _numbers(rows, name)[places]])
        for name in ("record", *reversed(IDENTITY))
    ]
    order = np.lexsort(columns)
    is_same = np.ones(len(order) - 1, dtype=bool)
    for column in columns[1:]:
        in_order = column[order]
        is_same &= in_order[1:] == in_order[:-1]
    repeated = order[1:][is_same]
    first_fresh = len(known["record"])
    return places[repeated[repeated >= first_fresh] - first_fresh]


def known_rows(known: KnownRows, before_record: int) -> dict[str, NDArray[np.int64]]:
    """Identity and record of what was archived before a record."""
    names = [*IDENTITY, "record"]
    found: list[dict[str, NDArray[np.int64]]] = [{name: np.empty(0, np.int64) for name in names}]
    for path in known.paths:
        for rows in _read_groups(path, names, known.spans_ns):
            columns = {name: _numbers(rows, name) for name in names}
            wanted = columns["record"] < before_record
            wanted &= within(columns["created_ns"], known.spans_ns)
            found.append({name: column[wanted] for name, column in columns.items()})
    return {name: np.concatenate([part[name] for part in found]) for name in names}


def _read_groups(path: str, names: list[str], spans_ns: Spans) -> Iterator[pa.Table]:
    """Those groups of a file's rows that may have one within the spans, one at a time."""
    with pq.ParquetFile(path) as file:
        place = file.schema_arrow.get_field_index("created_ns")
        for group in range(file.num_row_groups):
            told = file.metadata.row_group(group).column(place).statistics
            first, last = (told.min, told.max) if told and told.has_min_max else (None, None)
            if first is None or touching(np.array([first]), np.array([last]), spans_ns).any():
                yield file.read_row_group(group, columns=names)


def _only(rows: pa.Table, is_wanted: NDArray[np.bool_]) -> pa.Table:
    """A copy of some rows; mostly all are wanted, and then there is no copy."""
    return rows if is_wanted.all() else rows.filter(pa.array(is_wanted))


def _numbers(rows: pa.Table, name: str) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = rows.column(name).to_numpy()
    return numbers
