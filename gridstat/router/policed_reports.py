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
UNSENT_OF_CHANNEL_MAX: Final = 1_024
UNSENT_MAX: Final = 8_192
"""Bounds of the reports that wait for one publisher, and for all."""
SENT_MAX: Final = 8_192
"""Bound of the sent reports that are remembered for all publishers."""
SENT_AGAIN_NS: Final = 10 * NS_PER_S
"""Age up to which a report is sent again after the loss of its session: a session ends a few
seconds after the wire was cut, and what was sent meanwhile is lost."""
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

    `_unsent` holds, by channel and variable, the newest report to a publisher that has no session
    or is not known yet, and when it was made; no channel in it is empty. A report has totals, so
    it replaces the ones before it. `_sent` has the newest report that was sent by publisher,
    channel and variable, with its time, in the order of sending; no publisher in it is empty.
    """

    def __init__(self, router: str) -> None:
        self._router = router
        self._channels: dict[str, int] = {}
        self._endpoints: dict[int, str] = {}
        self._unsent: dict[int, dict[int, tuple[SourcePoliced, int]]] = {}
        self._unsent_count = 0
        self._sent: dict[str, dict[tuple[int, int], tuple[int, SourcePoliced]]] = {}
        self._sent_count = 0
        self.reports_dropped = 0
        self.reports_forgotten = 0
        """Sent reports that are not sent again if they were lost with their session."""

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
        """Forget an end-point; the reports that wait for it are dropped."""
        self.reports_dropped += len(self.take_unsent(endpoint))
        self._take_sent(endpoint)
        channel_id = self._channels.pop(endpoint, None)
        if channel_id is not None and self._endpoints.get(channel_id) == endpoint:
            del self._endpoints[channel_id]

    def note_sent(self, endpoint: str, report: SourcePoliced, now_ns: int) -> None:
        """Remember a report for as long as its session may turn out to be lost.

        Beyond a bound the oldest of its publisher are forgotten, or of the publisher with the most.
        """
        sent = self._sent.setdefault(endpoint, {})
        key = report.channel_id, report.variable_id
        if sent.pop(key, None) is None:
            self._sent_count += 1
        sent[key] = now_ns, report
        self._forget_old(endpoint, now_ns)
        if len(sent) > UNSENT_OF_CHANNEL_MAX:
            self._forget_sent(endpoint, 1)
        if self._sent_count > SENT_MAX:
            for each in tuple(self._sent):
                self._forget_old(each, now_ns)
        if self._sent_count > SENT_MAX:
            most = max(self._sent, key=lambda each: len(self._sent[each]))
            # Half of them, so that the publisher with the most is not looked for at every report.
            self._forget_sent(most, (len(self._sent[most]) + 1) // 2)

    def _forget_old(self, endpoint: str, now_ns: int) -> None:
        """Forget the sent reports of a publisher that are too old to be sent again."""
        sent = self._sent[endpoint]
        while sent and next(iter(sent.values()))[0] < now_ns - SENT_AGAIN_NS:
            del sent[next(iter(sent))]
            self._sent_count -= 1
        if not sent:
            del self._sent[endpoint]

    def _forget_sent(self, endpoint: str, count: int) -> None:
        """Forget the oldest sent reports of a publisher, which may have been lost."""
        sent = self._sent[endpoint]
        for key in tuple(sent)[:count]:
            del sent[key]
        if not sent:
            del self._sent[endpoint]
        self._sent_count -= count
        self.reports_forgotten += count

    def _take_sent(self, endpoint: str) -> dict[tuple[int, int], tuple[int, SourcePoliced]]:
        sent = self._sent.pop(endpoint, {})
        self._sent_count -= len(sent)
        return sent

    def keep_sent(self, endpoint: str, now_ns: int) -> None:
        """Keep the newest reports that were sent in a session that is lost now.

        A publisher that has got one of them hears the same total again, which changes nothing.
        """
        for sent_ns, report in self._take_sent(endpoint).values():
            if sent_ns >= now_ns - SENT_AGAIN_NS:
                self.keep_unsent(report, now_ns)

    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def keep_unsent(self, report: SourcePoliced, now_ns: int) -> None:
        """Keep a report until its publisher has a session.

        Beyond a bound the oldest of its channel is dropped, or of the channel with the most: a
        publisher with few reports loses none to one with many.
        """
        of_channel = self._unsent.setdefault(report.channel_id, {})
        if of_channel.pop(report.variable_id, None) is None:
            self._unsent_count += 1
        of_channel[report.variable_id] = report, now_ns
        if len(of_channel) > UNSENT_OF_CHANNEL_MAX:
            self._drop_oldest(report.channel_id)
        elif self._unsent_count > UNSENT_MAX:
            self._drop_oldest(max(self._unsent, key=lambda each: len(self._unsent[each])))

    def take_unsent(self, endpoint: str) -> list[SourcePoliced]:
        """Remove and return the reports that wait for an end-point."""
        channel_id = self._channels.get(endpoint)
        if channel_id is None:
            return []
        taken = self._unsent.pop(channel_id, {})
        self._unsent_count -= len(taken)
        return [report for report, _ in taken.values()]

    def expire(self, since_ns: int) -> None:
        """Drop all reports made up to this time."""
        for channel_id in tuple(self._unsent):
            of_channel = self._unsent[channel_id]
            old = sum(made_ns <= since_ns for _, made_ns in of_channel.values())
            for _ in range(old):
                self._drop_oldest(channel_id)

    def _drop_oldest(self, channel_id: int) -> None:
        of_channel = self._unsent[channel_id]
        del of_channel[next(iter(of_channel))]
        if not of_channel:
            del self._unsent[channel_id]
        self._unsent_count -= 1
        self.reports_dropped += 1

    def endpoint_on(self, channel_id: int) -> str | None:
        """Return the end-point that sends on a channel, or None."""
        return self._endpoints.get(channel_id)
