"""Requests of the session: numbered when first sent, repeated until answered, bounded in flight.

The broker recognises a repeated request by its number as long as it is not too far behind the
newest one, so the numbers in flight never span more than a window; further requests wait.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from gridstat.endpoint.session_events import Answered, Unanswered
from gridstat.model.errors import NotAttached, NotAuthorised, StorageFailed
from gridstat.net.command.endpoint_messages import (
    GrantedOutcome,
    PublishedOutcome,
    RefusedOutcome,
    Unpublish,
    Unsubscribe,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gridstat.net.command.endpoint_messages import EndPointCommand, Outcome

WINDOW: Final = 128
"""Largest span of numbers in flight; half of what an edge router and a broker remember of one end-
point."""
WAITING_MAX: Final = 16_384
UNDECIDED: Final = frozenset({StorageFailed.code})
OF_AN_EDGE: Final = frozenset({NotAttached.code, NotAuthorised.code})
"""Codes of refusals that may hold at one edge alone."""


class Purpose(Enum):
    """Purpose of a request, which says who waits for the answer."""

    REQUESTED = "requested"
    RESTORING = "restoring"
    UNDOING = "undoing"
    ABANDONED = "abandoned"


@dataclass(slots=True)
class Request:
    """A command and the state of its request; `request_id` 0 until it is first sent."""

    command: EndPointCommand
    purpose: Purpose
    token: int = 0
    deadline_ns: int | None = None
    request_id: int = 0
    body: bytes = b""
    signature: bytes = b""
    tries: int = 0
    repeats: int = 0
    sent_to: str = ""
    retry_at_ns: int | None = None
    undecided: tuple[Outcome, ...] = ()
    """Last outcomes that decided nothing."""

    def timeout_output(self) -> Answered | Unanswered:
        """Return the output for the application when its deadline has passed."""
        return Answered(self.token, self.undecided) if self.undecided else Unanswered(self.token)


class RequestTable:
    """Requests by number; numbers grow, are never reused, and span at most `WINDOW` in flight."""

    def __init__(self, first_request_id: int) -> None:
        self._next_id = first_request_id
        self._waiting: deque[Request] = deque()
        self._in_flight: dict[int, Request] = {}
        self._may_have_lost = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_flight)

    def next_id(self) -> int:
        """Return a new number, also for requests that are not kept here."""
        found = self._next_id
        self._next_id += 1
        return found

    @property
    def has_room(self) -> bool:
        """True if one more request may wait."""
        return len(self._waiting) < WAITING_MAX

    def add(self, request: Request) -> None:
        """Add a request to the queue."""
        self._waiting.append(request)

    def begin(self) -> Iterator[Request]:
        """Yield the requests that may be sent for the first time now, each with its number."""
        while self._waiting:
            oldest = next(iter(self._in_flight), self._next_id)
            if self._next_id - oldest >= WINDOW:
                return
            request = self._waiting.popleft()
            request.request_id = self.next_id()
            self._in_flight[request.request_id] = request
            yield request

    def in_flight(self) -> Iterator[Request]:
        """Return the requests that were sent and not answered, oldest first."""
        return iter(tuple(self._in_flight.values()))

    def lose(self, request: Request) -> None:
        """Mark a request to be sent again: its edge is lost, or has not answered in time."""
        request.sent_to, request.retry_at_ns = "", None
        self._may_have_lost = True

    def take_lost(self) -> list[Request]:
        """Return the requests in flight that are at no edge now, oldest first; the caller sends
        them."""
        if not self._may_have_lost:
            return []
        self._may_have_lost = False
        return [request for request in self._in_flight.values() if not request.sent_to]

    def find(self, request_id: int) -> Request | None:
        """Return the request in flight with this number."""
        return self._in_flight.get(request_id)

    def answered(self, request_id: int, outcomes: tuple[Outcome, ...], edge: str) -> Request | None:
        """Remove and return the request with this number; None if it is unknown or not decided.

        A broker that cannot write has decided nothing, and takes the same number again; one that
        was repeated already may still be granted. So it is repeated until there is a decision. Nor
        does a refusal decide that an edge brings which the request has left: the end-point may not
        be attached to it any more, while the repetition at another edge is granted.
        """
        request = self._in_flight.get(request_id)
        if request is None:
            return None
        codes = [each.code for each in outcomes if isinstance(each, RefusedOutcome)]
        is_of_edge = 0 < len(codes) == len(outcomes) and OF_AN_EDGE.issuperset(codes)
        if not UNDECIDED.isdisjoint(codes) or (is_of_edge and request.sent_to != edge):
            request.undecided = outcomes
            return None
        return self._in_flight.pop(request_id)

    def repeat(self, request: Request) -> None:
        """Repeat a request that was answered by mistake, with a new number, before all waiting
        ones."""
        del self._in_flight[request.request_id]
        request.request_id, request.tries, request.sent_to = 0, 0, ""
        request.body, request.signature, request.retry_at_ns = b"", b"", None
        request.repeats += 1
        self._waiting.appendleft(request)

    def overdue(self, now_ns: int) -> list[Request]:
        """Return the requests whose deadline has passed; each is returned once.

        What was sent may still be granted, so it stays in flight, abandoned, until it is answered.
        """
        late = [request for request in self._waiting if _is_late(request, now_ns)]
        if late:
            self._waiting = deque(each for each in self._waiting if not _is_late(each, now_ns))
        for request in self._in_flight.values():
            if _is_late(request, now_ns):
                request.deadline_ns = None
                late.append(request)
        return late


def give_back(outcomes: Iterable[Outcome]) -> Iterator[Unsubscribe | Unpublish]:
    """Yield the commands that undo what was granted after the application stopped waiting."""
    granted = tuple(outcomes)
    ids = tuple(each.subscription_id for each in granted if isinstance(each, GrantedOutcome))
    names = tuple(each.variable.name for each in granted if isinstance(each, PublishedOutcome))
    if ids:
        yield Unsubscribe(subscription_ids=ids)
    if names:
        yield Unpublish(names=names)


def _is_late(request: Request, now_ns: int) -> bool:
    return request.deadline_ns is not None and now_ns >= request.deadline_ns
