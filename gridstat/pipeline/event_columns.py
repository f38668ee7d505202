"""Events of the log as columns for people: names for numbers, and values for words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Collection

NS_PER_US: Final = 1_000
FLOAT64: Final = "float64"

EVENT_SCHEMA: Final = pa.schema(
    [
        pa.field("record", pa.int64(), nullable=False),
        pa.field("stream", pa.int32(), nullable=False),
        pa.field("variable", pa.string()),
        pa.field("created", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("created_ns", pa.int64(), nullable=False),
        pa.field("received_ns", pa.int64(), nullable=False),
        pa.field("sequence", pa.int32(), nullable=False),
        pa.field("flags", pa.int16(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("word", pa.int64(), nullable=False),
        pa.field("options", pa.binary()),
    ]
)
"""`record` is the event's number in the log: no two events share one, and none is left out."""


class StreamTable:
    """What the numbers of streams stand for; one that is not known has no name and no value."""

    def __init__(self, rows: pa.Table) -> None:
        size = 1 + max(rows.column("stream").to_pylist(), default=-1)
        self.names: list[str | None] = [None] * size
        self.is_float = np.zeros(size, dtype=bool)
        for row in rows.to_pylist():
            self.names[row["stream"]] = row["variable"]
            self.is_float[row["stream"]] = row["value_type"] == FLOAT64

    def __len__(self) -> int:
        return len(self.names)

    def numbers_of(self, variables: Collection[str]) -> list[int]:
        return [number for number, name in enumerate(self.names) if name in variables]


def event_columns(
    batch: pa.RecordBatch,
    streams: StreamTable,
    first_record: int,
    *,
    has_names: bool,
    variables: Collection[str] | None,
) -> pa.RecordBatch:
    """The same events, named and valued; of `variables` only, where they are given."""
    stream = batch.column("stream").to_numpy()
    word = batch.column("word").to_numpy()
    is_known = (stream >= 0) & (stream < len(streams))
    index = np.where(is_known, stream, 0)
    is_float = streams.is_float[index] if len(streams) else np.zeros(len(stream), dtype=bool)
    values = np.where(is_float, word.view(np.float64), word.astype(np.float64))
    created_ns = batch.column("created_ns").to_numpy()
    columns: dict[str, pa.Array] = {
        "record": pa.array(np.arange(first_record, first_record + batch.num_rows)),
        "stream": batch.column("stream"),
        "created": pa.array(created_ns // NS_PER_US).cast(pa.timestamp("us", tz="UTC")),
        "created_ns": batch.column("created_ns"),
        "received_ns": batch.column("received_ns"),
        "sequence": batch.column("sequence"),
        "flags": batch.column("flags"),
        "value": pa.array(values, mask=~is_known),
        "word": batch.column("word"),
        "options": batch.column("options"),
    }
    if has_names:
        names = pa.DictionaryArray.from_arrays(
            pa.array(index, mask=~is_known, type=pa.int32()), pa.array(streams.names, pa.string())
        )
        columns["variable"] = names.cast(pa.string())
    schema = EVENT_SCHEMA
    if not has_names:
        schema = schema.remove(schema.get_field_index("variable"))
    named = pa.record_batch([columns[name] for name in schema.names], schema=schema)
    if variables is None:
        return named
    wanted = pa.array(streams.numbers_of(variables), pa.int32())
    return named.filter(pc.is_in(named.column("stream"), wanted))
