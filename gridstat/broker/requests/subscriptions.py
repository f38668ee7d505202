"""Decision of subscriptions, by name and by pattern (S0 A4).

A Subscribe names several variables, and each has an outcome of its own. A variable of this cloud
is allocated, reserved and granted here, and `pending_grants.py` sends the answer. A variable of
another cloud is requested from the parent, and its outcome arrives later
(`segments/remote_contracts.py`): then the answer is begun (`AnswerBegun`) and completed by
`segments/pending_answers.py`. A pattern is kept, and matched with present and future variables
(`pattern_matching.py`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import structs

from gridstat.broker.capacity.allocation import AllocationRequest, Refusal
from gridstat.broker.permissions import best_priority
from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import Answered, MatchingLeft, PatternHeld, Subscribed
from gridstat.broker.records.parent_operations import AnswerBegun
from gridstat.broker.requests.outcomes import (
    ANSWER_BYTES_MAX,
    encode_outcome,
    few_words,
    granted,
    join_outcomes,
    refused,
)
from gridstat.broker.requests.pattern_matching import PatternMatching
from gridstat.broker.requests.pending_grants import Reply
from gridstat.broker.requests.request_checks import check_type, encode_type, expected_type
from gridstat.broker.requests.room_waits import RoomWaits
from gridstat.broker.requests.search_times import SearchTimes
from gridstat.broker.tables.router_orders import TERMS_MAX, terms_of
from gridstat.model.access_rules import Action
from gridstat.model.cloud import check_name, check_pattern, is_pattern
from gridstat.model.errors import (
    GridStatError,
    LayoutError,
    NoSuchVariable,
    QuotaReached,
    SecurityNotSatisfiable,
)
from gridstat.model.qos import check_modes_defined, demands_sealing
from gridstat.net.command.endpoint_messages import GrantedOutcome

if TYPE_CHECKING:
    from gridstat.broker.capacity.allocation import Allocation
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.records.parent_operations import ContractAsked
    from gridstat.broker.records.registry import EndPoint, Publication, Registry
    from gridstat.broker.requests.pending_grants import PendingGrants
    from gridstat.broker.requests.request import Request
    from gridstat.broker.requests.request_intake import RequestIntake
    from gridstat.model.qos import ModalQos
    from gridstat.net.command.endpoint_messages import (
        Outcome,
        Subscribe,
        SubscriptionRequest,
    )


REMOTE_OUTCOME_BYTES: Final = 2_048
"""Estimated size of an outcome from another cloud."""


class RemoteVariables(Protocol):
    """Requester of variables of other clouds (`segments/remote_contracts.py`)."""

    def is_elsewhere(self, name: str) -> bool: ...

    def asked(
        self, endpoint: EndPoint, wanted: SubscriptionRequest, request_id: int, place: int
    ) -> ContractAsked: ...

    def wait(self, request: Request, direct: list[Subscribed], applied: Applied) -> None: ...


class GrantAllocator(Protocol):
    """Allocator that lowers other contracts if it must (`banded_contracts.py`)."""

    def allocate(
        self, request: AllocationRequest, applied: Applied, operations: list[Operation]
    ) -> Allocation | Refusal: ...

    def wants_room(self, request: AllocationRequest) -> bool: ...


class Subscriptions:
    """Decides subscriptions; the answer is sent when their paths are durable and up."""

    def __init__(
        self,
        context: BrokerContext,
        requests: RequestIntake,
        grants: PendingGrants,
        remote: RemoteVariables,
        room: GrantAllocator,
    ) -> None:
        self._context = context
        self._requests = requests
        self._grants = grants
        self._remote = remote
        self._room = room
        self._catch_times = SearchTimes()
        """Time that splits for what patterns catch have taken, by subscriber."""
        self.waits = RoomWaits(context, requests)
        self.matching = PatternMatching(context, requests, self.grant_match, grants)

    # Subscribing.

    def subscribe(self, request: Request, command: Subscribe) -> None:
        endpoint = self._context.registry.endpoints[request.endpoint]
        if self.waits.may_wait(request) and self._wants_room(endpoint, command):
            self.waits.wait(request, partial(self.subscribe, request, command))
            return
        self.waits.settled(request)
        applied = Applied()
        operations: list[Operation] = []
        matched: list[Subscribed] = []
        outcomes: list[Outcome] = []
        encoded: list[bytes] = []
        answer_bytes = 0
        at_once = self._context.settings.subscribe_at_once
        for place, wanted in enumerate(command.subscriptions):
            try:
                if place >= at_once:
                    raise QuotaReached(
                        f"a request may ask for {at_once} variables; this is number {place + 1}",
                        hint="ask for the others in further requests; subscribe_many does so",
                    )
                if answer_bytes > ANSWER_BYTES_MAX:
                    raise QuotaReached(
                        "the answer would be too large", hint="ask for fewer variables at once"
                    )
                check_modes_defined(wanted.qos.modes, self._context.settings.modes_defined)
                if self._is_requested_remotely(
                    endpoint, wanted, (request, place), applied, operations
                ):
                    encoded.append(b"")
                    answer_bytes += REMOTE_OUTCOME_BYTES
                    continue
                found = self._decide(endpoint, wanted, applied, operations, matched)
            except GridStatError as error:
                found = refused(error)
            outcomes.append(found)
            encoded.append(encode_outcome(found))
            answer_bytes += len(encoded[-1])
        if not operations:
            self._requests.answer(request, outcomes)
            return
        direct = _by_name(operations)
        if not all(encoded):
            begun = AnswerBegun(
                endpoint=request.endpoint,
                request_id=request.request_id,
                outcomes=tuple(encoded),
            )
            operations.append(begun)
            self._context.effects.apply(begun, applied)
            later = partial(self._answer_begun, request, direct, matched)
            self._context.commit_applied(applied, operations, later, self._requests.fail(request))
            return
        body = join_outcomes(encoded)
        operations.append(
            Answered(endpoint=request.endpoint, request_id=request.request_id, body=body)
        )
        self._context.effects.apply(operations[-1], applied)
        self._grants.commit(request, Reply(body, outcomes, direct), matched, applied, operations)

    def _wants_room(self, endpoint: EndPoint, command: Subscribe) -> bool:
        """Return whether owners of contracts between clouds were asked to make room."""
        found = False
        for wanted in command.subscriptions[: self._context.settings.subscribe_at_once]:
            publication = self._context.registry.publications.get(wanted.name)
            if publication is None:
                continue
            try:
                self._check(endpoint, publication, wanted)
                found |= self._room.wants_room(
                    self._allocation_request(endpoint, publication, wanted.qos)
                )
            except GridStatError:
                continue  # The decision says why it is refused.
        return found

    def _is_requested_remotely(
        self,
        endpoint: EndPoint,
        wanted: SubscriptionRequest,
        where: tuple[Request, int],
        applied: Applied,
        operations: list[Operation],
    ) -> bool:
        """Return whether the variable is of another cloud, and request it there if so."""
        if is_pattern(wanted.name) or not self._remote.is_elsewhere(wanted.name):
            return False
        request, place = where
        self._context.permissions.check_name(endpoint.name, wanted.name, wanted.qos)
        operations.append(self._remote.asked(endpoint, wanted, request.request_id, place))
        self._context.effects.apply(operations[-1], applied)
        return True

    def _answer_begun(
        self,
        request: Request,
        direct: list[Subscribed],
        matched: list[Subscribed],
        applied: Applied,
    ) -> None:
        self._grants.notify_matched(matched)
        self._remote.wait(request, direct, applied)

    def _decide(
        self,
        endpoint: EndPoint,
        wanted: SubscriptionRequest,
        applied: Applied,
        operations: list[Operation],
        matched: list[Subscribed],
    ) -> Outcome:
        if is_pattern(wanted.name):
            return self._hold_pattern(endpoint, wanted, applied, operations, matched)
        expected_type(wanted)
        publication = self._context.registry.publications.get(wanted.name)
        if publication is None:
            check_name(wanted.name)
            # Who may not have it does not learn whether it exists.
            self._context.permissions.check_name(endpoint.name, wanted.name, wanted.qos)
            raise NoSuchVariable(f"nobody publishes {wanted.name}")
        self._check(endpoint, publication, wanted)
        record = self.grant(
            endpoint, publication, wanted.qos, applied, operations, label=wanted.label
        )
        if isinstance(record, Refusal):
            return refused(record)
        operations.append(record)
        self._context.effects.apply(record, applied)
        return granted(
            record,
            publication.variable,
            detection=self._context.detection,
            order=self._context.next_order(),
        )

    def _check(
        self, endpoint: EndPoint, publication: Publication, wanted: SubscriptionRequest
    ) -> None:
        variable = publication.variable
        self._context.permissions.check_contract(endpoint.name, variable, wanted.qos)
        check_type(variable, expected_type(wanted))
        check_modes_defined(wanted.qos.modes, self._context.settings.modes_defined)
        self._context.quotas.check_subscriptions(endpoint)

    def _allocation_request(
        self, endpoint: EndPoint, publication: Publication, qos: ModalQos, publisher: str = ""
    ) -> AllocationRequest:
        registry = self._context.registry
        return AllocationRequest(
            subscription_id=registry.subscription_id_last + 1,
            variable=publication.variable,
            sources=sources_of(registry, publication, qos),
            targets=targets_of(endpoint, qos),
            qos=qos,
            subscriber=endpoint.name,
            charged_to=payers_of(endpoint.name, publisher),
        )

    def grant(
        self,
        endpoint: EndPoint,
        publication: Publication,
        qos: ModalQos,
        applied: Applied,
        operations: list[Operation],
        *,
        label: str = "",
        pattern_id: int = 0,
    ) -> Subscribed | Refusal:
        """Reserve a contract for one variable, or return the refusal.

        The contracts that were lowered for it are applied, and added to `operations`.
        """
        # A pattern of an older release may name undefined modes: its matches are refused here.
        check_modes_defined(qos.modes, self._context.settings.modes_defined)
        # What a pattern catches is charged to the publisher too, who decides how much it catches.
        publisher = publication.publisher if pattern_id else ""
        self._context.quotas.check_subscriptions(endpoint)
        if publisher:
            number = publication.variable.variable_id
            self._context.quotas.check_caught(publisher, number, endpoint.name)
        registry = self._context.registry
        request = self._allocation_request(endpoint, publication, qos, publisher)
        if pattern_id:
            answer = self._allocate_caught(request, applied, operations)
        else:
            answer = self._room.allocate(request, applied, operations)
        if isinstance(answer, Refusal):
            return self._with_table_refusals(answer)
        registry.next_subscription_id()
        if len(answer.granted) > TERMS_MAX and len(terms_of(answer.granted, 0)) > TERMS_MAX:
            self._context.reservations.release(request.subscription_id)
            raise LayoutError(f"over its modes a subscription has at most {TERMS_MAX} qualities")
        self._context.quotas.note_shares(answer)
        return record_of(answer, label=label, pattern_id=pattern_id)

    def _allocate_caught(
        self, request: AllocationRequest, applied: Applied, operations: list[Operation]
    ) -> Allocation | Refusal:
        """Reserve what a pattern has caught, perhaps in a turn of somebody else.

        A subscriber whose patterns have used up their search time lowers nobody for now.
        """
        who, now_ns = request.subscriber, self._context.now_ns
        allocator = self._context.reservations.allocator
        if self._catch_times.ready_ns(who, now_ns) > now_ns:
            return allocator.allocate(request)
        before_ns = allocator.split_ns
        answer = self._room.allocate(request, applied, operations)
        took_ns = allocator.split_ns - before_ns
        self._catch_times.use(who, took_ns, now_ns, is_again=True)
        allocator.charged_elsewhere(took_ns)
        return answer

    def _with_table_refusals(self, refusal: Refusal) -> Refusal:
        """Add the routers that refuse their tables, and so are not used, to the hint."""
        refusals = self._context.tables.refusals()
        if not refusals:
            return refusal
        texts = [f"router {name} refuses its table: {reason}" for name, reason in refusals.items()]
        return replace(refusal, hint="; ".join(filter(None, (refusal.hint, *few_words(texts)))))

    # Patterns.

    def _hold_pattern(
        self,
        endpoint: EndPoint,
        wanted: SubscriptionRequest,
        applied: Applied,
        operations: list[Operation],
        matched: list[Subscribed],
    ) -> Outcome:
        registry = self._context.registry
        if len(endpoint.patterns) >= self._context.settings.quotas.patterns_max:
            raise QuotaReached(
                f"{endpoint.name} has {len(endpoint.patterns)} patterns already",
                hint="end some, take one wider pattern, or ask for a higher patterns_max in the "
                "[quota] of the cloud's file",
            )
        pattern = check_pattern(wanted.name)
        self._context.permissions.check_pattern(
            endpoint.name, Action.SUBSCRIBE, pattern, best_priority(wanted.qos)
        )
        held = PatternHeld(
            pattern_id=registry.next_subscription_id(),
            subscriber=endpoint.name,
            pattern=pattern,
            qos=wanted.qos,
            type_encoded=encode_type(expected_type(wanted)),
            label=wanted.label,
        )
        operations.append(held)
        self._context.effects.apply(held, applied)
        budget = max(0, self._context.settings.catch_at_once - len(operations))
        # One publication more than fits shows that matching is unfinished.
        found = list(islice(registry.matching(held.pattern), budget + 1)) if budget else []
        if found[budget:] or not budget:
            self.matching.enqueue(MatchingLeft(pattern_id=held.pattern_id), applied, operations)
        refusals = [
            refusal
            for publication in found[:budget]
            if (refusal := self.grant_match(held, publication, applied, operations, matched))
        ]
        return GrantedOutcome(
            subscription_id=held.pattern_id,
            variable=None,
            degraded=few_words(refusals),
            label=held.label,
        )

    def grant_match(
        self,
        held: PatternHeld,
        publication: Publication,
        applied: Applied,
        operations: list[Operation],
        matched: list[Subscribed],
    ) -> str:
        """Grant a variable to a pattern; return the reason of a refusal, or an empty text.

        A variable that no rule lets the end-point have does not exist for it: how many are withheld
        is not said either, since a pattern would then ask whether a name exists.
        """
        variable = publication.variable
        if held.type_encoded and held.type_encoded != encode_type(variable.value_type):
            return ""
        endpoint = self._context.registry.endpoints[held.subscriber]
        permissions = self._context.permissions
        if not permissions.is_named(endpoint.name, Action.SUBSCRIBE, variable.name):
            return ""
        try:
            permissions.check_contract(endpoint.name, variable, held.qos)
            record = self.grant(
                endpoint,
                publication,
                held.qos,
                applied,
                operations,
                label=held.label,
                pattern_id=held.pattern_id,
            )
        except GridStatError as error:
            return f"{variable.name} was not caught: {error.args[0]} ({error.code})"
        if isinstance(record, Refusal):
            return f"{variable.name} was not caught: {record.reason} ({record.code})"
        operations.append(record)
        matched.append(record)
        self._context.effects.apply(record, applied)
        return ""


def sources_of(
    registry: Registry, publication: Publication, qos: ModalQos | None = None
) -> tuple[str, ...]:
    """Return the edges to which a variable's publisher is attached, as the quality demands it."""
    publisher = registry.endpoints.get(publication.publisher)
    if publisher is None or not publisher.attachments:
        raise NoSuchVariable(f"the publisher of {publication.variable.name} is away")
    is_sealed = qos is not None and demands_sealing(qos)
    found = publisher.edges_usable(is_sealed=is_sealed)
    if not found:
        raise _plain_channels_of(publisher)
    return found


