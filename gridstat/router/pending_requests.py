"""Requests of end-points to the broker: none is lost with its session, none floods the broker.

Each end-point may have a bounded number in flight; more wait here, and beyond a bound the oldest
waiting one of the end-point with most is dropped: its end-point repeats it. When the broker is
back, unanswered requests are sent again, of each end-point in turn, and the broker recognises a
repeated request by its number; but only a few times, so that a request that makes brokers fail does
not meet every next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
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
REQUEST_BYTES: Final = BYTES_MAX // REQUESTS_MAX
"""Bytes that a request counts as at least, where the longest line is looked for."""
BYTES_OF_ENDPOINT_MAX: Final = BYTES_MAX // 4
EXPIRY_NS: Final = 30 * NS_PER_S
AGE_NS_MAX: Final = 60 * NS_PER_S
LOST_SESSIONS_MAX: Final = 3
REPEAT_NS_MIN: Final = NS_PER_S


@dataclass(frozen=True, slots=True)
class RequestBounds:
    """Bounds of the requests in flight and in all, of one end-point and of all of them.

    A request in flight for longer than `expiry_ns` will not be answered any more; one that its end-
    point has not repeated for `age_ns_max`, or with which `lost_sessions_max` sessions ended, is
    dropped.
    """

    in_flight_max: int = IN_FLIGHT_MAX
    of_endpoint_max: int = OF_ENDPOINT_MAX
    requests_max: int = REQUESTS_MAX
    bytes_max: int = BYTES_MAX
    bytes_of_endpoint_max: int = BYTES_OF_ENDPOINT_MAX
    expiry_ns: int = EXPIRY_NS
    age_ns_max: int = AGE_NS_MAX
    lost_sessions_max: int = LOST_SESSIONS_MAX


@dataclass(slots=True)
class _EndPointRequests:
    """One end-point's requests by number; a request waits, or is in flight since some time."""

    waiting: dict[int, None] = field(default_factory=dict)
    in_flight: dict[int, int] = field(default_factory=dict)
    size_bytes: int = 0

    def __len__(self) -> int:
        return len(self.waiting) + len(self.in_flight)


@dataclass(slots=True)
class _Held:
    """A request, when its end-point last submitted it, and how many sessions ended while it was in
    flight."""

    submit: Submit
    submitted_ns: int
    lost_sessions: int = 0


class _Command(msgspec.Struct):
    """Part of a request that is decoded."""

    type: str = ""


_COMMAND: Final = msgspec.msgpack.Decoder(_Command)


