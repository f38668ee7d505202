"""What is up: channels as their receivers say, routers by that and by their sessions.

A lost session alone is no dead router: it goes on forwarding (S0 A20). A router is down when its
session is lost and a neighbour hears nothing from it. One that is away for long is merely not used
for new paths, since it could not be told of them. After the broker's own start, or when it was cut
off itself, no router has a session, which says nothing of any of them: until it could have
reported, one is down only when no neighbour hears it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.capacity.allocation import routers_at
from gridstat.broker.tables.router_orders import PROBED_VERSION_MIN, common_version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.capacity.allocation import AllocatedPath
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.records.registry import Registry
    from gridstat.model.cloud import EventChannel

ABSENT_TIMER: Final = "absent/"


class RouterHealth:
    """`down_channels` and `down_routers` are what paths cannot go over at the moment.

    `_awaited` are the routers that have no session because the broker was away, and may yet report.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.down_channels: set[int] = set()
        self.down_routers: set[str] = set()
        self.refusing_routers: set[str] = set()
        """They forward what they were ordered before, and take no new orders."""
        self._awaited: set[str] = set()
        self._ways: dict[tuple[tuple[str, ...], tuple[str, ...]], bool] = {}

    def resume(self) -> None:
        """After a start: what has never reported is not used, the rest is awaited."""
        for name in sorted(self._context.registry.routers):
            self.watch(name)

    def watch(self, name: str) -> None:
        """A router of the cloud that has no session now."""
        if name in self._context.registry.reports:
            self._awaited.add(name)
            self._context.set_timer(ABSENT_TIMER + name, self._context.settings.confirm_within_ns)
        else:
            self._mark(name, is_usable=False)

    def channel_changed(self, channel_id: int, *, is_up: bool) -> bool:
        """Whether that was news."""
        if is_up == (channel_id not in self.down_channels):
            return False
        if is_up:
            self.down_channels.discard(channel_id)
        else:
            self.down_channels.add(channel_id)
        self._context.reservations.resources.mark_channel(channel_id, is_up=is_up)
        return True

    def session_changed(self, name: str, *, is_connected: bool) -> None:
        self._awaited.discard(name)
        self.refusing_routers.discard(name)
        if is_connected:
            self._context.cancel_timer(ABSENT_TIMER + name)
            self._mark(name, is_usable=True)
            self._await_others(name)
        else:
            self._context.set_timer(ABSENT_TIMER + name, self._context.settings.confirm_within_ns)

    def _await_others(self, first: str) -> None:
        """If nobody else has a session it was the broker that was away: the others come, too."""
        others = self._context.registry.routers.keys() - {first}
        if any(self._context.tables[name].is_connected for name in others):
            return
        for name in sorted(others - self.down_routers):
            self.watch(name)

    def absence_is_long(self, name: str) -> None:
        registry = self._context.registry
        self._awaited.discard(name)
        if name in registry.routers and not self._context.tables[name].is_connected:
            self._mark(name, is_usable=False)

    def table_refused(self, name: str) -> None:
        """It has refused its table again and again: what it does not carry yet goes elsewhere."""
        self.refusing_routers.add(name)
        self._mark(name, is_usable=False)

    def table_taken(self, name: str) -> bool:
        """Whether the router had refused its table, and does no longer."""
        if name not in self.refusing_routers or self._context.tables[name].is_refusing:
            return False
        self.refusing_routers.discard(name)
        self._mark(name, is_usable=True)
        return True

    def judge(self, name: str) -> bool | None:
        """Whether a router is down now, if that has changed; None if it has not."""
        is_down = not self._context.tables[name].is_connected and self._is_silent(name)
        if is_down == (name in self.down_routers):
            return None
        if is_down:
            self.down_routers.add(name)
            self._mark(name, is_usable=False)
        else:
            self.down_routers.discard(name)
        return is_down

    def forget_channel(self, channel_id: int) -> None:
        self.down_channels.discard(channel_id)

    def forget_router(self, name: str) -> None:
        self.down_routers.discard(name)
        self.refusing_routers.discard(name)
        self._awaited.discard(name)
        self._context.cancel_timer(ABSENT_TIMER + name)
        self._context.reservations.allocator.refused_rows.clear_router(name)

    def is_probed(self, channel: EventChannel) -> bool:
        ends = [
            self._context.registry.reports.get(end)
            for end in (channel.from_router, channel.to_router)
        ]
        versions = [() if report is None else report.datagram_versions for report in ends]
        return common_version(*versions) >= PROBED_VERSION_MIN

    def failed_paths(self, record: Subscribed) -> list[int]:
        """The indices of a contract's paths that cannot work at the moment."""
        return [
            index
            for index, path in enumerate(record.paths)
            if not self.down_channels.isdisjoint(path.channel_ids)
            or not self.down_routers.isdisjoint(path.routers)
            or not self.refusing_routers.isdisjoint(path.routers)
            or self._is_cut_off(record, path)
        ]

    def refused_paths(self, record: Subscribed) -> list[int]:
        """The indices of a contract's paths over routers that refuse its variable's row."""
        refused = self._context.reservations.allocator.refused_rows.of(record.variable_id)
        if not refused:
            return []
        return [
            index for index, path in enumerate(record.paths) if not refused.isdisjoint(path.routers)
        ]

    def ends(self, record: Subscribed) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The edges from which and to which paths of a contract may lead at the moment."""
        return ends_of(self._context.registry, record)

    def forget_ways(self) -> None:
        """What `has_way` has found holds for one turn: something may have changed since."""
        self._ways.clear()

    def has_way(self, sources: tuple[str, ...], targets: tuple[str, ...]) -> bool:
        """Whether anything that is up leads from one of these edges to one of those, room or not.

        When an edge with thousands of contracts dies, this spares as many searches in vain.
        """
        ends = (sources, targets)
        if ends not in self._ways:
            self._ways[ends] = not self._within_reach(sources).isdisjoint(targets)
        return self._ways[ends]

    def _within_reach(self, sources: tuple[str, ...]) -> set[str]:
        registry = self._context.registry
        waiting = [name for name in sources if name not in self.down_routers]
        reached = set(waiting)
        while waiting:
            here = waiting.pop()
            for channel_id in registry.channels_of.get(here, ()):
                to_router = registry.channels[channel_id].to_router
                if to_router not in reached and not self._is_closed(channel_id, to_router):
                    reached.add(to_router)
                    waiting.append(to_router)
        return reached

    def _is_closed(self, channel_id: int, to_router: str) -> bool:
        return channel_id in self.down_channels or to_router in self.down_routers

    def words(self, record: Subscribed, failed: Iterable[int]) -> tuple[str, ...]:
        """What is wrong with each of the failed paths."""
        found = []
        for index in failed:
            path = record.paths[index]
            refusing = sorted(self.refusing_routers.intersection(path.routers))
            if refusing:
                reasons = [
                    f"router {name} refuses its table: {self._context.tables[name].refusal}"
                    for name in refusing
                ]
                found.append(f"path {index + 1} may not be up: {', '.join(reasons)}")
                continue
            routers = sorted(self.down_routers.intersection(path.routers))
            channels = sorted(self.down_channels.intersection(path.channel_ids))
            parts = [f"router {name}" for name in routers] or [
                f"channel {self._context.registry.channels[number].label}" for number in channels
            ]
            if not parts:
                sources, _ = self.ends(record)
                is_source = path.routers[0] not in sources
                publication = self._context.registry.publication_of(record)
                who = "" if publication is None else publication.publisher
                who, edge = (
                    (who, path.routers[0]) if is_source else (record.subscriber, path.routers[-1])
                )
                parts = [f"{who} at {edge}"]
            found.append(f"path {index + 1} is down: nothing is heard of {', '.join(parts)}")
        return tuple(found)

    def refusals(self, record: Subscribed) -> tuple[str, ...]:
        """What the cores of routers on its paths cannot hold."""
        tables = self._context.tables
        routers = {name for path in record.paths for name in path.routers}
        return tuple(
            f"router {name} cannot carry it: {tables[name].refused[record.variable_id]}"
            for name in sorted(tables.refusing(record.variable_id, routers))
        )

    def _is_cut_off(self, record: Subscribed, path: AllocatedPath) -> bool:
        """Whether an end-point is elsewhere, so that the first or last hop leads nowhere."""
        sources, targets = self.ends(record)
        return bool(
            (sources and path.routers[0] not in sources)
            or (targets and path.routers[-1] not in targets)
        )

    def _is_silent(self, name: str) -> bool:
        registry = self._context.registry
        outgoing = [
            registry.channels[channel_id]
            for channel_id in registry.channels_of.get(name, ())
            if registry.channels[channel_id].from_router == name
        ]
        silent = [each for each in outgoing if each.channel_id in self.down_channels]
        if name not in self._awaited:
            return bool(silent)
        are_heard = all(self._context.tables[each.to_router].is_connected for each in outgoing)
        return are_heard and bool(silent) and len(silent) == len(outgoing)

    def _mark(self, name: str, *, is_usable: bool) -> None:
        self._context.reservations.resources.mark_router(name, is_up=is_usable)


def ends_of(registry: Registry, record: Subscribed) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The routers from which and to which paths of a contract, or a segment, may lead now."""
    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    if record.entries:
        sources = routers_at(record.entries)
    elif (publication := registry.publications.get(record.name)) is not None:
        publisher = registry.endpoints.get(publication.publisher)
        sources = () if publisher is None else publisher.edges_usable()
    if record.exits:
        targets = routers_at(record.exits)
    elif (subscriber := registry.endpoints.get(record.subscriber)) is not None:
        targets = subscriber.edges_usable(is_receiver=True)
    return sources, targets
