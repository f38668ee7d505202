"""Requests of end-points on their way to the broker: none is lost with its session, none floods it.

Each end-point may have so many in flight; more wait their turn here, and beyond a bound the oldest
that waits goes: its end-point asks again. When the broker is back, what it has not answered is
said again, and it knows a repeated request by its number; but not for ever, lest one request that
a broker falls over meets every next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.net.command.endpoint_messages import Submit

IN_FLIGHT_MAX: Final = 256
OF_ENDPOINT_MAX: Final = 1_024
REQUESTS_MAX: Final = 16_384
BYTES_MAX: Final = 16 * 2**20
BYTES_OF_ENDPOINT_MAX: Final = BYTES_MAX // 4
EXPIRY_NS: Final = 30 * NS_PER_S
AGE_NS_MAX: Final = 60 * NS_PER_S
LANDINGS_MAX: Final = 3
REPEAT_NS_MIN: Final = NS_PER_S


@dataclass(frozen=True, slots=True)
class RequestBounds:
    """How much an edge holds: in flight and in all of one end-point, and of all of them.

    A request in flight for longer than `expiry_ns` will not be answered any more; one that its
    end-point has not said for `age_ns_max`, or with which `landings_max` sessions ended, goes.
    """

    in_flight_max: int = IN_FLIGHT_MAX
    of_endpoint_max: int = OF_ENDPOINT_MAX
    requests_max: int = REQUESTS_MAX
    bytes_max: int = BYTES_MAX
    bytes_of_endpoint_max: int = BYTES_OF_ENDPOINT_MAX
    expiry_ns: int = EXPIRY_NS
    age_ns_max: int = AGE_NS_MAX
    landings_max: int = LANDINGS_MAX


@dataclass(slots=True)
class _Asker:
    """One end-point's requests by number; a request waits or is in flight since some time."""

    waiting: dict[int, None] = field(default_factory=dict)
    in_flight: dict[int, int] = field(default_factory=dict)
    size_bytes: int = 0

    def __len__(self) -> int:
        return len(self.waiting) + len(self.in_flight)


@dataclass(slots=True)
class _Held:
    """A request, when its end-point last said it, and how many sessions ended over it."""

    submit: Submit
    said_ns: int
    landings: int = 0


class _Command(msgspec.Struct):
    """The part of a request that is asked for."""

    type: str = ""


_COMMAND: Final = msgspec.msgpack.Decoder(_Command)