class PendingRequests:
    """Requests in the order of arrival; each number once, and never beyond the bounds."""

    def __init__(self, bounds: RequestBounds) -> None:
        self._bounds = bounds
        self._requests: dict[tuple[str, int], _Held] = {}
        self._waiting: dict[tuple[str, int], None] = {}
        self._by_endpoint: dict[str, _EndPointRequests] = {}
        self._size_bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, endpoint: str, submit: Submit, now_ns: int) -> None:
        """Add a request; a repeated one keeps its position, and may be sent again after a
        second."""
        key = (endpoint, submit.request_id)
        if key in self._requests:
            self._requests[key].submitted_ns = now_ns
            self._repeat(endpoint, submit.request_id, now_ns)
            return
        self._requests[key] = _Held(submit, now_ns)
        self._waiting[key] = None
        of_endpoint = self._by_endpoint.setdefault(endpoint, _EndPointRequests())
        of_endpoint.waiting[submit.request_id] = None
        self._size_bytes += _size_bytes(submit)
        of_endpoint.size_bytes += _size_bytes(submit)
        while self._exceeds_endpoint_bounds(of_endpoint) and of_endpoint.waiting:
            self._drop(endpoint, next(iter(of_endpoint.waiting)))
        while self._exceeds_bounds() and self._waiting:
            self._drop(*self._oldest_of_longest())

    def take_ready(self, endpoint: str, now_ns: int) -> list[Submit]:
        """Return the end-point's requests that may be sent now; they are in flight from now on."""
        of_endpoint = self._by_endpoint.get(endpoint)
        if of_endpoint is None:
            return []
        self._expire(endpoint, of_endpoint, now_ns)
        self._drop_old(((endpoint, request_id) for request_id in of_endpoint.waiting), now_ns)
        room = self._bounds.in_flight_max - len(of_endpoint.in_flight)
        ready = [
            request_id for request_id, _ in zip(of_endpoint.waiting, range(room), strict=False)
        ]
        return [self._send(endpoint, request_id, now_ns) for request_id in ready]

    def take_all_ready(self, now_ns: int) -> list[tuple[str, Submit]]:
        """Return all requests that may be sent now, as `take_ready`, one of each end-point in turn.

        Each end-point's own requests keep the order of arrival.
        """
        self._drop_old(self._waiting, now_ns)
        lines = [
            [(endpoint, submit) for submit in self.take_ready(endpoint, now_ns)]
            for endpoint in tuple(self._by_endpoint)
        ]
        return [each for turn in zip_longest(*lines) for each in turn if each is not None]

    def session_lost(self) -> None:
        """Make all requests in flight wait again, each in its old position: the session is lost."""
        in_flight = [
            (endpoint, request_id)
            for endpoint, of_endpoint in self._by_endpoint.items()
            for request_id in of_endpoint.in_flight
        ]
        for key in in_flight:
            self._requests[key].lost_sessions += 1
            if self._requests[key].lost_sessions >= self._bounds.lost_sessions_max:
                self._drop(*key)
        self._waiting = dict.fromkeys(self._requests)
        for of_endpoint in self._by_endpoint.values():
            of_endpoint.waiting.clear()
            of_endpoint.in_flight.clear()
        for endpoint, request_id in self._requests:
            self._by_endpoint[endpoint].waiting[request_id] = None

    def answered(self, endpoint: str, request_id: int) -> Submit | None:
        """Remove an answered request; return it, if it is known."""
        held = self._requests.pop((endpoint, request_id), None)
        if held is None:
            return None
        self._waiting.pop((endpoint, request_id), None)
        self._size_bytes -= _size_bytes(held.submit)
        of_endpoint = self._by_endpoint[endpoint]
        of_endpoint.size_bytes -= _size_bytes(held.submit)
        of_endpoint.waiting.pop(request_id, None)
        of_endpoint.in_flight.pop(request_id, None)
        if not len(of_endpoint):
            del self._by_endpoint[endpoint]
        return held.submit

    def forget(self, endpoint: str) -> None:
        """Remove all requests of an end-point that is another process now, or was detached."""
        of_endpoint = self._by_endpoint.get(endpoint, _EndPointRequests())
        for request_id in (*of_endpoint.waiting, *of_endpoint.in_flight):
            self.answered(endpoint, request_id)

    def forget_attaching(self, endpoint: str) -> None:
        """Remove attach requests of an end-point whose session is lost."""
        of_endpoint = self._by_endpoint.get(endpoint, _EndPointRequests())
        for request_id in (*of_endpoint.waiting, *of_endpoint.in_flight):
            if _is_attaching(self._requests[endpoint, request_id].submit):
                self.answered(endpoint, request_id)

    def _oldest_of_longest(self) -> tuple[str, int]:
        """Return the oldest waiting request of the end-point that has most of them waiting.

        An end-point with few requests loses none because of another's storm.
        """
        longest = max(self._by_endpoint, key=self._waiting_bytes)
        return longest, next(iter(self._by_endpoint[longest].waiting))

    def _waiting_bytes(self, endpoint: str) -> tuple[bool, int]:
        found = self._by_endpoint[endpoint]
        return bool(found.waiting), found.size_bytes + REQUEST_BYTES * len(found)

    def _exceeds_bounds(self) -> bool:
        bounds = self._bounds
        return len(self._requests) > bounds.requests_max or self._size_bytes > bounds.bytes_max

    def _exceeds_endpoint_bounds(self, of_endpoint: _EndPointRequests) -> bool:
        bounds = self._bounds
        is_too_many = len(of_endpoint) > bounds.of_endpoint_max
        return is_too_many or of_endpoint.size_bytes > bounds.bytes_of_endpoint_max

    def _drop_old(self, waiting: Iterable[tuple[str, int]], now_ns: int) -> None:
        """Drop requests that their end-point has not repeated for long."""
        oldest_ns = now_ns - self._bounds.age_ns_max
        for key in [key for key in waiting if self._requests[key].submitted_ns < oldest_ns]:
            self._drop(*key)

    def _repeat(self, endpoint: str, request_id: int, now_ns: int) -> None:
        of_endpoint = self._by_endpoint[endpoint]
        since_ns = of_endpoint.in_flight.get(request_id)
        if since_ns is not None and now_ns - since_ns >= REPEAT_NS_MIN:
            del of_endpoint.in_flight[request_id]
            of_endpoint.waiting[request_id] = None
            self._waiting[endpoint, request_id] = None

    def _expire(self, endpoint: str, of_endpoint: _EndPointRequests, now_ns: int) -> None:
        while of_endpoint.in_flight:
            request_id, since_ns = next(iter(of_endpoint.in_flight.items()))
            if now_ns - since_ns < self._bounds.expiry_ns:
                return
            self._drop(endpoint, request_id)

    def _send(self, endpoint: str, request_id: int, now_ns: int) -> Submit:
        del self._waiting[endpoint, request_id]
        of_endpoint = self._by_endpoint[endpoint]
        del of_endpoint.waiting[request_id]
        of_endpoint.in_flight[request_id] = now_ns
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
        return False  # The broker, which decodes it, will refuse it.
