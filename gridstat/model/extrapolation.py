"""Extrapolation: a computed value in place of a missing one (S0 §2.2.2, A.29).

Times are nanoseconds and values floats, oldest first; the requested instant lies after them. Each
function declares how many past values it uses, and works with fewer at the start. A function may
fail (a pole, a number out of range): it raises `ArithmeticError`, and no value is produced.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum, isfinite
from typing import TYPE_CHECKING, Final, Protocol

from gridstat.model.call_options import checked_calls
from gridstat.model.errors import LayoutError
from gridstat.model.exact_numbers import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

POINTS_MAX: Final = 64
ORDER_MAX: Final = 8
"""Maximum order: higher orders oscillate too far after the last point to be trusted."""


class Extrapolation(Protocol):
    """A method to estimate the next value; users may write their own."""

    @property
    def points(self) -> int:
        """Number of past values to use, 1 to 64."""

    def extrapolate(self, times_ns: Sequence[int], values: Sequence[float], at_ns: int) -> float:
        """Return the value at `at_ns` from at least one past value; may raise `ArithmeticError`."""


@checked_calls()
@dataclass(frozen=True, slots=True)
class Average:
    """The mean of the past values."""

    points: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", check_points(self.points))

    def extrapolate(self, _times_ns: Sequence[int], values: Sequence[float], _at_ns: int) -> float:
        return fsum(values) / len(values)


@checked_calls()
@dataclass(frozen=True, slots=True)
class Polynomial:
    """The polynomial of an order that fits the past values best by least squares.

    With `order + 1` points it runs through them; with more it smooths what is noise.
    """

    order: int = 1
    points: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", check_points(self.points))
        object.__setattr__(self, "order", _check_order(self.order, self.points))

    def extrapolate(self, times_ns: Sequence[int], values: Sequence[float], at_ns: int) -> float:
        return fitted(self.order, times_ns, values, at_ns)


@checked_calls()
@dataclass(frozen=True, slots=True)
class PolynomialAverage:
    """The mean over polynomials of several orders."""

    orders: tuple[int, ...] = (1, 2, 3)
    points: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", check_points(self.points))
        if not isinstance(self.orders, tuple | list):
            raise LayoutError(
                f"orders is {self.orders!r}, and must be a tuple", hint="orders=(1, 2, 3)"
            )
        if not self.orders:
            raise LayoutError("an average over polynomials needs at least one order")
        orders = tuple(_check_order(order, self.points) for order in self.orders)
        object.__setattr__(self, "orders", orders)

    def extrapolate(self, times_ns: Sequence[int], values: Sequence[float], at_ns: int) -> float:
        guesses = [fitted(order, times_ns, values, at_ns) for order in self.orders]
        return fsum(guesses) / len(guesses)


@checked_calls()
@dataclass(frozen=True, slots=True)
class Rational:
    """The diagonal rational function through the past values, by Bulirsch and Stoer."""

    points: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", check_points(self.points))

    def extrapolate(self, times_ns: Sequence[int], values: Sequence[float], at_ns: int) -> float:
        return bulirsch_stoer(_scaled(times_ns, at_ns), values)


@checked_calls()
@dataclass(frozen=True, slots=True)
class UserExtrapolation:
    """A function of the user's own: `UserExtrapolation(lambda times, values, at: values[-1])`."""

    function: Callable[[Sequence[int], Sequence[float], int], float]
    points: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", check_points(self.points))
        if not callable(self.function):
            raise LayoutError(
                f"function is {self.function!r}, and must be a function",
                hint="UserExtrapolation(lambda times, values, at: values[-1])",
            )

    def extrapolate(self, times_ns: Sequence[int], values: Sequence[float], at_ns: int) -> float:
        return self.function(times_ns, values, at_ns)


def guess(
    how: Extrapolation, times_ns: Sequence[int], values: Sequence[float], at_ns: int
) -> float | None:
    """Return the extrapolated value; None if `how` fails or yields no finite number."""
    wanted = how.points
    if not values:
        return None
    try:
        found = how.extrapolate(times_ns[-wanted:], values[-wanted:], at_ns)
    except ArithmeticError:
        return None
    return found if isfinite(found) else None


def fitted(order: int, times_ns: Sequence[int], values: Sequence[float], at_ns: int) -> float:
    """Return the least-squares polynomial at `at_ns`, by polynomials orthogonal over the points.

    Forsythe's recurrence needs no matrix and stays exact for stamps of 19 digits; the sums of
    powers in normal equations would not.
    """
    at = _scaled(times_ns, at_ns)
    last = [0.0] * len(at)
    this = [1.0] * len(at)
    last_here, this_here = 0.0, 1.0
    last_norm, total = 1.0, 0.0
    for degree in range(min(order, len(at) - 1) + 1):
        norm = fsum(p * p for p in this)
        if norm == 0.0:
            break  # Repeated stamps: the points determine no higher degree.
        total += this_here * fsum(p * v for p, v in zip(this, values, strict=True)) / norm
        a = fsum(x * p * p for x, p in zip(at, this, strict=True)) / norm
        b = norm / last_norm if degree else 0.0
        following = [(x - a) * p - b * q for x, p, q in zip(at, this, last, strict=True)]
        last_here, this_here = this_here, -a * this_here - b * last_here
        last, this, last_norm = this, following, norm
    return total


def bulirsch_stoer(times: Sequence[float], values: Sequence[float]) -> float:
    """Return the diagonal rational function through the points at 0 (Stoer, Bulirsch §2.2).

    A column of the tableau holds the functions through `width + 1` neighbouring points. The first
    column starts from 0, so a value of exactly 0 would stay 0 in all columns. An offset is then
    added to all values and subtracted from the result. Raise `ZeroDivisionError` at a pole.
    """
    offset = 1.0 + max(map(abs, values)) if 0.0 in values else 0.0
    column = [value + offset for value in values]
    before = [0.0] * (len(column) + 1)
    for width in range(1, len(column)):
        following = []
        for i in range(len(column) - 1):
            left, right, inner = column[i], column[i + 1], before[i + 1]
            if right in (left, inner):
                following.append(right)  # The limit of the formula below.
                continue
            ratio = times[i] / times[i + width]
            below = ratio * (1.0 - (right - left) / (right - inner)) - 1.0
            following.append(right + (right - left) / below)
        before, column = column, following
    return column[0] - offset


def check_points(points: int) -> int:
    points = whole_number("points", points)
    if not 1 <= points <= POINTS_MAX:
        raise LayoutError(f"extrapolation over {points} values, and must be over 1 to {POINTS_MAX}")
    return points


def _check_order(order: int, points: int) -> int:
    order = whole_number("order", order)
    if not 0 <= order <= ORDER_MAX or order >= points:
        raise LayoutError(
            f"a polynomial of order {order} over {points} values",
            hint=f"the order is at most {ORDER_MAX} and below the number of values",
        )
    return order


def _scaled(times_ns: Sequence[int], at_ns: int) -> list[float]:
    """Return times relative to `at_ns` in units of the whole span, so that all are near one."""
    unit = max(1, at_ns - times_ns[0])
    return [(time_ns - at_ns) / unit for time_ns in times_ns]
