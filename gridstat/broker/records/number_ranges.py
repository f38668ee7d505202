"""Numbers after a raised term: a broker whose journal is lost does not know which ones are in use.

Routers that are cut off forward by the orders of the lost journal for a while, and end-points and
edges hold requests and notices that name its contracts. So each raised term has ranges of its own,
above those of all terms before. Only a root counts identifiers of variables, or a cloud without a
parent; the others lease them.
"""

from __future__ import annotations

from typing import Final

from gridstat.broker.records.operations import NumbersReached

SUBSCRIPTION_SHIFT: Final = 30
SUBSCRIPTION_TERMS: Final = 1 << 16
VARIABLE_SHIFT: Final = 20
VARIABLE_TERMS: Final = 1 << 10
"""Sizes of the ranges, and how many there are: path identifiers stay below 2**62, and identifiers
of variables below a fourth of all."""


def last_of_lost_terms(term: int) -> int:
    """Return the highest identifier of a variable below the range of a raised term."""
    return term % VARIABLE_TERMS << VARIABLE_SHIFT


def numbers_from(term: int, *, has_parent: bool) -> NumbersReached:
    """Return the numbers below the ranges of a raised term."""
    variable_id = 0 if has_parent else last_of_lost_terms(term)
    return NumbersReached(
        variable_id=variable_id,
        subscription_id=term % SUBSCRIPTION_TERMS << SUBSCRIPTION_SHIFT,
        variable_id_first=variable_id + 1 if variable_id else 0,
    )
