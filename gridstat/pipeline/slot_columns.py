"""The laws of slots as columns: `model/rate_law.py` and `model/due_slots.py`, exact in integers.

The usual periods stay within 64 bits; where one does not, the same is reckoned in decimals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from pyspark.sql import Column

INT64_MAX: Final = 2**63 - 1
_WIDE: Final = "decimal(38,0)"


@dataclass(frozen=True, slots=True)
class SlotColumns:
    """The columns by which a row's slots are counted."""

    seconds: Column
    per_seconds: Column
    phase_ns: Column

    @property
    def whole_ns(self) -> Column:
        """So long do `per_seconds` slots take."""
        return self.seconds * F.lit(NS_PER_S)

    @property
    def is_narrow(self) -> Column:
        """Whether nothing below needs more than 64 bits; no stamp is beyond 2262."""
        doubled = 2.0 * self.whole_ns.cast("double") * (self.per_seconds.cast("double") + 1)
        slots_max = F.lit(float(INT64_MAX)) / self.whole_ns.cast("double")
        is_few = slots_max * self.per_seconds.cast("double") < float(INT64_MAX // 2)
        return (doubled < float(INT64_MAX)) & is_few


def named(prefix: str = "") -> SlotColumns:
    """The columns as records of streams and contracts name them."""
    return SlotColumns(
        F.col(f"{prefix}period_seconds"),
        F.col(f"{prefix}period_per_seconds"),
        F.col(f"{prefix}phase_ns"),
    )


def slot_of(created_ns: Column, slots: SlotColumns) -> Column:
    """The slot nearest to a stamp; the upper edge of a slot belongs to the next one."""
    since_ns = created_ns - slots.phase_ns
    wholes = floor_div(since_ns, slots.whole_ns)
    rest_ns = F.pmod(since_ns, slots.whole_ns)
    doubled = F.lit(2) * rest_ns * slots.per_seconds + slots.whole_ns
    nearest = floor_div(doubled, F.lit(2) * slots.whole_ns)
    per, whole_ns = slots.per_seconds.cast(_WIDE), slots.whole_ns.cast(_WIDE)
    wide = floor_div(F.lit(2) * since_ns.cast(_WIDE) * per + whole_ns, F.lit(2) * whole_ns)
    return F.when(slots.is_narrow, wholes * slots.per_seconds + nearest).otherwise(wide)


def first_slot_from(instant_ns: Column, slots: SlotColumns) -> Column:
    """The first slot whose instant is not before this one."""
    since_ns = instant_ns - slots.phase_ns
    wholes = floor_div(since_ns, slots.whole_ns)
    rest = ceil_div(F.pmod(since_ns, slots.whole_ns) * slots.per_seconds, slots.whole_ns)
    product = since_ns.cast(_WIDE) * slots.per_seconds.cast(_WIDE)
    wide = ceil_div(product, slots.whole_ns.cast(_WIDE))
    return F.when(slots.is_narrow, wholes * slots.per_seconds + rest).otherwise(wide)


def slot_instant_ns(slot: Column, slots: SlotColumns) -> Column:
    """A slot's instant in whole nanoseconds, rounded down."""
    wholes = floor_div(slot, slots.per_seconds)
    rest_ns = floor_div(F.pmod(slot, slots.per_seconds) * slots.whole_ns, slots.per_seconds)
    product = slot.cast(_WIDE) * slots.whole_ns.cast(_WIDE)
    wide = floor_div(product, slots.per_seconds.cast(_WIDE))
    narrow = wholes * slots.whole_ns + rest_ns
    return slots.phase_ns + F.when(slots.is_narrow, narrow).otherwise(wide)


def due_between(from_ns: Column, to_ns: Column, slots: SlotColumns, every: Column) -> Column:
    """How many slots are due from one instant up to, and without, another."""
    first, after = first_slot_from(from_ns, slots), first_slot_from(to_ns, slots)
    return F.when(to_ns <= from_ns, F.lit(0)).otherwise(
        ceil_div(after, every) - ceil_div(first, every)
    )


def floor_div(number: Column, by: Column) -> Column:
    """Whole division that rounds down, as Python does it; Spark's own rounds towards zero."""
    return F.call_function("div", number - F.pmod(number, by), by)


def ceil_div(number: Column, by: Column) -> Column:
    """Whole division that rounds up."""
    return -floor_div(-number, by)
