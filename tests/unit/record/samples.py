"""Events as a receiver hands them over, and variables that they are of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gridstat.core.samples import SAMPLE
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from tests.unit.record.batches import BEGAN_NS

if TYPE_CHECKING:
    from gridstat.core.samples import Samples


THIRTY = Period(1, 30)


class Clock:
    """Clock that advances only on request."""

    def __init__(self) -> None:
        self.ns = BEGAN_NS

    def __call__(self) -> int:
        return self.ns


def variable(
    number: int = 1,
    *,
    name: str = "",
    period: Period | None = THIRTY,
    value_type: BuiltinType = BuiltinType.INT64,
) -> StatusVariable:
    return StatusVariable(VariableId(number), name or f"c1/a/v{number}", value_type, period)


def samples(first: int, count: int, *, variable_id: int = 1, at_ns: int = BEGAN_NS) -> Samples:
    """Return so many events whose value counts on from `first`, a millisecond apart."""
    found = np.zeros(count, SAMPLE)
    numbers = np.arange(first, first + count)
    found["created_ns"] = at_ns + numbers * 1_000_000
    found["received_ns"] = found["created_ns"] + 500
    found["variable_id"] = variable_id
    found["sequence"] = numbers % 65_536
    found["value"] = numbers
    return found