def payers_of(subscriber: str, publisher: str) -> tuple[str, ...]:
    """Return the identities that a contract is charged to; empty for the subscriber alone."""
    return (subscriber, publisher) if publisher and publisher != subscriber else ()


def _plain_channels_of(endpoint: EndPoint) -> SecurityNotSatisfiable:
    edges = " and ".join(sorted(endpoint.attachments))
    return SecurityNotSatisfiable(
        f"the channels between {endpoint.name} and {edges} are not sealed",
        hint='set endpoint_security = "hop" in the file of the edge router, or demand less',
    )


def targets_of(endpoint: EndPoint, qos: ModalQos | None = None) -> tuple[str, ...]:
    """Return the edges at which an end-point can receive events, as the quality demands it."""
    is_sealed = qos is not None and demands_sealing(qos)
    found = endpoint.edges_usable(is_receiver=True, is_sealed=is_sealed)
    if not found and is_sealed and endpoint.edges_usable(is_receiver=True):
        raise _plain_channels_of(endpoint)
    if not found:
        raise LayoutError(
            f"{endpoint.name} has attached without a port to receive on",
            hint="attach with the ports of a receiver before subscribing",
        )
    return found


def renewed(old: Subscribed, answer: Allocation) -> Subscribed:
    """Return the next generation of a contract, with other paths or another quality."""
    request = answer.request
    return structs.replace(
        old,
        variable_id=request.variable.variable_id,
        qos=request.qos,
        sources=request.sources,
        targets=request.targets,
        granted=answer.granted,
        paths=answer.paths,
        is_node_disjoint=answer.is_node_disjoint,
        shares_edge=answer.shares_edge,
        degraded=answer.degraded,
        generation=old.generation + 1,
    )


def record_of(
    answer: Allocation, *, label: str = "", pattern_id: int = 0, generation: int = 0
) -> Subscribed:
    """Return a contract as the journal keeps it."""
    request = answer.request
    return Subscribed(
        subscription_id=request.subscription_id,
        subscriber=request.subscriber,
        name=request.variable.name,
        variable_id=request.variable.variable_id,
        qos=request.qos,
        sources=request.sources,
        targets=request.targets,
        granted=answer.granted,
        paths=answer.paths,
        is_node_disjoint=answer.is_node_disjoint,
        shares_edge=answer.shares_edge,
        degraded=answer.degraded,
        generation=generation,
        pattern_id=pattern_id,
        label=label,
        charged_to=request.charged_to,
        every_worst=request.every_worst,
    )


def _by_name(operations: list[Operation]) -> list[Subscribed]:
    """Return the contracts that an answer waits for; matches of patterns are told one by one."""
    return [
        operation
        for operation in operations
        if isinstance(operation, Subscribed) and not operation.pattern_id
    ]
