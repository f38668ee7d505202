"""Effects of operations on the cloud itself: numbers, routers and event channels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gridstat.broker.records.operations import (
    ChannelAdded,
    ChannelRemoved,
    NumbersReached,
    RouterAdded,
    RouterRemoved,
    RouterReported,
    TermBegan,
)
from gridstat.model.wire_law import is_ipv6_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.effects.reservations import Reservations
    from gridstat.broker.leaf_capability import Apply
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.records.registry import Registry
    from gridstat.broker.tables.channel_plan import ChannelPlan
    from gridstat.broker.tables.router_tables import RouterTables
    from gridstat.model.cloud import EventChannel, Router


class CloudEffects:
    """Applies changes so that registry and reservations have the same routers and channels."""

    def __init__(
        self,
        registry: Registry,
        reservations: Reservations,
        tables: RouterTables,
        channel_plan: ChannelPlan,
        apply: Callable[[Operation, Applied], None],
    ) -> None:
        """`apply` applies any operation, as the removal of a router needs for its channels."""
        self._registry = registry
        self._reservations = reservations
        self._tables = tables
        self._channel_plan = channel_plan
        self._apply = apply

    def operations(self) -> dict[type[Operation], Apply]:
        return {
            TermBegan: self._begin_term,
            NumbersReached: self._reach_numbers,
            RouterAdded: self._router_added,
            RouterRemoved: self._router_removed,
            ChannelAdded: self._channel_added,
            ChannelRemoved: self._channel_removed,
        }

    # A counter needs no undo, because a skipped number does no harm.

    def _begin_term(self, operation: TermBegan, _: Applied) -> None:
        registry = self._registry
        registry.term = max(registry.term, operation.term)
        registry.journal = operation.journal or registry.journal
        if operation.lost_to:
            registry.terms_lost = operation.lost_from, operation.lost_to

    def _reach_numbers(self, operation: NumbersReached, _: Applied) -> None:
        registry = self._registry
        registry.variable_id_first = max(registry.variable_id_first, operation.variable_id_first)
        registry.variable_id_last = max(registry.variable_id_last, operation.variable_id)
        registry.subscription_id_last = max(
            registry.subscription_id_last, operation.subscription_id
        )
        registry.channel_id_last = max(registry.channel_id_last, operation.channel_id)

    def router_reported(self, operation: RouterReported, done: Applied) -> None:
        """Keep a router's report: a fact, journalled or not, that is not undone."""
        if operation.name in self._registry.routers:
            self._set_report(operation)
            done.tables += [
                partial(self._channel_plan.refresh_router, operation.name),
                partial(self._refresh_delays, operation.name, operation.takes_delay),
            ]

    def _refresh_delays(self, router: str, is_supported: bool) -> None:  # noqa: FBT001
        """Order the delays of variables that are published at a router, if it knows them."""
        published = [
            variable
            for name in sorted(self._registry.attached_to.get(router, ()))
            for one in sorted(self._registry.endpoints[name].publications)
            for variable in self._registry.publications[one].carried
        ]
        self._tables.set_delay_support(router, published, is_supported=is_supported)

    def _router_added(self, operation: RouterAdded, done: Applied) -> None:
        router = operation.router
        if router.name not in self._registry.routers:
            self._add_router(router)
            done.undo.append(partial(self._remove_router, router.name))

    def _router_removed(self, operation: RouterRemoved, done: Applied) -> None:
        name = operation.name
        router = self._registry.routers.get(name)
        if router is None:
            return
        report = self._registry.reports.get(name)
        for channel_id in sorted(self._registry.channels_of.get(name, ())):
            # Operators remove channels first; only an edited file can still contain them.
            self._apply(ChannelRemoved(channel_id=channel_id), done)
        self._remove_router(name)
        done.undo.append(partial(self._add_router, router, report))
        done.tables.append(partial(self._tables.forget, name))

    def _channel_added(self, operation: ChannelAdded, done: Applied) -> None:
        refresh, channel = self._channel_plan.refresh_pair, operation.channel
        if channel.channel_id in self._registry.channels or not self._is_possible(channel):
            return
        self._add_channel(channel)
        done.undo += [partial(refresh, channel), partial(self._remove_channel, channel)]
        done.tables.append(partial(refresh, channel))

    def _channel_removed(self, operation: ChannelRemoved, done: Applied) -> None:
        refresh = self._channel_plan.refresh_pair
        channel = self._registry.channels.get(operation.channel_id)
        if channel is None:
            return
        self._remove_channel(channel)
        done.undo += [partial(refresh, channel), partial(self._add_channel, channel)]
        done.tables.append(partial(refresh, channel))

    def _is_possible(self, channel: EventChannel) -> bool:
        """Return whether both ends exist, without such a channel yet; the file may have changed."""
        registry = self._registry
        ends = channel.from_router, channel.to_router
        is_new = channel.way not in registry.channel_on
        return is_new and all(end in registry.routers for end in ends)

    def _add_router(self, router: Router, report: RouterReported | None = None) -> None:
        self._registry.add_router(router)
        self._reservations.add_router(router)
        if report is not None:
            self._set_report(report)

    def _set_report(self, report: RouterReported) -> None:
        self._registry.reports[report.name] = report
        self._reservations.set_ip_version(report.name, is_ipv6=is_ipv6_address(report.host))

    def _remove_router(self, name: str) -> None:
        self._registry.remove_router(name)
        self._reservations.remove_router(name)

    def _add_channel(self, channel: EventChannel) -> None:
        self._registry.add_channel(channel)
        self._reservations.add_channel(channel)
        self._registry.channel_id_last = max(self._registry.channel_id_last, channel.channel_id)

    def _remove_channel(self, channel: EventChannel) -> None:
        self._registry.remove_channel(channel.channel_id)
        self._reservations.remove_channel(channel.channel_id)
