"""Latency within which copies of a contract's events are recognised, on whatever path they come.

A core remembers a variable's last slots (`model/window_law.py`). A copy that has been under way for
longer fills no gap, so a second path that slow is no redundancy. The bound therefore goes to every
path of a contract with several, at the grant, at a replacement, and as a promise that no later load
may break. A single path has no such bound: no other copy of the contract can be ahead of its own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from gridstat.broker.capacity.allocation import latency_us_max, paths_wanted
from gridstat.broker.capacity.charges import event_rate
from gridstat.model.stamp_law import charged_delay_us
from gridstat.model.window_law import latency_us_recognised, window_slots

if TYPE_CHECKING:
    from fractions import Fraction

    from gridstat.broker.capacity.negotiation import Quality
    from gridstat.model.rate_law import Period
    from gridstat.model.status import StatusVariable


def recognised_us(variable: StatusVariable) -> int | None:
    """Return the latency within which a copy is recognised, a declared delay included; None if the
    variable is aperiodic, for then copies are known by their stamps."""
    if variable.period is None:
        return None
    window_us = _window_us(variable.period, event_rate(variable))
    return window_us + charged_delay_us(variable.delay_ms)


def promised_us(variable: StatusVariable, quality: Quality, index: int, *, beside: int = 0) -> int:
    """Return the latency that the path of this index may have; `beside` are other paths of the
    contract that are not in the quality."""
    bound_us = bounding_us(variable, paths_wanted(quality) + beside)
    asked_us = latency_us_max(quality, index)
    return asked_us if bound_us is None else min(asked_us, bound_us)


def bounding_us(variable: StatusVariable, paths: int) -> int | None:
    """Return the latency that each of so many paths of a contract may have; None: any."""
    return recognised_us(variable) if paths > 1 else None


def reason(variable: StatusVariable, takes_us: int) -> str:
    """Return the words of a refusal for a path that takes longer than copies are recognised."""
    assert variable.period is not None
    rate = event_rate(variable)
    hertz = rate.numerator if rate.denominator == 1 else f"{float(rate):.3g}"
    return (
        f"it takes {takes_us} µs, but at {hertz} events/s copies of {variable.name} are recognised "
        f"for {recognised_us(variable)} µs only, so it could not replace what another path loses"
    )


@lru_cache(maxsize=1_024)
def _window_us(period: Period, events_per_s: Fraction) -> int:
    return latency_us_recognised(window_slots(period), events_per_s)