class PendingRequests:
    """Requests in the order of their coming; each number once, and never beyond the bounds."""

    def __init__(self, bounds: RequestBounds) -> None:
        self._bounds = bounds
        self._requests: dict[tuple[str, int], _Held] = {}
        self._waiting: dict[tuple[str, int], None] = {}
        self._askers: dict[str, _Asker] = {}
        self._size_bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, endpoint: str, submit: Submit, now_ns: int) -> None:
        """Take a request in; a repeated one keeps its place, and may fly again after a second."""
        key = (endpoint, submit.request_id)
        if key in self._requests:
            self._requests[key].said_ns = now_ns
            self._repeat(endpoint, submit.request_id, now_ns)
            return
        self._requests[key] = _Held(submit, now_ns)
        self._waiting[key] = None
        asker = self._askers.setdefault(endpoint, _Asker())
        asker.waiting[submit.request_id] = None
        self._size_bytes += _size_bytes(submit)
        asker.size_bytes += _size_bytes(submit)
        while self._is_too_much_of(asker) and asker.waiting:
            self._drop(endpoint, next(iter(asker.waiting)))
        while self._is_too_much() and self._waiting:
            self._drop(*next(iter(self._waiting)))

    def take_ready(self, endpoint: str, now_ns: int) -> list[Submit]:
        """The end-point's requests that may fly now; they are in flight from now on."""
        asker = self._askers.get(endpoint)
        if asker is None:
            return []
        self._expire(endpoint, asker, now_ns)
        self._age(((endpoint, request_id) for request_id in asker.waiting), now_ns)
        room = self._bounds.in_flight_max - len(asker.in_flight)
        ready = [request_id for request_id, _ in zip(asker.waiting, range(room), strict=False)]
        return [self._launch(endpoint, request_id, now_ns) for request_id in ready]

    def take_all_ready(self, now_ns: int) -> list[tuple[str, Submit]]:
        """As `take_ready`, of everybody, in the order in which they came."""
        self._age(self._waiting, now_ns)
        ready: list[tuple[str, Submit]] = []
        for endpoint, request_id in tuple(self._waiting):
            if len(self._askers[endpoint].in_flight) < self._bounds.in_flight_max:
                ready.append((endpoint, self._launch(endpoint, request_id, now_ns)))
        return ready

    def land(self) -> None:
        """The session is gone: what was in flight waits again, each in its old place."""
        flown = [
            (endpoint, request_id)
            for endpoint, asker in self._askers.items()
            for request_id in asker.in_flight
        ]
        for key in flown:
            self._requests[key].landings += 1
            if self._requests[key].landings >= self._bounds.landings_max:
                self._drop(*key)
        self._waiting = dict.fromkeys(self._requests)
        for asker in self._askers.values():
            asker.waiting.clear()
            asker.in_flight.clear()
        for endpoint, request_id in self._requests:
            self._askers[endpoint].waiting[request_id] = None

    def answered(self, endpoint: str, request_id: int) -> Submit | None:
        """The broker has answered: nothing is left to remember. What was asked, if it is known."""
        held = self._requests.pop((endpoint, request_id), None)
        if held is None:
            return None
        self._waiting.pop((endpoint, request_id), None)
        self._size_bytes -= _size_bytes(held.submit)
        asker = self._askers[endpoint]
        asker.size_bytes -= _size_bytes(held.submit)
        asker.waiting.pop(request_id, None)
        asker.in_flight.pop(request_id, None)
        if not len(asker):
            del self._askers[endpoint]
        return held.submit

    def forget(self, endpoint: str) -> None:
        """The end-point is another process now, or has been sent away."""
        asker = self._askers.get(endpoint, _Asker())
        for request_id in (*asker.waiting, *asker.in_flight):
            self.answered(endpoint, request_id)

    def forget_attaching(self, endpoint: str) -> None:
        """The session is gone from which the end-point asked to be attached."""
        asker = self._askers.get(endpoint, _Asker())
        for request_id in (*asker.waiting, *asker.in_flight):
            if _is_attaching(self._requests[endpoint, request_id].submit):
                self.answered(endpoint, request_id)

    def _is_too_much(self) -> bool:
        bounds = self._bounds
        return len(self._requests) > bounds.requests_max or self._size_bytes > bounds.bytes_max

    def _is_too_much_of(self, asker: _Asker) -> bool:
        bounds = self._bounds
        is_too_many = len(asker) > bounds.of_endpoint_max
        return is_too_many or asker.size_bytes > bounds.bytes_of_endpoint_max

    def _age(self, waiting: Iterable[tuple[str, int]], now_ns: int) -> None:
        """Let go of what its end-point has not said for long."""
        oldest_ns = now_ns - self._bounds.age_ns_max
        for key in [key for key in waiting if self._requests[key].said_ns < oldest_ns]:
            self._drop(*key)

    def _repeat(self, endpoint: str, request_id: int, now_ns: int) -> None:
        asker = self._askers[endpoint]
        since_ns = asker.in_flight.get(request_id)
        if since_ns is not None and now_ns - since_ns >= REPEAT_NS_MIN:
            del asker.in_flight[request_id]
            asker.waiting[request_id] = None
            self._waiting[endpoint, request_id] = None

    def _expire(self, endpoint: str, asker: _Asker, now_ns: int) -> None:
        while asker.in_flight:
            request_id, since_ns = next(iter(asker.in_flight.items()))
            if now_ns - since_ns < self._bounds.expiry_ns:
                return
            self._drop(endpoint, request_id)

    def _launch(self, endpoint: str, request_id: int, now_ns: int) -> Submit:
        del self._waiting[endpoint, request_id]
        asker = self._askers[endpoint]
        del asker.waiting[request_id]
        asker.in_flight[request_id] = now_ns
        return self._requests[endpoint, request_id].submit

    def _drop(self, endpoint: str, request_id: int) -> None:
        self.answered(endpoint, request_id)
        self.dropped += 1


def _size_bytes(submit: Submit) -> int:
    return len(submit.body) + len(submit.signature)


def _is_attaching(submit: Submit) -> bool:
    try:
        return _COMMAND.decode(submit.body).type == "Attach"
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False  # Whoever can read it will say what is wrong with it.
