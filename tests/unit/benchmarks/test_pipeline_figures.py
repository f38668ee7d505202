"""The arithmetic of the pipeline's experiment: logs, delays from commits, growth."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.experiments.experiment import Options
from benchmarks.experiments.pipeline import PIPELINE, _arrow_core_s, _sizes, growth_exponent
from benchmarks.pipeline_commits import Commit, commits_of, first_seen_s
from benchmarks.pipeline_log import BEGAN_S, record_log
from gridstat.record.log_reader import LogReader
from gridstat.record.record_kinds import EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module", autouse=True)
def _arrow_has_started_its_reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One thread that reads files, which it keeps for good, before anybody counts."""
    before = pa.io_thread_count()
    pa.set_io_thread_count(1)
    file = tmp_path_factory.mktemp("file") / "any.parquet"
    pq.write_table(pa.table({"any": [1]}), file)
    pq.ParquetFile(file).read()
    yield
    pa.set_io_thread_count(before)


def commit(at_s: float, *rows: tuple[int, int, int]) -> Commit:
    stream, second, count = np.array(rows, dtype=np.int64).T
    return Commit(at_s, stream, second, count)


def test_a_log_has_every_stream_in_every_slot(tmp_path: Path) -> None:
    record_log(tmp_path, 70_000, streams=7, rate=10)
    reader = LogReader(tmp_path, EVENTS)
    pieces = reader.slices(*reader.ends(), 1 << 62)
    rows = pa.Table.from_batches([batch for piece in pieces for batch in reader.read(piece)])
    assert rows.num_rows == 70_000
    created_ns = rows.column("created_ns").to_numpy()
    assert created_ns[0] == BEGAN_S * 1_000_000_000
    assert created_ns[-1] == (BEGAN_S + 999) * 1_000_000_000 + 900_000_000
    assert np.unique(created_ns).tolist() == np.unique(created_ns[::7]).tolist()
    assert np.bincount(rows.column("stream").to_numpy()).tolist() == [10_000] * 7
    assert _arrow_core_s(tmp_path) > 0


def test_an_event_is_seen_with_the_first_commit_that_counts_it() -> None:
    commits = [
        commit(100.5, (1, 100, 2)),
        commit(101.0, (1, 100, 4), (2, 100, 4)),
        commit(103.0, (1, 100, 4), (1, 101, 4)),
    ]
    delays_s = first_seen_s(commits, rate=4, seconds=range(100, 101))
    assert sorted(delays_s.tolist()) == [0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 0.75, 1.0]


def test_seconds_outside_of_the_measured_ones_do_not_count() -> None:
    commits = [commit(100.5, (1, 99, 2), (1, 100, 1), (1, 101, 1))]
    assert first_seen_s(commits, rate=1, seconds=range(100, 101)).tolist() == [0.5]
    assert first_seen_s([], rate=1, seconds=range(5)).tolist() == []


def test_commits_are_read_from_the_log_of_a_table(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "stream": pa.array([3], pa.int32()),
            "window_start": pa.array([100_000_000], pa.timestamp("us", "UTC")),
            "count": pa.array([30], pa.int64()),
        }
    )
    (tmp_path / "day=2023-11-14").mkdir()
    pq.write_table(rows, tmp_path / "day=2023-11-14" / "a b.parquet")
    (tmp_path / "_delta_log").mkdir()
    for version, action in enumerate(
        [{"metaData": {}}, {"add": {"path": "day=2023-11-14/a%20b.parquet"}}]
    ):
        entry = tmp_path / "_delta_log" / f"{version:020d}.json"
        entry.write_text(json.dumps(action) + "\n")
        os.utime(entry, (version, version))
    (found,) = commits_of(tmp_path)
    assert found.at_s == 1.0
    assert [column.tolist() for column in (found.stream, found.second, found.count)] == [
        [3],
        [100],
        [30],
    ]


@pytest.mark.parametrize(("power", "exponent"), [(1.0, 1.0), (1.2, 1.2)])
def test_growth_is_the_slope_between_logarithms(power: float, exponent: float) -> None:
    runs = {rows: {"seconds": 1e-5 * rows**power} for rows in (10**5, 10**6, 10**7)}
    assert growth_exponent(runs) == pytest.approx(exponent)


@pytest.mark.parametrize(
    ("full", "sizes"), [(0, [10**5, 10**6, 10**7]), (1, [10**5, 10**6, 10**7, 10**8])]
)
def test_sizes_grow_tenfold_and_full_adds_one(full: int, sizes: list[int]) -> None:
    defaults = {parameter.name: parameter.default for parameter in PIPELINE.parameters}
    assert _sizes(Options({**defaults, "full": full})) == sizes
