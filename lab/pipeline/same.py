"""Comparison of two pipelines that have read the same log: their tables must be equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from gridstat.pipeline.schemas import ALARMS, EVENTS, QUARANTINE, ROLLUP_1H, ROLLUP_1M, ROLLUP_1S
from gridstat.record.log_reader import LogReader
from gridstat.record.record_kinds import EVENTS as RECORDED
from lab.pipeline.feed import REASONS, reasons

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.pipeline.pipeline_folder import PipelineFolder
    from gridstat.pipeline.schemas import TableSchema

RTOL, ATOL = 1e-9, 1e-12


def complaints(one: PipelineFolder, other: PipelineFolder) -> Iterator[str]:
    """Yield what is lost, doubled or different; nothing if both pipelines are correct."""
    recorded = LogReader(one.log, RECORDED).ends()[1]
    for folder in (one, other):
        records = [
            rows_of(folder, table).column("record").to_numpy() for table in (EVENTS, QUARANTINE)
        ]
        found = np.sort(np.concatenate(records))
        if not np.array_equal(found, np.arange(recorded)):
            lost = recorded - len(np.unique(found))
            yield f"{folder.path}: of {recorded} {lost} lost, {len(found) - recorded + lost} twice"
    for table in (EVENTS, QUARANTINE, ROLLUP_1S, ROLLUP_1M, ROLLUP_1H, ALARMS):
        yield from differences(rows_of(one, table), rows_of(other, table), table)


def unlawful(good: pa.Table, bad: pa.Table) -> Iterator[str]:
    """Yield complaints about records that were not fed, or with a wrong reason of quarantine."""
    number, sequence = (
        np.concatenate([rows.column(name).to_numpy().astype(np.int64) for rows in (good, bad)])
        for name in ("record", "sequence")
    )
    found = np.array([""] * good.num_rows + bad.column("reason").to_pylist())
    expected = reasons(number, sequence)
    wrong = np.flatnonzero(found != expected)
    if len(wrong):
        at = wrong[0]
        example = (
            f"record {number[at]} is {found[at] or 'good'} instead of {expected[at] or 'good'}"
        )
        yield f"{len(wrong)} records are not what was fed: {example}"
    for reason in np.setdiff1d(REASONS, found):
        yield f"no record has the reason {reason}, so nothing is shown of it"


def differences(one: pa.Table, other: pa.Table, table: TableSchema) -> Iterator[str]:
    """Yield the columns in which two tables with the same rows differ."""
    if one.num_rows != other.num_rows:
        yield f"{table.name}: {one.num_rows} rows and {other.num_rows}"
        return
    for name in one.column_names:
        if not _is_same(one.column(name), other.column(name)):
            yield f"{table.name}.{name} differs"


def rows_of(folder: PipelineFolder, table: TableSchema) -> pa.Table:
    """Return a table in the order of its key."""
    rows = DeltaTable(str(folder.tables / table.name)).to_pyarrow_table()
    return rows.sort_by([(name, "ascending") for name in table.key]).combine_chunks()


def _is_same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if not pa.types.is_floating(one.type):
        return bool(one.equals(other))
    return bool(
        one.is_null().equals(other.is_null())
        and np.allclose(one.to_numpy(), other.to_numpy(), rtol=RTOL, atol=ATOL, equal_nan=True)
    )
