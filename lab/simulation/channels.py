"""Event channels between simulated routers: which probes arrive, and who learns of silence.

No datagram is simulated. A receiver gets the probes of a channel while its sender runs and has
opened the channel to the receiver's port, and nothing has cut the wire; a change of this state is
reported about a tenth of a second later, as `router/liveness.py` would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from gridstat.router.agent_events import SourceReceived, SourceSilent
from lab.simulation.topology import CLOUD
from lab.simulation.world import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.model.cloud import EventChannel
    from lab.simulation.router_node import RouterNode
    from lab.simulation.world import World

LOOK_NS_MIN: Final = 80 * NS_PER_MS
LOOK_NS_MAX: Final = 140 * NS_PER_MS
SILENT_MS: Final = 110


class Wires(Protocol):
    """The channels around a router, whoever owns them."""

    def owner(self, channel_id: int) -> str: ...
    def look_around(self, router: str) -> None: ...
    def look_later(self, channel_id: int) -> None: ...


class Channels:
    """Event channels of one owner; `cut` are the channels on which nothing arrives."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.routers: dict[str, RouterNode] = {}
        self.ends: dict[int, tuple[str, str]] = {}
        self.cut: set[int] = set()
        self._at: dict[str, list[int]] = {}
        self._due: set[int] = set()

    def add(self, channels: Iterable[EventChannel]) -> None:
        for channel in channels:
            number = channel.channel_id
            self.ends[number] = (channel.from_router, channel.to_router)
            for end in (channel.from_router, channel.to_router):
                self._at.setdefault(end, []).append(number)

    def set_cut(self, channel_id: int, *, is_cut: bool) -> None:
        (self.cut.add if is_cut else self.cut.discard)(channel_id)
        self.look_later(channel_id)

    def owner(self, channel_id: int) -> str:
        """Return the owner of a channel: here the one cloud."""
        del channel_id
        return CLOUD

    def look_around(self, router: str) -> None:
        """Check all channels of a router later, since its state has changed."""
        for channel_id in self._at.get(router, ()):
            self.look_later(channel_id)

    def look_later(self, channel_id: int) -> None:
        if channel_id in self.ends and channel_id not in self._due:
            self._due.add(channel_id)
            self.world.after(self.world.between(LOOK_NS_MIN, LOOK_NS_MAX), self._look, channel_id)

    def is_heard(self, channel_id: int) -> bool:
        """Return whether the sender's probes arrive at the receiver."""
        sender_name, receiver_name = self.ends[channel_id]
        sender, receiver = self.routers.get(sender_name), self.routers.get(receiver_name)
        if sender is None or receiver is None or channel_id in self.cut:
            return False
        if not sender.is_up or sender.is_paused:
            return False
        order = sender.table.channels.get(channel_id)
        return order is not None and order.data_port == receiver.data_port

    def _look(self, channel_id: int) -> None:
        self._due.discard(channel_id)
        receiver = self.routers.get(self.ends[channel_id][1])
        if receiver is None or not receiver.is_up or receiver.is_paused:
            return
        source = receiver.table.sources.get(channel_id)
        if source is None or not source.silent_ms_max:
            receiver.heard.pop(channel_id, None)
            return
        is_heard = self.is_heard(channel_id)
        if receiver.heard.get(channel_id) is not is_heard:
            receiver.heard[channel_id] = is_heard
            news = SourceReceived(channel_id) if is_heard else SourceSilent(channel_id, SILENT_MS)
            receiver.tell(news)
