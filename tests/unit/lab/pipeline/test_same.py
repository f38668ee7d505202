"""Check that the tables hold the fed records, each in the right table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lab.pipeline.feed import RecorderRun, reasons, samples
from lab.pipeline.same import unlawful

COUNT = 2_000


@pytest.fixture
def rows() -> pa.Table:
    number = np.arange(COUNT)
    sequence = samples(RecorderRun(0, 10**18), 0, COUNT, 10**18)["sequence"].astype(np.int32)
    reason = reasons(number, sequence.astype(np.int64)).tolist()
    return pa.table({"record": number, "sequence": sequence, "reason": reason})


def found_in(rows: pa.Table) -> list[str]:
    """Return the complaints about these rows, in two tables by their reason."""
    is_good = pc.equal(rows.column("reason"), "")
    return list(unlawful(rows.filter(is_good), rows.filter(pc.invert(is_good))))


def replaced(rows: pa.Table, name: str, place: int, value: object) -> pa.Table:
    column = rows.column(name).to_pylist()
    column[place] = value
    at = rows.column_names.index(name)
    return rows.set_column(at, name, pa.array(column, rows.schema.field(name).type))


def test_tables_of_what_was_fed_are_lawful(rows: pa.Table) -> None:
    assert found_in(rows) == []


def test_a_good_record_in_quarantine_is_told(rows: pa.Table) -> None:
    (complaint,) = found_in(replaced(rows, "reason", 3, "duplicate"))
    assert complaint.endswith("record 3 is duplicate instead of good")


def test_another_event_than_was_fed_is_told(rows: pa.Table) -> None:
    (complaint,) = found_in(replaced(rows, "sequence", 3, 4))
    assert complaint.endswith("record 3 is good instead of ?")


def test_a_soak_without_bad_records_has_not_shown_what_it_should(rows: pa.Table) -> None:
    is_other = pc.not_equal(rows.column("reason"), "not_finite")
    (complaint,) = found_in(rows.filter(is_other))
    assert "no record has the reason not_finite" in complaint
