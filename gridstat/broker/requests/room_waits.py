"""Requests of end-points that wait until owners have lowered contracts between clouds for them.

    opened --owners were asked for room (`room_requests.py`)--> waiting
    waiting --ROOM_TIMER, and contracts or the topology have changed--> opened
    waiting --`AGAIN_NS` has passed--> opened, and the owners are asked again
    waiting --`WAIT_NS_MAX` has passed--> decided with the room that there is

Nothing is reserved or written while a request waits. A repeat of it joins it; a restart forgets it,
and the end-point repeats it. Changes and patterns do not wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from gridstat.broker.requests.room_requests import AGAIN_NS, WAIT_NS_MAX
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.requests.request import Request
    from gridstat.broker.requests.request_intake import RequestIntake

ROOM_TIMER: Final = "room"
LOOK_NS: Final = NS_PER_S // 10
"""Interval at which waiting requests are tried again, if anything has changed."""
WAITING_MAX: Final = 10_000
"""Requests that wait at once; others are decided with the room that there is."""


@dataclass(slots=True)
class _Waiting:
    """Request that waits, how it is decided, and when it was last, with what it has seen then."""

    request: Request
    decide: Callable[[], None]
    decided_ns: int
    seen: tuple[int, int]


class RoomWaits:
    """`_began` has, for each request that waits or is tried again, when it began to wait."""

    def __init__(self, context: BrokerContext, requests: RequestIntake) -> None:
        self._context = context
        self._requests = requests
        self._waiting: list[_Waiting] = []
        self._began: dict[tuple[str, int], int] = {}

    def may_wait(self, request: Request) -> bool:
        """Return whether a request has time left to wait for room."""
        began_ns = self._began.get((request.endpoint, request.request_id))
        if began_ns is None:
            return len(self._waiting) < WAITING_MAX
        return self._context.now_ns < began_ns + WAIT_NS_MAX

    def wait(self, request: Request, decide: Callable[[], None]) -> None:
        """Decide a request again a little later."""
        key = request.endpoint, request.request_id
        self._began.setdefault(key, self._context.now_ns)
        if not self._waiting:
            self._context.set_timer(ROOM_TIMER, LOOK_NS)
        self._waiting.append(_Waiting(request, decide, self._context.now_ns, self._versions()))

    def settled(self, request: Request) -> None:
        """Forget a request that is decided now."""
        self._began.pop((request.endpoint, request.request_id), None)

    def look_again(self) -> None:
        """Try again those for which that may help, each in its end-point's turn."""
        waiting, self._waiting = self._waiting, []
        versions, now_ns = self._versions(), self._context.now_ns
        for each in waiting:
            is_due = now_ns >= each.decided_ns + AGAIN_NS or not self.may_wait(each.request)
            if is_due or each.seen != versions:
                self._requests.go_on(each.request, partial(self._decide, each))
            else:
                self._waiting.append(each)
        if self._waiting:
            self._context.set_timer(ROOM_TIMER, LOOK_NS)

    def _versions(self) -> tuple[int, int]:
        allocator = self._context.reservations.allocator
        return allocator.version, allocator.resources.topology_version

    def _decide(self, each: _Waiting) -> None:
        if each.request.endpoint in self._context.registry.endpoints:
            each.decide()
        else:
            self.settled(each.request)
            self._requests.send(each.request, b"")  # Answered as one that has left.
