"""The newest event of a variable, kept whole; `newest.c` is the fast copy of this file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gridstat.core.reference_datagram import EVENT, OPTION_BYTES
from gridstat.core.reference_window import QUIET_NS

if TYPE_CHECKING:
    from gridstat.core.reference_datagram import Event


@dataclass(slots=True)
class Newest:
    """Room for one event: the newest by its stamp.

    When the one at hand is older than a second the next one takes its place whatever its stamp, as
    the publisher's clock may have been set back.
    """

    options_max: int
    event: Event | None = None
    kept_ns: int = 0

    def keep(self, event: Event, now_ns: int) -> bool:
        """Keep the event unless the one at hand is newer; False: there is no room for it."""
        if self.event is not None:
            is_old = now_ns - self.kept_ns >= QUIET_NS
            if event.created_ns < self.event.created_ns and not is_old:
                return True
        if len(event.octets) > EVENT.size + OPTION_BYTES * self.options_max:
            return False
        self.event, self.kept_ns = event, now_ns
        return True
