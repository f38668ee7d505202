"""Events that feed the recorder of the soak; each event follows from its number in the log.

The number of an event is the number of its record, so a recorder that replaces a killed one is fed
the same events, and a table shows whether each record is correct. Only the time depends on the
recorder's run. Values are sometimes too high, one variable becomes silent; some events are late,
some are duplicates, some are invalid.
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
    Texts: TypeAlias = NDArray[np.str_]

STEP_NS: Final = 5_000_000
STREAMS: Final = 8
"""Number of streams; they take turns, so each has 25 events a second."""
PERIOD: Final = Period(1, 25)
FALLS_SILENT, COMES_LATE = 6, 7
"""Purpose of a variable by its number modulo `STREAMS`; the lower ones are sometimes too high."""
SPARE_ID, UNKNOWN_ID = 20, 99
"""Identifiers of events in place of silent ones, and of events that were never announced."""

COPIES, BEHIND, FAR_BEHIND, NOT_FINITE, AHEAD, UNKNOWN = 50, 61, 13, 97, 89, 101
"""One in so many events; far behind are only events of one variable."""
# The log alone determines which alarms begin only if all events are there when their time is
# final, 2 s after it. So events of variables with alarms are late by less.
BEHIND_NS: Final = 902_500_000
FAR_BEHIND_NS: Final = 5_002_500_000
AHEAD_NS: Final = 3_600 * NS_PER_S
SILENT_EVERY, SILENT_FOR = 3_200, 600
HIGH_EVERY, HIGH_FOR, HIGH_SHIFT = 250, 15, 40
"""Counts of events of one variable; the high period of the next variable is so much later."""
SEQUENCES: Final = 1 << 16
REASONS: Final = ("unknown_stream", "implausible_time", "not_finite", "duplicate")
"""Reasons for quarantine, in the order of their checks."""


@dataclass(frozen=True, slots=True)
class RecorderRun:
    """One run of a recorder: the number and the time of the first event fed to it."""

    first: int
    began_ns: int

    def due(self, now_ns: int) -> int:
        """Return the number of the next event that is not due yet."""
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


def samples(run: RecorderRun, first: int, count: int, now_ns: int) -> Samples:
    """Return the events with these numbers, as a receiver returns them."""
    number = np.arange(first, first + count)
    origin = origins(number)
    origin = np.where(origin < run.first, number, origin)  # Time of an earlier run: unknown.
    found = np.zeros(count, SAMPLE)
    found["created_ns"] = _created_ns(run, origin)
    found["received_ns"] = np.maximum(now_ns, run.began_ns + (number - run.first) * STEP_NS)
    found["variable_id"] = _variable_ids(origin)
    found["sequence"] = origin % SEQUENCES
    found["value"] = _values(origin).view(np.int64)
    return found


def origins(number: Numbers) -> Numbers:
    """Return the number of the event that each event copies, its own number if it is no copy.

    A copy repeats an event of a fifth of a second or two before, if the same run was fed with it.
    """
    back = 37 + 400 * (number // COPIES % 2)
    return np.where(_is_each(number, COPIES) & (number >= back), number - back, number)


def reasons(number: Numbers, sequence: Numbers) -> Texts:
    """Return why each record is in quarantine: empty if it is archived, `?` if it is impossible."""
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


def _created_ns(run: RecorderRun, origin: Numbers) -> Numbers:
    ordinary_ns = run.began_ns + (origin - run.first) * STEP_NS
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
    position = (origin // STREAMS + HIGH_SHIFT * place) % HIGH_EVERY
    is_high = (place < FALLS_SILENT) & (position < HIGH_FOR) & ~_is_each(origin, BEHIND)
    value = np.where(is_high, 51.0, 50 + np.sin(origin / 5_000.0) / 10)
    return np.where(_is_each(origin, NOT_FINITE), np.nan, value)


def _is_each(number: Numbers, every: int) -> Flags:
    is_one: Flags = number % every == every - 1
    return is_one
