"""The alarm of missing data: no event for so many slots in which one was due.

Law: after an event, silence is an alarm from half a slot after the n-th due instant that stayed
empty, until the next event. Half a slot is what a stamp may be off its slot's middle. The look-back
sees two silences: one that begins, and one that may have ended just before it. One that was excused
to its end, since nobody listened or nothing was owed, is no reason not to tell the next.
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
    """Nothing for `slots` due instants; what began to be recorded and never came is silent too."""

    slots: int
    clear_ns: int

    def __post_init__(self) -> None:
        assert self.slots >= 1
        assert self.clear_ns > 0

    def silence_ns(self, slot_ns: int) -> int:
        """The time without an event after which it is an alarm."""
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
        """Signs of life that are no events (the start of a recording) stand in the series, too:
        among them every end of what is excused."""
        slot_ns = int(series.slots_ns.max(initial=0))
        if slot_ns == 0:
            return []
        start_ns = from_ns - self.look_back_ns(slot_ns)
        seen = series.between(start_ns, to_ns)
        times_ns, slots_ns = seen.times_ns, seen.slots_ns
        if series.since_ns <= start_ns:
            # Recorded before: what was silent up to the first event in sight had been silent.
            times_ns = np.concatenate(([start_ns], times_ns))
            slots_ns = np.concatenate(([slot_ns], slots_ns))
        begins_ns = times_ns + self.slots * slots_ns + slots_ns // 2
        ends_ns = np.concatenate((times_ns[1:], [np.iinfo(np.int64).max]))
        is_long = (slots_ns > 0) & (ends_ns > begins_ns)
        begins_ns, ends_ns = begins_ns[is_long], ends_ns[is_long]
        # By its last instant, which is in sight however the interval was cut.
        told_ns = [LONG_AGO_NS if is_excused(int(end) - 1) else int(end) for end in ends_ns[:-1]]
        before_ns = np.maximum.accumulate([LONG_AGO_NS, *told_ns])[: len(begins_ns)]
        is_new = (before_ns <= begins_ns - self.clear_ns) & (begins_ns > from_ns)
        return [
            Finding(int(onset_ns), float(self.slots), float(self.slots))
            for onset_ns in begins_ns[is_new & (begins_ns <= to_ns)]
            if not is_excused(int(onset_ns))
        ]
