"""The bounds of a session, and what sessions count."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from gridstat.net.command.frames import FRAME_BYTES_MAX

SESSIONS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How long a session waits, and how much it holds, before it gives up.

    A peer that says nothing for a whole `ping_interval_s` is pinged; after as many silent
    intervals as fit into `silent_after_s` the session is dead. Intervals are counted, not measured,
    so that a pause of our own process is not held against the peer.
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
    """What has happened on all sessions of one process; only ever grows, but for `sessions`.

    `refused` and `ended` count by reason: peers that were turned away, and sessions that were up.
    """

    sessions: int = 0
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
        """Flat, for reports and metrics: `refused.certificate_expired` and so on."""
        plain = {
            name: getattr(self, name)
            for name in self.__slots__
            if isinstance(getattr(self, name), int)
        }
        for group in ("refused", "ended"):
            counted: Counter[str] = getattr(self, group)
            plain |= {f"{group}.{reason}": count for reason, count in sorted(counted.items())}
        return plain
