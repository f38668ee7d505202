"""Intake: a task's share of a batch, from the log to files for archive and quarantine.

Slices of the log in, names of files out; the rows between them stay in the task. That a row is
written is no commit yet: the files count once a table has taken them over.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from gridstat.pipeline.data_files import GROUP_ROWS, WRITTEN, write_rows
from gridstat.pipeline.event_columns import EVENT_SCHEMA, event_columns
from gridstat.pipeline.file_rows import is_in_share
from gridstat.pipeline.log_source import read_streams
from gridstat.pipeline.slice_source import slices_of
from gridstat.pipeline.stages.clean import judge
from gridstat.record.log_reader import LogReader
from gridstat.record.record_kinds import EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from gridstat.pipeline.stages.clean import Judgement
    from gridstat.record.log_reader import Slice

FIRST: Final = "first_record"
END: Final = "end_record"
"""Columns of a task's result: the first record that it was given, and the one after the last."""
OUTPUT: Final = f"{WRITTEN}, {FIRST} bigint, {END} bigint"
_NAMES: Final = EVENT_SCHEMA.get_field_index("variable")
SCHEMA: Final = EVENT_SCHEMA.set(
    _NAMES, EVENT_SCHEMA.field(_NAMES).with_type(pa.dictionary(pa.int32(), pa.string()))
)
"""The columns of the data source, each name once."""


def intake(slices: DataFrame, log: Path, by: Judgement, aside: Path) -> DataFrame:
    """Every file that was written, with its partition; and of each task, without a file, its ends.

    Slices are as `slice_source.py` gives them.
    """
    return slices.mapInArrow(partial(take_share, log=log, by=by, aside=aside), OUTPUT)


def take_share(
    batches: Iterable[pa.RecordBatch], *, log: Path, by: Judgement, aside: Path
) -> Iterator[pa.RecordBatch]:
    share, shares, slices = slices_of(batches)
    if not slices:
        return
    yield pa.record_batch(
        {
            "path": pa.nulls(1, pa.string()),
            "partition": pa.nulls(1, pa.string()),
            FIRST: pa.array([min(piece.first_record for piece in slices)]),
            END: pa.array([max(piece.end_record for piece in slices)]),
        }
    )
    rows = recorded_rows(log, slices, share, shares, by.from_record)
    for written in write_rows(judge(rows, by), aside=aside, partitions=("reason", "day")):
        nulls = pa.nulls(written.num_rows, pa.int64())
        yield written.append_column(FIRST, nulls).append_column(END, nulls)


def recorded_rows(
    log: Path, slices: Iterable[Slice], share: int, shares: int, from_record: int
) -> pa.Table:
    """Events of a share of the streams, from a record on.

    They are in the order of the log by the group, and by the stream within each: so readers leave
    out groups by their time, and what is much alike lies together, and is small on the disk.
    """
    reader = LogReader(log, EVENTS)
    parts: list[pa.RecordBatch] = []
    numbers: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    for piece in slices:
        first_record = piece.first_record
        for batch in reader.read(piece):
            parts.append(batch)
            numbers.append(np.arange(first_record, first_record + batch.num_rows))
            first_record += batch.num_rows
    rows = pa.Table.from_batches(parts, EVENTS.schema)
    records, streams = np.concatenate(numbers), rows.column("stream").to_numpy()
    wanted = np.flatnonzero(is_in_share(streams, share, shares) & (records >= from_record))
    wanted = wanted[np.lexsort((streams[wanted], np.arange(len(wanted)) // GROUP_ROWS))]
    chosen, known = rows.take(pa.array(wanted)).combine_chunks(), read_streams(log)
    made, start = [], 0
    for batch in chosen.to_batches():  # Mostly one; more where options are gigabytes.
        its_records = records[wanted[start : start + batch.num_rows]]
        made.append(event_columns(batch, known, its_records, schema=SCHEMA))
        start += batch.num_rows
    return pa.Table.from_batches(made, SCHEMA)
