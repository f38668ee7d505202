"""Answers to requests that wait for other clouds, with what is known of them so far.

That an answer has begun is durable, and each outcome as it comes; with the last one it is the
answer of an ordinary request. An end-point that asks again after a start waits for the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from gridstat.broker.records.operations import Answered
from gridstat.broker.records.tree_operations import OutcomeKnown
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

    from gridstat.broker.desk import Desk
    from gridstat.broker.records.applied import Applied
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.records.tree_operations import ContractAsked
    from gridstat.broker.requests.grants import Grants
    from gridstat.broker.requests.requests import Request, Requests
    from gridstat.net.command.endpoint_messages import Outcome

Place: TypeAlias = tuple[str, int, int]
"""The end-point, its request, and the place of an outcome in the answer to it."""
NOWHERE: Final[Place] = ("", 0, 0)


@dataclass(slots=True)
class _Waiting:
    """A request whose answer waits for other clouds, and its contracts in this one."""

    request: Request
    direct: list[Subscribed] = field(default_factory=list)


class BegunAnswers:
    """`_waiting` are requests of this life; what was begun before is sent when it is asked."""

    def __init__(
        self, desk: Desk, requests: Requests, grants: Grants, failed: Callable[[str], None]
    ) -> None:
        self._desk = desk
        self._requests = requests
        self._grants = grants
        self._failed = failed
        self._waiting: dict[tuple[str, int], _Waiting] = {}

    def joins(self, request: Request) -> bool:
        """Whether this very request is being decided since before the broker's last start."""
        key = request.endpoint, request.request_id
        if key not in self._desk.registry.tree.begun:
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
            encoded = [*self._desk.registry.tree.begun[key]]
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

        self._desk.commit([*operations, *more], done, self._failed)

    def resume(self) -> None:
        """After a start: what was ended while it was asked for may have been left open."""
        tree = self._desk.registry.tree
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
        begun = self._desk.registry.tree.begun
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
        begun = self._desk.registry.tree.begun.get((endpoint, request_id), [])
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
