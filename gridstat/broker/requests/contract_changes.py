"""Unsubscribe, and changes of the quality of live contracts (S0 A6).

Unsubscribe: the journal writes the ends and the answer, the routers confirm the removal of the
paths or the deadline passes, and the answer is sent.

Change: changes of one contract are served one at a time, in the order of arrival. The new quality
is allocated beside the old one; a refusal leaves the contract as it was. `Moved` and the answer are
written, and `PathMoves` waits for the routers. The answer is sent when the new paths are up, or
after the deadline with the names of the silent routers. A failed write refuses the request. After a
restart a repeated request finds its kept answer, and the move continues from the journal.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec import structs

from gridstat.broker.capacity.allocation import AllocationRequest, Refusal
from gridstat.broker.records.end_operations import Ending
from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import Answered, Moved
from gridstat.broker.requests.outcomes import encode_outcomes, few_words, granted, refused
from gridstat.broker.requests.subscriptions import renewed, sources_of, targets_of
from gridstat.broker.tables.router_orders import TERMS_MAX, terms_of
from gridstat.model.errors import (
    GridStatError,
    LayoutError,
    NoSuchSubscription,
    RedundancyNotSatisfiable,
)
from gridstat.model.qos import check_modes_defined
from gridstat.net.command.endpoint_messages import DoneOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.records.registry import EndPoint, Subscription
    from gridstat.broker.requests.request import Request
    from gridstat.broker.requests.request_intake import RequestIntake
    from gridstat.broker.routers.path_moves import PathMoves
    from gridstat.net.command.endpoint_messages import (
        ChangeSubscription,
        GrantedOutcome,
        Outcome,
        Unsubscribe,
    )


class ChangesElsewhere(Protocol):
    """Changer of contracts with other clouds (`segments/remote_contracts.py`)."""

    def change(self, request: Request, command: ChangeSubscription) -> None: ...


class ContractChanges:
    """A contract is changed or ended only by its subscriber.

    `_waiting` has an entry for each contract with a change under way: the changes queued behind it.
    """

    def __init__(
        self,
        context: BrokerContext,
        requests: RequestIntake,
        moves: PathMoves,
        elsewhere: ChangesElsewhere,
    ) -> None:
        self._context = context
        self._requests = requests
        self._moves = moves
        self._elsewhere = elsewhere
        self._waiting: dict[int, deque[tuple[Request, ChangeSubscription]]] = {}

    def unsubscribe(self, request: Request, command: Unsubscribe) -> None:
        endpoint = self._context.registry.endpoints[request.endpoint]
        outcomes: list[Outcome] = [DoneOutcome()]
        if command.subscription_ids:
            going = self._ids_to_end(endpoint, command.subscription_ids)
            outcomes = [
                DoneOutcome() if number in going else refused(_unknown_error(endpoint.name, number))
                for number in command.subscription_ids
            ]
        else:
            going = self._context.registry.contracts_of(endpoint) | endpoint.patterns
        ending = Ending()
        ending.unsubscribe(self._context.registry, going)
        if not ending.operations:
            self._requests.answer(request, outcomes)
            return
        body = encode_outcomes(outcomes)
        answered = Answered(endpoint=endpoint.name, request_id=request.request_id, body=body)
        self._requests.commit(
            request,
            [*ending.operations, answered],
            partial(self._requests.send_when_confirmed, request, body, ending.routers),
        )

    def change(self, request: Request, command: ChangeSubscription) -> None:
        """Begin a change, or queue it behind the one under way.

        Raises `ModeNotDefined` before queueing: no earlier change can make such a request valid.
        """
        check_modes_defined(command.qos.modes, self._context.settings.modes_defined)
        if command.subscription_id in self._context.registry.tree.asked:
            self._elsewhere.change(request, command)
            return
        waiting = self._waiting.get(command.subscription_id)
        if waiting is not None:
            waiting.append((request, command))
            return
        self._waiting[command.subscription_id] = deque()
        self._start(request, command)

    def _start(self, request: Request, command: ChangeSubscription) -> None:
        try:
            is_under_way = self._change(request, command)
        except GridStatError as error:
            self._requests.refuse(request, error)
            is_under_way = False
        if not is_under_way:
            self._start_next(command.subscription_id)

    def _start_next(self, subscription_id: int) -> None:
        waiting = self._waiting[subscription_id]
        if waiting:
            self._start(*waiting.popleft())
        else:
            del self._waiting[subscription_id]

    def _change(self, request: Request, command: ChangeSubscription) -> bool:
        """Return whether the answer follows later; raise the error that refuses the change."""
        if self._has_no_path(request.endpoint, command.subscription_id):
            raise _no_path_error(command.subscription_id)
        found = self._context.registry.subscriptions.get(command.subscription_id)
        if (
            found is None
            or found.record.subscriber != request.endpoint
            or found.record.contract  # The number of a segment belongs to no end-point.
        ):
            raise _unknown_error(request.endpoint, command.subscription_id)
        old = found.record
        allocated = self._context.reservations.change(self._request(found, command))
        if isinstance(allocated, Refusal):
            self._requests.answer(request, (refused(allocated),))
            return False
        new = renewed(old, allocated)
        applied = Applied()
        moved = Moved(subscription=new, until_retired=True)
        self._context.effects.apply(moved, applied)
        if len(terms_of(new.granted, 0)) > TERMS_MAX:
            applied.roll_back()
            raise LayoutError(f"over its modes a subscription has at most {TERMS_MAX} qualities")
        outcome = granted(
            new,
            found.variable,
            detection=self._context.detection,
            order=self._context.next_order(),
        )
        body = encode_outcomes((outcome,))
        answered = Answered(endpoint=old.subscriber, request_id=request.request_id, body=body)
        self._context.effects.apply(answered, applied)
        self._context.commit_applied(
            applied,
            [moved, answered],
            partial(self._change_written, request, old, new, outcome),
            partial(self._change_failed, request, command.subscription_id),
        )
        return True

    def _change_failed(self, request: Request, subscription_id: int, reason: str) -> None:
        self._requests.fail(request)(reason)
        self._start_next(subscription_id)

    def _change_written(
        self,
        request: Request,
        old: Subscribed,
        new: Subscribed,
        outcome: GrantedOutcome,
        _: Applied,
    ) -> None:
        self._moves.follow(old, new, partial(self._answer_change, request, new, outcome))

    def _answer_change(
        self, request: Request, new: Subscribed, outcome: GrantedOutcome, silent: list[str]
    ) -> None:
        """Answer once the new paths are up, or with the names of the silent routers."""
        found = self._context.registry.subscriptions.get(new.subscription_id)
        if not silent or found is None:
            self._requests.send(request, encode_outcomes((outcome,)))
        else:
            remarks = tuple(f"router {name} has not confirmed its part yet" for name in silent)
            degraded = few_words((*new.degraded, *remarks))
            self._requests.answer(request, (structs.replace(outcome, degraded=degraded),))
        self._start_next(new.subscription_id)

    def _request(self, found: Subscription, command: ChangeSubscription) -> AllocationRequest:
        registry = self._context.registry
        publication = registry.publications[found.record.name]
        return AllocationRequest(
            subscription_id=command.subscription_id,
            variable=publication.variable,
            sources=sources_of(registry, publication),
            targets=targets_of(registry.endpoints[found.record.subscriber]),
            qos=command.qos,
            subscriber=found.record.subscriber,
        )

    def _owns(self, endpoint: EndPoint, number: int) -> bool:
        registry = self._context.registry
        if number in registry.tree.asked_by.get(endpoint.name, ()):
            return True
        if number in endpoint.subscriptions:
            return not registry.subscriptions[number].record.contract
        return self._has_no_path(endpoint.name, number)

    def _has_no_path(self, endpoint: str, number: int) -> bool:
        pathless = self._context.registry.unplaced.get(number)
        return pathless is not None and pathless.subscriber == endpoint and not pathless.contract

    def _ids_to_end(self, endpoint: EndPoint, numbers: Iterable[int]) -> set[int]:
        """Return the contracts and patterns to end; a pattern ends with its matched contracts."""
        named = set(numbers)
        going = {number for number in named - endpoint.patterns if self._owns(endpoint, number)}
        patterns = named & endpoint.patterns
        if patterns:
            caught = self._context.registry.contracts_by_pattern(endpoint)
            going |= patterns.union(*(caught.get(pattern, ()) for pattern in patterns))
        return going


def _unknown_error(endpoint: str, number: int) -> NoSuchSubscription:
    return NoSuchSubscription(f"{endpoint} has no subscription {number}")


def _no_path_error(number: int) -> RedundancyNotSatisfiable:
    return RedundancyNotSatisfiable(
        f"subscription {number} has no path at the moment, since the cloud has lost a router or "
        "channel of it; it stays as it was",
        hint="change it after the notice of its new paths, or unsubscribe",
    )
