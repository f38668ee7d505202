"""Clean: which recorded events are good, why the others are not, and which came before.

No row is dropped: a bad one gets a `reason`, and goes to quarantine instead of the archive. All
rows of a stream are judged together, in one task of the intake.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from gridstat.model.status import EventFlag
from gridstat.pipeline.file_rows import FileRows, only

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gridstat.model.plausibility import TimeBounds

UNKNOWN_STREAM: Final = "unknown_stream"
IMPLAUSIBLE_TIME: Final = "implausible_time"
NOT_FINITE: Final = "not_finite"
DUPLICATE: Final = "duplicate"
REASONS: Final = (UNKNOWN_STREAM, IMPLAUSIBLE_TIME, NOT_FINITE, DUPLICATE)
"""Reasons in the order in which they are checked."""

IDENTITY: Final = ("stream", "created_ns", "sequence")
"""Two events with the same are one event that came twice."""
NS_PER_DAY: Final = 86_400_000_000_000


@dataclass(frozen=True, slots=True)
class Judgement:
    """Inputs by which a batch is checked."""

    bounds: TimeBounds
    known: FileRows
    """Rows that were archived before and may come again."""
    from_record: int = 0
    """Rows before this one are done with."""
    quarantined: int = 0
    """Bad rows before this one are in quarantine already."""


def judge(rows: pa.Table, by: Judgement) -> pa.Table:
    """All rows of some streams with their `reason`, null if good, and the day they are kept under.

    Those that are in the tables already are left out.
    """
    rows = only(rows, _numbers(rows, "record") >= by.from_record)
    codes = reason_codes(rows, by.bounds)
    codes[duplicates(rows, codes == 0, by)] = 1 + REASONS.index(DUPLICATE)
    time_ns = np.where(codes == 0, _numbers(rows, "created_ns"), _numbers(rows, "received_ns"))
    reasons = pa.DictionaryArray.from_arrays(
        pa.array(np.maximum(codes - 1, 0), mask=codes == 0), pa.array(REASONS)
    )
    judged = rows.append_column("reason", reasons.cast(pa.string())).append_column(
        "day", pa.array((time_ns // NS_PER_DAY).astype(np.int32)).cast(pa.date32())
    )
    is_done = (codes != 0) & (_numbers(rows, "record") < by.quarantined)
    return only(judged, ~is_done)


def reason_codes(rows: pa.Table, bounds: TimeBounds) -> NDArray[np.int8]:
    """Return 0 for a good row, else one more than the index of its reason; checks each row
    alone."""
    value = rows.column("value").fill_null(0.0).to_numpy()  # Null: a type that is no number.
    is_known = rows.column("variable").is_valid().to_numpy()
    return np.select(
        [~is_known, ~is_plausible_time(rows, bounds), ~np.isfinite(value)],
        [np.int8(1), np.int8(2), np.int8(3)],
        np.int8(0),
    ).astype(np.int8)


def is_plausible_time(rows: pa.Table, bounds: TimeBounds) -> NDArray[np.bool_]:
    """The law of `model/plausibility.py`, for many rows."""
    created_ns, received_ns = _numbers(rows, "created_ns"), _numbers(rows, "received_ns")
    is_replayed = _numbers(rows, "flags") & int(EventFlag.REPLAYED) != 0
    is_ahead = created_ns > received_ns + bounds.ahead_ns_max
    is_behind = created_ns < received_ns - bounds.behind_ns_max
    plausible: NDArray[np.bool_] = ~is_ahead & (is_replayed | ~is_behind)
    return plausible


def duplicates(rows: pa.Table, is_good: NDArray[np.bool_], by: Judgement) -> NDArray[np.int64]:
    """Return the indices of good rows that repeat an earlier record, of this batch or of the
    archive."""
    places = np.flatnonzero(is_good)
    if not len(places):
        return places
    known = known_rows(by.known, by.from_record, np.unique(_numbers(rows, "stream")[places]))
    columns = [
        np.concatenate([known[name], _numbers(rows, name)[places]])
        for name in ("record", *reversed(IDENTITY))
    ]
    order = np.lexsort(columns)
    is_same = np.ones(len(order) - 1, dtype=bool)
    for column in columns[1:]:
        in_order = column[order]
        is_same &= in_order[1:] == in_order[:-1]
    repeated = order[1:][is_same]
    first_fresh = len(known["record"])
    return places[repeated[repeated >= first_fresh] - first_fresh]


def known_rows(
    known: FileRows, before_record: int, streams: NDArray[np.int64]
) -> dict[str, NDArray[np.int64]]:
    """Identity and record of what was archived of some streams before a record."""
    names = [*IDENTITY, "record"]
    found: list[dict[str, NDArray[np.int64]]] = [{name: np.empty(0, np.int64) for name in names}]
    for rows in known.read(names, lambda numbers: np.isin(numbers, streams)):
        wanted = _numbers(rows, "record") < before_record
        found.append({name: _numbers(rows, name)[wanted] for name in names})
    return {name: np.concatenate([part[name] for part in found]) for name in names}


def _numbers(rows: pa.Table, name: str) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = rows.column(name).to_numpy()
    return numbers
