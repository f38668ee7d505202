"""Timeouts and bounds of a session, and the counters of all sessions of a process."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from gridstat.net.command.frames import FRAME_BYTES_MAX

SESSIONS_MAX: Final = 10_000
UNAUTHENTICATED_BYTES_MAX: Final = 8_192
"""Bytes that a server reads from a peer before the peer's certificate is checked.

A handshake of ours takes about 2,000 bytes; a chain of several certificates fits too.
"""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Timeouts and buffer bounds of a session.

    A peer that sends nothing for a whole `ping_interval_s` is pinged; after as many silent
    intervals as fit into `silent_after_s` the session ends. Intervals are counted, not measured, so
    that a pause of our own process is not held against the peer.
    """

    ping_interval_s: float = 1.0
    silent_after_s: float = 3.0
    hello_within_s: float = 5.0
    linger_s: float = 1.0
    write_bytes_max: int = 32 * 1024 * 1024
    frame_bytes_max: int = FRAME_BYTES_MAX

    @property
    def silent_intervals_max(self) -> int:
        return max(1, round(self.silent_after_s / self.ping_interval_s))


@dataclass(slots=True)
class SessionCounters:
    """Counters over all sessions of one process; all but `sessions` and `pending` only grow.

    `pending` counts accepted connections that are no session yet. `refused` counts refused peers
    and `ended` counts ended sessions, both by cause.
    """

    sessions: int = 0
    pending: int = 0
    accept_pauses: int = 0
    sessions_opened: int = 0
    frames_in: int = 0
    frames_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    pings: int = 0
    unknown_messages: int = 0
    unsent_messages: int = 0
    too_new_messages: int = 0
    too_large_messages: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)

    def as_facts(self) -> dict[str, int]:
        """Return all counters in a flat mapping: `refused.certificate_expired` and so on."""
        plain = {
            name: getattr(self, name)
            for name in self.__slots__
            if isinstance(getattr(self, name), int)
        }
        for group in ("refused", "ended"):
            counted: Counter[str] = getattr(self, group)
            plain |= {f"{group}.{reason}": count for reason, count in sorted(counted.items())}
        return plain
