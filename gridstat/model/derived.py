"""Derived values: a publisher computes them from a variable's values and sends them along (S0 M7).

A derivation declares its name and type (`declared`) and starts a computation for each publication
(`begin`), so one object may serve many. Windows count events, as in S0 §3.2.1, not time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import fsum
from typing import Final, Protocol, TypeAlias

from gridstat.model.call_options import checked_calls
from gridstat.model.errors import LayoutError
from gridstat.model.exact_numbers import whole_number
from gridstat.model.rate_law import NS_PER_S
from gridstat.model.status import BuiltinType, DerivedValue, Value, ValueType

POINTS_MAX: Final = 4_096
"""Maximum number of events in a window; an average reads all of them for each event."""

Scalar: TypeAlias = int | float | bool
Step: TypeAlias = Callable[[int, Value], Scalar]
"""Function from an event's stamp and value, in order of publication, to the derived value."""


class Derivation(Protocol):
    """A derived value of one variable; users may write their own."""

    def declared(self, value_type: ValueType) -> DerivedValue:
        """Return name and type for a variable of this type; raise `LayoutError` if it has none."""

    def begin(self) -> Step:
        """Return a new computation that has seen no event yet."""


@checked_calls()
@dataclass(frozen=True, slots=True)
class MovingAverage:
    """Mean of the last `points` values, of fewer at the start."""

    points: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", _check_points(self.points))

    def declared(self, value_type: ValueType) -> DerivedValue:
        _check_number(value_type, "an average")
        return DerivedValue(f"average_{self.points}", BuiltinType.FLOAT64)

    def begin(self) -> Step:
        window: deque[float] = deque(maxlen=self.points)

        def step(_created_ns: int, value: Value) -> float:
            window.append(_number(value))
            # Summed again, and exactly: a running sum would drift within a day.
            return fsum(window) / len(window)

        return step


@checked_calls()
@dataclass(frozen=True, slots=True)
class RateOfChange:
    """Change a second since the previous event; 0 at the first, unchanged if no time has passed."""

    def declared(self, value_type: ValueType) -> DerivedValue:
        _check_number(value_type, "a rate of change")
        return DerivedValue("rate_of_change", BuiltinType.FLOAT64)

    def begin(self) -> Step:
        before_ns: int | None = None
        before = rate = 0.0

        def step(created_ns: int, value: Value) -> float:
            nonlocal before_ns, before, rate
            now = _number(value)
            if before_ns is not None and created_ns > before_ns:
                rate = (now - before) * NS_PER_S / (created_ns - before_ns)
            if before_ns is None or created_ns > before_ns:
                before_ns, before = created_ns, now
            return rate

        return step


@checked_calls()
@dataclass(frozen=True, slots=True)
class Minimum:
    """The smallest of the last `points` values, in the variable's own type."""

    points: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", _check_points(self.points))

    def declared(self, value_type: ValueType) -> DerivedValue:
        return DerivedValue(f"minimum_{self.points}", _check_number(value_type, "a minimum"))

    def begin(self) -> Step:
        return _extreme(self.points, lambda kept, value: kept >= value)


@checked_calls()
@dataclass(frozen=True, slots=True)
class Maximum:
    """The largest of the last `points` values, in the variable's own type."""

    points: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", _check_points(self.points))

    def declared(self, value_type: ValueType) -> DerivedValue:
        return DerivedValue(f"maximum_{self.points}", _check_number(value_type, "a maximum"))

    def begin(self) -> Step:
        return _extreme(self.points, lambda kept, value: kept <= value)


def _extreme(points: int, is_beaten: Callable[[float, float], bool]) -> Step:
    # Only values that may still become the extreme are kept, best first, so a step is O(1).
    best: deque[tuple[int, float]] = deque()
    count = 0

    def step(_created_ns: int, value: Value) -> Scalar:
        nonlocal count
        number = value if isinstance(value, int) else _number(value)
        while best and is_beaten(best[-1][1], number):
            best.pop()
        best.append((count, number))
        count += 1
        if best[0][0] <= count - 1 - points:
            best.popleft()
        return best[0][1]

    return step


def _number(value: Value) -> float:
    assert isinstance(value, int | float), "`declared` admits numbers only"
    return float(value)


def _check_points(points: int) -> int:
    points = whole_number("points", points)
    if not 1 <= points <= POINTS_MAX:
        raise LayoutError(f"a window has {points} events, and must have 1 to {POINTS_MAX}")
    return points


def _check_number(value_type: ValueType, what: str) -> BuiltinType:
    if value_type is BuiltinType.INT64 or value_type is BuiltinType.FLOAT64:
        return value_type
    raise LayoutError(
        f"{what} needs int64 or float64 values",
        hint="write a derivation of your own for other types; it is given the whole value",
    )
