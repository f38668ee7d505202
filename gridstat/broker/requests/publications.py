"""Publish and Unpublish: new variables are matched by patterns; subscribers learn of withdrawals.

A Publish that lacks identifiers waits until the parent leases more (`leaf_identifiers.py`).
A Publish of many variables is decided in slices, each in a turn and a write of its own, so that it
does not delay the requests of others. Its variables name the request in the journal: should the
broker die between two slices, or a write fail, the repeated request finds them registered.
An Unpublish of many variables is done in slices too; a repeat after a restart withdraws the others,
and refuses the names of those that are withdrawn as not published.
Both requests are answered once they are durable and the edges have confirmed, or had their time. A
failed write refuses the request.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from gridstat.broker.capacity.allocation import Refusal
from gridstat.broker.records.end_operations import Ending
from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import Answered, MatchingLeft, Published
from gridstat.broker.requests.outcomes import encode_outcomes, refused
from gridstat.broker.requests.request import Progress, process_of
from gridstat.broker.requests.request_checks import checked_rate, edge_refusal
from gridstat.model.cloud import check_name
from gridstat.model.errors import (
    GridStatError,
    NotAuthorised,
    NotPublished,
    QuotaReached,
    ShuttingDown,
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
    from gridstat.net.command.endpoint_messages import (
        Outcome,
        PublicationRequest,
        Publish,
        Unpublish,
    )

UNNUMBERED: Final = VariableId(0)


class Identifiers(Protocol):
    """Source of identifiers of variables (`segments/leaf_identifiers.py`)."""

    def take(self) -> int: ...

    def is_short_of(self, count: int) -> bool: ...

    def hold(
        self, request: Request, command: Publish, publish: Callable[[Request, Publish], None]
    ) -> None: ...


@dataclass(slots=True)
class _Slice:
    """Operations that register some variables of a request, and what to tell once durable."""

    applied: Applied = field(default_factory=Applied)
    operations: list[Operation] = field(default_factory=list)
    matched: list[Subscribed] = field(default_factory=list)
    ending: Ending = field(default_factory=Ending)


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
        """Decide the next slice of a request; the first one, unless others are decided."""
        registry = self._context.registry
        endpoint = registry.endpoints.get(request.endpoint)
        progress = request.progress
        if endpoint is None or (progress and progress.process != process_of(endpoint)):
            raise ShuttingDown(f"{request.endpoint} has left before this was done")
        if progress is None:
            progress = request.progress = Progress(process_of(endpoint))
        first = len(progress.outcomes)
        left = command.publications[first:]
        new = [one for one in left if one.variable.name not in registry.publications]
        if self._identifiers.is_short_of(len(new)):
            try:
                self._identifiers.hold(request, command, self.publish)
                return
            except QuotaReached:
                if not first:
                    raise
                # Those before are registered; each of the others that lacks one is refused.
        at_once = self._context.settings.publish_at_once
        is_sliced = len(command.publications) > at_once
        some = self._register(request, endpoint, left[:at_once], is_sliced=is_sliced)
        if left[at_once:]:
            if some.operations:
                self._context.commit_applied(
                    some.applied,
                    some.operations,
                    partial(self._slice_durable, some.matched, some.ending),
                    partial(self._requests.fail_slice, request),
                )
            self._requests.go_on(request, partial(self.publish, request, command))
            return
        if not some.operations and not first:
            self._requests.answer(request, progress.outcomes)
            return
        body = encode_outcomes(progress.outcomes)
        answered = Answered(endpoint=endpoint.name, request_id=request.request_id, body=body)
        some.operations.append(answered)
        self._context.effects.apply(answered, some.applied)
        edges = frozenset(endpoint.attachments)
        then = partial(self._when_durable, request, body, edges, some.matched, some.ending)
        failed = self._requests.fail_slice if first else self._requests.fail_whole
        self._context.commit_applied(some.applied, some.operations, then, partial(failed, request))

    def _register(
        self,
        request: Request,
        endpoint: EndPoint,
        publications: Sequence[PublicationRequest],
        *,
        is_sliced: bool,
    ) -> _Slice:
        """Register variables, and add their outcomes to the request's progress."""
        found, progress = _Slice(), request.progress
        assert progress is not None, "the request was begun"
        # Patterns match the variables of a long request in turns of their own.
        budget = 0 if is_sliced else self._context.settings.catch_at_once
        request_id = request.request_id if is_sliced else 0
        for requested in publications:
            known = self._done_before(request, progress, requested.variable)
            progress.named.add(requested.variable.name)
            if known is not None:
                progress.outcomes.append(PublishedOutcome(variable=known))
                continue
            try:
                variable = self._decide(endpoint, requested.variable, request_id, found)
            except GridStatError as error:
                progress.outcomes.append(refused(error))
                continue
            if isinstance(variable, Refusal):
                progress.outcomes.append(refused(variable))
                continue
            budget -= self._match_patterns(
                variable, budget, found.applied, found.operations, found.matched
            )
            progress.outcomes.append(PublishedOutcome(variable=variable))
        return found

    def _done_before(
        self, request: Request, progress: Progress, requested: StatusVariable
    ) -> StatusVariable | None:
        """Return a variable that this request has registered before the broker's last start, or
        before a write that failed."""
        known = self._context.registry.publications.get(requested.name)
        if (
            known is None
            or known.is_dormant
            or known.request_id != request.request_id
            or known.publisher != request.endpoint
            or requested.name in progress.named
            or not _is_same(known.variable, requested)
        ):
            return None
        return known.variable

    def _slice_durable(self, matched: Sequence[Subscribed], ending: Ending, _: Applied) -> None:
        self._push_notices(ending)
        self._grants.notify_matched(matched)

    def unpublish(self, request: Request, command: Unpublish) -> None:
        endpoint = self._context.registry.endpoints[request.endpoint]
        own = sorted({name for name in command.names if name in endpoint.publications})
        outcomes: list[Outcome] = [
            DoneOutcome()
            if name in endpoint.publications
            else refused(NotPublished(f"{endpoint.name} does not publish {name[:80]}"))
            for name in command.names
        ]
        if not own:
            self._requests.answer(request, outcomes)
            return
        request.progress = Progress(process_of(endpoint), outcomes, going_names=own)
        self._withdraw_next(request, is_first=True)

    def _withdraw_next(self, request: Request, *, is_first: bool = False) -> None:
        """Withdraw the next slice of the variables of a request, and answer with the last one."""
        registry, progress = self._context.registry, request.progress
        endpoint = registry.endpoints.get(request.endpoint)
        assert progress is not None, "the request was begun"
        if endpoint is None or progress.process != process_of(endpoint):
            raise ShuttingDown(f"{request.endpoint} has left before this was done")
        some: list[str] = []
        budget = self._context.settings.end_at_once
        while progress.going_names and budget > 0:
            name = progress.going_names.pop()
            if name in endpoint.publications:
                some.append(name)
                budget -= 1 + len(registry.publications[name].subscriptions)
        ending = Ending()
        ending.withdraw(registry, some)
        progress.routers |= ending.routers | set(endpoint.attachments)
        if progress.going_names:
            done = partial(self._slice_durable, (), ending)
            failed = partial(self._requests.fail_slice, request)
            self._context.commit(ending.operations, done, failed)
            self._requests.go_on(request, partial(self._withdraw_next, request))
            return
        body = encode_outcomes(progress.outcomes)
        answered = Answered(endpoint=endpoint.name, request_id=request.request_id, body=body)
        then = partial(self._when_durable, request, body, progress.routers, (), ending)
        fail = self._requests.fail_whole if is_first else self._requests.fail_slice
        self._context.commit([*ending.operations, answered], then, partial(fail, request))

    def _decide(
        self,
        endpoint: EndPoint,
        requested: StatusVariable,
        request_id: int,
        found: _Slice,
    ) -> StatusVariable | Refusal:
        registry = self._context.registry
        self._check(endpoint, requested)
        known = registry.publications.get(requested.name)
        if known is not None and not known.is_dormant:
            raise VariableExists(f"{requested.name} is published already")
        if known is not None and _is_same(known.variable, requested):
            variable = known.variable
        else:
            replaced = () if known is None else (known.variable,)
            resources = self._context.reservations.resources
            refusal = edge_refusal(resources, endpoint.attachments, (requested,), replaced)
            if refusal is not None:
                return refusal
            if known is not None:
                self._withdraw(requested.name, found.applied, found.operations, found.ending)
            variable = replace(requested, variable_id=VariableId(self._identifiers.take()))
        published = Published(publisher=endpoint.name, variable=variable, request_id=request_id)
        found.operations.append(published)
        self._context.effects.apply(published, found.applied)
        return variable

    def _check(self, endpoint: EndPoint, requested: StatusVariable) -> None:
        checked_rate(requested)
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
        known = self._context.registry.publications.get(requested.name)
        before = None if known is None else known.variable
        self._context.permissions.check_publication(endpoint.name, requested, before)
        self._context.permissions.check_delay(endpoint.name, requested)
        if requested.name not in endpoint.publications:  # Dormant ones count already.
            self._context.quotas.check_variables(endpoint)

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
                self._subscriptions.matching.note_refused(pattern_id, refusal)
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


def _is_same(known: StatusVariable, requested: StatusVariable) -> bool:
    """Return whether two variables differ in their identifiers at most."""
    return replace(known, variable_id=UNNUMBERED) == replace(requested, variable_id=UNNUMBERED)


def _names_within(name: str, *, longer_than: str) -> Iterator[str]:
    """Yield a name and its prefixes down to a length, the longest first."""
    while len(name) > len(longer_than):
        yield name
        name = name.rpartition("/")[0]
