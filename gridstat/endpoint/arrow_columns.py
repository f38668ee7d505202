"""Samples of one variable as Arrow columns: values by their type, records field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from gridstat.endpoint.delivery import EventDecoder
from gridstat.model.status import BuiltinType, RecordType

if TYPE_CHECKING:
    import pyarrow as pa

    from gridstat.core.samples import Samples
    from gridstat.endpoint.delivery import Row
    from gridstat.model.status import StatusVariable

TIMES = ("created_ns", "received_ns", "sequence", "flags")


def arrow_batch(
    batch: Samples, options: list[bytes], variable: StatusVariable | None
) -> pa.RecordBatch:
    """Return times and values of a batch; derived values follow in columns of their own."""
    import pyarrow as pa  # Optional: an end-point needs no Arrow to work.

    columns: dict[str, object] = {name: np.ascontiguousarray(batch[name]) for name in TIMES}
    words = np.ascontiguousarray(batch["value"])
    if variable is None:
        return pa.record_batch({**columns, "value": words})
    if variable.derived or isinstance(variable.value_type, RecordType):
        return pa.record_batch({**columns, **_decoded(batch, options, variable)})
    if variable.value_type is BuiltinType.FLOAT64:
        return pa.record_batch({**columns, "value": words.view(np.float64)})
    is_bool = variable.value_type is BuiltinType.BOOL
    return pa.record_batch({**columns, "value": words != 0 if is_bool else words})


def _decoded(
    batch: Samples, options: list[bytes], variable: StatusVariable
) -> dict[str, list[object]]:
    decoder = EventDecoder(variable)
    names = frozenset(each.name for each in variable.derived)
    rows = cast("list[Row]", batch.tolist())
    found = [
        decoder.delivery(row, its_options, names)
        for row, its_options in zip(rows, options, strict=True)
    ]
    columns: dict[str, list[object]] = {}
    if isinstance(variable.value_type, RecordType):
        for field in variable.value_type.fields:
            columns[field.name] = [each.value[field.name] for each in found]  # type: ignore[index]
    else:
        columns["value"] = [each.value for each in found]
    for derived in variable.derived:
        columns[derived.name] = [each.derived[derived.name] for each in found]
    return columns
