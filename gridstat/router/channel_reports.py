"""Reports of a router's channel states to its broker: at once, and again after each reconnection.

Changes that happened without a broker are kept here, so that a new session starts with the present
states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gridstat.net.command.router_messages import BackPressureChanged, ChannelStateChanged
from gridstat.router.agent_events import SourceReceived, SourceSilent, WaterMarkCrossed

if TYPE_CHECKING:
    from gridstat.net.command.order_table import OrderTable

ChannelNews: TypeAlias = SourceSilent | SourceReceived | WaterMarkCrossed
ChannelReport: TypeAlias = ChannelStateChanged | BackPressureChanged


class ChannelReports:
    """The last report of each source and channel that the table names; none of any other.

    A source that the table names no more stays in the core until the core has taken the table. If
    the core refuses it and the source is named again, the core says nothing new of that source, so
    its last report is kept until then.
    """

    def __init__(self) -> None:
        self._states: dict[int, ChannelStateChanged] = {}
        self._pressures: dict[int, BackPressureChanged] = {}
        self._unnamed: dict[int, ChannelStateChanged] = {}
        """Last reports of sources that the core may still have, and the table does not name."""

    def note(self, news: ChannelNews, table: OrderTable) -> ChannelReport | None:
        """Return the report of a change; None where the channel has been closed meanwhile."""
        channel_id = news.channel_id
        if isinstance(news, WaterMarkCrossed):
            if channel_id not in table.channels:
                return None
            pressure = self._pressures[channel_id] = BackPressureChanged(
                channel_id=channel_id, is_on=news.is_on, queued_events=news.queued_events
            )
            return pressure
        silent_ms = news.silent_ms if isinstance(news, SourceSilent) else 0
        state = ChannelStateChanged(
            channel_id=channel_id, is_up=isinstance(news, SourceReceived), silent_ms=silent_ms
        )
        if channel_id not in table.sources:
            self._unnamed[channel_id] = state
            return None
        self._states[channel_id] = state
        return state

    def follow(self, table: OrderTable) -> list[ChannelReport]:
        """Follow a change of the table; return what the broker would not hear otherwise.

        These are the sources named again that the core may never have closed, and the closed
        channels that were congested until now: opened again, such a channel has an empty queue, of
        which nobody would say that it is.
        """
        for channel_id in self._states.keys() - table.sources.keys():
            self._unnamed[channel_id] = self._states.pop(channel_id)
        again = sorted(self._unnamed.keys() & table.sources.keys())
        for channel_id in again:
            self._states[channel_id] = self._unnamed.pop(channel_id)
        closed = sorted(self._pressures.keys() - table.channels.keys())
        congested = [channel_id for channel_id in closed if self._pressures[channel_id].is_on]
        for channel_id in closed:
            del self._pressures[channel_id]
        return [
            *(self._states[channel_id] for channel_id in again),
            *(BackPressureChanged(channel_id=number, is_on=False) for number in congested),
        ]

    def forget_unnamed(self) -> None:
        """Forget the sources that the table does not name: the core has taken the whole table."""
        self._unnamed.clear()

    def all(self) -> list[ChannelReport]:
        """Return all reports, for a broker that has just come back."""
        return [
            *(self._states[channel_id] for channel_id in sorted(self._states)),
            *(self._pressures[channel_id] for channel_id in sorted(self._pressures)),
        ]
