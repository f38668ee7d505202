"""Made-up streams for the laws of alarms, and any way to cut the time into batches."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from gridstat.model.alarms.runs import LONG_AGO_NS, Series
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gridstat.model.alarms.runs import AlarmLaw, Finding

START_NS = 1_700_000_000 * NS_PER_S


def series(
    times_ns: Sequence[int], values: Sequence[float], slot_ns: int = 0, since_ns: int = LONG_AGO_NS
) -> Series:
    return Series(
        np.array(times_ns, dtype=np.int64),
        np.array(values, dtype=np.float64),
        np.full(len(times_ns), slot_ns, dtype=np.int64),
        since_ns,
    )


def sampled(value: Callable[[float], float], *, seconds: float, rate: int = 30) -> Series:
    """A function of the seconds since the start, at so many samples a second."""
    count = int(seconds * rate)
    times_ns = [START_NS + place * NS_PER_S // rate for place in range(count)]
    values = [value((time_ns - START_NS) / NS_PER_S) for time_ns in times_ns]
    return series(times_ns, values, NS_PER_S // rate)


def found_in_batches(law: AlarmLaw, stream: Series, ends_ns: Sequence[int]) -> list[Finding]:
    """Return the findings when each batch sees no more than its look-back."""
    found: list[Finding] = []
    slot_ns = int(stream.slots_ns.max(initial=0))
    for from_ns, to_ns in itertools.pairwise(ends_ns):
        seen = stream.between(from_ns - law.look_back_ns(slot_ns), to_ns)
        found += law.findings(seen, from_ns, to_ns)
    return found


def cuts(first_ns: int, last_ns: int) -> st.SearchStrategy[list[int]]:
    """Ends of batches, from before the first event to after the last."""
    between = st.lists(st.integers(first_ns, last_ns), max_size=12)
    return between.map(lambda ends: sorted({first_ns - 1, *ends, last_ns}))
