"""Answers to end-points' requests that wait for other clouds, and the deadlines of these answers.

An answer begins (durably) with the outcomes of this cloud; each outcome from another cloud is
stored as it arrives, and the answer is sent with the last one. After a restart an end-point that
repeats its request waits for the same answer. An end-point that waits longer than `ask_within_ns`
is answered without the missing outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from gridstat.broker.records.operations import Answered
from gridstat.broker.records.parent_operations import OutcomeKnown
from gridstat.broker.requests.outcomes import (
    encode_outcome,
    encode_outcomes,
    join_outcomes,
    refused,
)
from gridstat.broker.requests.pending_grants import Reply
from gridstat.model.errors import NoSuchSubscription, NotAuthorised, ShuttingDown
from gridstat.net.command.frames import decode_outcomes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.records.parent_operations import ContractAsked
    from gridstat.broker.requests.pending_grants import PendingGrants
    from gridstat.broker.requests.request import Request
    from gridstat.broker.requests.request_intake import RequestIntake
    from gridstat.model.errors import GridStatError
    from gridstat.net.command.endpoint_messages import Outcome

OutcomePosition: TypeAlias = tuple[str, int, int]
"""End-point, number of its request, and index of the outcome in the answer."""
NO_POSITION: Final[OutcomePosition] = ("", 0, 0)


@dataclass(slots=True)
class _WaitingRequest:
    """A request whose answer waits for other clouds, and its contracts in this cloud."""

    request: Request
    direct: list[Subscribed] = field(default_factory=list)


class PendingAnswers:
    """Collects the outcomes of requests.

    `_waiting` holds the requests received since the start; an answer that began before the start is
    sent when the end-point repeats its request.
    """

    def __init__(
        self,
        context: BrokerContext,
        requests: RequestIntake,
        grants: PendingGrants,
        failed: Callable[[str], None],
        report_changes: Callable[[bytes], None],
    ) -> None:
        """`report_changes` notifies of changes of contracts since an answer was decided."""
        self._context = context
        self._requests = requests
        self._grants = grants
        self._failed = failed
        self._report_changes = report_changes
        self._waiting: dict[tuple[str, int], _WaitingRequest] = {}
        self._reasons: dict[OutcomePosition, str] = {}

    def joins(self, request: Request) -> bool:
        """Return whether the answer to this request began before the start; then wait for it."""
        key = request.endpoint, request.request_id
        if key not in self._context.registry.tree.begun:
            return False
        self._waiting.setdefault(key, _WaitingRequest(request))
        return True

    def wait(self, request: Request, direct: list[Subscribed], _: Applied) -> None:
        """Record a request whose answer has begun durably."""
        self._waiting[request.endpoint, request.request_id] = _WaitingRequest(request, direct)

    def fill(
        self,
        position: OutcomePosition,
        outcome: Outcome,
        operations: Sequence[Operation],
        notify: Callable[[], None],
    ) -> None:
        """Make operations durable together with an outcome of an answer that has begun.

        An outcome that changes before the answer is complete replaces the first one.
        """
        endpoint, request_id, index = position
        key, body = (endpoint, request_id), b""
        # The last outcome turns the begun answer into an ordinary one, in the same commit.
        more: list[Operation] = []
        if self._outcomes(position):
            encoded = [*self._context.registry.tree.begun[key]]
            encoded[index] = encode_outcome(outcome)
            if all(encoded):
                body = join_outcomes(encoded)
                more = [Answered(endpoint=endpoint, request_id=request_id, body=body)]
            else:
                more = [
                    OutcomeKnown(
                        endpoint=endpoint,
                        request_id=request_id,
                        place=index,
                        outcome=encoded[index],
                    )
                ]

        def done(_: Applied) -> None:
            notify()
            if body:
                self._finish(key, body)

        self._context.commit([*operations, *more], done, self._failed)

    def resume(self) -> None:
        """Close outcomes of contracts that were ended before the restart."""
        tree = self._context.registry.tree
        waiting = [found.waiting for found in tree.asked.values()]
        awaited = {position_of(requested) for requested in waiting}
        missing = [
            (*key, index)
            for key, outcomes in sorted(tree.begun.items())
            for index, outcome in enumerate(outcomes)
            if not outcome
        ]
        for position in missing:
            if position not in awaited:
                self.close(position)

    def replaced(self, position: OutcomePosition, outcome: Outcome) -> list[OutcomeKnown]:
        """Return the operation that replaces a known outcome of an incomplete answer, if any."""
        outcomes = self._outcomes(position)
        if not outcomes or not outcomes[position[2]]:
            return []
        endpoint, request_id, index = position
        encoded = encode_outcome(outcome)
        return [
            OutcomeKnown(endpoint=endpoint, request_id=request_id, place=index, outcome=encoded)
        ]

    def explain(self, position: OutcomePosition, reason: str) -> None:
        """Note for which reason by access rules an outcome will be closed, if it is missing."""
        if self._is_missing(position):
            self._reasons[position] = reason

    def close(self, position: OutcomePosition, operations: Sequence[Operation] = ()) -> None:
        """Fill the outcome of a contract that was ended while it was requested."""
        why = self._reasons.pop(position, "")
        if operations or self._is_missing(position):
            ended: GridStatError = NoSuchSubscription(
                "the contract was ended before it was granted"
            )
            if why:
                ended = NotAuthorised(why)
            self.fill(position, refused(ended), operations, _no_op)

    def endpoint_left(self, endpoint: str) -> None:
        """Refuse the waiting requests of an end-point that has left, durably.

        The end-point may have returned, and its new requests wait on.
        """
        begun = self._context.registry.tree.begun
        ended_keys = [key for key in self._waiting if key[0] == endpoint and key not in begun]
        error = ShuttingDown(f"{endpoint} has left before this was done")
        for key in ended_keys:
            self._requests.send(self._waiting.pop(key).request, encode_outcomes((refused(error),)))

    def _is_missing(self, position: OutcomePosition) -> bool:
        """Return whether the answer has begun and lacks this outcome."""
        outcomes = self._outcomes(position)
        return bool(outcomes) and not outcomes[position[2]]

    def _outcomes(self, position: OutcomePosition) -> list[bytes]:
        """Return the outcomes of an answer that has begun; empty without such a position."""
        endpoint, request_id, index = position
        begun = self._context.registry.tree.begun.get((endpoint, request_id), [])
        return begun if index < len(begun) else []

    def _finish(self, key: tuple[str, int], body: bytes) -> None:
        """Send a complete answer, after the routers have confirmed its contracts in this cloud."""
        waiting = self._waiting.pop(key, None)
        if waiting is None:
            return
        if waiting.direct:
            reply = Reply(body, decode_outcomes(body).outcomes, waiting.direct)
            sent = partial(self._report_changes, body)
            self._grants.await_paths(waiting.request, reply, sent)
        else:
            self._requests.send(waiting.request, body)
            self._report_changes(body)


def position_of(requested: ContractAsked | None) -> OutcomePosition:
    """Return the position of a contract's outcome; `NO_POSITION` if no request waits for it."""
    return (
        NO_POSITION
        if requested is None
        else (requested.subscriber, requested.request_id, requested.place)
    )


