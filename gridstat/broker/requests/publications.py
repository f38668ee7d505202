"""Variables are published and withdrawn; patterns catch the new, subscribers hear of the gone."""

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
    from collections.abc import Iterator

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.records.registry import EndPoint
    from gridstat.broker.requests.notices import Notices
    from gridstat.broker.requests.pending_grants import PendingGrants
    from gridstat.broker.requests.request_intake import Request, RequestIntake
    from gridstat.broker.requests.subscriptions import Subscriptions
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import Outcome, Publish, Unpublish

UNNUMBERED: Final = VariableId(0)


class Numbers(Protocol):
    """Where identifiers of variables come from (`segments/numbers.py`)."""

    def take(self) -> int: ...

    def is_short_of(self, count: int) -> bool: ...

    def hold(self, request: Request, command: Publish) -> None: ...


class Publications:
    """A name has one publisher, the end-point that it lies below, and an identifier of its own."""

    def __init__(
        self,
        context: BrokerContext,
        requests: RequestIntake,
        notices: Notices,
        grants: PendingGrants,
        subscriptions: Subscriptions,
        numbers: Numbers,
    ) -> None:
        self._context = context
        self._requests = requests
        self._notices = notices
        self._grants = grants
        self._subscriptions = subscriptions
        self._numbers = numbers

    def publish(self, request: Request, command: Publish) -> None:
        registry = self._context.registry
        endpoint = registry.endpoints[request.endpoint]
        new = [
            one for one in command.publications if one.variable.name not in registry.publications
        ]
        if self._numbers.is_short_of(len(new)):
            self._numbers.hold(request, command)
            return
        applied, ending = Applied(), Ending()
        operations: list[Operation] = []
        caught: list[Subscribed] = []
        outcomes: list[Outcome] = []
        room = self._context.settings.catch_at_once
        for asked in command.publications:
            try:
                variable = self._decide(endpoint, asked.variable, applied, operations, ending)
            except GridStatError as error:
                outcomes.append(refused(error))
                continue
            if isinstance(variable, Refusal):
                outcomes.append(refused(variable))
                continue
            room -= self._offer(variable, room, applied, operations, caught)
            outcomes.append(PublishedOutcome(variable=variable))
        if not operations:
            self._requests.answer(request, outcomes)
            return
        body = encode_outcomes(outcomes)
        answered = Answered(endpoint=endpoint.name, request_id=request.request_id, body=body)
        operations.append(answered)
        self._context.effects.apply(answered, applied)
        edges = frozenset(endpoint.attachments)
        then = partial(self._when_durable, request, body, edges, caught, ending)
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

        def when_durable(_: Applied) -> None:
            self._tell(ending)
            self._context.tables.await_confirmations(
                ending.routers,
                lambda _: self._requests.send(request, body),
                deadline_ns=self._context.now_ns + self._context.settings.confirm_within_ns,
            )

        self._requests.commit(request, [*ending.operations, answered], when_durable)

    def _decide(
        self,
        endpoint: EndPoint,
        asked: StatusVariable,
        applied: Applied,
        operations: list[Operation],
        ending: Ending,
    ) -> StatusVariable | Refusal:
        registry = self._context.registry
        self._check(endpoint, asked)
        known = registry.publications.get(asked.name)
        if known is not None and not known.is_dormant:
            raise VariableExists(f"{asked.name} is published already")
        if known is not None and replace(known.variable, variable_id=UNNUMBERED) == replace(
            asked, variable_id=UNNUMBERED
        ):
            variable = known.variable
        else:
            going = () if known is None else (known.variable,)
            resources = self._context.reservations.resources
            no_room = edge_refusal(resources, endpoint.attachments, (asked,), going)
            if no_room is not None:
                return no_room
            if known is not None:
                self._withdraw(asked.name, applied, operations, ending)
            variable = replace(asked, variable_id=VariableId(self._numbers.take()))
        published = Published(publisher=endpoint.name, variable=variable)
        operations.append(published)
        self._context.effects.apply(published, applied)
        return variable

    def _check(self, endpoint: EndPoint, asked: StatusVariable) -> None:
        check_name(asked.name)
        if not asked.name.startswith(endpoint.name + "/"):
            raise NotAuthorised(
                f"rule name: {endpoint.name} publishes only below its own name, not {asked.name}"
            )
        for owner in _names_within(asked.name, longer_than=endpoint.name):
            if owner in self._context.registry.endpoints:
                raise NotAuthorised(
                    f"rule name: {asked.name} lies below {owner}, which is an end-point itself"
                )
        if len(endpoint.publications) >= self._context.settings.quotas.publications_max:
            raise QuotaReached(
                f"{endpoint.name} has {len(endpoint.publications)} publications already"
            )
        checked_rate(asked)

    def _withdraw(
        self, name: str, applied: Applied, operations: list[Operation], ending: Ending
    ) -> None:
        """A dormant variable comes back as another one: its subscribers lose it."""
        before = len(ending.operations)
        ending.withdraw(self._context.registry, (name,))
        for operation in ending.operations[before:]:
            operations.append(operation)
            self._context.effects.apply(operation, applied)

    def _offer(
        self,
        variable: StatusVariable,
        room: int,
        applied: Applied,
        operations: list[Operation],
        caught: list[Subscribed],
    ) -> int:
        """Let every pattern that stands for the name have the variable, if it has not yet.

        As many as there is room for at once, which is the answer, and the others later.
        """
        registry = self._context.registry
        publication = registry.publications[variable.name]
        having = {
            registry.subscriptions[number].record.pattern_id for number in publication.subscriptions
        }
        answering = registry.pattern_tree.answering(variable.name)
        missing = [pattern_id for pattern_id in answering if pattern_id not in having]
        for pattern_id in missing[:room]:
            held = registry.patterns[pattern_id]
            words = self._subscriptions.catch(held, publication, applied, operations, caught)
            if words:
                self._context.note("pattern_refused", pattern_id=pattern_id, reason=words)
        if missing[room:]:
            left = MatchingLeft(pattern_id=0, name=variable.name)
            self._subscriptions.catching.later(left, applied, operations)
        return min(room, len(missing))

    def _when_durable(
        self,
        request: Request,
        body: bytes,
        edges: frozenset[str],
        caught: list[Subscribed],
        ending: Ending,
        _: Applied,
    ) -> None:
        self._tell(ending)
        self._grants.notify_matched(caught)
        self._context.tables.await_confirmations(
            edges,
            lambda _: self._requests.send(request, body),
            deadline_ns=self._context.now_ns + self._context.settings.confirm_within_ns,
        )

    def _tell(self, ending: Ending) -> None:
        for subscriber, notice in ending.notices:
            self._notices.push(subscriber, notice)


def _names_within(name: str, *, longer_than: str) -> Iterator[str]:
    """The name and all that it lies below, from the longest on."""
    while len(name) > len(longer_than):
        yield name
        name = name.rpartition("/")[0]
