"""Received events, and their conversion to columns of the log without a Python loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from gridstat.model.status import OPTION_BYTES
from gridstat.record.record_kinds import EVENTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Streams: TypeAlias = NDArray[np.int32]
    Samples: TypeAlias = np.ndarray[tuple[int], np.dtype[np.void]]
    """Rows with the fields of `gs_sample` in the core."""

BINARY_BYTES_MAX: Final = (1 << 31) - 1
"""Maximum size of all options of a batch."""


@dataclass(frozen=True, slots=True)
class EventRows:
    """Events in the order of arrival, each with its stream; `options` joins those of all events."""

    samples: Samples
    streams: Streams
    options: bytes = b""

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def size_bytes(self) -> int:
        """Size in memory."""
        return int(self.samples.nbytes + self.streams.nbytes) + len(self.options)

    def only(self, kept: NDArray[np.bool_]) -> EventRows:
        """Return the events selected by `kept`, with their options."""
        if kept.all():
            return self
        options = self.options
        if options:
            sizes = self.samples["option_count"].astype(np.int64) * OPTION_BYTES
            options = np.frombuffer(options, np.uint8)[np.repeat(kept, sizes)].tobytes()
        return EventRows(self.samples[kept], self.streams[kept], options)

    def received_ns(self) -> tuple[int, int]:
        """Return the earliest and the latest time of arrival."""
        received = self.samples["received_ns"]
        return int(received.min()), int(received.max())


def event_batch(rows: EventRows) -> pa.RecordBatch:
    """Return the columns of the log; an event without options has null, not empty bytes."""
    samples = rows.samples
    return pa.record_batch(
        [
            pa.array(rows.streams),
            pa.array(_signed(samples["created_ns"])),
            pa.array(_signed(samples["received_ns"])),
            pa.array(samples["sequence"].astype(np.int32)),
            pa.array(samples["flags"].astype(np.int16)),
            pa.array(_signed(samples["value"])),
            _option_column(samples["option_count"], rows.options),
        ],
        schema=EVENTS.schema,
    )


def _signed(column: NDArray[Any]) -> NDArray[np.int64]:
    return np.ascontiguousarray(column).view(np.int64)


def _option_column(counts: NDArray[np.uint8], options: bytes) -> pa.Array:
    if not options:
        return pa.nulls(len(counts), pa.binary())
    assert len(options) <= BINARY_BYTES_MAX
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts.astype(np.int32) * OPTION_BYTES, out=offsets[1:])
    assert offsets[-1] == len(options)
    has_some = np.packbits(counts > 0, bitorder="little")
    buffers = [pa.py_buffer(has_some), pa.py_buffer(offsets), pa.py_buffer(options)]
    return pa.Array.from_buffers(pa.binary(), len(counts), buffers)
