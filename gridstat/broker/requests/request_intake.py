"""RequestIntake of end-points: who asks, by which edge, and whether it was asked before.

The signature proves the end-point, the session's certificate the edge, and the registry that the
two belong together. An answer is kept, so a request may be repeated as often as it takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from gridstat.broker.records.operations import Answered
from gridstat.broker.requests.outcomes import encode_outcomes, refused
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
    FindVariables,
    ReportLedger,
    ResolveName,
    Subscribe,
)
from gridstat.net.command.endpoint_signatures import (
    CertificateFacts,
    check_request_id,
    signed_bytes,
)
from gridstat.net.command.flooding_messages import ListenToFloods
from gridstat.net.command.frames import decode_command
from gridstat.net.command.router_messages import Return

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.records.registry import EndPoint
    from gridstat.broker.requests.endpoint_presence import EndPointPresence
    from gridstat.net.command.endpoint_messages import EndPointCommand, Outcome
    from gridstat.net.command.router_messages import Forward

ENQUIRY_BYTES_MAX: Final = 4_096
"""Of an answer that is kept though it changes nothing; a longer one is looked up again."""
AHEAD_NS_MAX: Final = 24 * 3_600 * NS_PER_S
"""RequestIntake are numbered from a wall clock; a number far ahead would bar all that follow."""


@dataclass(slots=True)
class Request:
    """One request that is being decided, and the edges that wait for its answer."""

    endpoint: str
    request_id: int
    public_key: bytes
    needs_endpoint: bool
    is_enquiry: bool
    edges: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class OpenedRequest:
    """Request that is to be decided; `facts` are those of the certificate of an Attach."""

    request: Request
    command: EndPointCommand
    facts: CertificateFacts | None


@dataclass(frozen=True, slots=True)
class RepeatedSubscribe:
    """Subscribe that was decided before, with the kept answer; its paths may not be up yet."""

    request: Request
    answer: bytes


class RequestIntake:
    """Every request is answered once to each edge that brought it, and decided once at most."""

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
                return None
            if (
                isinstance(command, Detach)
                and forward.endpoint not in self._context.registry.endpoints
            ):
                # Whoever repeats a lost farewell has left already; there is no key to check it by.
                self._send_when_durable(edge, forward, encode_outcomes((DoneOutcome(),)))
                return None
            facts = self._check(edge, forward, command)
            known = self._known_answer(forward)
        except GridStatError as error:
            self._send(edge, forward, encode_outcomes((refused(error),)))
            return None
        if known is not None:
            if isinstance(command, Subscribe):
                return RepeatedSubscribe(self._begin(edge, forward, command, None), known)
            self._send_when_durable(edge, forward, known)
            if isinstance(command, Attach):
                self._presence.attached_again(edge, forward.endpoint, command.incarnation)
            return None
        return OpenedRequest(self._begin(edge, forward, command, facts), command, facts)

    def _begin(
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
        is_enquiry = isinstance(
            command, FindVariables | ResolveName | ReportLedger | ListenToFloods
        )
        request = Request(
            forward.endpoint, forward.request_id, public_key, needs_endpoint, is_enquiry, {edge}
        )
        self._pending[forward.endpoint, forward.request_id] = request
        count = self._pending_count.get(forward.endpoint, 0)
        self._pending_count[forward.endpoint] = count + 1
        return request

    def drop(self, edge: str, forward: Forward) -> None:
        """Refuse what could not even be looked at."""
        error = MalformedFrame("the request cannot be read")
        self._send(edge, forward, encode_outcomes((refused(error),)))

    def answer(self, request: Request, outcomes: Iterable[Outcome]) -> None:
        """Send an answer that changes nothing, and keep it for a repeated request.

        A refusal is kept durably too: else the same request, still on its way by another edge,
        might be granted after a restart to somebody who has given it up.
        """
        body = encode_outcomes(outcomes)
        endpoint = self._context.registry.endpoints.get(request.endpoint)
        if request.is_enquiry or endpoint is None:
            if endpoint is not None and len(body) <= ENQUIRY_BYTES_MAX:
                endpoint.book.put(request.request_id, body)
            self.send(request, body)
            return
        answered = Answered(endpoint=request.endpoint, request_id=request.request_id, body=body)
        self._context.commit([answered], lambda _: self.send(request, body), self.fail(request))

    def send(self, request: Request, body: bytes) -> None:
        """Send the answer to every edge that asked, and close the request.

        If the end-point has left meanwhile, so has whatever it was granted.
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
        for edge in sorted(request.edges):
            self._return(edge, request.endpoint, request.request_id, body)

    def refuse(self, request: Request, error: GridStatError) -> None:
        self.answer(request, (refused(error),))

    def fail(self, request: Request) -> Callable[[str], None]:
        """Return the callback of a failed write: it refuses the request, which may be repeated."""
        return partial(self._refuse_unwritten, request)

    def _refuse_unwritten(self, request: Request, reason: str) -> None:
        error = StorageFailed(f"nothing was changed: {reason}")
        self.send(request, encode_outcomes((refused(error),)))

    def commit(
        self,
        request: Request,
        operations: Sequence[Operation],
        then: Callable[[Applied], None],
    ) -> None:
        self._context.commit(operations, then, self.fail(request))

    # Letting in.

    def _check(
        self, edge: str, forward: Forward, command: EndPointCommand
    ) -> CertificateFacts | None:
        """Raise unless the end-point itself said this, by an edge where it may; facts if new."""
        verifier = self._context.outside.verifier
        message = signed_bytes(forward.endpoint, forward.request_id, forward.body)
        if isinstance(command, Attach):
            facts = verifier.certificate(command.certificate)
            _check_facts(facts, forward.endpoint, command.edge, edge)
            _check_signature(verifier.signature(facts.public_key, message, forward.signature))
            return facts
        endpoint = self._context.registry.endpoints.get(forward.endpoint)
        if endpoint is None:
            raise NotAttached(f"{forward.endpoint} is not attached to this cloud")
        if edge not in endpoint.attachments:
            raise NotAuthorised(
                f"rule attachment: {forward.endpoint} is not attached to {edge}, which forwards it"
            )
        _check_signature(verifier.signature(endpoint.public_key, message, forward.signature))
        self._check_date(endpoint)
        return None

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
        """Whether this very request is being decided; then this edge is answered too."""
        pending = self._pending.get((forward.endpoint, forward.request_id))
        if pending is None:
            return False
        message = signed_bytes(forward.endpoint, forward.request_id, forward.body)
        verifier = self._context.outside.verifier
        _check_signature(verifier.signature(pending.public_key, message, forward.signature))
        pending.edges.add(edge)
        return True

    def _known_answer(self, forward: Forward) -> bytes | None:
        """The answer if this very request has one already; raises if it is a replay."""
        registry = self._context.registry
        endpoint = registry.endpoints.get(forward.endpoint)
        floor = registry.retired.get(forward.endpoint, 0)
        if endpoint is not None:
            body = endpoint.book.held.get(forward.request_id)
            if body is not None:
                return body
            if (forward.endpoint, forward.request_id) in registry.tree.begun:
                return None  # Its answer has begun, before the broker's last start.
            floor = endpoint.book.floor
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
        """Send what rests on operations that may still be on their way to the disk."""
        if not self._context.pending_count:
            self._send(edge, forward, body)
            return
        unwritten = encode_outcomes((refused(StorageFailed("nothing was changed")),))
        self._context.commit(
            (),
            lambda _: self._send(edge, forward, body),
            lambda _: self._send(edge, forward, unwritten),
        )

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
            raise error.__cause__ from error  # A value out of its bounds says so by its own code.
        raise


def _check_facts(facts: CertificateFacts, endpoint: str, named: str, edge: str) -> None:
    if facts.role != "endpoint" or facts.name != endpoint:
        raise NotAuthorised(
            f"rule identity: the certificate is of {facts.role}/{facts.name}, and the request "
            f"is of endpoint/{endpoint}"
        )
    if named != edge:
        raise NotAuthorised(f"rule attachment: asked to attach to {named}, and {edge} forwards it")


def _check_signature(is_good: bool) -> None:  # noqa: FBT001 — the answer of one call, asked once.
    if not is_good:
        raise NotAuthorised("rule signature: the request is not signed by the end-point's key")
