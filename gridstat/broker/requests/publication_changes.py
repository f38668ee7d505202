"""A variable changes its period from an announced slot, without a gap.

It gets a new identifier, its subscriptions get paths for that one, and only when all routers have
confirmed is the first slot of the new period announced, to the publisher and to the subscribers.
The old identifier is carried until the last old event has certainly arrived.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from gridstat.broker.capacity.allocation import AllocationRequest, Refusal
from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import (
    Answered,
    Moved,
    PublicationAnnounced,
    PublicationMoved,
    PublicationRetired,
)
from gridstat.broker.requests.outcomes import encode_outcomes, granted, refused
from gridstat.broker.requests.request_checks import checked_rate, edge_refusal
from gridstat.broker.requests.subscriptions import renewed
from gridstat.broker.routers.path_moves import has_confirmed_path, routers_of
from gridstat.model.errors import InvalidPeriod, NotPublished, Refused, StillInUse
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import NS_PER_S, slot_of
from gridstat.net.command.endpoint_messages import PublicationChanged, PublishedOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.records.registry import Publication
    from gridstat.broker.requests.notices import Notices
    from gridstat.broker.requests.request_intake import Request, RequestIntake
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import ChangePublication

OVER_TIMER: Final = "changed/"


class PublicationChanges:
    """At most one change of a variable is under way; its steps are durable, so none is lost."""

    def __init__(
        self,
        context: BrokerContext,
        requests: RequestIntake,
        notices: Notices,
        take_number: Callable[[], int],
    ) -> None:
        self._take_number = take_number
        self._context = context
        self._requests = requests
        self._notices = notices

    def change(self, request: Request, command: ChangePublication) -> None:
        registry = self._context.registry
        publication = registry.publications.get(command.name)
        if publication is None or publication.publisher != request.endpoint:
            raise NotPublished(f"{request.endpoint} does not publish {command.name[:80]}")
        old = publication.variable
        if old.period is None:
            raise InvalidPeriod(f"{old.name} is aperiodic and has no period to change")
        if (old.period, old.phase_ns) == (command.period, command.phase_ns):
            from_ns = 0 if publication.change is None else publication.change.from_ns
            self._requests.answer(request, (PublishedOutcome(variable=old, from_ns=from_ns),))
            return
        if self._is_taken_elsewhere(publication):
            raise StillInUse(
                f"{old.name} is taken in other clouds, which know it by its period",
                hint="unpublish it and publish it anew, with the other period",
            )
        if publication.change is not None:
            raise Refused(
                f"the last change of {old.name} is not over yet",
                hint="ask again in a few seconds",
            )
        if old.name in registry.floods:
            raise StillInUse(
                f"{old.name} floods the cloud, and its routers know it by its period",
                hint="let an operator stop the flooding first: `gridstat flood --stop`",
            )
        new = replace(
            old,
            variable_id=VariableId(self._take_number()),
            period=command.period,
            phase_ns=command.phase_ns,
        )
        checked_rate(new)
        applied = Applied()
        moves = self._move_all(publication, new, applied)
        if isinstance(moves, Refusal):
            applied.roll_back()
            self._requests.answer(request, (refused(moves),))
            return
        operations: list[Operation] = [PublicationMoved(variable=new), *moves]
        then = partial(self._when_durable, new.name, request)
        self._context.commit_applied(applied, operations, then, self._requests.fail(request))

    def _is_taken_elsewhere(self, publication: Publication) -> bool:
        """Also by what looks for a place at the moment."""
        registry, name = self._context.registry, publication.variable.name
        live = (registry.subscriptions[one].record for one in publication.subscriptions)
        homeless = (one for one in registry.homeless.values() if one.name == name)
        return any(record.exits for record in chain(live, homeless))

    def resume(self) -> None:
        """After a start: go on with the changes that were under way."""
        for name in sorted(self._context.registry.changing):
            change = self._context.registry.publications[name].change
            if change is not None and change.from_ns:
                self._set_timer(name, change.from_ns)
            else:
                self._await_routers(name, None)

    def is_over(self, name: str) -> None:
        publication = self._context.registry.publications.get(name)
        if publication is None or publication.change is None:
            return
        self._context.commit(
            [PublicationRetired(name=name)], _nothing, self._retry(OVER_TIMER + name)
        )

    def _move_all(
        self, publication: Publication, new: StatusVariable, applied: Applied
    ) -> list[Moved] | Refusal:
        """New paths for every subscription, or why one of them cannot have any."""
        registry, effects = self._context.registry, self._context.effects
        publisher = registry.endpoints[publication.publisher]
        resources = self._context.reservations.resources
        going = (publication.variable,)
        no_room = edge_refusal(resources, publisher.attachments, (new,), going)
        if no_room is not None:
            return no_room
        effects.apply(PublicationMoved(variable=new), applied)
        moves = []
        for number in sorted(publication.subscriptions):
            old = registry.subscriptions[number].record
            publisher = registry.endpoints[publication.publisher]
            subscriber = registry.endpoints[old.subscriber]
            request = AllocationRequest(
                subscription_id=number,
                variable=new,
                sources=publisher.edges_usable(),
                targets=subscriber.edges_usable(is_receiver=True),
                qos=old.qos,
                subscriber=old.subscriber,
            )
            allocated = self._context.reservations.change(request)
            if isinstance(allocated, Refusal):
                reason = f"the subscription of {old.subscriber} does not fit: {allocated.reason}"
                return replace(allocated, reason=reason)
            record = renewed(old, allocated)
            moved = Moved(subscription=record, with_publication=True)
            moves.append(moved)
            effects.apply(moved, applied)
        return moves

    def _when_durable(self, name: str, request: Request, _: Applied) -> None:
        self._await_routers(name, request)

    def _await_routers(self, name: str, request: Request | None) -> None:
        registry = self._context.registry
        publication = registry.publications.get(name)
        if publication is None:
            self._gone(name, request)
            return
        records = [registry.subscriptions[number].record for number in publication.subscriptions]
        publisher = registry.endpoints.get(publication.publisher)
        edges = frozenset(() if publisher is None else publisher.attachments)

        def judge(silent: Set[str]) -> bool:
            is_sourced = not edges or bool(edges - silent)
            return is_sourced and all(has_confirmed_path(record, silent) for record in records)

        def confirmed(waiting: object) -> None:
            del waiting
            self._announce(name, request)

        self._context.tables.await_confirmations(
            routers_of(records) | edges,
            confirmed,
            deadline_ns=self._context.now_ns + self._context.settings.confirm_within_ns,
            judge=judge,
        )

    def _announce(self, name: str, request: Request | None) -> None:
        """All routers know the new identifier, or had their time; now it may come into use."""
        publication = self._context.registry.publications.get(name)
        if publication is None or publication.change is None:
            self._gone(name, request)
            return
        variable = publication.variable
        earliest_ns = self._context.outside.wall_clock_ns() + self._context.settings.change_lead_ns
        from_ns = first_slot_ns(variable, earliest_ns)
        operations: list[Operation] = [PublicationAnnounced(name=name, from_ns=from_ns)]
        body = encode_outcomes((PublishedOutcome(variable=variable, from_ns=from_ns),))
        if request is not None:
            operations.append(
                Answered(endpoint=request.endpoint, request_id=request.request_id, body=body)
            )
        self._context.commit(
            operations,
            partial(self._tell, name, from_ns, request, body),
            partial(self._again, name, request),
        )

    def _tell(
        self, name: str, from_ns: int, request: Request | None, body: bytes, _: Applied
    ) -> None:
        if request is not None:
            self._requests.send(request, body)
        registry = self._context.registry
        publication = registry.publications.get(name)
        if publication is None:
            return
        for number in sorted(publication.subscriptions):
            record: Subscribed = registry.subscriptions[number].record
            notice = PublicationChanged(
                subscription_id=number,
                variable=publication.variable,
                granted=granted(record, publication.variable, detection=self._context.detection),
                from_ns=from_ns,
            )
            self._notices.push(record.subscriber, notice)
        self._set_timer(name, from_ns)

    def _set_timer(self, name: str, from_ns: int) -> None:
        ahead_ns = max(0, from_ns - self._context.outside.wall_clock_ns())
        self._context.set_timer(
            OVER_TIMER + name, ahead_ns + self._context.settings.retire_after_ns
        )

    def _again(self, name: str, request: Request | None, reason: str) -> None:
        """The disk is full: the new identifier is carried, and announced when it can be."""
        if request is not None:
            self._requests.fail(request)(reason)
        self._await_routers(name, None)

    def _gone(self, name: str, request: Request | None) -> None:
        if request is not None:
            self._requests.refuse(request, NotPublished(f"{name} was withdrawn meanwhile"))

    def _retry(self, timer: str) -> Callable[[str], None]:
        return lambda _: self._context.set_timer(timer, self._context.settings.retry_after_ns)


def first_slot_ns(variable: StatusVariable, earliest_ns: int) -> int:
    """The time of the first slot of a variable's law that is not before `earliest_ns`."""
    assert variable.period is not None
    period, phase_ns = variable.period, variable.phase_ns
    slot = slot_of(earliest_ns, period, phase_ns)
    while True:
        # Rounded up, so that the stamp belongs to this slot and never to the one before.
        numerator = slot * period.seconds * NS_PER_S
        at_ns = phase_ns - (-numerator // period.per_seconds)
        if at_ns >= earliest_ns:
            return at_ns
        slot += 1


def _nothing(_: Applied) -> None:
    """The tables have changed, and nobody waits for it."""
