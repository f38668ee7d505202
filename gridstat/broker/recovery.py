"""Recovery from failures: mark, plan affected contracts anew, notify subscribers (S0 A19–A21).

Events are reports of routers (`ChannelStateChanged`, `BackPressureChanged`, refused rows and
tables), sessions that begin or end, end-points that move, and the absence timer of a router. Each
one marks routers and channels as up or down, and queues the affected contracts by priority. A turn
plans at most `replan_at_once` of them anew; REPLAN_TIMER continues with the next.

A contract is in one of three states:

- whole: all its paths work as far as the broker knows.
- moving: `Moved` is in the journal or on its way. `PathMoves` waits for the routers to confirm the
  new paths, and the subscriber is notified; the old paths are released later (make before break).
- impaired: a path does not work and no replacement is free. The old path stays, and resumes when
  its routers return. The subscriber is notified, and every return of a router or channel queues
  the contract again. Contracts do not move back.

Timeout: a router that does not confirm in time is named in the notice. Failed write: the contract
stays on its old paths and is planned again after `retry_after_ns`. Restart: routers report anew,
and subscribers that still see a contract as impaired say so (`report_impaired`).
"""

from __future__ import annotations

from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol

from gridstat.broker.leaf_capability import LeafCapability
from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import Moved
from gridstat.broker.requests.endpoint_presence import SETTLED_TIMER
from gridstat.broker.routers.path_moves import routers_of
from gridstat.broker.routers.row_refusals import REFUSAL_TIMER
from gridstat.net.command.router_messages import (
    BackPressureChanged,
    ChannelStateChanged,
    ReportRouter,
    TableChanged,
    TableRefused,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.path_replacement import PathReplacement
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.records.registry import Subscription
    from gridstat.broker.requests.contract_notices import ContractNotices
    from gridstat.broker.requests.endpoint_presence import EndPointPresence
    from gridstat.broker.routers.path_moves import PathMoves
    from gridstat.broker.routers.router_health import RouterHealth
    from gridstat.broker.routers.router_sessions import RouterSessions
    from gridstat.broker.routers.row_refusals import RowRefusals

REPLAN_TIMER: Final = "replan"


class SegmentListener(Protocol):
    """Receives every segment that loses paths, has them restored, or moves."""

    def segment_changed(self, found: Subscription) -> None: ...


class Recovery:
    """`_impaired` are contracts with failed paths; `_queue` those to be planned anew."""

    def __init__(
        self,
        context: BrokerContext,
        health: RouterHealth,
        contract_notices: ContractNotices,
        moves: PathMoves,
        presence: EndPointPresence,
        refusals: RowRefusals,
        replacement: PathReplacement,
        segments: SegmentListener,
        sessions: RouterSessions,
    ) -> None:
        self._context = context
        self._sessions = sessions
        self._refusals = refusals
        self._replacement = replacement
        self._segments = segments
        self._health = health
        self._contract_notices = contract_notices
        self._moves = moves
        self._presence = presence
        self._impaired: set[int] = set()
        self._queue: list[tuple[int, int]] = []
        self._queued: set[int] = set()

    def capability(self) -> LeafCapability:
        """Register what moves contracts away from failures, and back into their grant."""
        return LeafCapability(
            name="recovery",
            router_messages={
                ChannelStateChanged: self.channel_changed,
                BackPressureChanged: self.back_pressure_changed,
            },
            timers={
                REPLAN_TIMER: self.continue_replanning,
                REFUSAL_TIMER: self.refusals_expired,
            },
            named_timers={SETTLED_TIMER: self.endpoint_moved},
            router_reported=self._router_connected,
            router_lost=self._router_lost,
        )

    # Events.

    def table_changed(self, name: str, message: TableChanged) -> None:
        refused = self._sessions.take_confirmation(name, message)
        self._rows_refused(name, refused)

    def _router_connected(self, name: str, _: ReportRouter, *, is_new: bool) -> None:
        del is_new
        self._session_changed(name, is_connected=True)

    def _router_lost(self, name: str) -> None:
        self._session_changed(name, is_connected=False)

    def channel_changed(self, reporter: str, message: ChannelStateChanged) -> None:
        """Take the state of a channel, which only its receiving router can report."""
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
        # A router counts as down when it has no session and its channels are silent.
        self._update_router(channel.from_router)
        if message.is_up:
            self._enqueue(self._impaired)
        else:
            self._enqueue(registry.over_channel.get(message.channel_id, ()))
        self._replan_soon()

    def channel_withheld(self, channel_id: int, *, is_open: bool) -> None:
        """Move contracts away from a channel that cannot be opened as it should, and back."""
        if not self._health.channel_changed(channel_id, is_up=is_open):
            return
        over = self._context.registry.over_channel.get(channel_id, ())
        self._enqueue(self._impaired if is_open else over)
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
        # Contracts stay on a congested channel: only new reservations avoid it.
        if not message.is_on:
            self._enqueue(self._impaired)
            self._replan()

    def _rows_refused(self, name: str, variable_ids: Collection[int]) -> None:
        """Take the variables whose rows a router refuses now, or has refused before.

        Contracts through the router move around it; if there is no other path, their subscribers
        are notified.
        """
        if self._health.table_taken(name):
            self._enqueue(self._impaired)
            self._replan_soon()
        if not variable_ids:
            return
        new_refusals = self._refusals.update(name, variable_ids)
        self._moves.retry_refused()
        refused = self._context.tables[name].refused
        through = self._context.registry.through_router.get(name, set())
        for variable_id in variable_ids:
            subscriptions = self._subscriptions_to(variable_id)
            if variable_id in new_refusals:
                self._enqueue(subscriptions & through)
            elif variable_id in refused:  # Repeated: impaired contracts have found no other path.
                self._enqueue(subscriptions & through - self._impaired)
            else:
                self._enqueue(subscriptions & self._impaired)
        self._replan()

    def table_refused(self, name: str, message: TableRefused) -> None:
        """Move contracts away from a router that has refused its table for the last time."""
        if not self._sessions.take_refusal(name, message):
            return
        self._context.note("router_refuses", router=name, reason=self._context.tables[name].refusal)
        self._health.table_refused(name)
        self._enqueue(self._context.registry.through_router.get(name, ()))
        self._replan()

    def refusals_expired(self) -> None:
        """Try routers again that refused rows some time ago."""
        for variable_id in self._refusals.expire():
            self._enqueue(self._subscriptions_to(variable_id) & self._impaired)
        self._replan()

    def _subscriptions_to(self, variable_id: int) -> set[int]:
        registry = self._context.registry
        publication = registry.publication_by_id(variable_id)
        return set() if publication is None else publication.subscriptions

    def _session_changed(self, name: str, *, is_connected: bool) -> None:
        self._health.session_changed(name, is_connected=is_connected)
        self._update_router(name)
        if is_connected:
            self._moves.retry_refused()
            self._enqueue(self._impaired)
        self._replan()

    def router_is_absent(self, name: str) -> None:
        """Judge a router that has had time to report, also after a start of the broker."""
        self._health.absence_timed_out(name)
        if name in self._context.registry.routers:
            self._update_router(name)
            self._replan()

    def clear_faults(self, name: str, _: ReportRouter, *, is_new: bool) -> None:
        """Clear the refusals and channel states of a router that has restarted.

        Every router repeats which of its channels are congested, so that is cleared in any case. A
        channel that is no longer probed, because an end has returned with an older version,
        counts as up: no router would report that it is.
        """
        registry = self._context.registry
        if is_new:
            self._refusals.forget_router(name)
        for channel_id in sorted(registry.channels_of.get(name, ())):
            channel = registry.channels[channel_id]
            is_receiver_new = is_new and channel.to_router == name
            if is_receiver_new or not self._health.is_probed(channel):
                self._health.channel_changed(channel_id, is_up=True)
                self._update_router(channel.from_router)
            if channel.from_router == name:
                resources = self._context.reservations.resources
                resources.mark_back_pressure(channel_id, is_on=False)

    def endpoint_moved(self, name: str) -> None:
        """Plan the contracts of an end-point anew after it has joined or left an edge.

        Paths from or to an edge that it left need another edge, and a further edge may restore a
        contract that is below its grant.
        """
        registry = self._context.registry
        endpoint = registry.endpoints.get(name)
        if endpoint is None:
            return
        subscriptions = [registry.publications[one].subscriptions for one in endpoint.publications]
        self._enqueue(
            number
            for number in endpoint.subscriptions.union(*subscriptions)
            if self._needs_planning(registry.subscriptions[number].record)
        )
        self._replan()

    def report_impaired(self, subscriber: str, number: int) -> None:
        """Notify a subscriber that sees a contract as impaired, if the contract is whole.

        The broker may have restarted since the failure was notified, and the paths may work again.
        No notice is sent while a router of the paths has not reported, because its channels are
        not known then.
        """
        found = self._context.registry.subscriptions.get(number)
        if found is None or found.record.subscriber != subscriber or found.record.contract:
            return
        if self.is_whole(found):
            self._notify(found, ())

    def is_whole(self, found: Subscription) -> bool:
        """Return whether a contract has no failed path, and all its routers are connected."""
        if found.troubles or self._replacement.broken_paths(found.record):
            return False
        return all(self._context.tables[name].is_connected for name in routers_of((found.record,)))

    def continue_replanning(self) -> None:
        """Plan the next contracts of a failure that affected many."""
        self._replan()

    def _update_router(self, router: str) -> None:
        is_down = self._health.update_router(router)
        if is_down is None:
            return
        self._context.note("router_down" if is_down else "router_up", router=router)
        if is_down:
            self._presence.edge_is_down(router)
            self._enqueue(self._context.registry.through_router.get(router, ()))
        else:
            self._enqueue(self._impaired)

    def _needs_planning(self, record: Subscribed) -> bool:
        return (
            record.subscription_id in self._impaired
            or bool(self._health.failed_paths(record))
            or self._replacement.is_crowded(record)
        )

    # Planning anew.

    def _enqueue(self, subscription_ids: Iterable[int]) -> None:
        """Queue contracts in the order of their priority."""
        registry = self._context.registry
        for number in subscription_ids:
            found = registry.subscriptions.get(number)
            if found is not None and number not in self._queued:
                self._queued.add(number)
                priority = min(qos.priority for qos in found.record.granted.values())
                self._queue.append((priority, number))
        heapify(self._queue)

    def _replan_soon(self) -> None:
        """Plan after the events that wait already: they may report that the failure is over."""
        if self._queue:
            self._context.set_timer(REPLAN_TIMER, 0)

    def _replan(self) -> None:
        # Reachability is cached for one slice; failures since the last have made it stale.
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
                pair = self._repair(found, applied, operations)
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

    def _repair(
        self, found: Subscription, applied: Applied, operations: list[Operation]
    ) -> tuple[Subscribed, Subscribed] | None:
        """Replace the failed paths of a contract; return its old and new record if it moves."""
        old = found.record
        record = self._replacement.around_failures(found) or old
        record = self._replacement.onto_free_edge(found, record) or record
        self._set_troubles(found, record, is_moved=record is not old)
        if record is old:
            return None
        operation = Moved(subscription=record, until_retired=True)
        self._context.effects.apply(operation, applied)
        operations.append(operation)
        return old, record

    def _set_troubles(self, found: Subscription, record: Subscribed, *, is_moved: bool) -> None:
        still = self._health.failed_paths(record)
        troubles = (
            *self._health.failure_reasons(record, still),
            *self._health.row_refusal_reasons(record),
        )
        before, found.troubles = found.troubles, troubles
        if troubles:
            self._impaired.add(record.subscription_id)
        else:
            self._impaired.discard(record.subscription_id)
        if troubles != before and not is_moved:
            self._notify(found, ())

    def _notify(self, found: Subscription, silent: Iterable[str]) -> None:
        if found.record.contract:
            self._segments.segment_changed(found)
            return
        self._contract_notices.push_present(found, silent)

    def _when_durable(self, moved: list[tuple[Subscribed, Subscribed]], _: Applied) -> None:
        for old, new in moved:
            self._moves.follow(old, new, partial(self._move_confirmed, new))

    def _move_confirmed(self, new: Subscribed, silent: list[str]) -> None:
        found = self._context.registry.subscriptions.get(new.subscription_id)
        if found is not None and found.record is new:
            self._notify(found, silent)

    def _when_failed(self, subscription_ids: list[int], _: str) -> None:
        """Queue contracts again whose move could not be written; their old paths stay."""
        for number in subscription_ids:
            if number in self._context.registry.subscriptions:
                self._impaired.add(number)
                if number not in self._queued:
                    self._queued.add(number)
                    heappush(self._queue, (0, number))
        self._context.set_timer(REPLAN_TIMER, self._context.settings.retry_after_ns)
