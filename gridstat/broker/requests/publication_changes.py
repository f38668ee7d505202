"""Change of the period of a variable, from an announced slot and without a gap.

A change passes these states, each durable before the next:

- moved (`PublicationMoved`, `Moved`): the variable has a new identifier, and all its subscriptions
  have paths for it. The routers confirm, or the deadline passes.
- announced (`PublicationAnnounced`): the first slot of the new period is fixed, at least
  `change_lead_ns` ahead. The publisher receives the answer, subscribers `PublicationChanged`.
- retired (`PublicationRetired`): `retire_after_ns` after the first new slot, when the last event of
  the old identifier has certainly arrived, the routers drop the old identifier.

A failed write of the first step refuses the request. Later failures are tried again. After a
restart `resume` continues each change from its last durable state, without an answer: the publisher
repeats its request.
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
from gridstat.broker.requests.outcomes import encode_outcomes, refused
from gridstat.broker.requests.request_checks import checked_rate, edge_refusal
from gridstat.broker.requests.subscriptions import renewed
from gridstat.broker.routers.path_moves import has_confirmed_path, routers_of
from gridstat.broker.unit_of_work import no_op
from gridstat.model.errors import InvalidPeriod, NotPublished, Refused, StillInUse
from gridstat.model.identifiers import VariableId
from gridstat.model.qos import demands_sealing
from gridstat.model.rate_law import NS_PER_S, slot_of
from gridstat.net.command.endpoint_messages import PublishedOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Set

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.records.registry import Publication
    from gridstat.broker.requests.contract_notices import ContractNotices
    from gridstat.broker.requests.request import Request
    from gridstat.broker.requests.request_intake import RequestIntake
    from gridstat.broker.tables.confirmation import Confirmation
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import ChangePublication

CHANGE_TIMER: Final = "changed/"


class PublicationChanges:
    """Each variable has at most one change under way."""

    def __init__(
        self,
        context: BrokerContext,
        requests: RequestIntake,
        contract_notices: ContractNotices,
        take_number: Callable[[], int],
    ) -> None:
        self._take_number = take_number
        self._context = context
        self._requests = requests
        self._contract_notices = contract_notices

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
        # Other clouds identify the variable by its identifier and period, which would both change.
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
        refusal = self._context.capabilities.objection(command)
        if refusal is not None:
            self._requests.answer(request, (refused(refusal),))
            return
        new = replace(
            old,
            variable_id=VariableId(self._take_number()),
            period=command.period,
            phase_ns=command.phase_ns,
        )
        checked_rate(new)
        self._context.permissions.check_publication(request.endpoint, new, old)
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
        """Return whether other clouds have contracts for it, also such as have no path now."""
        registry, name = self._context.registry, publication.variable.name
        live = (registry.subscriptions[one].record for one in publication.subscriptions)
        unplaced = (one for one in registry.unplaced.values() if one.name == name)
        return any(record.exits for record in chain(live, unplaced))

    def resume(self) -> None:
        """Continue the changes that were under way before a start."""
        for name in sorted(self._context.registry.changing):
            change = self._context.registry.publications[name].change
            if change is not None and change.from_ns:
                self._set_timer(name, change.from_ns)
            else:
                self._await_routers(name, None)

    def retire_old(self, name: str) -> None:
        publication = self._context.registry.publications.get(name)
        if publication is None or publication.change is None:
            return
        self._context.commit(
            [PublicationRetired(name=name)], no_op, partial(self._retry, CHANGE_TIMER + name)
        )

    def _move_all(
        self, publication: Publication, new: StatusVariable, applied: Applied
    ) -> list[Moved] | Refusal:
        """Allocate new paths for every subscription, or return the refusal of one."""
        registry, effects = self._context.registry, self._context.effects
        publisher = registry.endpoints[publication.publisher]
        resources = self._context.reservations.resources
        going = (publication.variable,)
        edge_is_full = edge_refusal(resources, publisher.attachments, (new,), going)
        if edge_is_full is not None:
            return edge_is_full
        effects.apply(PublicationMoved(variable=new), applied)
        moves = []
        for number in sorted(publication.subscriptions):
            old = registry.subscriptions[number].record
            publisher = registry.endpoints[publication.publisher]
            subscriber = registry.endpoints[old.subscriber]
            is_sealed = demands_sealing(old.qos)
            request = AllocationRequest(
                subscription_id=number,
                variable=new,
                sources=publisher.edges_usable(is_sealed=is_sealed),
                targets=subscriber.edges_usable(is_receiver=True, is_sealed=is_sealed),
                qos=old.qos,
                subscriber=old.subscriber,
                charged_to=old.charged_to,
            )
            # The publisher changes the period: a share of the subscriber does not prevent it.
            allocated = self._context.reservations.change(request, is_kept=True)
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
            self._refuse_withdrawn(name, request)
            return
        records = [registry.subscriptions[number].record for number in publication.subscriptions]
        publisher = registry.endpoints.get(publication.publisher)
        edges = frozenset(() if publisher is None else publisher.attachments)

        self._context.tables.await_confirmations(
            routers_of(records) | edges,
            partial(self._announce, name, request),
            deadline_ns=self._context.now_ns + self._context.settings.confirm_within_ns,
            judge=partial(_are_up, records, edges),
        )

    def _announce(self, name: str, request: Request | None, _: Confirmation) -> None:
        """Fix the first slot, once the routers carry the new identifier or had their time."""
        publication = self._context.registry.publications.get(name)
        if publication is None or publication.change is None:
            self._refuse_withdrawn(name, request)
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
            partial(self._notify_announced, name, from_ns, request, body),
            partial(self._announce_again, name, request),
        )

    def _notify_announced(
        self, name: str, from_ns: int, request: Request | None, body: bytes, _: Applied
    ) -> None:
        if request is not None:
            self._requests.send(request, body)
        registry = self._context.registry
        publication = registry.publications.get(name)
        if publication is None:
            return
        for number in sorted(publication.subscriptions):
            self._contract_notices.push_announced(registry.subscriptions[number], from_ns)
        self._set_timer(name, from_ns)

    def _set_timer(self, name: str, from_ns: int) -> None:
        ahead_ns = max(0, from_ns - self._context.outside.wall_clock_ns())
        self._context.set_timer(
            CHANGE_TIMER + name, ahead_ns + self._context.settings.retire_after_ns
        )

    def _announce_again(self, name: str, request: Request | None, reason: str) -> None:
        """Announce again after a failed write; the new identifier is carried meanwhile."""
        if request is not None:
            self._requests.fail(request)(reason)
        self._await_routers(name, None)

    def _refuse_withdrawn(self, name: str, request: Request | None) -> None:
        if request is not None:
            self._requests.refuse(request, NotPublished(f"{name} was withdrawn meanwhile"))

    def _retry(self, timer: str, _: str) -> None:
        self._context.set_timer(timer, self._context.settings.retry_after_ns)


def first_slot_ns(variable: StatusVariable, earliest_ns: int) -> int:
    """Return the time of the first slot of a variable that is not before `earliest_ns`."""
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


def _are_up(records: Iterable[Subscribed], edges: Set[str], silent: Set[str]) -> bool:
    """Return whether an edge of the publisher and a path of each contract are confirmed."""
    is_source_up = not edges or bool(edges - silent)
    return is_source_up and all(has_confirmed_path(record, silent) for record in records)
