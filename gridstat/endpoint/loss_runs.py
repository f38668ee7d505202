"""The worst gap of a contract: the longest run of due slots that were lost one after the other.

Of the newest hour that has one, by the slots' own times: whoever reads often enough has the worst
gap of every hour, and an old one does not hide those that come after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from gridstat.endpoint.violation import Terms

HOUR_NS: Final = 3_600 * NS_PER_S


class LossRuns:
    """`slots_max` slots were lost in a row, up to the slot due at `ended_ns`, which was not one of
    them or is not known yet."""

    __slots__ = ("_after", "_every", "_ns", "_per", "_phase_ns", "_slots", "ended_ns", "slots_max")

    def __init__(self) -> None:
        self.slots_max = 0
        self.ended_ns = 0
        self._after: int | None = None
        self._slots = 0

    def renew(self, terms: Terms) -> None:
        """Slots are those of these terms from now on; no run goes on across the change."""
        self._ns, self._per = terms.period.seconds * NS_PER_S, terms.period.per_seconds
        self._phase_ns, self._every = terms.phase_ns, terms.every
        self._after = None

    def add(self, first: int, count: int = 1) -> None:
        """So many due slots in a row are lost; they come in their order."""
        self._slots = self._slots + count if first == self._after else count
        self._after = first + count * self._every
        ended_ns = self._phase_ns + self._after * self._ns // self._per
        if self._slots >= self.slots_max or ended_ns // HOUR_NS > self.ended_ns // HOUR_NS:
            self.slots_max, self.ended_ns = self._slots, ended_ns
