"""Border routers of a leaf broker: reports to the parent, and the channels that begin or end there.

  parent -> leaf:  WantBorders, OpenBorder, CloseBorder
  leaf -> parent:  BorderReported, AbstractLinksReported, BorderChannelReported

The parent names the routers it plans with, and owns the channels between clouds. The leaf broker
stores the channels, orders them at its routers, and passes on what the routers report of them. A
channel that the parent closes stays until no segment uses it.

Timeouts: changes of the abstract links are collected for `retry_after_ns` before a search, and a
long search runs in steps. Restart and lost session: open channels are in the journal; reports are
not stored, and all of them are sent again after the parent's next WantBorders and OpenBorder. If
the journal cannot store a channel, the broker ends the session, and the parent sends the list
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.records.parent_operations import BorderClosed, BorderOpened
from gridstat.broker.routers.receiver_addresses import check_host, check_ports, check_versions
from gridstat.broker.segments.abstract_links import (
    BORDERS_PER_STEP,
    PAUSE_NS,
    AbstractLinkSearch,
    TrapSearch,
    are_alike,
)
from gridstat.broker.segments.border_ways import BorderWays
from gridstat.broker.unit_of_work import no_op
from gridstat.model.errors import LayoutError, StorageFailed
from gridstat.net.command.message_pages import PageAssembler, pages_of_abstract_links
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
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.routers.router_health import RouterHealth
    from gridstat.broker.segments.abstract_links import AbstractLinks
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
    """Reports the wanted border routers and the links between them; `_reported` holds the last
    reports."""

    def __init__(
        self,
        context: BrokerContext,
        session: ParentSession,
        health: RouterHealth,
        distances: CloudDistances,
    ) -> None:
        self._context = context
        self._session = session
        self._health = health
        self._distances = distances
        self.wanted: tuple[str, ...] = ()
        self.down_channels: set[int] = set()
        self.congested_channels: set[int] = set()
        self._closing: set[int] = set()
        self._border_pages: PageAssembler[int] = PageAssembler(BORDER_CHANNELS_MAX)
        self._reported: dict[str, BorderReported] = {}
        self._abstract_links: AbstractLinks | None = None
        """Abstract links last sent; None before the first report, so that an empty list is sent
        too."""
        self._traps: tuple[Trap, ...] = ()
        self._trap_search = TrapSearch()
        self._ways = BorderWays(context.reservations.resources)
        self._abstract_link_search = AbstractLinkSearch(distances)
        self._is_searching = False
        self._search_due_ns: int | None = None

    # Messages from the parent.

    def forget_reported(self) -> None:
        """Forget what was reported, so that everything is sent again in a new session."""
        self._reported.clear()
        self._abstract_links = None

    def want(self, message: WantBorders) -> None:
        self.wanted = tuple(
            name for name in message.routers if name in self._context.registry.routers
        )
        self.forget_reported()
        self.report_changes()
        self.report_abstract_links()

    def open(self, message: OpenBorder) -> None:
        """Open channels at our end; after the last page of a whole list, close all others."""
        known = self._context.registry.tree.borders
        operations: list[Operation] = []
        refused: set[int] = set()
        for border in message.channels:
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
        listed = {border.channel.channel_id for border in message.channels}
        self._closing -= listed
        if message.is_whole:
            # Channels are closed only after the last page: a cut-off list must close nothing.
            whole = self._border_pages.take(message.page, sorted(listed), is_last=message.is_last)
            if whole is not None:
                self._closing |= known.keys() - set(whole)
        for border in message.channels:
            if border.channel.channel_id not in refused:
                self._send_state(border)
        self._commit([*operations, *self._closed()])

    def close(self, message: CloseBorder) -> None:
        """Close a channel once no segment uses it."""
        if message.channel_id in self._context.registry.tree.borders:
            self._closing.add(message.channel_id)
            self._commit(self._closed())

    def close_unused(self) -> None:
        """Close channels that were kept only for a segment that has ended."""
        if self._closing:
            self._commit(self._closed())

    def orphaned(self) -> list[BorderClosed]:
        """Return the ends of all channels of a parent that the cloud, at a start, no longer has."""
        borders = self._context.registry.tree.borders
        return [BorderClosed(channel_id=number) for number in sorted(borders)]

    def _closed(self) -> list[Operation]:
        """Return the operations that close unused channels."""
        if not self._closing:
            return []
        going = self._closing & self._context.registry.tree.borders.keys() - self._used()
        self._closing -= going
        self.down_channels -= going
        self.congested_channels -= going
        return [BorderClosed(channel_id=number) for number in sorted(going)]

    def _used(self) -> set[int]:
        """Return the channels by which segments enter or leave this cloud."""
        return {
            channel_id
            for record in self._context.registry.segments()
            for _, channel_id in (*record.entries, *record.exits)
        }

    def _commit(self, operations: list[Operation]) -> None:
        if operations:
            self._context.commit(operations, no_op, self._commit_failed)

    def _commit_failed(self, reason: str) -> None:
        """End the session because the disk is full; the parent sends the list again after the
        join."""
        self._session.end(StorageFailed(f"channels between clouds could not be stored: {reason}"))

    def _check(self, border: BorderChannel) -> None:
        channel, routers = border.channel, self._context.registry.routers
        ours = [end for end in (channel.from_router, channel.to_router) if end in routers]
        if len(ours) != 1:
            raise LayoutError(f"channel {channel.label} has {len(ours)} ends in this cloud, not 1")
        if channel.channel_id in self._context.registry.channels:
            raise LayoutError(f"channel {channel.channel_id} belongs to this cloud")
        known = self._context.registry.tree.borders.get(channel.channel_id)
        is_other = known is not None and known.channel.label != channel.label
        # Segments refer to a channel by its number, which must not change its meaning under them.
        if is_other and channel.channel_id in self._used():
            raise LayoutError(f"{channel.channel_id} is the number of another channel in use")
        check_host(border.host, of=channel.label)
        check_ports((border.data_port, border.urgent_port), of=channel.label)
        check_versions((border.datagram_version,), of=channel.label)

    # Reports of routers.

    def channel_changed(self, reporter: str, message: ChannelStateChanged) -> None:
        border = self._context.registry.tree.borders.get(message.channel_id)
        if border is None or border.channel.to_router != reporter:
            return  # Only the receiving router observes silence.
        self._mark(self.down_channels, message.channel_id, is_on=not message.is_up)
        self._session.send(self._state(message.channel_id, is_up=message.is_up))

    def back_pressure_changed(self, reporter: str, message: BackPressureChanged) -> None:
        border = self._context.registry.tree.borders.get(message.channel_id)
        if border is None or border.channel.from_router != reporter:
            return  # Only the sending router has a queue for the channel.
        self._mark(self.congested_channels, message.channel_id, is_on=message.is_on)
        self._session.send(self._state(message.channel_id, is_pressed=message.is_on))

    def router_reported(self, name: str, *, is_new: bool) -> None:
        """Clear the channel states of a restarted router, which has no reports yet.

        Every router repeats which of its channels are congested.
        """
        for number, border in sorted(self._context.registry.tree.borders.items()):
            if is_new and border.channel.to_router == name and number in self.down_channels:
                self.down_channels.discard(number)
                self._session.send(self._state(number, is_up=True))
            if border.channel.from_router == name and number in self.congested_channels:
                self.congested_channels.discard(number)
                self._session.send(self._state(number, is_pressed=False))

    def _send_state(self, border: BorderChannel) -> None:
        """Send the state of a channel, good or bad, since earlier reports may be lost."""
        number, channel = border.channel.channel_id, border.channel
        routers = self._context.registry.routers
        if channel.to_router in routers and self._context.tables[channel.to_router].is_connected:
            self._session.send(self._state(number, is_up=number not in self.down_channels))
        if (
            channel.from_router in routers
            and self._context.tables[channel.from_router].is_connected
        ):
            self._session.send(self._state(number, is_pressed=number in self.congested_channels))

    def _mark(self, marked: set[int], number: int, *, is_on: bool) -> None:
        if is_on:
            marked.add(number)
        else:
            marked.discard(number)

    def _state(
        self, number: int, *, is_up: bool | None = None, is_pressed: bool | None = None
    ) -> BorderChannelReported:
        return BorderChannelReported(
            term=self._session.term, channel_id=number, is_up=is_up, is_pressed=is_pressed
        )

    # Reports to the parent.

    def report_changes(self) -> None:
        """Report the wanted routers whose state differs from the last report."""
        if not self._session.is_joined:
            return
        for name in self.wanted:
            reported = self._border(name)
            if self._reported.get(name) != reported:
                self._reported[name] = reported
                self._session.send(reported)

    def schedule_search(self) -> None:
        """Schedule a search, since the paths between the borders may have changed.

        Loads change all the time: with many borders, a search for their sake alone is delayed
        longer.
        """
        if not self._session.is_joined or len(self.wanted) <= 1:
            return
        delay_ns = self._context.settings.retry_after_ns
        if not self._abstract_link_search.is_outdated:
            delay_ns *= -(-len(self.wanted) // BORDERS_PER_STEP)
        due_ns = self._context.now_ns + delay_ns
        if self._search_due_ns is None or due_ns < self._search_due_ns:
            self._search_due_ns = due_ns
            self._context.set_timer(ABSTRACT_LINKS_TIMER, delay_ns)

    def check_abstract_links(self) -> None:
        self._search_due_ns = None
        if self._abstract_link_search.is_under_way:
            self.schedule_search()
        elif self._session.is_joined:
            self.report_abstract_links()

    def report_abstract_links(self) -> None:
        """Start a search for the links between the wanted borders."""
        self._abstract_link_search.begin(self.wanted)
        self._search()

    def continue_search(self) -> None:
        """Continue the search."""
        self._is_searching = False
        if self._session.is_joined:
            self._search()

    def _search(self) -> None:
        """Search a few steps; report when all links are known, and again when all traps are, and
        all numbers of disjoint paths."""
        has_pairs_left = self._trap_search.search_some(
            self._context.reservations.resources, self.wanted
        )
        has_counts_left = self._ways.count_some(self.wanted)
        has_borders_left = self._abstract_link_search.search_some(self._context.now_ns)
        is_any_left = has_pairs_left or has_counts_left or has_borders_left
        if is_any_left and not self._is_searching:
            self._is_searching = True
            self._context.set_timer(SEARCH_TIMER, PAUSE_NS)
        if not has_borders_left:
            self._send_found()

    def _send_found(self) -> None:
        now, traps, reported = (
            self._ways.counted(self._abstract_link_search.known),
            self._trap_search.known,
            self._abstract_links,
        )
        if reported is not None and traps == self._traps and are_alike(reported, now):
            return
        self._abstract_links, self._traps = now, traps
        whole = AbstractLinksReported(
            term=self._session.term, abstract_links=tuple(now.values()), traps=traps
        )
        for page in pages_of_abstract_links(whole):
            self._session.send(page)

    def distances_to_ends(self, edges: Iterable[str], *, is_start: bool) -> tuple[Nearness, ...]:
        """Return the latency from a publisher's edges to each wanted border, or from it to a
        subscriber's, and how many disjoint paths there are."""
        edges = tuple(edges)
        routers = frozenset(edges)
        reach = self._distances.reach(edges, self._context.now_ns, is_backward=not is_start)
        return tuple(
            Nearness(
                router=name,
                latency_us=reach[name].latency_us,
                link_disjoint=self._ways.count(
                    routers,
                    name,
                    is_backward=not is_start,
                    is_exact=self._ways.are_few(self.wanted),
                ).link_disjoint,
                is_edge=name in routers,
            )
            for name in self.wanted
            if name in reach
        )

    def _border(self, name: str) -> BorderReported:
        report = self._context.registry.reports.get(name)
        if report is None:
            return BorderReported(term=self._session.term, router=name, is_up=False)
        return BorderReported(
            term=self._session.term,
            router=name,
            is_up=name not in self._health.down_routers,
            host=report.host,
            data_port=report.data_port,
            urgent_port=report.urgent_port,
            datagram_versions=report.datagram_versions,
            counts_data_as_life=report.counts_data_as_life,
            silent_ms_max=self._context.settings.probes.between_clouds().silent_ms_max_of(0),
        )
