"""Alarm of missing data: no event for a number of due slots.

Law: after an event, silence is an alarm from half a slot after the n-th empty due instant until the
next event. A stamp may differ from its slot's middle by half a slot. The look-back covers two
silences: one that begins, and one that may have ended just before. A silence excused to its end
(no subscriber, or no event due) does not suppress the next alarm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gridstat.model.alarms.runs import LONG_AGO_NS, Finding, Series

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Silence:
    """No event for `slots` due instants, also from the start of a recording on."""

    slots: int
    clear_ns: int

    def __post_init__(self) -> None:
        assert self.slots >= 1
        assert self.clear_ns > 0

    def silence_ns(self, slot_ns: int) -> int:
        """Return the time without an event after which an alarm begins."""
        return self.slots * slot_ns + slot_ns // 2

    def look_back_ns(self, slot_ns: int) -> int:
        return self.clear_ns + 2 * self.silence_ns(slot_ns)

    def findings(
        self,
        series: Series,
        from_ns: int,
        to_ns: int,
        is_excused: Callable[[int], bool] = lambda _: False,
    ) -> list[Finding]:
        """Return the onsets of silence in (from_ns, to_ns].

        The series also contains signs of life that are no events: the start of a recording, and
        the end of every excused silence.
        """
        slot_ns = int(series.slots_ns.max(initial=0))
        if slot_ns == 0:
            return []
        start_ns = from_ns - self.look_back_ns(slot_ns)
        seen = series.between(start_ns, to_ns)
        times_ns, slots_ns = seen.times_ns, seen.slots_ns
        if series.since_ns <= start_ns:
            # Recorded earlier: silence up to the first visible event began before the look-back.
            times_ns = np.concatenate(([start_ns], times_ns))
            slots_ns = np.concatenate(([slot_ns], slots_ns))
        begins_ns = times_ns + self.slots * slots_ns + slots_ns // 2
        ends_ns = np.concatenate((times_ns[1:], [np.iinfo(np.int64).max]))
        is_long = (slots_ns > 0) & (ends_ns > begins_ns)
        begins_ns, ends_ns = begins_ns[is_long], ends_ns[is_long]
        # Checked at the last instant, which is visible for every division into intervals.
        reported_ns = [
            LONG_AGO_NS if is_excused(int(end) - 1) else int(end) for end in ends_ns[:-1]
        ]
        before_ns = np.maximum.accumulate([LONG_AGO_NS, *reported_ns])[: len(begins_ns)]
        is_new = (before_ns <= begins_ns - self.clear_ns) & (begins_ns > from_ns)
        return [
            Finding(int(onset_ns), float(self.slots), float(self.slots))
            for onset_ns in begins_ns[is_new & (begins_ns <= to_ns)]
            if not is_excused(int(onset_ns))
        ]
