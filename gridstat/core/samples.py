"""Batches of samples that a receiver passes to Python, one row for each event.

A batch is a NumPy array of `SAMPLE`, copied out of the receiving thread's ring in one piece; its
layout is `gs_sample` in `sample_ring.h`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, TypeAlias, TypedDict

import numpy as np

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

COPY_SOURCES_MAX: Final = 8
"""Number of sources, in the order of opening, whose copies a receiver counts by variable."""


class VariableCounters(TypedDict):
    """Counts of one variable at a receiver since the variable was first expected.

    Of a periodic variable only the slots that are due (multiples of `every`) count, from
    `first_slot` to `last_slot`: due slots = delivered + ring_full + missing.
    """

    delivered: int
    duplicate: int
    late: int
    """First copies that came more than `deadline_ns` after their stamp, the stamp being good."""
    unknown: int
    """First copies whose stamp is not good enough to say whether they were late."""
    missing: int
    """Due slots passed over, less those that came after all; a jump beyond the window of slots
    begins another span, because it does not show how much time has passed."""
    extra: int
    """First copies of slots that are not due, which are handed out all the same."""
    ring_full: int
    first_slot: int
    last_slot: int
    copies: list[int]
    """All copies, the first ones included, by source in the order of `open_source`."""
    passed: int
    """Due slots of a periodic variable that some source brought, since there are several; about a
    second of the newest ones is left out, because their copies may be in transit. Of a variable
    with more than 320 slots a second these are a sample: every n-th due slot, with the n of
    `copy_window.counted_every`."""
    came: list[int]
    """Passed slots by source that brought a copy; the source has missed `passed - came`."""
    first: list[int]
    """First copies of due slots by source, while there are several sources."""
    late_by: list[int]
    """Late copies of due slots by source, first or not, while there are several sources."""
    too_old: int
    """Copies whose slot had left the window before they came: they can fill no gap."""
    too_old_by: list[int]
    """The same by source."""


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
