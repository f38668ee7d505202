"""What is told of policed events: once a second at most, for each publication, and in totals.

`PolicedEvents` finds in the core's counts what is new; `PublisherChannels` knows whose it is.
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
_ATTACHED: Final = b"AttachedOutcome"
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""What the decoder raises for bytes that are no message: its own, bad UTF-8, deep nesting."""


@dataclass(frozen=True, slots=True)
class _Count:
    """One count of the core, as it was last told; `count_id` is new whenever it begins anew."""

    life: int
    count_id: int
    counts: Mapping[str, int]


class PolicedEvents:
    """Looks at the core's counts once a second, and tells those that have grown."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, int], _Count] = {}
        self._next_ns = 0

    def is_due(self, now_ns: int) -> bool:
        """Whether the core shall be asked; if so, not again before a second has passed."""
        if now_ns < self._next_ns:
            return False
        self._next_ns = now_ns + EVERY_NS
        return True

    def judge(
        self, policed: Mapping[tuple[int, int], tuple[int, Mapping[str, int]]], now_ns: int
    ) -> list[SourcePoliced]:
        """What has grown since the last time, by channel and variable."""
        before, self._told = self._told, {}
        news = []
        for key in sorted(policed):
            life, counts = policed[key]
            known = before.get(key)
            if known is None or known.life != life:
                known = _Count(life, now_ns, {})
            if counts != known.counts:
                news.append(SourcePoliced(*key, known.count_id, dict(counts)))
            self._told[key] = _Count(life, known.count_id, counts)
        return news


class _Attached(msgspec.Struct):
    """The part of any outcome that is asked for."""

    type: str = ""
    edge: str = ""
    up_channel_id: int = 0


class _Outcomes(msgspec.Struct):
    """The part of an answer that is asked for."""

    outcomes: list[_Attached] = []


_OUTCOMES: Final = msgspec.msgpack.Decoder(_Outcomes)


class PublisherChannels:
    """On which channel each attached end-point sends, as the broker's answers to it say."""

    def __init__(self, router: str) -> None:
        self._router = router
        self._channels: dict[str, int] = {}
        self._endpoints: dict[int, str] = {}

    def learn(self, endpoint: str, body: bytes) -> None:
        """An answer passes: does it tell the end-point where to send?"""
        if _ATTACHED not in body:
            return
        try:
            outcomes = _OUTCOMES.decode(body).outcomes
        except _UNREADABLE:
            return
        for outcome in outcomes:
            if outcome.type == "AttachedOutcome" and outcome.edge == self._router:
                self.forget(endpoint)
                self._channels[endpoint] = outcome.up_channel_id
                self._endpoints[outcome.up_channel_id] = endpoint

    def forget(self, endpoint: str) -> None:
        """The end-point is gone."""
        channel_id = self._channels.pop(endpoint, None)
        if channel_id is not None and self._endpoints.get(channel_id) == endpoint:
            del self._endpoints[channel_id]

    def endpoint_on(self, channel_id: int) -> str | None:
        """Who sends on a channel, if anybody does."""
        return self._endpoints.get(channel_id)
