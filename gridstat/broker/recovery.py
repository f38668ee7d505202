"""Failures and returns: mark, re-plan what is touched, tell the subscribers (S0 A19–A21).

A path that fails is replaced by one that avoids what is down and its siblings, make before break.
If there is none the old one stays and resumes by itself. Nothing moves back on a return; what runs
below its grant is tried again.
"""

from __future__ import annotations

from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from gridstat.broker.capacity.allocation import AllocationRequest, Refusal
from gridstat.broker.effects.contract_effects import allocation_of, uses_its_gates
from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import Moved
from gridstat.broker.requests.outcomes import granted
from gridstat.broker.requests.subscriptions import renewed
from gridstat.broker.routers.path_moves import routers_of
from gridstat.broker.routers.row_refusals import RowRefusals
from gridstat.net.command.endpoint_messages import ContractChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from gridstat.broker.capacity.allocation import Allocation
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.records.registry import Subscription
    from gridstat.broker.requests.endpoint_presence import EndPointPresence
    from gridstat.broker.requests.notices import Notices
    from gridstat.broker.routers.path_moves import PathMoves
    from gridstat.broker.routers.router_health import RouterHealth
    from gridstat.net.command.router_messages import BackPressureChanged, ChannelStateChanged

REPLAN_TIMER: Final = "replan"


