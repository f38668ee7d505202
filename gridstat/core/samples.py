"""What a receiver hands to Python: batches of samples, one row for each event.

A batch is a NumPy array of `SAMPLE`, copied out of the receiving thread's ring in one piece; its
layout is `gs_sample` in `sample_ring.h`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypedDict

import numpy as np

Keep: TypeAlias = Literal["ring", "newest", "count"]
"""All events and the newest of each variable, the newest only, or nothing but counters."""

SAMPLE: Final = np.dtype(
    [
        ("created_ns", np.uint64),
        ("received_ns", np.uint64),
        ("variable_id", np.uint32),
        ("option_count", np.uint8),
        ("flags", np.uint8),
        ("sequence", np.uint16),
        ("value", np.int64),
    ]
)
"""`value` holds the eight bytes of an int64 or a bool; `.view(np.float64)` reads a float64."""

Samples: TypeAlias = np.ndarray[tuple[int], np.dtype[np.void]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One event as it arrived; `value` is its eight value bytes read as an int64."""

    created_ns: int
    received_ns: int
    variable_id: int
    option_count: int
    flags: int
    sequence: int
    value: int

    @property
    def value_float(self) -> float:
        """The same eight bytes read as a float64."""
        return float(struct.unpack("=d", struct.pack("=q", self.value))[0])


class ReceiverSettings(TypedDict, total=False):
    """How a receiver is opened; every word has a default, shown beside it."""

    host: str
    """127.0.0.1; "::" hears IPv4 as well."""
    data_port: int
    """0, any free one."""
    urgent_port: int
    """0, any free one."""
    keep: Keep
    """ring"""
    ring_events: int
    """65,536, rounded up to a power of two; further events count as `ring_full`."""
    option_bytes: int
    """0: options are not kept; else the bytes that may wait, and further ones are `ring_full`."""
    variables_max: int
    """131,072"""
    ring_expiry_ns: int
    """60 s: how long an aperiodic event is remembered to tell its copies."""
    accept_unknown: bool
    """False; if True, events of variables nobody expects are delivered, every copy of them."""
    page: memoryview | bytearray | None
    """None, or 4,096 writable bytes (of shared memory) for the counters."""
    posix: bool
    """False; if True, neither GRO nor recvmmsg are used."""
