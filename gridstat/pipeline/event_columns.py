"""Events of the log as columns for users: names instead of numbers, values instead of raw bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gridstat.model.errors import DamagedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from numpy.typing import NDArray

NS_PER_US: Final = 1_000
STREAMS_MAX: Final = 10_000_000
"""Numbers of streams are handed out one by one; a higher one is a bit that has turned."""
FLOAT64: Final = "float64"
WHOLE: Final = ("int64", "bool")

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
    """Names and types of streams by their numbers; an unknown number has no name and no value."""

    def __init__(self, rows: pa.Table) -> None:
        numbers = rows.column("stream").to_numpy()
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < STREAMS_MAX:
            raise DamagedLog(f"streams are numbered from {numbers.min()} to {numbers.max()}")
        # The last row of a number counts. A place more, unknown, is for all numbers beyond.
        place = np.full(1 + int(numbers.max(initial=-1)) + 1, -1)
        place[numbers] = np.arange(len(numbers))
        rows_by_number = rows.take(pa.array(place, mask=place < 0))
        types = rows_by_number.column("value_type").combine_chunks()
        self.names = rows_by_number.column("variable").combine_chunks()
        self.is_float = _is_any_of(types, (FLOAT64,))
        self.is_whole = _is_any_of(types, WHOLE)

    def places(self, numbers: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the index of each number in the table."""
        unknown = len(self.names) - 1
        return np.where((numbers >= 0) & (numbers < unknown), numbers, unknown)

    def names_at(self, places: NDArray[np.int64], kind: pa.DataType) -> pa.Array:
        if not pa.types.is_dictionary(kind):
            return self.names.take(pa.array(places))
        known = self.names.dictionary_encode()
        return pa.DictionaryArray.from_arrays(
            known.indices.take(pa.array(places)), known.dictionary
        )


def event_columns(
    batch: pa.RecordBatch,
    streams: StreamTable,
    records: NDArray[np.int64],
    *,
    schema: pa.Schema,
) -> pa.RecordBatch:
    """The columns of the schema, each a copy or made.

    `records` are the numbers of the batch's events. Names are a dictionary where the schema says
    so: then each is there once, however many events have it.
    """
    places = streams.places(batch.column("stream").to_numpy())
    made: dict[str, Callable[[], pa.Array]] = {
        "record": lambda: pa.array(records),
        "variable": lambda: streams.names_at(places, schema.field("variable").type),
        "created": lambda: _in_us(batch.column("created_ns")),
        "value": lambda: _values(batch.column("word"), streams, places),
    }
    columns = [made[name]() if name in made else batch.column(name) for name in schema.names]
    return pa.record_batch(columns, schema=schema)


def _in_us(times_ns: pa.Array) -> pa.Array:
    return pa.array(times_ns.to_numpy() // NS_PER_US).cast(pa.timestamp("us", tz="UTC"))


def _values(words: pa.Array, streams: StreamTable, places: NDArray[np.int64]) -> pa.Array:
    """Return the raw 64-bit words as numbers, by the type of their stream; null for other types."""
    word = words.to_numpy()
    is_float = streams.is_float[places]
    if is_float.all():
        return pa.array(word.view(np.float64))
    values = np.where(is_float, word.view(np.float64), word.astype(np.float64))
    return pa.array(values, mask=~(is_float | streams.is_whole[places]))


def _is_any_of(texts: pa.Array, wanted: Collection[str]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = pc.is_in(texts, pa.array(list(wanted), pa.string())).to_numpy(
        zero_copy_only=False
    )
    return found
