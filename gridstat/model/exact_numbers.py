"""Conversion of a caller's numbers to exact ones.

Every exactly whole number is accepted: 50, 50.0, Fraction(50), NumPy's integers and floats. Others
(29.97 is not exact; True is no number) are refused with a hint, since the difference would drift
unnoticed for days. NumPy's types are recognised through `numbers`, without NumPy.
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
    """Return the value as an `int` if it is exactly one; raise `LayoutError` with the name."""
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
    """Return events a second exactly: a positive whole number or a fraction."""
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
    """Return a real number, such as a duration, that need not be exact."""
    if not isinstance(value, bool) and isinstance(value, Real):
        try:
            return float(value)
        except OverflowError as error:
            raise LayoutError(f"{name} is far too large", hint="give a smaller number") from error
    raise LayoutError(f"{name} is {value!r}, and must be a number", hint="give an int or a float")


def exact_stamp(value: object) -> int:
    """Return a time stamp: whole nanoseconds since 1970, an unsigned 64-bit number."""
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
    """Return the exact number, or None if the value is no finite number; True is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, Real):
        number = float(value)
        return Fraction(number) if isfinite(number) and number == value else None
    return None
