"""The laws of slots as columns: `model/rate_law.py` and `model/due_slots.py`, exact in integers.

All of it stays within 64 bits if a period is a nanosecond or more and its `seconds * (2 *
per_seconds + 1)` at most 9,223,372,036; for odd ones that are not, the answer is null, not wrong.
Expressions are kept small on purpose: what is written twice is compiled and reckoned twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from pyspark.sql import Column

NARROW_MAX: Final = (2**63 - 1) // NS_PER_S


@dataclass(frozen=True, slots=True)
class SlotColumns:
    """The columns by which a row's slots are counted."""

    seconds: Column
    slots: Column
    phase_ns: Column

    @property
    def whole_ns(self) -> Column:
        """Nanoseconds that `per_seconds` slots take."""
        return self.seconds * F.lit(NS_PER_S)

    @property
    def per_seconds(self) -> Column:
        """Null where the law would need more than 64 bits."""
        bound = F.least(whole_div(F.lit(NARROW_MAX), self.seconds), F.lit(2) * self.whole_ns)
        return F.when(self.slots * F.lit(2) + F.lit(1) <= bound, self.slots)


def named(prefix: str = "") -> SlotColumns:
    """The columns as records of streams and contracts name them."""
    return SlotColumns(
        F.col(f"{prefix}period_seconds"),
        F.col(f"{prefix}period_per_seconds"),
        F.col(f"{prefix}phase_ns"),
    )


def slot_of(created_ns: Column, slots: SlotColumns) -> Column:
    """The slot nearest to a stamp; the upper edge of a slot belongs to the next one."""
    since_ns, per_seconds = created_ns - slots.phase_ns, slots.per_seconds
    rest_ns = F.pmod(since_ns, slots.whole_ns)
    wholes = whole_div(since_ns - rest_ns, slots.whole_ns)
    doubled = F.lit(2) * rest_ns * per_seconds + slots.whole_ns
    return wholes * per_seconds + whole_div(doubled, F.lit(2) * slots.whole_ns)


def first_slot_from(instant_ns: Column, slots: SlotColumns) -> Column:
    """The first slot whose instant is not before this one."""
    since_ns, per_seconds = instant_ns - slots.phase_ns, slots.per_seconds
    rest_ns = F.pmod(since_ns, slots.whole_ns)
    wholes = whole_div(since_ns - rest_ns, slots.whole_ns)
    up_ns = rest_ns * per_seconds + slots.whole_ns - F.lit(1)
    return wholes * per_seconds + whole_div(up_ns, slots.whole_ns)


def slot_instant_ns(slot: Column, slots: SlotColumns) -> Column:
    """A slot's instant in whole nanoseconds, rounded down."""
    per_seconds = slots.per_seconds
    rest = F.pmod(slot, per_seconds)
    wholes = whole_div(slot - rest, per_seconds)
    rest_ns = whole_div(rest * slots.whole_ns, per_seconds)
    return slots.phase_ns + wholes * slots.whole_ns + rest_ns


def due_from(slot: Column, every: Column) -> Column:
    """The first due slot that is not before this one."""
    return slot + F.pmod(-slot, every)


def due_between(from_ns: Column, to_ns: Column, slots: SlotColumns, every: Column) -> Column:
    """Count the slots that are due from one instant up to, and without, another."""
    first = due_from(first_slot_from(from_ns, slots), every)
    after = due_from(first_slot_from(to_ns, slots), every)
    return F.when(to_ns > from_ns, whole_div(after - first, every)).otherwise(F.lit(0))


def whole_div(number: Column, by: Column) -> Column:
    """Whole division, towards zero; of what is not negative, or has no rest."""
    return F.call_function("div", number, by)
