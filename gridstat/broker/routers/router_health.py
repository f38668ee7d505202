"""Health of channels and routers, from the reports of receivers and from the routers' sessions.

States of a channel: up or down, as its receiving router reports.

States of a router:
- Connected: it has a session and is used.
- Awaited: it has no session, because the broker has just started or was cut off itself. Until the
  absence timer fires, it is down only if every neighbour is connected and receives nothing from it.
- Absent: its session is lost. It still forwards (S0 A20), so existing paths stay. When the absence
  timer fires, it is no longer used for new paths, because it could not receive their orders.
- Down: its session is lost and a neighbour receives nothing from it. Its paths have failed.
- Refusing: it forwards its old table and refuses each new one. Its paths count as failed.

Messages that change these states: a router's report, the end of its session, `ChannelStateChanged`,
`TableRefused` and `TableChanged`. Restart of the broker: nothing here is durable. Routers that have
reported before are awaited, and all others are not used until they report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.capacity.allocation import routers_at
from gridstat.broker.tables.router_orders import PROBED_VERSION_MIN
from gridstat.model.channel_security import agreed_version
from gridstat.model.qos import demands_sealing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.capacity.allocation import AllocatedPath
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.records.registry import Registry
    from gridstat.model.cloud import EventChannel

ABSENT_TIMER: Final = "absent/"


class RouterHealth:
    """Present health; paths cannot use `down_channels` and `down_routers`.

    `_awaited` are the routers without a session that may still report after the broker's absence.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.down_channels: set[int] = set()
        self.down_routers: set[str] = set()
        self.refusing_routers: set[str] = set()
        """Routers that forward by their old table and refuse new ones."""
        self._awaited: set[str] = set()
        self._routes: dict[tuple[tuple[str, ...], tuple[str, ...]], bool] = {}

    def resume(self) -> None:
        """Await, after a start, the routers that reported before; do not use the others."""
        for name in sorted(self._context.registry.routers):
            self.watch(name)

    def watch(self, name: str) -> None:
        """Await the report of a router that has no session now."""
        if name in self._context.registry.reports:
            self._awaited.add(name)
            self._context.set_timer(ABSENT_TIMER + name, self._context.settings.confirm_within_ns)
        else:
            self._mark(name, is_usable=False)

    def channel_changed(self, channel_id: int, *, is_up: bool) -> bool:
        """Set the state of a channel; return whether it has changed."""
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
        """Await all other routers if none has a session: then the broker itself was cut off."""
        others = self._context.registry.routers.keys() - {first}
        if any(self._context.tables[name].is_connected for name in others):
            return
        for name in sorted(others - self.down_routers):
            self.watch(name)

    def absence_timed_out(self, name: str) -> None:
        registry = self._context.registry
        self._awaited.discard(name)
        if name in registry.routers and not self._context.tables[name].is_connected:
            self._mark(name, is_usable=False)

    def table_refused(self, name: str) -> None:
        """Use a router that keeps refusing its table no longer for new paths."""
        self.refusing_routers.add(name)
        self._mark(name, is_usable=False)

    def table_taken(self, name: str) -> bool:
        """Return whether the router refused its table before and has now accepted one."""
        if name not in self.refusing_routers or self._context.tables[name].is_refusing:
            return False
        self.refusing_routers.discard(name)
        self._mark(name, is_usable=True)
        return True

    def update_router(self, name: str) -> bool | None:
        """Update whether a router is down; return the new state, or None if it has not changed."""
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
        self._context.reservations.allocator.avoided_routers.clear_router(name)

    def is_probed(self, channel: EventChannel) -> bool:
        ends = [
            self._context.registry.reports.get(end)
            for end in (channel.from_router, channel.to_router)
        ]
        versions = [() if report is None else report.datagram_versions for report in ends]
        return agreed_version(channel.security, *versions) >= PROBED_VERSION_MIN

    def failed_paths(self, record: Subscribed) -> list[int]:
        """Return the indices of a contract's paths that cannot work at the moment."""
        return [
            index
            for index, path in enumerate(record.paths)
            if not self.down_channels.isdisjoint(path.channel_ids)
            or not self.down_routers.isdisjoint(path.routers)
            or not self.refusing_routers.isdisjoint(path.routers)
            or self._is_cut_off(record, path)
        ]

    def refused_paths(self, record: Subscribed) -> list[int]:
        """Return the indices of a contract's paths over routers that refuse its variable's row."""
        refused = self._context.reservations.allocator.avoided_routers.of(record.variable_id)
        if not refused:
            return []
        return [
            index for index, path in enumerate(record.paths) if not refused.isdisjoint(path.routers)
        ]

    def ends(self, record: Subscribed) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the routers at which paths of a contract may begin and end at the moment."""
        return ends_of(self._context.registry, record)

    def clear_routes(self) -> None:
        """Clear the results of `has_route`, which are valid for one unit of work."""
        self._routes.clear()

    def has_route(self, sources: tuple[str, ...], targets: tuple[str, ...]) -> bool:
        """Return whether working channels connect a source with a target, whatever their load.

        When an edge with thousands of contracts fails, this avoids as many useless searches.
        """
        ends = (sources, targets)
        if ends not in self._routes:
            self._routes[ends] = not self._within_reach(sources).isdisjoint(targets)
        return self._routes[ends]

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

    def failure_reasons(self, record: Subscribed, failed: Iterable[int]) -> tuple[str, ...]:
        """Return the reason of failure of each failed path."""
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
            found.append(f"path {index + 1} is down: nothing is received from {', '.join(parts)}")
        return tuple(found)

    def row_refusal_reasons(self, record: Subscribed) -> tuple[str, ...]:
        """Return the reasons why routers on the paths cannot carry the variable."""
        tables = self._context.tables
        routers = {name for path in record.paths for name in path.routers}
        return tuple(
            f"router {name} cannot carry it: {tables[name].refused[record.variable_id]}"
            for name in sorted(tables.refusing(record.variable_id, routers))
        )

    def _is_cut_off(self, record: Subscribed, path: AllocatedPath) -> bool:
        """Return whether an end-point is no longer at the first or last router of a path."""
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
    """Return the routers at which paths of a contract or segment may begin and end now."""
    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    is_sealed = demands_sealing(record.qos)
    if record.entries:
        sources = routers_at(record.entries)
    elif (publication := registry.publications.get(record.name)) is not None:
        publisher = registry.endpoints.get(publication.publisher)
        sources = () if publisher is None else publisher.edges_usable(is_sealed=is_sealed)
    if record.exits:
        targets = routers_at(record.exits)
    elif (subscriber := registry.endpoints.get(record.subscriber)) is not None:
        targets = subscriber.edges_usable(is_receiver=True, is_sealed=is_sealed)
    return sources, targets
