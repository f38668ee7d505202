"""State of the reference core's incoming channels: when each last received, and gaps in its
counter.

`sources.c` is the fast version of this file. Both ports of a channel share its counter, and the
urgent port is read first, so late numbers are normal: they only are not lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gridstat.core.reference_seal import ReferenceOpening

SEEN_DATAGRAMS = 1_024
"""Range of numbers within which a duplicated datagram is distinguished from a late one."""
LATE_MAX = 1_000_000
GAP_MAX = 2**24
"""A number further back or ahead than these is of a restarted sender. A sealed one begins at
a random number of 40 bits, so that it is taken for a gap once in 2^16 times."""

_U64 = 2**64


@dataclass(slots=True)
class SourceState:
    """State of a source; `seen` holds the numbers of the last datagrams that came."""

    opened_ns: int
    heard_ns: int = 0
    datagrams: int = 0
    probes: int = 0
    lost: int = 0
    reordered: int = 0
    newest: int = 0
    seen: set[int] = field(default_factory=set)
    last: list[int] = field(default_factory=lambda: [0, 0])
    """The number that came last, by port."""
    opening: ReferenceOpening = field(default_factory=ReferenceOpening)

    def note(self, counter: int, *, port: int, is_probe: bool, now_ns: int) -> None:
        """Note one valid datagram."""
        is_first = self.datagrams == 0
        self.heard_ns = now_ns
        self.datagrams += 1
        self.probes += is_probe
        if counter == self.newest + 1:
            self.newest = counter
            self.seen.discard((counter - SEEN_DATAGRAMS) % _U64)
            self.seen.add(counter)
        else:
            self._place(counter, port, is_first=is_first)
        self.last[port] = counter

    def _place(self, counter: int, port: int, *, is_first: bool) -> None:
        ahead, behind = (counter - self.newest) % _U64, (self.newest - counter) % _U64
        if ahead == 1 or (not is_first and 0 < ahead <= GAP_MAX):
            self._advance(counter, ahead)
        elif is_first:
            self._begin(counter)
        elif behind < SEEN_DATAGRAMS:
            if counter not in self.seen:
                self._find()
            self.seen.add(counter)
        elif behind > LATE_MAX or self._has_fallen(counter, port):
            self._begin(counter)
        else:
            self._find()

    def facts(self, quiet_ns: int, since_ns: int) -> dict[str, int]:
        """Return the facts, given that all datagrams from `since_ns` to `quiet_ns` were read."""
        return {
            "heard_ns": self.heard_ns,
            "silent_ns": max(0, quiet_ns - max(self.heard_ns, self.opened_ns, since_ns)),
            "datagrams": self.datagrams,
            "lost": self.lost,
            "reordered": self.reordered,
            "probes": self.probes,
            "newest_counter": self.newest,
        }

    def _advance(self, counter: int, ahead: int) -> None:
        self.lost += ahead - 1
        oldest = self.newest - SEEN_DATAGRAMS + 1
        # Only those that leave: a walk over all that were seen would cost more than the event.
        for left in range(min(ahead, SEEN_DATAGRAMS)):
            self.seen.discard((oldest + left) % _U64)
        self.seen.add(counter)
        self.newest = counter

    def _has_fallen(self, counter: int, port: int) -> bool:
        """Return whether the counter fell back: one port nearly keeps the order, the other may be
        far ahead."""
        return SEEN_DATAGRAMS <= (self.last[port] - counter) % _U64 <= LATE_MAX

    def _begin(self, counter: int) -> None:
        """Start with the first datagram of a sender."""
        self.newest = counter
        self.seen = {counter}

    def _find(self) -> None:
        self.reordered += 1
        self.lost = max(0, self.lost - 1)


@dataclass(frozen=True, slots=True)
class Source:
    """An incoming channel; a publisher's is policed, being its events' first hop."""

    channel_id: int
    is_publisher: bool
    back_channel: int
    state: SourceState
    is_sealed: bool = False
    """True if it accepts sealed datagrams and no others."""
