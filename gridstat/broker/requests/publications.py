"""Publish and Unpublish: new variables are matched by patterns; subscribers learn of withdrawals.

A Publish that lacks identifiers waits until the parent leases more (`leaf_identifiers.py`).
Both requests are answered once they are durable and the edges have confirmed, or had their time. A
failed write refuses the request.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from gridstat.broker.capacity.allocation import Refusal
from gridstat.broker.records.end_operations import Ending
from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import Answered, MatchingLeft, Published
from gridstat.broker.requests.outcomes import encode_outcomes, refused
from gridstat.broker.requests.request_checks import checked_rate, edge_refusal
from gridstat.model.cloud import check_name
from gridstat.model.errors import (
    GridStatError,
    NotAuthorised,
    NotPublished,
    QuotaReached,
    VariableExists,
)
from gridstat.model.identifiers import VariableId
from gridstat.net.command.endpoint_messages import DoneOutcome, PublishedOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence, Set

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.records.registry import EndPoint
    from gridstat.broker.requests.notices import Notices
    from gridstat.broker.requests.pending_grants import PendingGrants
    from gridstat.broker.requests.request import Request
    from gridstat.broker.requests.request_intake import RequestIntake
    from gridstat.broker.requests.subscriptions import Subscriptions
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import Outcome, Publish, Unpublish

UNNUMBERED: Final = VariableId(0)


class Identifiers(Protocol):
    """Source of identifiers of variables (`segments/leaf_identifiers.py`)."""

    def take(self) -> int: ...

    def is_short_of(self, count: int) -> bool: ...

    def hold(
        self, request: Request, command: Publish, publish: Callable[[Request, Publish], None]
    ) -> None: ...


class Publications:
    """A variable has one publisher, whose name is a prefix of its name, and a unique identifier."""

    def __init__(
        self,
        context: BrokerContext,
        requests: RequestIntake,
        notices: Notices,
        grants: PendingGrants,
        subscriptions: Subscriptions,
        identifiers: Identifiers,
    ) -> None:
        self._context = context
        self._requests = requests
        self._notices = notices
        self._grants = grants
        self._subscriptions = subscriptions
        self._identifiers = identifiers

    def publish(self, request: Request, command: Publish) -> None:
        registry = self._context.registry
        endpoint = registry.endpoints[request.endpoint]
        new = [
            one for one in command.publications if one.variable.name not in registry.publications
        ]
        if self._identifiers.is_short_of(len(new)):
            self._identifiers.hold(request, command, self.publish)
            return
        applied, ending = Applied(), Ending()
        operations: list[Operation] = []
        matched: list[Subscribed] = []
        outcomes: list[Outcome] = []
        budget = self._context.settings.catch_at_once
        for requested in command.publications:
            try:
                variable = self._decide(endpoint, requested.variable, applied, operations, ending)
            except GridStatError as error:
                outcomes.append(refused(error))
                continue
            if isinstance(variable, Refusal):
                outcomes.append(refused(variable))
                continue
            budget -= self._match_patterns(variable, budget, applied, operations, matched)
            outcomes.append(PublishedOutcome(variable=variable))
        if not operations:
            self._requests.answer(request, outcomes)
            return
        body = encode_outcomes(outcomes)
        answered = Answered(endpoint=endpoint.name, request_id=request.request_id, body=body)
        operations.append(answered)
        self._context.effects.apply(answered, applied)
        edges = frozenset(endpoint.attachments)
        then = partial(self._when_durable, request, body, edges, matched, ending)
        self._context.commit_applied(applied, operations, then, self._requests.fail(request))

    def unpublish(self, request: Request, command: Unpublish) -> None:
        endpoint = self._context.registry.endpoints[request.endpoint]
        ending = Ending()
        own = [name for name in command.names if name in endpoint.publications]
        ending.withdraw(self._context.registry, set(own))
        ending.routers |= set(endpoint.attachments)
        outcomes: list[Outcome] = [
            DoneOutcome()
            if name in endpoint.publications
            else refused(NotPublished(f"{endpoint.name} does not publish {name[:80]}"))
            for name in command.names
        ]
        if not own:
            self._requests.answer(request, outcomes)
            return
        body = encode_outcomes(outcomes)
        answered = Answered(endpoint=endpoint.name, request_id=request.request_id, body=body)
        then = partial(self._when_durable, request, body, ending.routers, (), ending)
        self._requests.commit(request, [*ending.operations, answered], then)

    def _decide(
        self,
        endpoint: EndPoint,
        requested: StatusVariable,
        applied: Applied,
        operations: list[Operation],
        ending: Ending,
    ) -> StatusVariable | Refusal:
        registry = self._context.registry
        self._check(endpoint, requested)
        known = registry.publications.get(requested.name)
        if known is not None and not known.is_dormant:
            raise VariableExists(f"{requested.name} is published already")
        if known is not None and replace(known.variable, variable_id=UNNUMBERED) == replace(
            requested, variable_id=UNNUMBERED
        ):
            variable = known.variable
        else:
            replaced = () if known is None else (known.variable,)
            resources = self._context.reservations.resources
            refusal = edge_refusal(resources, endpoint.attachments, (requested,), replaced)
            if refusal is not None:
                return refusal
            if known is not None:
                self._withdraw(requested.name, applied, operations, ending)
            variable = replace(requested, variable_id=VariableId(self._identifiers.take()))
        published = Published(publisher=endpoint.name, variable=variable)
        operations.append(published)
        self._context.effects.apply(published, applied)
        return variable

    def _check(self, endpoint: EndPoint, requested: StatusVariable) -> None:
        if requested.name not in self._context.registry.publications:
            check_name(requested.name)  # Those of an older journal keep their names.
        if not requested.name.startswith(endpoint.name + "/"):
            raise NotAuthorised(
                f"rule name: {endpoint.name} publishes only below its own name, "
                f"not {requested.name}"
            )
        for owner in _names_within(requested.name, longer_than=endpoint.name):
            if owner in self._context.registry.endpoints:
                raise NotAuthorised(
                    f"rule name: {requested.name} lies below {owner}, which is an end-point itself"
                )
        if len(endpoint.publications) >= self._context.settings.quotas.publications_max:
            raise QuotaReached(
                f"{endpoint.name} has {len(endpoint.publications)} publications already"
            )
        checked_rate(requested)

    def _withdraw(
        self, name: str, applied: Applied, operations: list[Operation], ending: Ending
    ) -> None:
        """End a dormant variable that is published anew with other properties."""
        before = len(ending.operations)
        ending.withdraw(self._context.registry, (name,))
        for operation in ending.operations[before:]:
            operations.append(operation)
            self._context.effects.apply(operation, applied)

    def _match_patterns(
        self,
        variable: StatusVariable,
        budget: int,
        applied: Applied,
        operations: list[Operation],
        matched: list[Subscribed],
    ) -> int:
        """Grant a variable to the patterns that match its name and do not have it yet.

        At most `budget` patterns are served at once, and their number is returned. The others are
        served later.
        """
        registry = self._context.registry
        publication = registry.publications[variable.name]
        served = {
            registry.subscriptions[number].record.pattern_id for number in publication.subscriptions
        }
        answering = registry.pattern_tree.matching_patterns(variable.name)
        missing = [pattern_id for pattern_id in answering if pattern_id not in served]
        for pattern_id in missing[:budget]:
            held = registry.patterns[pattern_id]
            refusal = self._subscriptions.grant_match(
                held, publication, applied, operations, matched
            )
            if refusal:
                self._context.note("pattern_refused", pattern_id=pattern_id, reason=refusal)
        if missing[budget:]:
            left = MatchingLeft(pattern_id=0, name=variable.name)
            self._subscriptions.matching.enqueue(left, applied, operations)
        return min(budget, len(missing))

    def _when_durable(
        self,
        request: Request,
        body: bytes,
        edges: Set[str],
        matched: Sequence[Subscribed],
        ending: Ending,
        applied: Applied,
    ) -> None:
        self._push_notices(ending)
        self._grants.notify_matched(matched)
        self._requests.send_when_confirmed(request, body, edges, applied)

    def _push_notices(self, ending: Ending) -> None:
        for subscriber, notice in ending.notices:
            self._notices.push(subscriber, notice)


def _names_within(name: str, *, longer_than: str) -> Iterator[str]:
    """Yield a name and its prefixes down to a length, the longest first."""
    while len(name) > len(longer_than):
        yield name
        name = name.rpartition("/")[0]
