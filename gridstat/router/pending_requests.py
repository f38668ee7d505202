"""Requests of end-points that the broker has not answered, so that none is lost with its session.

They are forwarded at once when there is a broker, and again when one comes back; the broker knows
a repeated request by its number. Beyond a bound the oldest goes: its end-point asks again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.net.command.endpoint_messages import Submit

OF_ENDPOINT_MAX: Final = 256
REQUESTS_MAX: Final = 8_192
BYTES_MAX: Final = 32 * 2**20


@dataclass(frozen=True, slots=True)
class RequestBounds:
    """How many unanswered requests an edge remembers: of one end-point, in all, and in bytes."""

    of_endpoint_max: int = OF_ENDPOINT_MAX
    requests_max: int = REQUESTS_MAX
    bytes_max: int = BYTES_MAX


class PendingRequests:
    """In the order of their coming; never more than the bounds, and each number once."""

    def __init__(self, bounds: RequestBounds) -> None:
        self._bounds = bounds
        self._requests: dict[tuple[str, int], Submit] = {}
        self._of_endpoint: dict[str, dict[int, None]] = {}
        self._size_bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[tuple[str, Submit]]:
        return ((endpoint, submit) for (endpoint, _), submit in self._requests.items())

    def add(self, endpoint: str, submit: Submit) -> None:
        """Remember a request; one that was repeated keeps its place."""
        key = (endpoint, submit.request_id)
        before = self._requests.get(key)
        if before is not None:
            self._size_bytes -= _size_bytes(before)
        self._requests[key] = submit
        self._size_bytes += _size_bytes(submit)
        of_endpoint = self._of_endpoint.setdefault(endpoint, {})
        of_endpoint[submit.request_id] = None
        if len(of_endpoint) > self._bounds.of_endpoint_max:
            self._drop(endpoint, next(iter(of_endpoint)))
        while (
            len(self._requests) > self._bounds.requests_max
            or self._size_bytes > self._bounds.bytes_max
        ) and self._requests:
            self._drop(*next(iter(self._requests)))

    def answered(self, endpoint: str, request_id: int) -> None:
        """The broker has answered, or it was never asked: nothing is left to remember."""
        submit = self._requests.pop((endpoint, request_id), None)
        if submit is None:
            return
        self._size_bytes -= _size_bytes(submit)
        of_endpoint = self._of_endpoint[endpoint]
        del of_endpoint[request_id]
        if not of_endpoint:
            del self._of_endpoint[endpoint]

    def forget(self, endpoint: str) -> None:
        """The end-point is another process now, or has been sent away."""
        for request_id in tuple(self._of_endpoint.get(endpoint, ())):
            self.answered(endpoint, request_id)

    def _drop(self, endpoint: str, request_id: int) -> None:
        self.answered(endpoint, request_id)
        self.dropped += 1


def _size_bytes(submit: Submit) -> int:
    return len(submit.body) + len(submit.signature)
