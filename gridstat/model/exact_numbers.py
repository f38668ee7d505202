"""Numbers that a caller gives, as the exact numbers that the code works with.

Whatever is exactly a whole number is taken: 50, 50.0, Fraction(50), NumPy's integers and floats.
What is not (29.97 is no exact number of anything; True is no number) is refused in words, for the
difference would drift for days unseen. NumPy's types are known by `numbers`, without NumPy.
"""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from math import isfinite
from numbers import Integral, Rational, Real
from typing import Final

from gridstat.model.errors import LayoutError, Misuse

STAMP_NS_MAX: Final = 2**64 - 1


def whole_number(name: str, value: object) -> int:
    """The value as an `int`, if it is exactly one; raises `LayoutError` that says the name."""
    if type(value) is int:
        return value
    found = _exactly(value)
    if found is not None and found.denominator == 1:
        return found.numerator
    raise LayoutError(
        f"{name} is {value!r}, and must be a whole number",
        hint="give an int; a float or a NumPy number will do if it has no fraction",
    )


def exact_rate(name: str, value: object) -> Fraction:
    """Events a second, exactly: a positive whole number or a fraction."""
    found = _exactly(value)
    if found is not None and found > 0:
        if found.denominator == 1 or isinstance(value, Rational):
            return found
        exactly = f'Fraction("{value}") is exactly that; '
    else:
        exactly = ""
    raise Misuse(
        f"{name} is a positive whole number or a Fraction of events a second, not {value!r}",
        hint=f"{exactly}30,000 in 1,001 s, often written 29.97, is Fraction(30_000, 1_001), as an "
        "interval Period(1_001, 30_000); one in 5 s is Fraction(1, 5)",
    )


def real_number(name: str, value: object) -> float:
    """A length of time or the like, which need not be exact."""
    if not isinstance(value, bool) and isinstance(value, Real):
        return float(value)
    raise LayoutError(f"{name} is {value!r}, and must be a number", hint="give an int or a float")


def exact_stamp(value: object) -> int:
    """A time stamp: whole nanoseconds since 1970, of 64 bits without a sign."""
    found = _exactly(value)
    if found is not None and isinstance(value, Integral):
        if 0 <= found.numerator <= STAMP_NS_MAX:
            return found.numerator
        hint = "count from 1970; `time.time_ns()` is now"
    elif found is not None:
        hint = "a float has no room for nanoseconds: take `time.time_ns()`, not `time.time()`"
    elif isinstance(value, date):
        hint = "`round(at.timestamp() * 1_000_000) * 1_000` of an aware datetime"
    elif type(value).__name__ == "datetime64":
        hint = '`at.astype("datetime64[ns]").astype("int64")`'
    else:
        hint = "`time.time_ns()` is now; leave it out to have the event stamped when it is sent"
    raise LayoutError(
        f"created_ns is {value!r}, and must be a whole number of nanoseconds since 1970, "
        f"from 0 to {STAMP_NS_MAX}",
        hint=hint,
    )


def _exactly(value: object) -> Fraction | None:
    """The very number, or None for what is no finite number; True is none either."""
    if isinstance(value, bool):
        return None
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, Real):
        number = float(value)
        return Fraction(number) if isfinite(number) and number == value else None
    return None
