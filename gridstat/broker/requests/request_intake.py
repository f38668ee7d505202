"""Intake of requests: checks of signature, edge and number, and exactly one answer to each request.

The signature proves the end-point, the session's certificate proves the edge, and the registry
says whether the end-point is attached there. Request numbers grow, from a wall clock.

A request, by end-point and number, is in one of these states:

- unknown: it is checked and registered as pending, and a part of the broker decides it.
- pending: a repeat, perhaps through another edge, adds its edge to those that receive the answer.
- answered: the answer is kept, durably if the request changed anything, and a repeat receives the
  kept answer once all earlier operations are durable. A repeated Subscribe also waits for its paths
  (`pending_grants.py`).
- forgotten: its number is not above the floor of numbers that are remembered, and it is refused as
  a replay.

The broker has no timeout of its own here: end-points repeat a request until it is answered. A
restart drops pending requests that are not in the journal; a repeat decides them anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from gridstat.broker.records.operations import Answered
from gridstat.broker.requests.fair_queue import UNATTACHED_BYTES_MAX, is_long
from gridstat.broker.requests.outcomes import encode_outcomes, refused
from gridstat.broker.requests.request import Request, RequestState
from gridstat.model.cloud import NAME_BYTES_MAX
from gridstat.model.errors import (
    CertificateRefused,
    GridStatError,
    MalformedFrame,
    NotAttached,
    NotAuthorised,
    QuotaReached,
    ShuttingDown,
    StorageFailed,
)
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import (
    Attach,
    Detach,
    DoneOutcome,
    Subscribe,
)
from gridstat.net.command.endpoint_signatures import (
    CertificateFacts,
    check_request_id,
    signed_bytes,
)
from gridstat.net.command.frames import command_type, decode_command
from gridstat.net.command.router_messages import Return

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.records.registry import EndPoint
    from gridstat.broker.requests.endpoint_presence import EndPointPresence
    from gridstat.broker.tables.confirmation import Confirmation
    from gridstat.net.command.endpoint_messages import EndPointCommand, Outcome
    from gridstat.net.command.router_messages import Forward

QUERY_BYTES_MAX: Final = 4_096
"""Size of the answers to queries that are kept; a longer answer is looked up again."""
UNATTACHED_TYPES: Final = frozenset({Attach.__name__, Detach.__name__})
"""Requests that an end-point may send by an edge router to which it is not attached."""
AHEAD_NS_MAX: Final = 24 * 3_600 * NS_PER_S
"""Bound of request numbers above the clock; one far ahead would refuse all that follow it."""


@dataclass(frozen=True, slots=True)
class OpenedRequest:
    """Request that is to be decided."""

    request: Request
    command: EndPointCommand


@dataclass(frozen=True, slots=True)
class RepeatedSubscribe:
    """Subscribe that was decided before, with the kept answer; its paths may not be up yet."""

    request: Request
    answer: bytes


class RequestIntake:
    """Every request is answered once to each edge that brought it, and decided once at most."""

    go_on: Callable[[Request, Callable[[], None]], None]
    """Decides a further slice of a request in a later turn (`command_dispatcher.py`)."""
    all_ended: Callable[[str], None]
    searched: Callable[[str, int], None]
    """Called when the last open request of an end-point is answered."""

    def __init__(self, context: BrokerContext, presence: EndPointPresence) -> None:
        self._context = context
        self._presence = presence
        self._pending: dict[tuple[str, int], Request] = {}
        self._pending_count: dict[str, int] = {}

    def open(self, edge: str, forward: Forward) -> OpenedRequest | RepeatedSubscribe | None:
        """Return the request to be decided, or the kept answer to a repeated Subscribe.

        Return None if the answer has been sent, or will be sent to this edge too.
        """
        try:
            self._check_number(forward)
            command = _decode(forward.body)
            if self._is_under_way(edge, forward):
                if isinstance(command, Attach) and command.edge == edge:
                    self._presence.attached_again(edge, forward.endpoint, command.incarnation)
                return None
            if (
                isinstance(command, Detach)
                and forward.endpoint not in self._context.registry.endpoints
            ):
                # A repeated Detach of an end-point that has left: its key is no longer known.
                self._send_when_durable(edge, forward, encode_outcomes((DoneOutcome(),)))
                return None
            facts = self._check(edge, forward, command)
            known = self._known_answer(forward)
        except GridStatError as error:
            self._send(edge, forward, encode_outcomes((refused(error),)))
            return None
        if known is not None:
            if isinstance(command, Subscribe):
                return RepeatedSubscribe(self._register(edge, forward, command, None), known)
            self._send_when_durable(edge, forward, known)
            if isinstance(command, Attach):
                self._presence.attached_again(edge, forward.endpoint, command.incarnation)
            return None
        return OpenedRequest(self._register(edge, forward, command, facts), command)

    def _register(
        self,
        edge: str,
        forward: Forward,
        command: EndPointCommand,
        facts: CertificateFacts | None,
    ) -> Request:
        public_key = (
            facts.public_key
            if facts is not None
            else self._context.registry.endpoints[forward.endpoint].public_key
        )
        needs_endpoint = not isinstance(command, Attach | Detach)
        request = Request(
            endpoint=forward.endpoint,
            request_id=forward.request_id,
            public_key=public_key,
            needs_endpoint=needs_endpoint,
            is_query=type(command) in self._context.capabilities.endpoint_queries,
            facts=facts,
            edges={edge},
        )
        self._pending[forward.endpoint, forward.request_id] = request
        count = self._pending_count.get(forward.endpoint, 0)
        self._pending_count[forward.endpoint] = count + 1
        return request

    def is_open(self, request: Request) -> bool:
        """Return whether a request still waits for its answer."""
        return self._pending.get((request.endpoint, request.request_id)) is request

    def is_attached(self, edge: str, name: str) -> bool:
        endpoint = self._context.registry.endpoints.get(name)
        return endpoint is not None and edge in endpoint.attachments

    def unattached_refusal(self, edge: str, forward: Forward) -> GridStatError | None:
        """Return why a request must not wait whose end-point is not attached to its edge.

        A short Attach or Detach may, or a repeat of what is under way; it is checked in its turn.
        """
        try:
            if len(forward.endpoint) > NAME_BYTES_MAX or is_long(forward):
                raise MalformedFrame(
                    "the name or the request of an end-point that is not attached is too long: "
                    f"{len(forward.endpoint):,} and {len(forward.body):,} bytes",
                    hint=f"attach with at most {UNATTACHED_BYTES_MAX:,} bytes in all",
                )
            is_repeat = (forward.endpoint, forward.request_id) in self._pending
            if not is_repeat and command_type(forward.body) not in UNATTACHED_TYPES:
                self._attached(edge, forward.endpoint)
        except GridStatError as error:
            return error
        return None

    def has_open(self, endpoint: str) -> bool:
        return endpoint in self._pending_count

    def has_any_open(self) -> bool:
        return bool(self._pending)

    def refuse_unopened(self, edge: str, forward: Forward, error: GridStatError) -> None:
        """Refuse a request that was not looked at; the refusal is not kept."""
        self._send(edge, forward, encode_outcomes((refused(error),)))

    def refuse_unreadable(self, edge: str, forward: Forward) -> None:
        """Refuse a request whose checks failed with an unexpected error."""
        error = MalformedFrame("the request cannot be read")
        self._send(edge, forward, encode_outcomes((refused(error),)))

    def answer(self, request: Request, outcomes: Iterable[Outcome]) -> None:
        """Send an answer without further operations, and keep it for a repeated request.

        A refusal is kept durably too. Otherwise the same request, still on its way through another
        edge, might be granted after a restart to an end-point that has given it up.
        """
        body = encode_outcomes(outcomes)
        endpoint = self._context.registry.endpoints.get(request.endpoint)
        if request.is_query or endpoint is None:
            if endpoint is not None and len(body) <= QUERY_BYTES_MAX:
                endpoint.answer_cache.put(request.request_id, body)
            self.send(request, body)
            return
        answered = Answered(endpoint=request.endpoint, request_id=request.request_id, body=body)
        request.state, request.answer = RequestState.WRITING, body
        self.commit(request, [answered], partial(self._send_answer, request))

    def send(self, request: Request, body: bytes) -> None:
        """Send the answer to every edge that forwarded the request, and close the request.

        An end-point that has left meanwhile has lost what it was granted, and is refused.
        """
        if request.needs_endpoint and request.endpoint not in self._context.registry.endpoints:
            error = ShuttingDown(f"{request.endpoint} has left before this was done")
            body = encode_outcomes((refused(error),))
        key = request.endpoint, request.request_id
        if self._pending.pop(key, None) is not None:
            left = self._pending_count[request.endpoint] - 1
            if left:
                self._pending_count[request.endpoint] = left
            else:
                del self._pending_count[request.endpoint]
                self.all_ended(request.endpoint)
        for edge in sorted(request.edges):
            self._return(edge, request.endpoint, request.request_id, body)

    def refuse(self, request: Request, error: GridStatError) -> None:
        self.answer(request, (refused(error),))

    def fail(self, request: Request) -> Callable[[str], None]:
        """Return the callback of a failed write: it refuses the request, which may be repeated."""
        return partial(self.fail_whole, request)

    def fail_slice(self, request: Request, reason: str) -> None:
        """Refuse a request of several slices, one of which was not written; it is repeated.

        The slices before are durable, and the repeat finds them done.
        """
        if self.is_open(request):
            error = StorageFailed(f"a part of the request was not written: {reason}")
            self.send(request, encode_outcomes((refused(error),)))

    def send_when_confirmed(
        self, request: Request, body: bytes, routers: Iterable[str], _: Applied
    ) -> None:
        """Send a durable answer once the routers have confirmed their tables, or had their time."""
        request.state, request.answer = RequestState.CONFIRMING, body
        self._context.tables.await_confirmations(
            routers,
            partial(self._send_answer, request),
            deadline_ns=self._context.now_ns + self._context.settings.confirm_within_ns,
        )

    def _send_answer(self, request: Request, _: Applied | Confirmation) -> None:
        self.send(request, request.answer)

    def fail_whole(self, request: Request, reason: str) -> None:
        """Refuse a request whose only write has failed."""
        error = StorageFailed(f"nothing was changed: {reason}")
        self.send(request, encode_outcomes((refused(error),)))

    def commit(
        self,
        request: Request,
        operations: Sequence[Operation],
        then: Callable[[Applied], None],
    ) -> None:
        self._context.commit(operations, then, self.fail(request))

    # Checks.

    def _check(
        self, edge: str, forward: Forward, command: EndPointCommand
    ) -> CertificateFacts | None:
        """Raise unless the end-point signed this and its edge forwards it; facts of an Attach."""
        verifier = self._context.outside.verifier
        message = signed_bytes(forward.endpoint, forward.request_id, forward.body)
        if isinstance(command, Attach):
            facts = verifier.certificate(command.certificate)
            _check_facts(facts, forward.endpoint, command.edge, edge)
            _check_signature(verifier.signature(facts.public_key, message, forward.signature))
            return facts
        endpoint = self._attached(edge, forward.endpoint)
        _check_signature(verifier.signature(endpoint.public_key, message, forward.signature))
        self._check_date(endpoint)
        return None

    def _attached(self, edge: str, name: str) -> EndPoint:
        """Return the end-point that is attached to an edge; raise if there is none."""
        endpoint = self._context.registry.endpoints.get(name)
        if endpoint is None:
            raise NotAttached(f"{name} is not attached to this cloud")
        if edge not in endpoint.attachments:
            # No decision is kept: the same request may still be granted by another edge.
            raise NotAttached(
                f"rule attachment: {name} is not attached to {edge}, which forwards it"
            )
        return endpoint

    def _check_number(self, forward: Forward) -> None:
        check_request_id(forward.request_id)
        if forward.request_id > self._context.outside.wall_clock_ns() + AHEAD_NS_MAX:
            raise NotAuthorised(
                f"rule number: request {forward.request_id} is more than a day ahead of the "
                "broker's clock",
                hint="number requests upwards from the wall clock in nanoseconds; set the clock",
            )

    def _check_date(self, endpoint: EndPoint) -> None:
        if self._context.outside.wall_clock_ns() > endpoint.not_after_s * NS_PER_S:
            raise CertificateRefused(
                f"the certificate of {endpoint.name} has expired since it attached"
            )

    def _is_under_way(self, edge: str, forward: Forward) -> bool:
        """Return whether the request is being decided; if so, this edge receives the answer too."""
        pending = self._pending.get((forward.endpoint, forward.request_id))
        if pending is None:
            return False
        message = signed_bytes(forward.endpoint, forward.request_id, forward.body)
        verifier = self._context.outside.verifier
        _check_signature(verifier.signature(pending.public_key, message, forward.signature))
        pending.edges.add(edge)
        return True

    def _known_answer(self, forward: Forward) -> bytes | None:
        """Return the kept answer to this request, if there is one; raise if it is a replay."""
        registry = self._context.registry
        endpoint = registry.endpoints.get(forward.endpoint)
        floor = registry.retired.get(forward.endpoint, 0)
        if endpoint is not None:
            body = endpoint.answer_cache.held.get(forward.request_id)
            if body is not None:
                return body
            if (forward.endpoint, forward.request_id) in registry.tree.begun:
                return None  # The request began before the last start, and waits for other clouds.
            floor = endpoint.answer_cache.floor
        if forward.request_id <= floor:
            raise NotAuthorised(
                f"rule replay: request {forward.request_id} of {forward.endpoint} is older than "
                "all that are remembered",
                hint="number requests upwards from the wall clock in nanoseconds",
            )
        if self._pending_count.get(forward.endpoint, 0) >= (
            self._context.settings.quotas.pending_requests_max
        ):
            raise QuotaReached(f"{forward.endpoint} has too many requests under way")
        return None

    def _send(self, edge: str, forward: Forward, body: bytes) -> None:
        self._return(edge, forward.endpoint, forward.request_id, body)

    def _send_when_durable(self, edge: str, forward: Forward, body: bytes) -> None:
        """Send an answer that depends on operations which may not be durable yet."""
        if not self._context.pending_count:
            self._send(edge, forward, body)
            return
        unwritten = encode_outcomes((refused(StorageFailed("nothing was changed")),))
        self._context.commit(
            (),
            partial(self._send_after, edge, forward, body),
            partial(self._send_after, edge, forward, unwritten),
        )

    def _send_after(self, edge: str, forward: Forward, body: bytes, _: Applied | str) -> None:
        self._send(edge, forward, body)

    def _return(self, edge: str, endpoint: str, request_id: int, body: bytes) -> None:
        term = self._context.registry.term
        self._context.send_router(
            edge, Return(term=term, endpoint=endpoint, request_id=request_id, body=body)
        )


def _decode(body: bytes) -> EndPointCommand:
    try:
        return decode_command(body)
    except MalformedFrame as error:
        if isinstance(error.__cause__, GridStatError):
            raise error.__cause__ from error  # A value out of its bounds has a code of its own.
        raise


def _check_facts(facts: CertificateFacts, endpoint: str, named: str, edge: str) -> None:
    if facts.role != "endpoint" or facts.name != endpoint:
        raise NotAuthorised(
            f"rule identity: the certificate is of {facts.role}/{facts.name}, and the request "
            f"is of endpoint/{endpoint}"
        )
    if named != edge:
        raise NotAuthorised(f"rule attachment: the request names {named}, and {edge} forwards it")


def _check_signature(is_good: bool) -> None:  # noqa: FBT001 — the result of one call, used once.
    if not is_good:
        raise NotAuthorised("rule signature: the request is not signed by the end-point's key")
