"""The slots of a whole batch of events: the law of `model/rate_law.py`, for columns of stamps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from gridstat.model.rate_law import NS_PER_S, slot_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gridstat.model.rate_law import Period

FEW: Final = 24
"""Up to so many are faster one by one."""
INT64_MAX: Final = 2**63 - 1


def slots_of(created_ns: NDArray[np.uint64], period: Period, phase_ns: int) -> list[int]:
    """Each event's slot; in 64 bits where that is enough, and exact in any case."""
    if len(created_ns) <= FEW:
        return [slot_of(each, period, phase_ns) for each in created_ns.tolist()]
    whole_ns = period.seconds * NS_PER_S
    if (
        2 * whole_ns * period.per_seconds + whole_ns > INT64_MAX
        or int(created_ns.min()) < phase_ns
        or int(created_ns.max()) // whole_ns * period.per_seconds > INT64_MAX // 2
        or int(created_ns.max()) > INT64_MAX
    ):
        return [slot_of(each, period, phase_ns) for each in created_ns.tolist()]
    since_ns = created_ns.astype(np.int64) - phase_ns
    wholes, rest_ns = np.divmod(since_ns, whole_ns)
    nearest = (2 * rest_ns * period.per_seconds + whole_ns) // (2 * whole_ns)
    slots: list[int] = (wholes * period.per_seconds + nearest).tolist()
    return slots
