"""Answers to requests that wait for other clouds, with what is known of them so far.

That an answer has begun is durable, and each outcome as it comes; with the last one it is the
answer of an ordinary request. An end-point that asks again after a start waits for the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from gridstat.broker.records.operations import Answered
from gridstat.broker.records.parent_operations import OutcomeKnown
from gridstat.broker.requests.outcomes import (
    encode_outcome,
    encode_outcomes,
    join_outcomes,
    refused,
)
from gridstat.model.errors import NoSuchSubscription, ShuttingDown
from gridstat.net.command.frames import decode_outcomes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.records.parent_operations import ContractAsked
    from gridstat.broker.requests.pending_grants import PendingGrants
    from gridstat.broker.requests.request_intake import Request, RequestIntake
    from gridstat.net.command.endpoint_messages import Outcome

Place: TypeAlias = tuple[str, int, int]
"""The end-point, its request, and the place of an outcome in the answer to it."""
NOWHERE: Final[Place] = ("", 0, 0)


@dataclass(slots=True)
class _Waiting:
    """A request whose answer waits for other clouds, and its contracts in this one."""

    request: Request
    direct: list[Subscribed] = field(default_factory=list)


class PendingAnswers:
    """`_waiting` are requests of this life; what was begun before is sent when it is asked."""

    def __init__(
        self,
        context: BrokerContext,
        requests: RequestIntake,
        grants: PendingGrants,
        failed: Callable[[str], None],
    ) -> None:
        self._context = context
        self._requests = requests
        self._grants = grants
        self._failed = failed
        self._waiting: dict[tuple[str, int], _Waiting] = {}

    def joins(self, request: Request) -> bool:
        """Whether this very request is being decided since before the broker's last start."""
        key = request.endpoint, request.request_id
        if key not in self._context.registry.tree.begun:
            return False
        self._waiting.setdefault(key, _Waiting(request))
        return True

    def wait(self, request: Request, direct: list[Subscribed], _: Applied) -> None:
        """The answer has begun, durably; it is sent when its last outcome is known."""
        self._waiting[request.endpoint, request.request_id] = _Waiting(request, direct)

    def fill(
        self,
        where: Place,
        outcome: Outcome,
        operations: Sequence[Operation],
        told: Callable[[], None],
    ) -> None:
        """Make operations durable, together with an outcome in its answer, if that has begun.

        An outcome that has changed before the answer is whole takes the place of the first one.
        """
        endpoint, request_id, place = where
        key, body = (endpoint, request_id), b""
        more: list[Operation] = []
        if self._outcomes(where):
            encoded = [*self._context.registry.tree.begun[key]]
            encoded[place] = encode_outcome(outcome)
            if all(encoded):
                body = join_outcomes(encoded)
                more = [Answered(endpoint=endpoint, request_id=request_id, body=body)]
            else:
                more = [
                    OutcomeKnown(
                        endpoint=endpoint,
                        request_id=request_id,
                        place=place,
                        outcome=encoded[place],
                    )
                ]

        def done(_: Applied) -> None:
            told()
            if body:
                self._finish(key, body)

        self._context.commit([*operations, *more], done, self._failed)

    def resume(self) -> None:
        """After a start: what was ended while it was asked for may have been left open."""
        tree = self._context.registry.tree
        waiting = [found.waiting for found in tree.asked.values()]
        awaited = {place_of(asked) for asked in waiting}
        missing = [
            (*key, place)
            for key, outcomes in sorted(tree.begun.items())
            for place, outcome in enumerate(outcomes)
            if not outcome
        ]
        for where in missing:
            if where not in awaited:
                self.close(where)

    def close(self, where: Place, operations: Sequence[Operation] = ()) -> None:
        """The outcome of a contract that was ended while it was asked for is known, too."""
        if operations or self._misses(where):
            gone = NoSuchSubscription("it was ended before it was granted")
            self.fill(where, refused(gone), operations, _nobody)

    def leave(self, endpoint: str) -> None:
        """An end-point is gone, durably, and with it all answers that had begun: nobody fills them.

        It may be back already, and have asked anew.
        """
        begun = self._context.registry.tree.begun
        gone = [key for key in self._waiting if key[0] == endpoint and key not in begun]
        error = ShuttingDown(f"{endpoint} has left before this was done")
        for key in gone:
            self._requests.send(self._waiting.pop(key).request, encode_outcomes((refused(error),)))

    def _misses(self, where: Place) -> bool:
        """Whether an answer has begun there, and this outcome of it is not known yet."""
        outcomes = self._outcomes(where)
        return bool(outcomes) and not outcomes[where[2]]

    def _outcomes(self, where: Place) -> list[bytes]:
        """All of an answer that has begun; none, if there is no such place in it."""
        endpoint, request_id, place = where
        begun = self._context.registry.tree.begun.get((endpoint, request_id), [])
        return begun if place < len(begun) else []

    def _finish(self, key: tuple[str, int], body: bytes) -> None:
        """All outcomes of a request are known; those of this cloud may still wait for routers."""
        waiting = self._waiting.pop(key, None)
        if waiting is None:
            return
        if waiting.direct:
            outcomes = list(decode_outcomes(body).outcomes)
            self._grants.await_paths(waiting.request, body, outcomes, waiting.direct)
        else:
            self._requests.send(waiting.request, body)


def place_of(asked: ContractAsked | None) -> Place:
    """Where an outcome belongs; nowhere, if no request waits for it."""
    return NOWHERE if asked is None else (asked.subscriber, asked.request_id, asked.place)


def _nobody() -> None:
    """Nobody is told but by the answer."""


# How long an end-point waits for other clouds: so long, and then it has an answer in any case.
#
# Who is away may be asked again later; a request that nobody answers would be forgotten by its
# end-point, and granted to nobody in the end.

PATIENCE_TIMER: Final = "patience"


class AnswerDeadlines:
    """`_since` are the contracts that requests wait for, and the generations of them, by when they
    were asked in this life."""

    def __init__(self, context: BrokerContext, give_up: Callable[[int], None]) -> None:
        self._context = context
        self._give_up = give_up
        self._since: dict[tuple[int, int], int] = {}
        self._is_timer_set = False

    def begin(self, number: int) -> None:
        """A contract has been asked for; a pattern's has nobody who waits for it."""
        generation = self._awaited(number)
        if generation is not None:
            self._since.setdefault((number, generation), self._context.now_ns)
            self._set_timer()

    def resume(self) -> None:
        """After a start all wait anew."""
        for number in sorted(self._context.registry.tree.asked):
            self.begin(number)

    def look(self) -> None:
        """Give up what has waited for so long."""
        self._is_timer_set = False
        late_ns = self._context.now_ns - self._context.settings.ask_within_ns
        for key, since_ns in sorted(self._since.items()):
            number, generation = key
            if generation != self._awaited(number):
                del self._since[key]
            elif since_ns <= late_ns:
                del self._since[key]
                self._give_up(number)
        self._set_timer()

    def _awaited(self, number: int) -> int | None:
        """The generation that a request waits for; each change has its own time."""
        found = self._context.registry.tree.asked.get(number)
        asked = None if found is None else found.waiting
        return asked.generation if asked is not None and asked.request_id else None

    def _set_timer(self) -> None:
        if self._since and not self._is_timer_set:
            self._is_timer_set = True
            first_ns = min(self._since.values()) + self._context.settings.ask_within_ns
            self._context.set_timer(PATIENCE_TIMER, first_ns - self._context.now_ns)
