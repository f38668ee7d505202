"""Times at which each event became visible in a rollup, and final: from the tables' commits.

Every stream has an event in every slot, so a row that counts n events of a second shows the first n
of that second's slots. A commit is visible from the time of its entry in the table's log on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

US_PER_S: Final = 1_000_000
_COLUMNS: Final = ("stream", "window_start", "count")


@dataclass(frozen=True, slots=True)
class Commit:
    """Rows that one commit has added: stream, second, and number of events."""

    at_s: float
    stream: NDArray[np.int64]
    second: NDArray[np.int64]
    count: NDArray[np.int64]


def commits_of(table: Path) -> Iterator[Commit]:
    """Yield the commits of a Delta table that have added rows, oldest first."""
    for entry in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in entry.read_text(encoding="utf-8").splitlines()]
        paths = [unquote(action["add"]["path"]) for action in actions if "add" in action]
        if not paths:
            continue
        parts = [_rows(table / path) for path in paths]
        rows = pa.concat_tables(parts)
        start_us = rows.column("window_start").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        yield Commit(
            at_s=entry.stat().st_mtime,
            stream=rows.column("stream").to_numpy().astype(np.int64),
            second=start_us.to_numpy() // US_PER_S,
            count=rows.column("count").to_numpy().astype(np.int64),
        )


def _rows(file: Path) -> pa.Table:
    with pq.ParquetFile(file) as opened:
        return opened.read(columns=list(_COLUMNS), use_threads=False)


def first_seen_s(commits: Iterable[Commit], *, rate: int, seconds: range) -> NDArray[np.float64]:
    """Return the time from the creation of each event to the commit that counts it."""
    seen: dict[tuple[int, int], int] = {}
    delays: list[NDArray[np.float64]] = []
    for commit in sorted(commits, key=lambda commit: commit.at_s):
        is_wanted = (commit.second >= seconds.start) & (commit.second < seconds.stop)
        rows = zip(
            commit.stream[is_wanted].tolist(),
            commit.second[is_wanted].tolist(),
            commit.count[is_wanted].tolist(),
            strict=True,
        )
        for stream, second, count in rows:
            before = seen.get((stream, second), 0)
            if count > before:
                created_s = second + np.arange(before, count) / rate
                delays.append(commit.at_s - created_s)
                seen[stream, second] = count
    return np.concatenate(delays) if delays else np.empty(0)
