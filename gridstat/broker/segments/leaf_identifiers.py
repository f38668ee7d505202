"""Identifiers of variables: counted up by a cloud that stands alone, leased by one with a parent.

A parent answers the same question always with the same block, so a question that was lost is asked
again. Publications for which there is no identifier wait for one.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from gridstat.broker.records.parent_operations import NumbersAllotted
from gridstat.model.errors import GridStatError, LimitReached, QuotaReached, ShuttingDown
from gridstat.model.identifier_pool import IdentifierPool
from gridstat.model.status import U32_MAX
from gridstat.net.command.tree_messages import AskNumbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.registry import EndPoint
    from gridstat.broker.requests.request_intake import Request, RequestIntake
    from gridstat.broker.segments.parent_session import ParentSession
    from gridstat.net.command.endpoint_messages import Publish
    from gridstat.net.command.tree_messages import NumbersLeased

NUMBERS_TIMER: Final = "numbers"
HELD_MAX: Final = 1_024
LOW_SHARE: Final = 4
"""Below a fourth of a block the next one is asked for."""

Process: TypeAlias = tuple[str, int]
"""The incarnation of an end-point, and the request by which it became known."""


class _Held(NamedTuple):
    """A publication that waits for a block, and the process that wants it."""

    request: Request
    command: Publish
    process: Process


class LeafIdentifiers:
    """`_held` are publications that wait for a block, in their order.

    `_open` is the question that the parent has not answered yet, and for how many it asks.
    Quarantine is measured by the steady clock: a step of the other must not end it.
    """

    def __init__(
        self,
        context: BrokerContext,
        requests: RequestIntake,
        link: ParentSession,
        publish: Callable[[Request, Publish], None],
    ) -> None:
        """`publish` decides a held request again once there are identifiers for it."""
        self._context = context
        self._requests = requests
        self._link = link
        self._pool = IdentifierPool(context.settings.quarantine_ns)
        self._held: deque[_Held] = deque()
        self._open = (0, 0)
        self._is_exhausted = False
        self._publish = publish

    def resume(self) -> None:
        """After a start: what is not in use begins to rest now, since nobody knows since when."""
        registry, tree = self._context.registry, self._context.registry.tree
        if tree.numbers_used:
            self._pool.lease(1, tree.numbers_used)
        for first, count in tree.blocks:
            self._pool.lease(first, count)
        changing = [registry.publications[name].change for name in registry.changing]
        old = {change.old.variable_id for change in changing if change is not None}
        used = registry.names.keys() | old
        self._pool.resume(used, registry.variable_id_last, self._context.now_ns)

    # What publications need.

    def take(self) -> int:
        registry = self._context.registry
        if not self._context.settings.parent:
            if registry.variable_id_last >= U32_MAX:
                raise LimitReached("the cloud has given out all identifiers of variables")
            return registry.next_variable_id()
        number = self._pool.take(self._context.now_ns)
        if number is None:
            raise LimitReached(
                "the cloud has no identifier left for another variable at the moment",
                hint="ask again when its parent has given it more",
            )
        self.ask_if_low()
        return number

    def is_short_of(self, count: int) -> bool:
        """Whether so many can only be given once the parent has given more."""
        if not self._context.settings.parent or not count or self._is_exhausted:
            return False
        return self._pool.fresh() + self._pool.rested(self._context.now_ns, count) < count

    def hold(self, request: Request, command: Publish) -> None:
        """Publish when there are identifiers; raises if too many wait already."""
        if len(self._held) >= HELD_MAX:
            raise QuotaReached(
                "too many publications wait for identifiers of variables",
                hint="the parent has to give some; see whether the cloud has joined it",
            )
        process = _process_of(self._context.registry.endpoints.get(request.endpoint))
        self._held.append(_Held(request, command, process))
        self.ask_if_low()

    def free(self, number: int) -> None:
        """A variable is gone, and no other has its number."""
        if number not in self._context.registry.names:
            self._pool.give_back(number, self._context.now_ns)

    # The talk with the parent.

    def ask_again(self) -> None:
        """What was asked before may be lost: the session is new, or the disk had no room."""
        self._open = (0, 0)
        self.ask_if_low()

    def ask_if_low(self) -> None:
        at_once = self._context.settings.numbers_at_once
        wanted = sum(len(held.command.publications) for held in self._held)
        if self._pool.fresh() < max(wanted, at_once // LOW_SHARE, 1):
            question = len(self._context.registry.tree.blocks) + 1, max(at_once, wanted)
            if question != self._open:
                self._open = question
                request, count = question
                self._link.tell(AskNumbers(term=self._link.term, request=request, count=count))

    def leased(self, word: NumbersLeased) -> None:
        if word.request != len(self._context.registry.tree.blocks) + 1:
            return  # Said again; it is known.
        if word.count < 1 or word.first < 1 or word.first + word.count - 1 > U32_MAX:
            self._is_exhausted = True
            self._open = (0, 0)
            self._context.note("numbers_exhausted", request=word.request)
            self._publish_held()
            return
        self._is_exhausted = False
        allotted = NumbersAllotted(first=word.first, count=word.count)
        self._context.commit([allotted], partial(self._leased, allotted), self._later)

    def _leased(self, allotted: NumbersAllotted, _: Applied) -> None:
        self._pool.lease(allotted.first, allotted.count)
        self._publish_held()
        self.ask_if_low()

    def _publish_held(self) -> None:
        held, self._held = self._held, deque()
        for request, command, process in held:
            endpoint = self._context.registry.endpoints.get(request.endpoint)
            try:
                if endpoint is None or _process_of(endpoint) != process:
                    raise ShuttingDown(f"{request.endpoint} has left before this was done")
                self._publish(request, command)
            except GridStatError as error:
                self._requests.refuse(request, error)

    def _later(self, _: str) -> None:
        """The disk is full."""
        self._context.set_timer(NUMBERS_TIMER, self._context.settings.retry_after_ns)


def _process_of(endpoint: EndPoint | None) -> Process:
    """One that has left and comes again is another, also by the same incarnation."""
    return ("", 0) if endpoint is None else (endpoint.incarnation, endpoint.known_since)
