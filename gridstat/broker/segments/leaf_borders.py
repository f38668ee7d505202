"""Border routers of a leaf broker: reports to the parent, and the channels that begin or end there.

The parent says which routers it cares for, and owns the channels between clouds; this cloud orders
them at its own end and passes on what its routers say of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.records.parent_operations import BorderClosed, BorderOpened
from gridstat.broker.routers.receiver_addresses import check_host, check_ports, check_versions
from gridstat.broker.segments.abstract_links import (
    BORDERS_A_TURN,
    PAUSE_NS,
    AbstractLinkSearch,
    TrapSearch,
    are_alike,
)
from gridstat.broker.unit_of_work import no_op
from gridstat.model.errors import LayoutError, StorageFailed
from gridstat.net.command.message_pages import Arriving, pages_of_abstract_links
from gridstat.net.command.segment_messages import Nearness
from gridstat.net.command.tree_messages import (
    BORDER_CHANNELS_MAX,
    AbstractLinksReported,
    BorderChannelReported,
    BorderReported,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.parent_operations import TreeOperation
    from gridstat.broker.routers.router_health import RouterHealth
    from gridstat.broker.segments.abstract_links import Crossings
    from gridstat.broker.segments.cloud_distances import CloudDistances
    from gridstat.broker.segments.parent_session import ParentSession
    from gridstat.net.command.router_messages import BackPressureChanged, ChannelStateChanged
    from gridstat.net.command.tree_messages import (
        BorderChannel,
        CloseBorder,
        OpenBorder,
        Trap,
        WantBorders,
    )

ABSTRACT_LINKS_TIMER: Final = "abstract_links"
SEARCH_TIMER: Final = "search"


class LeafBorders:
    """`_told` is what the parent knows of each wanted router, and of the ways between them."""

    def __init__(
        self,
        context: BrokerContext,
        link: ParentSession,
        health: RouterHealth,
        ways: CloudDistances,
    ) -> None:
        self._context = context
        self._link = link
        self._health = health
        self._ways = ways
        self.wanted: tuple[str, ...] = ()
        self.down_channels: set[int] = set()
        self.pressed_channels: set[int] = set()
        self._closing: set[int] = set()
        self._arriving: Arriving[int] = Arriving(BORDER_CHANNELS_MAX)
        self._told: dict[str, BorderReported] = {}
        self._abstract_links: Crossings | None = None
        """None as long as nothing is told: then also that there is no way is news."""
        self._traps: tuple[Trap, ...] = ()
        self._trap_search = TrapSearch()
        self._abstract_link_search = AbstractLinkSearch(ways)
        self._is_searching = False
        self._due_ns: int | None = None

    # What the parent wants.

    def forget(self) -> None:
        """A new session: the parent is told everything anew."""
        self._told.clear()
        self._abstract_links = None

    def want(self, word: WantBorders) -> None:
        self.wanted = tuple(name for name in word.routers if name in self._context.registry.routers)
        self.forget()
        self.look()
        self.report_abstract_links()

    def open(self, word: OpenBorder) -> None:
        """Order channels at our end; with the whole list, close those that are not in it."""
        known = self._context.registry.tree.borders
        operations: list[TreeOperation] = []
        refused: set[int] = set()
        for border in word.channels:
            if border == known.get(border.channel.channel_id):
                continue
            try:
                self._check(border)
            except LayoutError as error:
                label = border.channel.label
                self._context.note("border_refused", channel=label, reason=str(error.args[0]))
                refused.add(border.channel.channel_id)
                continue
            operations.append(BorderOpened(border=border))
        listed = {border.channel.channel_id for border in word.channels}
        self._closing -= listed
        if word.is_whole:
            whole = self._arriving.take(word.page, sorted(listed), is_last=word.is_last)
            if whole is not None:
                self._closing |= known.keys() - set(whole)
        for border in word.channels:
            if border.channel.channel_id not in refused:
                self._tell_state(border)
        self._commit([*operations, *self._closed()])

    def close(self, word: CloseBorder) -> None:
        """The channel is no more; it goes when no segment needs it any longer."""
        if word.channel_id in self._context.registry.tree.borders:
            self._closing.add(word.channel_id)
            self._commit(self._closed())

    def close_unused(self) -> None:
        """A segment has ended; perhaps a channel was kept for it."""
        if self._closing:
            self._commit(self._closed())

    def _closed(self) -> list[TreeOperation]:
        """The channels that may go, for no segment enters or leaves by them."""
        if not self._closing:
            return []
        going = self._closing & self._context.registry.tree.borders.keys() - self._used()
        self._closing -= going
        self.down_channels -= going
        self.pressed_channels -= going
        return [BorderClosed(channel_id=number) for number in sorted(going)]

    def _used(self) -> set[int]:
        """The channels by which segments enter or leave."""
        return {
            channel_id
            for record in self._context.registry.segments()
            for _, channel_id in (*record.entries, *record.exits)
        }

    def _commit(self, operations: list[TreeOperation]) -> None:
        if operations:
            self._context.commit(operations, no_op, self._failed)

    def _failed(self, reason: str) -> None:
        """The disk is full: join again, for the parent then says all of it again."""
        self._link.leave(StorageFailed(f"channels between clouds could not be kept: {reason}"))

    def _check(self, border: BorderChannel) -> None:
        channel, routers = border.channel, self._context.registry.routers
        ours = [end for end in (channel.from_router, channel.to_router) if end in routers]
        if len(ours) != 1:
            raise LayoutError(f"channel {channel.label} has {len(ours)} ends in this cloud, not 1")
        if channel.channel_id in self._context.registry.channels:
            raise LayoutError(f"channel {channel.channel_id} is one of this cloud")
        known = self._context.registry.tree.borders.get(channel.channel_id)
        is_other = known is not None and known.channel.label != channel.label
        if is_other and channel.channel_id in self._used():
            raise LayoutError(f"{channel.channel_id} is the number of another channel, in use")
        check_host(border.host, of=channel.label)
        check_ports((border.data_port, border.urgent_port), of=channel.label)
        check_versions((border.datagram_version,), of=channel.label)

    # What the routers say.

    def channel_changed(self, reporter: str, message: ChannelStateChanged) -> None:
        border = self._context.registry.tree.borders.get(message.channel_id)
        if border is None or border.channel.to_router != reporter:
            return
        self._mark(self.down_channels, message.channel_id, is_on=not message.is_up)
        self._link.tell(self._state(message.channel_id, is_up=message.is_up))

    def back_pressure_changed(self, reporter: str, message: BackPressureChanged) -> None:
        border = self._context.registry.tree.borders.get(message.channel_id)
        if border is None or border.channel.from_router != reporter:
            return
        self._mark(self.pressed_channels, message.channel_id, is_on=message.is_on)
        self._link.tell(self._state(message.channel_id, is_pressed=message.is_on))

    def router_reported(self, name: str, *, is_new: bool) -> None:
        """A new process has neither full queues nor complaints; it tells of its own."""
        if not is_new:
            return
        for number, border in sorted(self._context.registry.tree.borders.items()):
            if border.channel.to_router == name and number in self.down_channels:
                self.down_channels.discard(number)
                self._link.tell(self._state(number, is_up=True))
            if border.channel.from_router == name and number in self.pressed_channels:
                self.pressed_channels.discard(number)
                self._link.tell(self._state(number, is_pressed=False))

    def _tell_state(self, border: BorderChannel) -> None:
        """As its router has told it, good or bad: news may have been lost with a session."""
        number, channel = border.channel.channel_id, border.channel
        routers = self._context.registry.routers
        if channel.to_router in routers and self._context.tables[channel.to_router].is_connected:
            self._link.tell(self._state(number, is_up=number not in self.down_channels))
        if (
            channel.from_router in routers
            and self._context.tables[channel.from_router].is_connected
        ):
            self._link.tell(self._state(number, is_pressed=number in self.pressed_channels))

    def _mark(self, marked: set[int], number: int, *, is_on: bool) -> None:
        if is_on:
            marked.add(number)
        else:
            marked.discard(number)

    def _state(
        self, number: int, *, is_up: bool | None = None, is_pressed: bool | None = None
    ) -> BorderChannelReported:
        return BorderChannelReported(
            term=self._link.term, channel_id=number, is_up=is_up, is_pressed=is_pressed
        )

    # What the parent hears.

    def look(self) -> None:
        """Notify of wanted routers what is not as it was told."""
        if not self._link.is_joined:
            return
        for name in self.wanted:
            told = self._border(name)
            if self._told.get(name) != told:
                self._told[name] = told
                self._link.tell(told)

    def look_later(self) -> None:
        """Something may have changed on the ways between the borders.

        Loads change all the time: where many borders make a look long, it is seldom because of
        them alone.
        """
        if not self._link.is_joined or len(self.wanted) <= 1:
            return
        wait_ns = self._context.settings.retry_after_ns
        if not self._abstract_link_search.is_outdated:
            wait_ns *= -(-len(self.wanted) // BORDERS_A_TURN)
        due_ns = self._context.now_ns + wait_ns
        if self._due_ns is None or due_ns < self._due_ns:
            self._due_ns = due_ns
            self._context.set_timer(ABSTRACT_LINKS_TIMER, wait_ns)

    def check_abstract_links(self) -> None:
        self._due_ns = None
        if self._abstract_link_search.is_under_way:
            self.look_later()
        elif self._link.is_joined:
            self.report_abstract_links()

    def report_abstract_links(self) -> None:
        """All ways between the wanted borders, if one of them has changed by enough."""
        self._abstract_link_search.begin(self.wanted)
        self._search()

    def look_further(self) -> None:
        """Some more of what is being looked for."""
        self._is_searching = False
        if self._link.is_joined:
            self._search()

    def _search(self) -> None:
        """The parent hears when all abstract_links are known, and again when all traps are."""
        is_trapped = self._trap_search.look(self._context.reservations.resources, self.wanted)
        is_crossing = self._abstract_link_search.look(self._context.now_ns)
        if (is_trapped or is_crossing) and not self._is_searching:
            self._is_searching = True
            self._context.set_timer(SEARCH_TIMER, PAUSE_NS)
        if not is_crossing:
            self._tell_found()

    def _tell_found(self) -> None:
        now, traps, told = (
            self._abstract_link_search.known,
            self._trap_search.known,
            self._abstract_links,
        )
        if told is not None and traps == self._traps and are_alike(told, now):
            return
        self._abstract_links, self._traps = now, traps
        whole = AbstractLinksReported(
            term=self._link.term, abstract_links=tuple(now.values()), traps=traps
        )
        for page in pages_of_abstract_links(whole):
            self._link.tell(page)

    def nearness(self, edges: Iterable[str], *, is_start: bool) -> tuple[Nearness, ...]:
        """How far the wanted borders are from a publisher's edges, or a subscriber's edges from
        them."""
        reach = self._ways.reach(edges, self._context.now_ns, is_backward=not is_start)
        return tuple(
            Nearness(router=name, latency_us=reach[name].latency_us)
            for name in self.wanted
            if name in reach
        )

    def _border(self, name: str) -> BorderReported:
        report = self._context.registry.reports.get(name)
        if report is None:
            return BorderReported(term=self._link.term, router=name, is_up=False)
        return BorderReported(
            term=self._link.term,
            router=name,
            is_up=name not in self._health.down_routers,
            host=report.host,
            data_port=report.data_port,
            urgent_port=report.urgent_port,
            datagram_versions=report.datagram_versions,
            counts_data_as_life=report.counts_data_as_life,
            silent_ms_max=self._context.settings.probes.between_clouds().silent_ms_max_of(0),
        )
