"""Search time of each identity: what it has used, and when it has time left again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

SEARCH_FREE_NS: Final = 1_000_000
"""Search time of one request that is not charged: most need no more."""
SEARCH_PARTS: Final = 20
"""Parts of the broker's time of which one identity may use one for searches beyond that."""
SEARCH_BURST_NS: Final = 200_000_000
"""Search time of an identity that may be used at once after a pause."""
KNOWN_MAX: Final = 65_536
"""Identities whose time is remembered; a forgotten one has all of its time again."""


class SearchTimes:
    """Search time of each identity, as the time at which it has all of it again.

    An identity has one in `parts` of the time, and `burst_ns` at once.
    """

    def __init__(self, parts: int = SEARCH_PARTS, burst_ns: int = SEARCH_BURST_NS) -> None:
        self._parts = parts
        self._burst_ns = burst_ns
        self._full_ns: OrderedDict[str, int] = OrderedDict()
        self.total_ns = 0

    def ready_ns(self, who: str, now_ns: int) -> int:
        """Return when the identity has search time left."""
        full_ns = self._full_ns.get(who, now_ns)
        return max(now_ns, full_ns - self._parts * self._burst_ns)

    def use(self, who: str, took_ns: int, now_ns: int, *, is_again: bool = False) -> None:
        """Charge an identity; with `is_again` nothing is free, since this is more of a request."""
        self.total_ns += took_ns
        charged_ns = took_ns if is_again else took_ns - SEARCH_FREE_NS
        if charged_ns <= 0:
            return
        full_ns = max(self._full_ns.pop(who, now_ns), now_ns)
        self._full_ns[who] = full_ns + self._parts * charged_ns
        while len(self._full_ns) > KNOWN_MAX:
            self._full_ns.popitem(last=False)
