"""Registry of stream numbers: the current stream of each identifier, and the terms of each stream.

A number belongs to one variable under one contract and its terms, also after a restart. A later
contract, or terms that return, get a new number: events under a number are due in one interval,
from its row to the end of its contract.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from gridstat.model.type_text import type_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from gridstat.model.status import StatusVariable

UNKNOWN_STREAM: Final = -1
LEFT_OUT: Final = -2
VARIABLE_ID_MAX: Final = 1 << 24
"""Highest identifier with a stream; events of higher ones have an unknown stream."""
_SIZE_INITIAL: Final = 1_024


class Terms(NamedTuple):
    """Terms of a stream: when one of them changes, another stream begins."""

    variable: str
    value_type: str
    period_seconds: int | None
    period_per_seconds: int | None
    phase_ns: int
    every: int
    subscription: int


class StreamRegistry:
    """Streams begin on subscription, are looked up with every batch, and written by the writer."""

    def __init__(self, known: Iterable[dict[str, Any]] = ()) -> None:
        self._newest: dict[str, tuple[Terms, int]] = {}
        """Newest stream of each variable."""
        self._next = 0
        for row in known:
            terms = Terms(*(row[name] for name in Terms._fields))
            self._newest[terms.variable] = terms, int(row["stream"])
            self._next = max(self._next, int(row["stream"]) + 1)
        self._current: NDArray[np.int32] = np.full(_SIZE_INITIAL, UNKNOWN_STREAM, np.int32)
        self._unwritten: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self.has_left_out = False
        """True if any identifier was ever left out."""

    def __len__(self) -> int:
        return self._next

    def begin(self, variable: StatusVariable, every: int, subscription: int, now_ns: int) -> int:
        """Begin or continue a stream for this identifier, and return its number."""
        number = variable.variable_id
        with self._lock:
            stream = self._number_of(_terms(variable, every, subscription), now_ns)
            self._set(number, stream)
        return stream

    def leave_out(self, variable_id: int) -> int:
        """Exclude events of this identifier from the record."""
        with self._lock:
            self._set(variable_id, LEFT_OUT)
            self.has_left_out = True
        return LEFT_OUT

    def streams_of(self, variable_ids: NDArray[np.uint32]) -> NDArray[np.int32]:
        """Return the stream of each event."""
        current = self._current
        is_known = variable_ids < len(current)
        if is_known.all():
            return current[variable_ids]
        found = current[np.where(is_known, variable_ids, 0)]
        return np.where(is_known, found, np.int32(UNKNOWN_STREAM))

    def unwritten(self) -> list[dict[str, Any]]:
        """Return the rows of streams that are not on the disk yet."""
        with self._lock:
            return list(self._unwritten)

    def mark_written(self, count: int) -> None:
        """Drop the first `count` unwritten rows, which are on the disk now."""
        with self._lock:
            del self._unwritten[:count]

    def _number_of(self, terms: Terms, now_ns: int) -> int:
        newest = self._newest.get(terms.variable)
        if newest is not None and newest[0] == terms:
            return newest[1]
        stream, self._next = self._next, self._next + 1
        self._newest[terms.variable] = terms, stream
        self._unwritten.append({"stream": stream, "since_ns": now_ns} | terms._asdict())
        return stream

    def _set(self, number: int, stream: int) -> None:
        if number > VARIABLE_ID_MAX:
            return
        if number >= len(self._current):
            grown = np.full(max(number + 1, 2 * len(self._current)), UNKNOWN_STREAM, np.int32)
            grown[: len(self._current)] = self._current
            self._current = grown
        self._current[number] = stream


def _terms(variable: StatusVariable, every: int, subscription: int) -> Terms:
    period = variable.period
    return Terms(
        variable=variable.name,
        value_type=type_text(variable.value_type),
        period_seconds=None if period is None else period.seconds,
        period_per_seconds=None if period is None else period.per_seconds,
        phase_ns=variable.phase_ns,
        every=every,
        subscription=subscription,
    )
