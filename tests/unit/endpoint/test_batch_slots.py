"""The slots of a column of stamps against the law."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gridstat.endpoint.tally import SERIAL_EVENTS_MAX, slots_of
from gridstat.model.rate_law import Period, slot_of

PERIODS = st.builds(Period, st.integers(1, 2**32 - 1), st.integers(1, 2**32 - 1)) | st.builds(
    Period, st.integers(1, 60), st.integers(1, 100_000)
)


@given(
    stamps=st.lists(st.integers(0, 2**64 - 1) | st.integers(10**18, 2 * 10**18), min_size=1),
    period=PERIODS,
    phase_ns=st.integers(0, 10**9) | st.integers(0, 2**64 - 1),
)
def test_a_column_has_the_slots_of_its_stamps(
    stamps: list[int], period: Period, phase_ns: int
) -> None:
    many = stamps * (SERIAL_EVENTS_MAX // len(stamps) + 1)
    found = slots_of(np.array(many, np.uint64), period, phase_ns)
    assert found == [slot_of(each, period, phase_ns) for each in many]
