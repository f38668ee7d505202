"""What the recorder of the soak is fed with: events that follow from their number in the log.

The number of an event is that of its record, so whoever comes after a killed recorder feeds what
the one before would have fed, and from a table one can tell whether each record is what it has to
be. Only the time is that of the life in which it came. Values are too high now and then, one
variable falls silent; some events come late, some twice, some are nonsense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from gridstat.core.samples import SAMPLE
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.model.status import BuiltinType, StatusVariable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gridstat.core.samples import Samples

    Numbers: TypeAlias = NDArray[np.int64]
    Flags: TypeAlias = NDArray[np.bool_]
    Words: TypeAlias = NDArray[np.str_]

STEP_NS: Final = 5_000_000
STREAMS: Final = 8
"""They take turns, so each has 25 events a second."""
PERIOD: Final = Period(1, 25)
FALLS_SILENT, COMES_LATE = 6, 7
"""By its number modulo `STREAMS`, what the variable is for; those before are too high at times."""
SPARE_ID, UNKNOWN_ID = 20, 99
"""Of events in the place of those that are silent, and of those that nobody has announced."""

COPIES, BEHIND, FAR_BEHIND, NOT_FINITE, AHEAD, UNKNOWN = 50, 61, 13, 97, 89, 101
"""One in so many events; far behind are only those of one variable."""
# Which alarms begin follows from the log alone only if all events are there when their time is
# final, 2 s after it. So those of variables with alarms are late by less.
BEHIND_NS: Final = 902_500_000
FAR_BEHIND_NS: Final = 5_002_500_000
AHEAD_NS: Final = 3_600 * NS_PER_S
SILENT_EVERY, SILENT_FOR = 3_200, 600
HIGH_EVERY, HIGH_FOR, HIGH_SHIFT = 250, 15, 40
"""In events of one variable; the next one's turn is so much later."""
SEQUENCES: Final = 1 << 16
REASONS: Final = ("unknown_stream", "implausible_time", "not_finite", "duplicate")
"""Why a record goes to quarantine, in the order in which they are looked for."""


@dataclass(frozen=True, slots=True)
class Life:
    """Of a recorder: the number of the first event fed to it, and when that was."""

    first: int
    began_ns: int

    def due(self, now_ns: int) -> int:
        """The number of the next event that is not due yet."""
        return self.first + max(0, now_ns - self.began_ns) // STEP_NS


def variables() -> list[StatusVariable]:
    names = [f"lab/soak/pmu-{place}/frequency" for place in range(COMES_LATE)]
    names.append(f"lab/soak/pmu-{COMES_LATE}/voltage")
    found = [
        StatusVariable(VariableId(place + 1), name, BuiltinType.FLOAT64, PERIOD)
        for place, name in enumerate(names)
    ]
    spare = VariableId(SPARE_ID)
    return [*found, StatusVariable(spare, "lab/soak/spare/count", BuiltinType.FLOAT64, None)]


def samples(life: Life, first: int, count: int, now_ns: int) -> Samples:
    """The events with these numbers, as a receiver hands them over."""
    number = np.arange(first, first + count)
    origin = origins(number)
    origin = np.where(origin < life.first, number, origin)  # Of another life: its time is unknown.
    found = np.zeros(count, SAMPLE)
    found["created_ns"] = _created_ns(life, origin)
    found["received_ns"] = np.maximum(now_ns, life.began_ns + (number - life.first) * STEP_NS)
    found["variable_id"] = _variable_ids(origin)
    found["sequence"] = origin % SEQUENCES
    found["value"] = _values(origin).view(np.int64)
    return found


def origins(number: Numbers) -> Numbers:
    """The event of which this one is a copy: itself, or one of a fifth of a second or two before,
    if that was fed in the same life."""
    back = 37 + 400 * (number // COPIES % 2)
    return np.where(_is_each(number, COPIES) & (number >= back), number - back, number)


def reasons(number: Numbers, sequence: Numbers) -> Words:
    """Why these records are in quarantine, empty if they are archived; `?` if none is like that."""
    copied = origins(number)
    is_copy = (copied != number) & (sequence == copied % SEQUENCES)
    origin = np.where(is_copy, copied, number)
    return np.select(
        [
            sequence != origin % SEQUENCES,
            _is_each(origin, UNKNOWN),
            _is_each(origin, AHEAD),
            _is_each(origin, NOT_FINITE),
            is_copy,
        ],
        ["?", *REASONS],
        "",
    )


def _created_ns(life: Life, origin: Numbers) -> Numbers:
    ordinary_ns = life.began_ns + (origin - life.first) * STEP_NS
    comes_late = origin % STREAMS == COMES_LATE
    late_ns = np.where(
        comes_late & _is_each(origin // STREAMS, FAR_BEHIND),
        FAR_BEHIND_NS,
        np.where(_is_each(origin, BEHIND), BEHIND_NS, 0),
    )
    return ordinary_ns + np.where(_is_each(origin, AHEAD), AHEAD_NS, -late_ns)


def _variable_ids(origin: Numbers) -> Numbers:
    place = origin % STREAMS
    is_silent = (place == FALLS_SILENT) & (origin % SILENT_EVERY < SILENT_FOR)
    return np.where(_is_each(origin, UNKNOWN), UNKNOWN_ID, np.where(is_silent, SPARE_ID, place + 1))


def _values(origin: Numbers) -> NDArray[np.float64]:
    place = origin % STREAMS
    turn = (origin // STREAMS + HIGH_SHIFT * place) % HIGH_EVERY
    is_high = (place < FALLS_SILENT) & (turn < HIGH_FOR) & ~_is_each(origin, BEHIND)
    value = np.where(is_high, 51.0, 50 + np.sin(origin / 5_000.0) / 10)
    return np.where(_is_each(origin, NOT_FINITE), np.nan, value)


def _is_each(number: Numbers, every: int) -> Flags:
    is_one: Flags = number % every == every - 1
    return is_one
