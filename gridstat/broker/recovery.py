"""Failures and returns: mark, re-plan what is touched, tell the subscribers (S0 A19–A21).

A path that fails is replaced by one that avoids what is down and its siblings, make before break.
If there is none the old one stays and resumes by itself. Nothing moves back on a return; what runs
below its grant is tried again.
"""

from __future__ import annotations

from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol

from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import Moved
from gridstat.broker.requests.outcomes import granted
from gridstat.broker.routers.path_moves import routers_of
from gridstat.net.command.endpoint_messages import ContractChanged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.path_replacement import PathReplacement
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.records.registry import Subscription
    from gridstat.broker.requests.endpoint_presence import EndPointPresence
    from gridstat.broker.requests.notices import Notices
    from gridstat.broker.routers.path_moves import PathMoves
    from gridstat.broker.routers.router_health import RouterHealth
    from gridstat.broker.routers.row_refusals import RowRefusals
    from gridstat.net.command.router_messages import BackPressureChanged, ChannelStateChanged

REPLAN_TIMER: Final = "replan"


class SegmentListener(Protocol):
    """Receives every segment that loses paths, has them restored, or moves."""

    def segment_changed(self, found: Subscription) -> None: ...


class Recovery:
    """`_impaired` are the contracts with troubles; `_queue` those to be looked at, urgent first."""

    def __init__(
        self,
        context: BrokerContext,
        health: RouterHealth,
        notices: Notices,
        moves: PathMoves,
        presence: EndPointPresence,
        refusals: RowRefusals,
        replacement: PathReplacement,
        segments: SegmentListener,
    ) -> None:
        self._context = context
        self._refusals = refusals
        self._replacement = replacement
        self._segments = segments
        self._health = health
        self._notices = notices
        self._moves = moves
        self._presence = presence
        self._impaired: set[int] = set()
        self._queue: list[tuple[int, int]] = []
        self._queued: set[int] = set()

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
        news = self._refusals.take(name, variable_ids)
        self._moves.go_on()
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

    def session_changed(self, name: str, *, is_connected: bool) -> None:
        self._health.session_changed(name, is_connected=is_connected)
        self._judge(name)
        if is_connected:
            self._moves.go_on()
            self._look_at(self._impaired)
        self._replan()

    def absence_is_long(self, name: str) -> None:
        """It has had time to report, also to a broker that has just started."""
        self._health.absence_is_long(name)
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
        if found.troubles or self._replacement.broken_paths(found.record):
            return False
        return all(self._context.tables[name].is_connected for name in routers_of((found.record,)))

    def continue_replanning(self) -> None:
        """Look at the next few contracts of a failure that touched many."""
        self._replan()

    def _judge(self, router: str) -> None:
        is_down = self._health.judge(router)
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
            or self._replacement.is_crowded(record)
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
        self._health.forget_ways()
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
        words = (*self._health.words(record, still), *self._health.refusals(record))
        before, found.troubles = found.troubles, words
        if words:
            self._impaired.add(record.subscription_id)
        else:
            self._impaired.discard(record.subscription_id)
        if words != before and not is_moved:
            self._tell(found, ())

    def _tell(self, found: Subscription, silent: Iterable[str]) -> None:
        if found.record.contract:
            self._segments.segment_changed(found)
            return
        words = tuple(f"router {name} has not confirmed its part yet" for name in silent)
        outcome = granted(
            found.record,
            found.variable,
            (*found.troubles, *words),
            detection=self._context.detection,
            down=self._replacement.broken_paths(found.record),
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
