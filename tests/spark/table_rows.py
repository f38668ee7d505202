"""A table's rows as any reader of Delta sees them, and whether two tables are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.pipeline.schemas import TableSchema

RTOL = 1e-9
ATOL = 1e-12


def rows_of(tables: Path, schema: TableSchema) -> pa.Table:
    """All rows, in the order of the table's key."""
    rows = DeltaTable(str(tables / schema.name)).to_pyarrow_dataset().to_table()
    return rows.sort_by([(name, "ascending") for name in schema.key])


def complaint(found: pa.Table, expected: pa.Table) -> str | None:
    """The first column that is not the same; numbers with a fraction within RTOL and ATOL."""
    if found.num_rows != expected.num_rows:
        return f"{found.num_rows} rows instead of {expected.num_rows}"
    for name in expected.column_names:
        ours, theirs = found.column(name), expected.column(name)
        if pa.types.is_floating(theirs.type):
            pair = (ours.to_numpy(), theirs.to_numpy())
            is_same = bool(np.allclose(*pair, rtol=RTOL, atol=ATOL, equal_nan=True))
            is_same &= ours.is_null().equals(theirs.is_null())
        else:
            is_same = ours.to_pylist() == theirs.to_pylist()
        if not is_same:
            return f"{name} differs"
    return None
