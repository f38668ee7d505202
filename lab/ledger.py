"""Join of the logs of publishers and subscribers: which events were sent, and which arrived.

A log is a file of fixed records, appended in whole batches, readable while it grows. Every event
that was sent is accounted for, so no trial passes unchecked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from gridstat.model.rate_law import is_due

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.model.rate_law import Period

ENTRY: Final = np.dtype(
    [
        ("created_ns", np.uint64),
        ("at_ns", np.uint64),
        ("value", np.uint64),
        ("variable", np.uint32),
        ("reserved", np.uint32),
    ]
)
"""`at_ns` is the wall-clock time of sending or delivery; `value` holds its eight bytes."""

Entries: TypeAlias = npt.NDArray[np.void]
Numbers: TypeAlias = npt.NDArray[np.uint64]


class EventLog:
    """Log that appends entries to its own file; each batch reaches the kernel in one write."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, entries: Entries) -> None:
        assert entries.dtype == ENTRY
        self._file.write(entries.tobytes())


def entries_of(
    variables: npt.ArrayLike, created_ns: npt.ArrayLike, values: npt.ArrayLike, at_ns: npt.ArrayLike
) -> Entries:
    """Return a batch of entries from its columns; a single value stands for a whole column."""
    columns = np.broadcast_arrays(variables, created_ns, values, at_ns)
    batch = np.zeros(columns[0].size, dtype=ENTRY)
    names = ("variable", "created_ns", "value", "at_ns")
    for name, column in zip(names, columns, strict=True):
        batch[name] = column.reshape(-1)
    return batch


def read_log(path: Path) -> Entries:
    """Return all whole records of a log; a killed writer may leave a torn last record."""
    raw = path.read_bytes() if path.exists() else b""
    return np.frombuffer(raw[: len(raw) // ENTRY.itemsize * ENTRY.itemsize], dtype=ENTRY)


class LogTail:
    """Incremental reader of a log, so that a trial does not read a long run from its start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at_bytes = 0
        self._kept = np.zeros(0, dtype=ENTRY)

    def entries(self) -> Entries:
        """Return all kept entries, including those that arrived since the last call."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._at_bytes)
                raw = file.read()
            whole_bytes = len(raw) // ENTRY.itemsize * ENTRY.itemsize
            self._at_bytes += whole_bytes
            fresh = np.frombuffer(raw[:whole_bytes], dtype=ENTRY)
            self._kept = np.concatenate([self._kept, fresh])
        return self._kept

    def forget_before(self, created_ns: int) -> None:
        """Drop the entries that no later window needs."""
        self._kept = self._kept[self._kept["created_ns"] >= created_ns]


@dataclass(frozen=True, slots=True)
class Window:
    """Time window: events created at `from_ns` or later and before `to_ns` count."""

    from_ns: int = 0
    to_ns: int = 2**63 - 1

    def of(self, entries: Entries) -> Entries:
        created = entries["created_ns"]
        return entries[(created >= self.from_ns) & (created < self.to_ns)]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome for the events of one subscription; each list has variables and creation times.

    Events in `unpublished` were delivered although no publisher logged them.
    """

    expected: int = 0
    delivered: int = 0
    late: int = 0
    latency_ns_max: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)
    duplicate: list[tuple[int, int]] = field(default_factory=list)
    altered: list[tuple[int, int]] = field(default_factory=list)
    unpublished: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicate or self.altered or self.unpublished)

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(
            expected=self.expected + other.expected,
            delivered=self.delivered + other.delivered,
            late=self.late + other.late,
            latency_ns_max=max(self.latency_ns_max, other.latency_ns_max),
            lost=self.lost + other.lost,
            duplicate=self.duplicate + other.duplicate,
            altered=self.altered + other.altered,
            unpublished=self.unpublished + other.unpublished,
        )

    def __str__(self) -> str:
        return (
            f"expected {self.expected} delivered {self.delivered} lost {len(self.lost)} "
            f"duplicate {len(self.duplicate)} altered {len(self.altered)} "
            f"unpublished {len(self.unpublished)} late {self.late} "
            f"latency_ms_max {self.latency_ns_max / 1e6:.1f}"
        )


def judge(
    published: Entries, delivered: Entries, window: Window, *, latency_ns_max: int = 2**62
) -> Verdict:
    """Join the sent events with those of one subscriber, by variable and creation time."""
    published, delivered = window.of(published), window.of(delivered)
    verdict = Verdict()
    for variable in np.union1d(published["variable"], delivered["variable"]):
        sent = published[published["variable"] == variable]
        got = delivered[delivered["variable"] == variable]
        verdict += _judge_one(int(variable), sent, got, latency_ns_max)
    return verdict


def due(published: Entries, period: Period, every: int, *, phase_ns: int = 0) -> Entries:
    """Return the events that a subscription to every n-th slot may expect of this period."""
    is_seen = [is_due(int(at), period, every, phase_ns) for at in published["created_ns"]]
    seen: Entries = published[np.array(is_seen, dtype=bool)]
    return seen


def _judge_one(variable: int, sent: Entries, got: Entries, latency_ns_max: int) -> Verdict:
    sent_ns, sent_at = np.unique(sent["created_ns"], return_index=True)
    got_ns, first_at, counts = np.unique(got["created_ns"], return_index=True, return_counts=True)
    is_known = np.isin(got_ns, sent_ns)
    originals = sent[sent_at[np.searchsorted(sent_ns, got_ns[is_known])]]
    firsts = got[first_at[is_known]]
    latency_ns = firsts["at_ns"].astype(np.int64) - firsts["created_ns"].astype(np.int64)

    def named(created_ns: Numbers) -> list[tuple[int, int]]:
        return [(variable, int(at)) for at in created_ns]

    return Verdict(
        expected=sent_ns.size,
        delivered=int(is_known.sum()),
        late=int((latency_ns > latency_ns_max).sum()),
        latency_ns_max=int(latency_ns.max(initial=0)),
        lost=named(sent_ns[~np.isin(sent_ns, got_ns)]),
        duplicate=named(got_ns[counts > 1]),
        altered=named(got_ns[is_known][originals["value"] != firsts["value"]]),
        unpublished=named(got_ns[~is_known]),
    )
