"""Clean: the law for many rows, and which of the same events is the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.plausibility import TimeBounds, is_plausible_time, is_plausible_value
from gridstat.pipeline.event_columns import EVENT_SCHEMA
from gridstat.pipeline.file_rows import FileRows
from gridstat.pipeline.stages.clean import (
    DUPLICATE,
    IMPLAUSIBLE_TIME,
    NOT_FINITE,
    UNKNOWN_STREAM,
    Judgement,
    judge,
)

if TYPE_CHECKING:
    from typing import Any

pytestmark = pytest.mark.spark
BOUNDS = TimeBounds(ahead_ns_max=1_000, behind_ns_max=50_000)
NOW_NS = 1_700_000_000_000_000_000
REPLAYED = 1 << 4

ROWS = st.fixed_dictionaries(
    {
        "stream": st.integers(0, 2),
        "created_ns": st.integers(-60_000, 3_000).map(lambda ns: NOW_NS + ns),
        "received_ns": st.integers(-500, 500).map(lambda ns: NOW_NS + ns),
        "sequence": st.integers(0, 2),
        "flags": st.sampled_from([0, REPLAYED, 3]),
        "value": st.floats(allow_nan=True, allow_infinity=True),
        "variable": st.sampled_from(["a", "b", None]),
    }
)


def judged(rows: list[dict[str, Any]], by: Judgement) -> list[dict[str, Any]]:
    full = [
        {"record": number, "created": 0, "word": 0, "options": None, **row}
        for number, row in enumerate(rows)
    ]
    found: list[dict[str, Any]] = judge(pa.Table.from_pylist(full, EVENT_SCHEMA), by).to_pylist()
    return found


@given(rows=st.lists(ROWS, max_size=20))
def test_rows_are_judged_as_the_law_says_and_the_first_of_the_same_is_good(
    rows: list[dict[str, Any]],
) -> None:
    seen: set[tuple[int, int, int]] = set()
    for row in judged(rows, Judgement(BOUNDS, FileRows())):
        is_replayed = bool(row["flags"] & REPLAYED)
        identity = row["stream"], row["created_ns"], row["sequence"]
        reason = None
        if row["variable"] is None:
            reason = UNKNOWN_STREAM
        elif not is_plausible_time(
            row["created_ns"], row["received_ns"], BOUNDS, is_replayed=is_replayed
        ):
            reason = IMPLAUSIBLE_TIME
        elif not is_plausible_value(row["value"]):
            reason = NOT_FINITE
        elif identity in seen:
            reason = DUPLICATE
        else:
            seen.add(identity)
        assert row["reason"] == reason


@given(rows=st.lists(ROWS, max_size=20), start=st.integers(0, 20), bad_start=st.integers(0, 20))
def test_what_is_in_the_tables_already_is_left_out(
    rows: list[dict[str, Any]], start: int, bad_start: int
) -> None:
    by = Judgement(BOUNDS, FileRows(), from_record=start, quarantined=bad_start)
    for row in judged(rows, by):
        assert row["record"] >= start
        assert row["reason"] is None or row["record"] >= bad_start
