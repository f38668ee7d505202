"""End-points of an edge router: attached ones, and notices kept for absent ones.

An edge cannot distinguish a crash from a cut cable (S0 A22), so it keeps notices for an end-point
whose session is lost until the same process comes back, or too much time has passed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from gridstat.model.rate_law import NS_PER_S

ATTACHED_MAX: Final = 1_024
NOTICES_OF_ENDPOINT_MAX: Final = 256
NOTICES_MAX: Final = 8_192
NOTICE_BYTES_OF_ENDPOINT_MAX: Final = 2**20
NOTICE_BYTES_MAX: Final = 16 * 2**20
KEPT_NS_MAX: Final = 60 * NS_PER_S


@dataclass(frozen=True, slots=True)
class AttachmentBounds:
    """Bounds of the end-points that an edge serves, and of the notices that it keeps."""

    attached_max: int = ATTACHED_MAX
    notices_of_endpoint_max: int = NOTICES_OF_ENDPOINT_MAX
    notices_max: int = NOTICES_MAX
    bytes_of_endpoint_max: int = NOTICE_BYTES_OF_ENDPOINT_MAX
    bytes_max: int = NOTICE_BYTES_MAX
    kept_ns_max: int = KEPT_NS_MAX


@dataclass(slots=True)
class _Absent:
    """An absent end-point; its notices wait in the order of their arrival."""

    instance: str
    since_ns: int
    notices: deque[bytes] = field(default_factory=deque)
    size_bytes: int = 0


class EdgeAttachments:
    """End-points that are attached or absent; notices are kept only for absent ones."""

    def __init__(self, bounds: AttachmentBounds) -> None:
        self._bounds = bounds
        self._here: dict[str, str] = {}
        self._absent: dict[str, _Absent] = {}
        self._notices = 0
        self._size_bytes = 0
        self.notices_dropped = 0

    def __len__(self) -> int:
        return len(self._here)

    def __contains__(self, endpoint: str) -> bool:
        return endpoint in self._here

    def has_room(self) -> bool:
        return len(self._here) < self._bounds.attached_max

    def has_absent(self) -> bool:
        return bool(self._absent)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._here))

    def instance_of(self, endpoint: str) -> str | None:
        """Return the last known process of this name, or None."""
        absent = self._absent.get(endpoint)
        return self._here.get(endpoint) if absent is None else absent.instance

    def arrive(self, endpoint: str, instance: str) -> list[bytes]:
        """Attach an end-point; return the notices kept for this very process."""
        absent = self._absent.get(endpoint)
        notices = [] if absent is None or absent.instance != instance else list(absent.notices)
        self._forget_absent(endpoint, is_delivered=bool(notices))
        self._here[endpoint] = instance
        return notices

    def depart(self, endpoint: str, now_ns: int) -> bool:
        """Mark an end-point as absent; return whether it was attached."""
        instance = self._here.pop(endpoint, None)
        if instance is None:
            return False
        self._absent[endpoint] = _Absent(instance, now_ns)
        if len(self._absent) > self._bounds.attached_max:
            self._forget_absent(next(iter(self._absent)))
        return True

    def keep_notice(self, endpoint: str, body: bytes) -> None:
        """Keep a notice for an absent end-point; drop it if the end-point is unknown."""
        absent = self._absent.get(endpoint)
        if absent is None:
            self.notices_dropped += 1
            return
        absent.notices.append(body)
        absent.size_bytes += len(body)
        self._notices += 1
        self._size_bytes += len(body)
        bounds = self._bounds
        while (
            len(absent.notices) > bounds.notices_of_endpoint_max
            or absent.size_bytes > bounds.bytes_of_endpoint_max
        ):
            self._drop_oldest(absent)
        while self._notices > bounds.notices_max or self._size_bytes > bounds.bytes_max:
            self._drop_oldest(next(each for each in self._absent.values() if each.notices))

    def forget(self, endpoint: str) -> None:
        """Forget an end-point that was detached for good."""
        self._here.pop(endpoint, None)
        self._forget_absent(endpoint)

    def expire(self, now_ns: int) -> list[str]:
        """Forget end-points that have been absent for too long; return their names."""
        since_ns = now_ns - self._bounds.kept_ns_max
        gone = [name for name, absent in self._absent.items() if absent.since_ns <= since_ns]
        for endpoint in gone:
            self._forget_absent(endpoint)
        return gone

    def _drop_oldest(self, absent: _Absent) -> None:
        size_bytes = len(absent.notices.popleft())
        absent.size_bytes -= size_bytes
        self._size_bytes -= size_bytes
        self._notices -= 1
        self.notices_dropped += 1

    def _forget_absent(self, endpoint: str, *, is_delivered: bool = False) -> None:
        absent = self._absent.pop(endpoint, None)
        if absent is not None:
            self._notices -= len(absent.notices)
            self._size_bytes -= absent.size_bytes
            if not is_delivered:
                self.notices_dropped += len(absent.notices)
