"""Liveness of incoming channels: silence by the core's own clock, and a lasting return (S0 A19).

The forwarding thread notes what it receives; this class only judges, so a slow event loop or a
stopped process never makes a neighbour look dead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.model.probe_law import INTERVALS_PER_SILENCE
from gridstat.router.agent_events import SourceReceived, SourceSilent

if TYPE_CHECKING:
    from collections.abc import Mapping

DATAGRAMS_TO_RETURN: Final = 3
"""One datagram may be a stray; three in a row, within the allowed silence and no closer together
than a probe interval from first to last, are a working channel."""
NS_PER_MS: Final = 1_000_000


@dataclass(slots=True)
class _Watched:
    """State of one watched channel; `is_up` None: nothing was reported yet.

    `datagrams_before` had come when the source was last silent, or was first judged. The first
    datagram after that came at `returned_ns` or before.
    """

    silent_ns_max: int
    interval_ns: int
    datagrams_before: int | None = None
    returned_ns: int | None = None
    is_up: bool | None = None

    def has_returned(self, datagrams: int, heard_ns: int) -> bool:
        """Return whether enough datagrams have come since the last silence, over a long enough
        time."""
        if self.datagrams_before is None:
            self.datagrams_before = datagrams
        count = datagrams - self.datagrams_before
        if count > 0 and self.returned_ns is None:
            self.returned_ns = heard_ns
        if count < DATAGRAMS_TO_RETURN or self.returned_ns is None:
            return False
        return heard_ns - self.returned_ns >= self.interval_ns


class SourceLiveness:
    """Reports each change once: silent after too long a silence, received after three datagrams."""

    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}
        self.silent_after_ns: int | None = None
        """Time after the last judgement at which a source can become silent; None: none can."""

    def watch(self, channel_id: int, *, silent_ms_max: int, probe_interval_ms: int = 0) -> None:
        """Watch the silence of a channel from now on; 0: no longer.

        Without an interval, a quarter of the allowed silence counts as one.
        """
        if silent_ms_max <= 0:
            self._watched.pop(channel_id, None)
            return
        silent_ns_max = silent_ms_max * NS_PER_MS
        interval_ns = probe_interval_ms * NS_PER_MS or silent_ns_max // INTERVALS_PER_SILENCE
        watched = self._watched.setdefault(channel_id, _Watched(silent_ns_max, interval_ns))
        watched.silent_ns_max, watched.interval_ns = silent_ns_max, interval_ns

    def forget(self, channel_id: int) -> None:
        self._watched.pop(channel_id, None)

    @property
    def silent_ns_min(self) -> int | None:
        """Shortest silence that would be reported; None if no channel is watched."""
        return min((each.silent_ns_max for each in self._watched.values()), default=None)

    def judge(self, states: Mapping[int, Mapping[str, int]]) -> list[SourceSilent | SourceReceived]:
        """Return the changes, given the core's facts of its sources."""
        news: list[SourceSilent | SourceReceived] = []
        self.silent_after_ns = None
        for channel_id in sorted(self._watched.keys() & states.keys()):
            watched, facts = self._watched[channel_id], states[channel_id]
            silent_ns, datagrams = facts["silent_ns"], facts["datagrams"]
            if silent_ns > watched.silent_ns_max:
                watched.datagrams_before, watched.returned_ns = datagrams, None
                if watched.is_up is not False:
                    watched.is_up = False
                    news.append(SourceSilent(channel_id, silent_ns // NS_PER_MS))
                continue
            if watched.is_up is not False:
                self._expect_silence(watched.silent_ns_max - silent_ns)
            if not watched.is_up and watched.has_returned(datagrams, facts["heard_ns"]):
                watched.is_up = True
                news.append(SourceReceived(channel_id))
        return news

    def _expect_silence(self, after_ns: int) -> None:
        if self.silent_after_ns is None or after_ns < self.silent_after_ns:
            self.silent_after_ns = after_ns
