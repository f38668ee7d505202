"""Reports of policed events: once a second at most, for each publication, in totals.

`PolicedEvents` finds new counts of the core; `PublisherChannels` knows their publishers, and keeps
the reports to those without a session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from gridstat.model.rate_law import NS_PER_S
from gridstat.router.agent_events import SourcePoliced

if TYPE_CHECKING:
    from collections.abc import Mapping

EVERY_NS: Final = NS_PER_S
UNSENT_MAX: Final = 1_024
"""Bound of the reports that wait for their publisher."""
_ATTACHED: Final = b"AttachedOutcome"
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""Errors of the decoder for bytes that are no message: its own, bad UTF-8, deep nesting."""


@dataclass(frozen=True, slots=True)
class _Count:
    """One count of the core, as last reported; `count_id` is new whenever the count restarts."""

    life: int
    count_id: int
    counts: Mapping[str, int]


class PolicedEvents:
    """Reads the core's counts once a second, and reports those that have grown."""

    def __init__(self) -> None:
        self._reported: dict[tuple[int, int], _Count] = {}
        self._next_ns = 0

    def is_due(self, now_ns: int) -> bool:
        """Return whether to read the core now; if so, not again before a second has passed."""
        if now_ns < self._next_ns:
            return False
        self._next_ns = now_ns + EVERY_NS
        return True

    def judge(
        self, policed: Mapping[tuple[int, int], tuple[int, Mapping[str, int]]], now_ns: int
    ) -> list[SourcePoliced]:
        """Return the counts that have grown since the last time, by channel and variable."""
        before, self._reported = self._reported, {}
        news = []
        for key in sorted(policed):
            life, counts = policed[key]
            known = before.get(key)
            if known is None or known.life != life:
                known = _Count(life, now_ns, {})
            if counts != known.counts:
                news.append(SourcePoliced(*key, known.count_id, dict(counts)))
            self._reported[key] = _Count(life, known.count_id, counts)
        return news


class _Attached(msgspec.Struct):
    """Part of any outcome that is decoded."""

    type: str = ""
    edge: str = ""
    up_channel_id: int = 0


class _Outcomes(msgspec.Struct):
    """Part of an answer that is decoded."""

    outcomes: list[_Attached] = []


_OUTCOMES: Final = msgspec.msgpack.Decoder(_Outcomes)


class PublisherChannels:
    """Channels on which the attached end-points send, as the broker's answers name them.

    `_unsent` holds the newest report of each channel and variable whose publisher has no session,
    or is not known yet. A report has totals, so it replaces the ones before it.
    """

    def __init__(self, router: str) -> None:
        self._router = router
        self._channels: dict[str, int] = {}
        self._endpoints: dict[int, str] = {}
        self._unsent: dict[tuple[int, int], SourcePoliced] = {}
        self.reports_dropped = 0

    def learn(self, endpoint: str, body: bytes) -> None:
        """Read an answer for the channel on which the end-point sends."""
        if _ATTACHED not in body:
            return
        try:
            outcomes = _OUTCOMES.decode(body).outcomes
        except _UNREADABLE:
            return
        for outcome in outcomes:
            if outcome.type == "AttachedOutcome" and outcome.edge == self._router:
                if self._channels.get(endpoint) != outcome.up_channel_id:
                    self.forget(endpoint)
                self._channels[endpoint] = outcome.up_channel_id
                self._endpoints[outcome.up_channel_id] = endpoint

    def forget(self, endpoint: str) -> None:
        """Forget an end-point, and the reports that wait for it."""
        self.take_unsent(endpoint)
        channel_id = self._channels.pop(endpoint, None)
        if channel_id is not None and self._endpoints.get(channel_id) == endpoint:
            del self._endpoints[channel_id]

    def keep_unsent(self, report: SourcePoliced) -> None:
        """Keep a report until its publisher is attached; the oldest beyond the bound is dropped."""
        key = report.channel_id, report.variable_id
        self._unsent.pop(key, None)
        self._unsent[key] = report
        if len(self._unsent) > UNSENT_MAX:
            del self._unsent[next(iter(self._unsent))]
            self.reports_dropped += 1

    def has_unsent(self, report: SourcePoliced) -> bool:
        """Return whether an earlier report of the same channel and variable is kept."""
        return (report.channel_id, report.variable_id) in self._unsent

    def take_unsent(self, endpoint: str) -> list[SourcePoliced]:
        """Remove and return the reports that wait for an end-point."""
        channel_id = self._channels.get(endpoint)
        keys = [key for key in self._unsent if key[0] == channel_id]
        return [self._unsent.pop(key) for key in keys]

    def endpoint_on(self, channel_id: int) -> str | None:
        """Return the end-point that sends on a channel, or None."""
        return self._endpoints.get(channel_id)
