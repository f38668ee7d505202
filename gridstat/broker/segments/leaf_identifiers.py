"""Identifiers of variables: counted up in a cloud without a parent, else leased in blocks.

States of a lease: none, requested (AskNumbers sent), stored (NumbersLeased received and durable).
The broker requests the next block when less than a quarter is left, or when publications wait. The
parent answers a repeated request number with the same block, so the broker repeats an unanswered
request after each join, and after `retry_after_ns` if the disk was full. Publications without an
identifier wait in memory; after a restart their end-points repeat them. Blocks are in the journal;
after a restart, unused identifiers rest for the whole quarantine again.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.broker.records.parent_operations import NumbersAllotted
from gridstat.broker.requests.request import process_of
from gridstat.model.errors import GridStatError, LimitReached, QuotaReached, ShuttingDown
from gridstat.model.identifier_pool import IdentifierPool
from gridstat.model.status import U32_MAX
from gridstat.net.command.tree_messages import AskNumbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.requests.request import Process, Request
    from gridstat.broker.requests.request_intake import RequestIntake
    from gridstat.broker.segments.parent_session import ParentSession
    from gridstat.net.command.endpoint_messages import Publish
    from gridstat.net.command.tree_messages import NumbersLeased

NUMBERS_TIMER: Final = "numbers"
WAITING_MAX: Final = 1_024
LOW_SHARE: Final = 4
"""The next block is requested when less than a fourth of one is left."""


class _WaitingPublication(NamedTuple):
    """A publication that waits for a block, and the process that requested it."""

    request: Request
    command: Publish
    process: Process
    publish: Callable[[Request, Publish], None]


class LeafIdentifiers:
    """Gives out identifiers; `_waiting` holds publications that wait for a block, in order.

    `_pending_request` is the number and size of the unanswered request. The quarantine is measured
    by the steady clock, which never jumps.
    """

    def __init__(
        self, context: BrokerContext, requests: RequestIntake, session: ParentSession
    ) -> None:
        self._context = context
        self._requests = requests
        self._session = session
        self._pool = IdentifierPool(context.settings.quarantine_ns)
        self._waiting: deque[_WaitingPublication] = deque()
        self._pending_request = (0, 0)
        self._is_exhausted = False

    def resume(self) -> None:
        """Restore the pool after a start; the quarantine of all unused identifiers begins now."""
        registry, tree = self._context.registry, self._context.registry.tree
        first = registry.variable_id_first or 1
        if tree.numbers_used >= first:
            self._pool.lease(first, tree.numbers_used - first + 1)
        for first, count in tree.blocks:
            self._pool.lease(first, count)
        changing = [registry.publications[name].change for name in registry.changing]
        old = {change.old.variable_id for change in changing if change is not None}
        used = registry.names.keys() | old
        self._pool.resume(used, registry.variable_id_last, self._context.now_ns)

    # Requests of publications.

    def take(self) -> int:
        registry = self._context.registry
        if not self._context.settings.parent:
            if registry.variable_id_last >= U32_MAX:
                raise LimitReached("the cloud has assigned all identifiers of variables")
            return registry.next_variable_id()
        number = self._pool.take(self._context.now_ns)
        if number is None:
            raise LimitReached(
                "the cloud has no identifier left for another variable at the moment",
                hint="try again when its parent has leased more",
            )
        self.request_if_low()
        return number

    def is_short_of(self, count: int) -> bool:
        """Return whether the parent must lease more before this many can be given."""
        if not self._context.settings.parent or not count or self._is_exhausted:
            return False
        return self._pool.fresh() + self._pool.rested(self._context.now_ns, count) < count

    def hold(
        self, request: Request, command: Publish, publish: Callable[[Request, Publish], None]
    ) -> None:
        """Call `publish` when there are identifiers; raise if too many publications wait."""
        if len(self._waiting) >= WAITING_MAX:
            raise QuotaReached(
                "too many publications wait for identifiers of variables",
                hint="the parent leases them; check that the cloud has joined it",
            )
        process = process_of(self._context.registry.endpoints.get(request.endpoint))
        self._waiting.append(_WaitingPublication(request, command, process, publish))
        self.request_if_low()

    def free(self, number: int) -> None:
        """Return the identifier of a removed variable to the pool."""
        if number not in self._context.registry.names:
            self._pool.give_back(number, self._context.now_ns)

    # Messages to and from the parent.

    def request_again(self) -> None:
        """Request again, since the session is new or the disk was full."""
        self._pending_request = (0, 0)
        self.request_if_low()

    def request_if_low(self) -> None:
        block_size = self._context.settings.numbers_at_once
        wanted = sum(len(waiting.command.publications) for waiting in self._waiting)
        if self._pool.fresh() < max(wanted, block_size // LOW_SHARE, 1):
            request = len(self._context.registry.tree.blocks) + 1
            count = max(block_size, wanted)
            if (request, count) != self._pending_request:
                self._pending_request = request, count
                self._session.send(
                    AskNumbers(term=self._session.term, request=request, count=count)
                )

    def leased(self, message: NumbersLeased) -> None:
        if message.request != len(self._context.registry.tree.blocks) + 1:
            return  # Repeated; the block is already stored.
        # A block out of range means that the tree has none left: waiting publications are refused.
        if message.count < 1 or message.first < 1 or message.first + message.count - 1 > U32_MAX:
            self._is_exhausted = True
            self._pending_request = (0, 0)
            self._context.note("numbers_exhausted", request=message.request)
            self._publish_waiting()
            return
        self._is_exhausted = False
        allotted = NumbersAllotted(first=message.first, count=message.count)
        self._context.commit([allotted], partial(self._leased, allotted), self._retry_later)

    def _leased(self, allotted: NumbersAllotted, _: Applied) -> None:
        self._pool.lease(allotted.first, allotted.count)
        self._publish_waiting()
        self.request_if_low()

    def _publish_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for request, command, process, publish in waiting:
            endpoint = self._context.registry.endpoints.get(request.endpoint)
            try:
                # A restarted end-point does not know of the request of its former process.
                if endpoint is None or process_of(endpoint) != process:
                    raise ShuttingDown(f"{request.endpoint} has left before this was done")
                publish(request, command)
            except GridStatError as error:
                self._requests.refuse(request, error)

    def _retry_later(self, _: str) -> None:
        """Request again later, because the disk is full."""
        self._context.set_timer(NUMBERS_TIMER, self._context.settings.retry_after_ns)