def _no_op() -> None:
    """Send no notice: the answer is enough."""


# Deadlines of answers. An end-point forgets a request that is not answered in time; a contract
# granted later would then hold capacity that nobody uses. So the broker answers at the deadline.

ANSWER_TIMER: Final = "answer"


class AnswerDeadlines:
    """Gives up contracts that an end-point has waited for too long.

    `_requested_ns` holds the time of each request since the start, by contract and generation.
    """

    def __init__(self, context: BrokerContext, give_up: Callable[[int], None]) -> None:
        self._context = context
        self._give_up = give_up
        self._requested_ns: dict[tuple[int, int], int] = {}
        self._is_timer_set = False

    def begin(self, number: int) -> None:
        """Start the deadline of a contract; nobody waits for the contract of a pattern."""
        generation = self._awaited_generation(number)
        if generation is not None:
            self._requested_ns.setdefault((number, generation), self._context.now_ns)
            self._set_timer()

    def resume(self) -> None:
        """Start all deadlines again after a start."""
        for number in sorted(self._context.registry.tree.asked):
            self.begin(number)

    def expire(self) -> None:
        """Give up the contracts whose deadline has passed."""
        self._is_timer_set = False
        expired_ns = self._context.now_ns - self._context.settings.ask_within_ns
        for key, requested_ns in sorted(self._requested_ns.items()):
            number, generation = key
            if generation != self._awaited_generation(number):  # Answered, ended or changed since.
                del self._requested_ns[key]
            elif requested_ns <= expired_ns:
                del self._requested_ns[key]
                self._give_up(number)
        self._set_timer()

    def _awaited_generation(self, number: int) -> int | None:
        """Return the generation that a request waits for; each change has its own deadline."""
        found = self._context.registry.tree.asked.get(number)
        requested = None if found is None else found.waiting
        return requested.generation if requested is not None and requested.request_id else None

    def _set_timer(self) -> None:
        if self._requested_ns and not self._is_timer_set:
            self._is_timer_set = True
            first_ns = min(self._requested_ns.values()) + self._context.settings.ask_within_ns
            self._context.set_timer(ANSWER_TIMER, first_ns - self._context.now_ns)
