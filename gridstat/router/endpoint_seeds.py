"""Seeds of the channels between an edge router and its end-points; the edge router gives them.

The edge is one end of both channels of an end-point, and has a session with it, so that the keys
need no broker. For the channel up the edge accepts a seed in its own core, and sends it to the
end-point with the first epoch. For the channel down it sends the seed to the end-point first, and
uses it once the end-point has accepted (`model/keys/seed_giver.py`). A new session of the end-point
begins both exchanges anew.

Pure: `edge_router.py` calls it and returns its instructions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from gridstat.model.channel_security import SEALED_VERSION
from gridstat.model.keys.seed_giver import End, GiveSeed, SeedGiver
from gridstat.net.command.machine import Send, SetTimer
from gridstat.net.command.router_messages import ChangeTable, SeedAccepted, seed_message
from gridstat.router.agent_events import TakeSeed

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from gridstat.model.keys.key_settings import KeySettings
    from gridstat.router.agent_events import SeedTaken

    SeedInstruction: TypeAlias = Send | SetTimer | TakeSeed

SEEDS_TIMER: Final = "edge/seeds"


class EndPointSeeds:
    """Serves every sealed channel of an end-point that the table names; `_ends` are the end-point
    of each channel, and the end of it that the end-point is."""

    def __init__(self, settings: KeySettings, random_bytes: Callable[[int], bytes]) -> None:
        self._giver = SeedGiver(settings, random_bytes)
        self._ends: dict[int, tuple[str, End]] = {}
        self._channels: dict[str, set[int]] = {}
        self._is_timed = False

    def __contains__(self, channel_id: object) -> bool:
        return channel_id in self._ends

    def channel_ids(self) -> tuple[int, ...]:
        return tuple(sorted(self._ends))

    def table_changed(
        self, change: ChangeTable, attached: Container[str], now_ns: int
    ) -> list[SeedInstruction]:
        """Begin to serve the sealed channels that a change opens; forget those that it closes."""
        named = {order.channel_id for order in change.channels}
        named |= {order.channel_id for order in change.sources}
        gone = self._ends.keys() - named if change.begins_anew else ()
        for channel_id in (*gone, *change.closed_channels, *change.closed_sources):
            self._forget(channel_id)
        found: list[SeedInstruction] = []
        for source in change.sources:
            is_ours = source.is_publisher and source.is_sealed
            found += self._serve(
                source.channel_id, source.sender, End.SENDER, attached, now_ns, is_ours=is_ours
            )
        for channel in change.channels:
            is_ours = channel.is_endpoint and channel.datagram_version == SEALED_VERSION
            found += self._serve(
                channel.channel_id, channel.to, End.RECEIVER, attached, now_ns, is_ours=is_ours
            )
        return [*found, *self._time()]

    def arrived(self, endpoint: str, now_ns: int) -> list[SeedInstruction]:
        """Begin new exchanges for all channels of an end-point that has a new session."""
        found: list[SeedInstruction] = []
        for channel_id in sorted(self._channels.get(endpoint, ())):
            end = self._ends[channel_id][1]
            found += self._give(self._giver.end_up(channel_id, end, now_ns))
        return found

    def departed(self, endpoint: str) -> None:
        for channel_id in self._channels.get(endpoint, ()):
            self._giver.end_down(channel_id, self._ends[channel_id][1])

    def accepted(self, endpoint: str, message: SeedAccepted, now_ns: int) -> list[SeedInstruction]:
        """Use a seed that an end-point has accepted for the channel that leads to it."""
        if self._ends.get(message.channel_id) != (endpoint, End.RECEIVER):
            return []  # Closed meanwhile, or not its channel.
        return self._given(message.channel_id, message.number, message.first_epoch, now_ns)

    def taken(self, event: SeedTaken, now_ns: int) -> list[SeedInstruction]:
        """Give the end-point a seed that our own core has accepted."""
        return self._given(event.channel_id, event.number, event.first_epoch, now_ns)

    def step(self, now_ns: int) -> list[SeedInstruction]:
        self._is_timed = False
        return [*self._give(self._giver.step(now_ns)), *self._time()]

    def _serve(
        self,
        channel_id: int,
        endpoint: str,
        end: End,
        attached: Container[str],
        now_ns: int,
        *,
        is_ours: bool,
    ) -> list[SeedInstruction]:
        if self._ends.get(channel_id) == (endpoint, end) and is_ours:
            return []
        self._forget(channel_id)
        if not is_ours:
            return []
        self._ends[channel_id] = endpoint, end
        self._channels.setdefault(endpoint, set()).add(channel_id)
        self._giver.open(channel_id, now_ns)
        own = End.RECEIVER if end is End.SENDER else End.SENDER
        found = self._giver.end_up(channel_id, own, now_ns)
        if endpoint in attached:
            found += self._giver.end_up(channel_id, end, now_ns)
        return self._give(found)

    def _forget(self, channel_id: int) -> None:
        known = self._ends.pop(channel_id, None)
        if known is not None:
            self._giver.close(channel_id)
            self._channels[known[0]].discard(channel_id)
            if not self._channels[known[0]]:
                del self._channels[known[0]]

    def _given(
        self, channel_id: int, number: int, first_epoch: int, now_ns: int
    ) -> list[SeedInstruction]:
        return self._give(self._giver.accepted(channel_id, number, first_epoch, now_ns))

    def _give(self, gifts: Iterable[GiveSeed]) -> list[SeedInstruction]:
        found: list[SeedInstruction] = []
        for gift in gifts:
            endpoint, end = self._ends[gift.seed.channel_id]
            message = seed_message(gift.seed, gift.first_epoch)
            is_theirs = gift.to is end
            found.append(Send(f"endpoint/{endpoint}", message) if is_theirs else TakeSeed(message))
        return found

    def _time(self) -> list[SeedInstruction]:
        if self._is_timed or not self._ends:
            return []
        self._is_timed = True
        return [SetTimer(SEEDS_TIMER, self._giver.tick_ns)]
