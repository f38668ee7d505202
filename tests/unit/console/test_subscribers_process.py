"""The tallies of the simulated subscribers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from gridstat.console.processes.subscribers import Subscribers, Tally
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable

NS_PER_S = 1_000_000_000


@dataclass
class Contract:
    granted: dict[int, Any] = field(default_factory=dict)


@dataclass
class Taken:
    """A subscription, as far as a tally looks at it."""

    name: str
    variable: StatusVariable | None
    created_ns: list[int]
    contract: Contract = field(default_factory=Contract)

    def read(self) -> dict[str, Any]:
        events, self.created_ns = self.created_ns, []
        return {"created_ns": np.array(events, np.int64)}


def tally(period: Period | None, created_ns: list[int]) -> Tally:
    variable = StatusVariable(
        variable_id=VariableId(1),
        name="c1/a/b",
        value_type=BuiltinType.FLOAT64,
        period=period,
        is_alert=period is None,
        interval_ns_min=0 if period else NS_PER_S,
    )
    return Tally("c1/desk", cast("Any", Taken("c1/a/b", variable, created_ns)))


def test_an_alert_that_a_pattern_caught_is_no_part_of_the_account_of_slots() -> None:
    """An alarm of the pipeline ended the process of all subscribers with an assertion."""
    process = Subscribers.__new__(Subscribers)
    process._tallies = [tally(None, [5]), tally(Period(1, 10), [NS_PER_S, NS_PER_S, 2 * NS_PER_S])]
    (told,) = process.handle("report")["subscriptions"]
    assert (told["delivered"], told["duplicates"]) == (2, 1)
