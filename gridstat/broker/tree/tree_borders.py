"""Border routers of a broker above clouds, and the channels that are opened at them.

A channel between clouds belongs to the lowest broker above both ends. It is usable once both ends
have reported addresses and a common datagram version.

Messages down, to the child with the router's cloud below it:
- `WantBorders` lists all routers whose addresses this broker and brokers above need.
- `OpenBorder` opens channels at a router; with `is_whole` it lists all of them, in pages, and the
  child closes every other channel.
- `CloseBorder` closes one channel.
Messages up:
- `BorderReported` carries a router's address, datagram versions and silence limit.
- `BorderChannelReported` says that a channel is up or down, or back-pressured.

A broker in the middle forwards all of them, and keeps the last of each for a child or a parent that
joins later. Nothing is acknowledged and nothing has a timeout: a link delivers in order, and after
every join both sides send everything again. Nothing is durable. After a restart a broker sends no
whole list to a child until all ends of its channels, and its parent, have reported; a shorter list
would close channels that carry contracts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from msgspec import structs

from gridstat.broker.tables.router_orders import PROBED_VERSION_MIN
from gridstat.model.channel_security import agreed_version, unsealed_reason
from gridstat.model.wire_law import is_ipv6_address
from gridstat.net.command.message_pages import PageAssembler, pages_of_borders
from gridstat.net.command.tree_messages import (
    BORDER_CHANNELS_MAX,
    BORDERS_MAX,
    BorderChannel,
    BorderChannelReported,
    BorderReported,
    CloseBorder,
    OpenBorder,
    WantBorders,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.model.cloud import EventChannel


class BorderListener(Protocol):
    """Notified when paths between borders change, or an own channel fails or returns."""

    def borders_changed(self) -> None: ...

    def channel_changed(self, channel_id: int) -> None: ...


class TreeBorders:
    """`wanted_above` are routers in this scope that brokers above have channels at."""

    def __init__(self, context: TreeContext, listener: BorderListener) -> None:
        self._context = context
        self._listener = listener
        self._reported: dict[str, BorderReported] = {}
        self._open_above: dict[int, BorderChannel] = {}
        self._arriving: PageAssembler[BorderChannel] = PageAssembler(BORDER_CHANNELS_MAX)
        self._is_above_whole = not context.has_parent
        self._whole_at: set[str] = set()
        self._routers: dict[str, list[str]] = {}
        self._routers_version = (-1, -1)
        self.wanted_above: frozenset[str] = frozenset()

    # Joining.

    def child_joined(self, child: str) -> None:
        self._whole_at.discard(child)
        self._want(child)
        self._open_all(child)

    def child_left(self, child: str) -> None:
        """Keep the child's reports, since its routers forward without their broker."""
        self._whole_at.discard(child)
        self._context.unsettle()

    def parent_joined(self) -> None:
        for router in sorted(self.wanted_above):
            if router in self._reported:
                self._context.send_parent(
                    structs.replace(self._reported[router], term=self._context.term)
                )

    def wanted(self, child: str) -> tuple[str, ...]:
        """Return the routers below a child that this broker or brokers above have channels at."""
        families = self._context.state.families
        above = [router for router in self.wanted_above if families.child_at(router) == child]
        return tuple(sorted({*self.own_routers(child), *above}))

    def own_routers(self, child: str) -> tuple[str, ...]:
        """Return the routers below a child at which own channels begin or end."""
        families, channels = self._context.state.families, self._context.state.channels
        version = (families.version, channels.layout_version)
        if self._routers_version != version:
            self._routers_version = version
            self._routers.clear()
            for router in sorted(channels.at_router):
                self._routers.setdefault(families.child_at(router) or "", []).append(router)
        return tuple(self._routers.get(child, ()))

    def own_at(self, child: str) -> list[EventChannel]:
        channels = self._context.state.channels
        routers = self.own_routers(child)
        numbers = {number for router in routers for number in channels.at_router[router]}
        return [channels.accounts[number].channel for number in sorted(numbers)]

    def refresh(self, children: Iterable[str | None]) -> None:
        """Send current orders to children after channels were added or removed, or clouds moved."""
        for child in sorted({found for found in children if found is not None}):
            if child in self._context.joined:
                self._want(child)
                self._open_all(child)
        self._listener.borders_changed()

    def is_open(self, channel: EventChannel) -> bool:
        """Return whether both ends have reported, with a common datagram version."""
        return self._ordered(channel, channel.from_router) is not None

    def is_at(self, child: str, channel_id: int) -> bool:
        """Return whether a channel of this broker or of one above has an end below a child."""
        account = self._context.state.channels.accounts.get(channel_id)
        if account is not None:
            return child in self._children_at(account.channel)
        above = self._open_above.get(channel_id)
        return above is None or child in self._children_at(above.channel)

    # From the parent.

    def want(self, message: WantBorders) -> None:
        before, self.wanted_above = self.wanted_above, frozenset(message.routers)
        families = self._context.state.families
        touched = {families.child_at(router) for router in before ^ self.wanted_above}
        for child in sorted(self._context.joined & touched):
            self._want(child)
        self.parent_joined()
        self._listener.borders_changed()

    def open_above(self, message: OpenBorder) -> None:
        if message.is_whole:
            whole = self._arriving.take(message.page, message.channels, is_last=message.is_last)
            if whole is not None:
                self._open_above = {found.channel.channel_id: found for found in whole}
                self._is_above_whole = True
                for child in sorted(self._context.joined):
                    self._open_all(child)
            return
        for found in message.channels:
            self._open_above[found.channel.channel_id] = found
        by_child: dict[str, list[BorderChannel]] = {}
        for found in message.channels:
            for child in self._children_at(found.channel):
                by_child.setdefault(child, []).append(found)
        for child, channels in by_child.items():
            self._context.send_child(
                child, OpenBorder(term=self._context.term, channels=tuple(channels))
            )

    def close_above(self, message: CloseBorder) -> None:
        found = self._open_above.pop(message.channel_id, None)
        if found is not None:
            self._close(found.channel)

    # From children.

    def border_reported(self, message: BorderReported) -> None:
        router = message.router
        if router not in self.wanted_above and router not in self._context.state.channels.at_router:
            return  # No channel needs this router, or none does any more.
        before = self._reported.get(router)
        self._reported[router] = structs.replace(message, term=0)
        is_probed = max(message.datagram_versions, default=0) >= PROBED_VERSION_MIN
        silent_ms_max = message.silent_ms_max if is_probed else 0
        self._context.state.channels.silent_ms_reported[router] = silent_ms_max
        if message.data_port:
            is_ipv6 = is_ipv6_address(message.host)
            self._context.state.channels.set_ip_version(router, is_ipv6=is_ipv6)
        if router in self.wanted_above:
            self._context.send_parent(structs.replace(message, term=self._context.term))
        if before == self._reported[router]:
            return
        channels = self._context.state.channels
        touched = [
            channels.accounts[number].channel
            for number in sorted(channels.at_router.get(router, ()))
        ]
        for channel in touched:
            self._open(channel)
        families = self._context.state.families
        ends = {
            families.child_at(end) for one in touched for end in (one.from_router, one.to_router)
        }
        for child in sorted((self._context.joined & ends) - self._whole_at):
            self._open_all(child)
        channels.version += 1
        self._listener.borders_changed()

    def channel_reported(self, child: str, message: BorderChannelReported) -> None:
        channels = self._context.state.channels
        number = message.channel_id
        if number not in channels.accounts:
            if number in self._open_above or self._context.has_parent:
                self._context.send_parent(structs.replace(message, term=self._context.term))
            return
        is_changed = False
        if message.is_up is not None:
            # Marked per router, not per child: its cloud may lie below another child later.
            for end in self._ends_at(child, channels.accounts[number].channel):
                is_changed |= channels.mark(number, end, is_up=message.is_up)
        if message.is_pressed is not None:
            is_changed |= channels.set_back_pressure(number, is_back_pressured=message.is_pressed)
        if is_changed:
            self._context.note(
                "border_channel_changed",
                channel=channels.accounts[number].channel.label,
                is_usable=channels.accounts[number].is_usable,
            )
            self._listener.channel_changed(number)
            self._listener.borders_changed()

    def closed(self, channel: EventChannel) -> None:
        """Close an own channel that was removed."""
        self._close(channel)

    # Orders.

    def _want(self, child: str) -> None:
        self._context.unsettle()
        wanted = self.wanted(child)
        if wanted[BORDERS_MAX:]:
            # Channels at the other routers stay closed, since no child reports their addresses.
            self._context.note("borders_too_many", child=child, count=len(wanted), most=BORDERS_MAX)
        routers = wanted[:BORDERS_MAX]
        self._context.send_child(child, WantBorders(term=self._context.term, routers=routers))

    def _open_all(self, child: str) -> None:
        """Send all channels at a child, as a whole list only once all their ends are known.

        A whole list without a channel whose other end has not reported yet would close it.
        """
        own = self.own_at(child)
        orders = [found for one in own for found in self._orders(one, child)]
        above = [
            found
            for found in self._open_above.values()
            if child in self._children_at(found.channel)
        ]
        is_whole = self._is_above_whole and all(
            end in self._reported for one in own for end in (one.from_router, one.to_router)
        )
        if is_whole:
            self._whole_at.add(child)
        if is_whole or orders or above:
            channels = (*above, *orders)
            for page in pages_of_borders(self._context.term, channels, is_whole=is_whole):
                self._context.send_child(child, page)

    def _open(self, channel: EventChannel) -> None:
        for child in self._children_at(channel):
            orders = tuple(self._orders(channel, child))
            if orders:
                self._context.send_child(
                    child, OpenBorder(term=self._context.term, channels=orders)
                )

    def _close(self, channel: EventChannel) -> None:
        for child in self._children_at(channel):
            self._context.send_child(
                child, CloseBorder(term=self._context.term, channel_id=channel.channel_id)
            )

    def _orders(self, channel: EventChannel, child: str) -> list[BorderChannel]:
        found = [self._ordered(channel, end) for end in self._ends_at(child, channel)]
        return [order for order in found if order is not None]

    def _ends_at(self, child: str, channel: EventChannel) -> list[str]:
        families = self._context.state.families
        ends = (channel.from_router, channel.to_router)
        return [end for end in ends if families.child_at(end) == child]

    def _ordered(self, channel: EventChannel, end: str) -> BorderChannel | None:
        """Return the order for one end, with the address of the other; None if it is unknown."""
        own = self._reported.get(end)
        other = channel.to_router if end == channel.from_router else channel.from_router
        peer = self._reported.get(other)
        if own is None or peer is None or not peer.data_port or not own.data_port:
            return None
        if not self._context.is_placed:
            return None
        version = agreed_version(channel.security, own.datagram_versions, peer.datagram_versions)
        if not version:
            return None
        return BorderChannel(
            channel=replace(channel, level=self._context.state.depth),
            host=channel.host_at(peer.host) if end == channel.from_router else peer.host,
            data_port=peer.data_port,
            urgent_port=peer.urgent_port,
            datagram_version=version,
            back_channel=self._context.state.channels.back_channel(channel),
            probes_only_when_idle=own.counts_data_as_life and peer.counts_data_as_life,
            silent_ms_max=max(
                own.silent_ms_max,
                peer.silent_ms_max,
                self._context.state.channels.silent_ms_min(channel.channel_id),
            ),
        )

    def closed_reason(self, channel: EventChannel) -> str:
        """Return why a channel whose ends have both reported stays closed; empty if it is open."""
        ends = {
            name: self._reported[name].datagram_versions
            for name in (channel.from_router, channel.to_router)
            if name in self._reported and self._reported[name].data_port
        }
        some, *others = ends.values() if ends else ((),)
        if not others or agreed_version(channel.security, some, others[0]):
            return ""
        if channel.is_sealed:
            return unsealed_reason(channel.label, ends)
        return f"the ends of channel {channel.label} share no version of the datagram"

    def _children_at(self, channel: EventChannel) -> list[str]:
        families = self._context.state.families
        found = [families.child_at(end) for end in (channel.from_router, channel.to_router)]
        return [child for child in found if child is not None]
