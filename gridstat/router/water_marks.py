"""Back-pressure of paced channels, by two marks so that it does not flutter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.router.agent_events import WaterMarkCrossed

if TYPE_CHECKING:
    from collections.abc import Mapping

HIGH_PERCENT: Final = 75
LOW_PERCENT: Final = 25


def promised_events(counters: Mapping[str, int]) -> int:
    """Return the queued events without replay, which fills any free capacity and causes no back-
    pressure."""
    return counters["queued"] - counters.get("replay_queued", 0)


class WaterMarks:
    """Back-pressure of each channel: on from its high mark until its queue is back at its low
    one."""

    def __init__(self) -> None:
        self._queue_events_max: dict[int, int] = {}
        self._is_on: set[int] = set()

    def watch(self, channel_id: int, *, queue_events_max: int) -> None:
        self._queue_events_max[channel_id] = queue_events_max

    def forget(self, channel_id: int) -> None:
        self._queue_events_max.pop(channel_id, None)
        self._is_on.discard(channel_id)

    def channel_ids(self) -> tuple[int, ...]:
        """Return the watched channels."""
        return tuple(sorted(self._queue_events_max))

    def judge(self, queued: Mapping[int, int]) -> list[WaterMarkCrossed]:
        """Return the changes, given the number of events that each channel queues."""
        news: list[WaterMarkCrossed] = []
        for channel_id in sorted(self._queue_events_max.keys() & queued.keys()):
            events, most = queued[channel_id], self._queue_events_max[channel_id]
            was_on = channel_id in self._is_on
            mark = LOW_PERCENT if was_on else HIGH_PERCENT
            # A queue of one event is full at 1 and empty at 0, and either must count.
            is_on = events * 100 > mark * most if was_on else events * 100 >= mark * most
            if is_on == was_on:
                continue
            (self._is_on.add if is_on else self._is_on.discard)(channel_id)
            news.append(WaterMarkCrossed(channel_id, is_on, events))
        return news