class Recovery:
    """`_impaired` are the contracts with troubles; `_queue` those to be looked at, urgent first."""

    def __init__(
        self,
        context: BrokerContext,
        health: RouterHealth,
        notices: Notices,
        moves: PathMoves,
        presence: EndPointPresence,
    ) -> None:
        self._context = context
        self._refusals = RowRefusals(context)
        self._health = health
        self._notices = notices
        self._moves = moves
        self._presence = presence
        self._impaired: set[int] = set()
        self._queue: list[tuple[int, int]] = []
        self._queued: set[int] = set()
        self.segment_changed: Callable[[Subscription], None] = _nobody
        """Whom to tell of a segment that has lost paths, has them back, or has moved."""

    # What happened.

    def channel_changed(self, reporter: str, message: ChannelStateChanged) -> None:
        """Only the router that hears a channel can say whether it is silent."""
        registry = self._context.registry
        channel = registry.channels.get(message.channel_id)
        if channel is None or channel.to_router != reporter:
            return
        if not self._health.channel_changed(message.channel_id, is_up=message.is_up):
            return
        self._context.note(
            "channel_up" if message.is_up else "channel_down",
            channel=channel.label,
            silent_ms=message.silent_ms,
        )
        self._judge(channel.from_router)
        if message.is_up:
            self._look_at(self._impaired)
        else:
            self._look_at(registry.over_channel.get(message.channel_id, ()))
        self._replan_soon()

    def back_pressure_changed(self, reporter: str, message: BackPressureChanged) -> None:
        channel = self._context.registry.channels.get(message.channel_id)
        if channel is None or channel.from_router != reporter:
            return
        resources = self._context.reservations.resources
        resources.mark_back_pressure(message.channel_id, is_on=message.is_on)
        self._context.note(
            "back_pressure_on" if message.is_on else "back_pressure_off",
            channel=channel.label,
            queued_events=message.queued_events,
        )
        if not message.is_on:
            self._look_at(self._impaired)
            self._replan()

    def rows_refused(self, name: str, variable_ids: Collection[int]) -> None:
        """A router's core cannot hold the rows of some variables, or could not before.

        Contracts over it look for a way round it, and are told if there is none.
        """
        if self._health.table_taken(name):
            self._look_at(self._impaired)
            self._replan_soon()
        if not variable_ids:
            return
        news = self._refusals.update(name, variable_ids)
        self._moves.retry_refused()
        refused = self._context.tables[name].refused
        through = self._context.registry.through_router.get(name, set())
        for variable_id in variable_ids:
            taken = self._subscriptions_to(variable_id)
            if variable_id in news:
                self._look_at(taken & through)
            elif variable_id in refused:  # As before: whoever knows has looked in vain.
                self._look_at(taken & through - self._impaired)
            else:
                self._look_at(taken & self._impaired)
        self._replan()

    def table_refused(self, name: str, *, is_over: bool) -> None:
        """Once its tries are over, contracts over a router go elsewhere, or are told."""
        if not is_over:
            return
        self._context.note("router_refuses", router=name, reason=self._context.tables[name].refusal)
        self._health.table_refused(name)
        self._look_at(self._context.registry.through_router.get(name, ()))
        self._replan()

    def refusals_expired(self) -> None:
        """Routers that refused rows a while ago may hold them now."""
        for variable_id in self._refusals.expire():
            self._look_at(self._subscriptions_to(variable_id) & self._impaired)
        self._replan()

    def _subscriptions_to(self, variable_id: int) -> set[int]:
        registry = self._context.registry
        publication = registry.publication_by_id(variable_id)
        return set() if publication is None else publication.subscriptions

    def way_round(self, record: Subscribed) -> Subscribed | None:
        """Another path for a contract of which a router has just refused the row, reserved."""
        for name in routers_of((record,)):
            self._refusals.update(name, self._context.tables[name].refused)
        found = self._context.registry.subscriptions.get(record.subscription_id)
        if found is None or found.record is not record:
            return None
        self._health.clear_routes()
        return self._moved_round(found)

    def session_changed(self, name: str, *, is_connected: bool) -> None:
        self._health.session_changed(name, is_connected=is_connected)
        self._judge(name)
        if is_connected:
            self._moves.retry_refused()
            self._look_at(self._impaired)
        self._replan()

    def absence_is_long(self, name: str) -> None:
        """It has had time to report, also to a broker that has just started."""
        self._health.absence_timed_out(name)
        if name in self._context.registry.routers:
            self._judge(name)
            self._replan()

    def router_reported(self, name: str, *, is_new: bool) -> None:
        """A new process has neither full queues nor complaints; it tells of its own.

        A channel that cannot be probed any more, since an end has returned with an older version,
        is up as far as anybody can tell: nobody would ever say so.
        """
        registry = self._context.registry
        if is_new:
            self._refusals.forget_router(name)
        for channel_id in sorted(registry.channels_of.get(name, ())):
            channel = registry.channels[channel_id]
            is_heard_anew = is_new and channel.to_router == name
            if is_heard_anew or not self._health.is_probed(channel):
                self._health.channel_changed(channel_id, is_up=True)
                self._judge(channel.from_router)
            if is_new and channel.from_router == name:
                resources = self._context.reservations.resources
                resources.mark_back_pressure(channel_id, is_on=False)

    def endpoint_moved(self, name: str) -> None:
        """A publisher or a subscriber has come to an edge, or is gone from one.

        What leads from or to an edge where it no longer is looks for another way; another edge
        may mend what runs below its grant.
        """
        registry = self._context.registry
        endpoint = registry.endpoints.get(name)
        if endpoint is None:
            return
        taken = [registry.publications[one].subscriptions for one in endpoint.publications]
        self._look_at(
            number
            for number in endpoint.subscriptions.union(*taken)
            if self._is_worth_a_look(registry.subscriptions[number].record)
        )
        self._replan()

    def held_impaired(self, subscriber: str, number: int) -> None:
        """A subscriber has paths for broken; if all is well, as far as is known, it is told so.

        The broker that told it may have died since, and what was broken works again. Nothing is
        said while a router on the way has not reported: what it hears is not known then.
        """
        found = self._context.registry.subscriptions.get(number)
        if found is None or found.record.subscriber != subscriber or found.record.contract:
            return
        if self.is_whole(found):
            self._tell(found, ())

    def is_whole(self, found: Subscription) -> bool:
        """Whether nothing is wrong with a contract, and all routers on its way would say so."""
        if found.troubles or self._broken_paths(found.record):
            return False
        return all(self._context.tables[name].is_connected for name in routers_of((found.record,)))

    def continue_replanning(self) -> None:
        """Look at the next few contracts of a failure that touched many."""
        self._replan()

    def _judge(self, router: str) -> None:
        is_down = self._health.update_router(router)
        if is_down is None:
            return
        self._context.note("router_down" if is_down else "router_up", router=router)
        if is_down:
            self._presence.edge_is_down(router)
            self._look_at(self._context.registry.through_router.get(router, ()))
        else:
            self._look_at(self._impaired)

    def _is_worth_a_look(self, record: Subscribed) -> bool:
        return (
            record.subscription_id in self._impaired
            or bool(self._health.failed_paths(record))
            or self._crowded(record) is not None
        )

    # Re-planning.

    def _look_at(self, subscription_ids: Iterable[int]) -> None:
        """Queue contracts, to be looked at in the order of their priority."""
        registry = self._context.registry
        for number in subscription_ids:
            found = registry.subscriptions.get(number)
            if found is not None and number not in self._queued:
                self._queued.add(number)
                priority = min(qos.priority for qos in found.record.granted.values())
                self._queue.append((priority, number))
        heapify(self._queue)

    def _replan_soon(self) -> None:
        """Once all that waits has been heard: after a pause of the broker it may be over again."""
        if self._queue:
            self._context.set_timer(REPLAN_TIMER, 0)

    def _replan(self) -> None:
        self._health.clear_routes()
        applied = Applied()
        operations: list[Operation] = []
        moved: list[tuple[Subscribed, Subscribed]] = []
        for _ in range(self._context.settings.replan_at_once):
            if not self._queue:
                break
            _, number = heappop(self._queue)
            self._queued.discard(number)
            found = self._context.registry.subscriptions.get(number)
            if found is not None:
                pair = self._mend(found, applied, operations)
                moved += [] if pair is None else [pair]
        if operations:
            self._context.note(
                "contracts_moved", count=len(moved), first=moved[0][0].subscription_id
            )
            self._context.commit_applied(
                applied,
                operations,
                partial(self._when_durable, moved),
                partial(self._when_failed, [old.subscription_id for old, _ in moved]),
            )
        if self._queue:
            self._context.set_timer(REPLAN_TIMER, 0)

    def _mend(
        self, found: Subscription, applied: Applied, operations: list[Operation]
    ) -> tuple[Subscribed, Subscribed] | None:
        """Replace the failed paths of a contract as far as possible; old and new if it moves."""
        old = found.record
        record = self._moved_round(found) or old
        crowded = self._crowded(record)
        if crowded is not None and not self._health.failed_paths(record):
            index, edges = crowded
            request = self._request(found)
            spread = self._context.reservations.replace_path(request, index, edges)
            record = self._after(old, spread) or record
        self._set_troubles(found, record, is_moved=record is not old)
        if record is old:
            return None
        operation = Moved(subscription=record, until_retired=True)
        self._context.effects.apply(operation, applied)
        operations.append(operation)
        return old, record

    def _moved_round(self, found: Subscription) -> Subscribed | None:
        """The contract with other paths in the place of those that do not work, if there are."""
        old = record = found.record
        for index in self._broken_paths(old):
            if index not in self._broken_paths(record):
                continue  # All paths were chosen anew for the sake of one before.
            record = self._after(old, self._replace(found, index)) or record
        return None if record is old else record

    def _broken_paths(self, record: Subscribed) -> list[int]:
        failed, refused = self._health.failed_paths(record), self._health.refused_paths(record)
        return sorted({*failed, *refused}) if refused else failed

    def _replace(self, found: Subscription, index: int) -> Allocation | Refusal | None:
        """Another path, of the same quality; from or to the edges where the end-points are now.

        If none is left and the end-points are elsewhere, any quality of the band will do. None
        where nothing that is up leads from end to end.
        """
        record, request = found.record, self._request(found)
        if not self._health.has_route(request.sources, request.targets):
            return None
        allocated = self._context.reservations.replace_path(request, index)
        is_elsewhere = (request.sources, request.targets) != (record.sources, record.targets)
        if not isinstance(allocated, Refusal) or not is_elsewhere:
            return allocated
        if len(self._health.failed_paths(record)) < len(record.paths):
            return allocated  # What works is not given up for less than was granted.
        return self._context.reservations.change(request)

    def _request(self, found: Subscription) -> AllocationRequest:
        sources, targets = self._health.ends(found.record)
        return AllocationRequest(
            subscription_id=found.record.subscription_id,
            variable=found.variable,
            sources=sources or found.record.sources,
            targets=targets or found.record.targets,
            qos=found.record.qos,
            subscriber=found.record.subscriber,
            entries=found.record.entries,
            exits=found.record.exits,
        )

    def _crowded(self, record: Subscribed) -> tuple[int, set[str]] | None:
        """A path that shares an edge with another while one is free, and the edges in use."""
        if not record.shares_edge:
            return None
        sources, targets = self._health.ends(record)
        for at, edges in ((0, sources), (-1, targets)):
            used = [path.routers[at] for path in record.paths]
            if len(set(used)) < min(len(used), len(edges)):
                index = next(i for i, edge in enumerate(used) if edge in used[:i])
                return index, set(used)
        return None

    def _after(self, old: Subscribed, allocated: Allocation | Refusal | None) -> Subscribed | None:
        if allocated is None or isinstance(allocated, Refusal):
            return None
        record = renewed(old, allocated)
        if uses_its_gates(record):
            return record
        found = self._context.registry.subscriptions[old.subscription_id]
        before = allocation_of(old, found.variable)
        self._context.reservations.revert_change(before, record.generation)
        return None

    def _set_troubles(self, found: Subscription, record: Subscribed, *, is_moved: bool) -> None:
        still = self._health.failed_paths(record)
        words = (
            *self._health.failure_reasons(record, still),
            *self._health.row_refusal_reasons(record),
        )
        before, found.troubles = found.troubles, words
        if words:
            self._impaired.add(record.subscription_id)
        else:
            self._impaired.discard(record.subscription_id)
        if words != before and not is_moved:
            self._tell(found, ())

    def _tell(self, found: Subscription, silent: Iterable[str]) -> None:
        if found.record.contract:
            self.segment_changed(found)
            return
        words = tuple(f"router {name} has not confirmed its part yet" for name in silent)
        outcome = granted(
            found.record,
            found.variable,
            (*found.troubles, *words),
            detection=self._context.detection,
            down=self._broken_paths(found.record),
        )
        self._notices.push(found.record.subscriber, ContractChanged(granted=outcome))

    def _when_durable(self, moved: list[tuple[Subscribed, Subscribed]], _: Applied) -> None:
        for old, new in moved:
            self._moves.follow(old, new, partial(self._told, new))

    def _told(self, new: Subscribed, silent: list[str]) -> None:
        found = self._context.registry.subscriptions.get(new.subscription_id)
        if found is not None and found.record is new:
            self._tell(found, silent)

    def _when_failed(self, subscription_ids: list[int], _: str) -> None:
        """The disk is full: the old paths stay, and are looked at again a little later."""
        for number in subscription_ids:
            if number in self._context.registry.subscriptions:
                self._impaired.add(number)
                if number not in self._queued:
                    self._queued.add(number)
                    heappush(self._queue, (0, number))
        self._context.set_timer(REPLAN_TIMER, self._context.settings.retry_after_ns)


def _nobody(_: Subscription) -> None:
    """Without a parent there are no segments."""
