"""Unsubscribe, and changes of the quality of live contracts (S0 A6).

Unsubscribe: the journal writes the ends and the answer, the routers confirm the removal of the
paths or the deadline passes, and the answer is sent. Many contracts are ended in slices, each in a
turn and a write of its own; a repeat after a restart ends the others, and refuses the numbers of
those that have ended as unknown.

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
from gridstat.broker.permissions import granted_bytes_per_s
from gridstat.broker.records.end_operations import Ending
from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import Answered, Moved
from gridstat.broker.requests.outcomes import encode_outcomes, few_words, granted, refused
from gridstat.broker.requests.request import Progress, process_of
from gridstat.broker.requests.subscriptions import (
    renewed,
    sources_of,
    targets_of,
)
from gridstat.broker.tables.router_orders import TERMS_MAX, terms_of
from gridstat.broker.unit_of_work import no_op
from gridstat.model.errors import (
    GridStatError,
    LayoutError,
    NoSuchSubscription,
    RedundancyNotSatisfiable,
    ShuttingDown,
)
from gridstat.model.qos import check_modes_defined
from gridstat.net.command.endpoint_messages import DoneOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.capacity.allocation import Allocation
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Operation, Subscribed
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


class ChangeAllocator(Protocol):
    """Changer of reservations that lowers other contracts if it must (`banded_contracts.py`)."""

    def change(
        self, request: AllocationRequest, applied: Applied, operations: list[Operation]
    ) -> Allocation | Refusal: ...


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
        room: ChangeAllocator,
    ) -> None:
        self._context = context
        self._requests = requests
        self._moves = moves
        self._elsewhere = elsewhere
        self._room = room
        self._waiting: dict[int, deque[tuple[Request, ChangeSubscription]]] = {}

    def unsubscribe(self, request: Request, command: Unsubscribe) -> None:
        """End contracts, or all of them; the slices of many end patterns last.

        Until a pattern ends, a repeated request finds it, and so all that it has caught.
        """
        endpoint = self._context.registry.endpoints[request.endpoint]
        going = self._going(endpoint, command)
        outcomes: list[Outcome] = [
            DoneOutcome() if number in going else refused(_unknown_error(endpoint.name, number))
            for number in command.subscription_ids
        ] or [DoneOutcome()]
        if not going:
            self._requests.answer(request, outcomes)
            return
        request.progress = Progress(process_of(endpoint), outcomes)
        request.progress.going = sorted(going - endpoint.patterns)
        request.progress.going += sorted(going & endpoint.patterns)
        self._end_next(request, is_first=True)

    def _going(self, endpoint: EndPoint, command: Unsubscribe) -> set[int]:
        if command.subscription_ids:
            return self._ids_to_end(endpoint, command.subscription_ids)
        return self._context.registry.contracts_of(endpoint) | endpoint.patterns

    def _end_next(self, request: Request, *, is_first: bool = False) -> None:
        """End the next slice of the contracts of a request, and answer with the last one."""
        registry, progress = self._context.registry, request.progress
        endpoint = registry.endpoints.get(request.endpoint)
        assert progress is not None, "the request was begun"
        if endpoint is None or progress.process != process_of(endpoint):
            raise ShuttingDown(f"{request.endpoint} has left before this was done")
        at_once = self._context.settings.end_at_once
        some, progress.going = progress.going[:at_once], progress.going[at_once:]
        # What a pattern has caught since the first slice ends with it.
        there = self._ids_to_end(endpoint, some)
        ending = Ending()
        ending.unsubscribe(registry, there)
        progress.routers |= ending.routers
        if progress.going:
            fail = partial(self._requests.fail_slice, request)
            self._context.commit(ending.operations, no_op, fail)
            self._requests.go_on(request, partial(self._end_next, request))
            return
        body = encode_outcomes(progress.outcomes)
        answered = Answered(endpoint=endpoint.name, request_id=request.request_id, body=body)
        failed = self._requests.fail_whole if is_first else self._requests.fail_slice
        self._context.commit(
            [*ending.operations, answered],
            partial(self._requests.send_when_confirmed, request, body, progress.routers),
            partial(failed, request),
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
        is_under_way = False
        try:
            is_under_way = self._change(request, command)
        except GridStatError as error:
            self._requests.refuse(request, error)
        finally:
            if not is_under_way:
                self._start_next(command.subscription_id)

    def _start_next(self, subscription_id: int) -> None:
        """Begin the next change in a turn of its end-point, who is charged for its searches."""
        waiting = self._waiting[subscription_id]
        if waiting:
            request, command = waiting.popleft()
            self._requests.go_on(request, partial(self._start, request, command))
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
        self._context.permissions.check_contract(
            request.endpoint,
            found.variable,
            command.qos,
            held_bytes_per_s=granted_bytes_per_s(
                found.variable, (each.every for each in old.granted.values())
            ),
        )
        applied = Applied()
        operations: list[Operation] = []
        allocated = self._room.change(self._request(found, command), applied, operations)
        if isinstance(allocated, Refusal):
            self._requests.answer(request, (refused(allocated),))
            return False
        new = structs.replace(renewed(old, allocated), lowered_for=0, lowered_for_contract="")
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
            [*operations, moved, answered],
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
            sources=sources_of(registry, publication, command.qos),
            targets=targets_of(registry.endpoints[found.record.subscriber], command.qos),
            qos=command.qos,
            subscriber=found.record.subscriber,
            charged_to=found.record.charged_to,
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
