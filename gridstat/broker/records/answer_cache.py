"""Recent answers to each end-point, so that a repeated request is answered and not redone.

Request numbers of an end-point grow (they start from its wall clock), so the newest few hundred are
enough: an older number can only be a replay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWERS_MAX: Final = 256
ANSWER_BYTES_MAX: Final = 1_048_576
"""Bound on the cached answers of one end-point; the newest is always kept."""
DURABLE_ANSWER_BYTES_MAX: Final = 65_536
"""Bound on the answers of one end-point in a snapshot; older requests are refused as replays."""


@dataclass(slots=True)
class AnswerCache:
    """Answers by request number; other requests at or below `floor` are replays."""

    floor: int = 0
    held: dict[int, bytes] = field(default_factory=dict)
    size_bytes: int = 0

    def is_replay(self, request_id: int) -> bool:
        return request_id <= self.floor and request_id not in self.held

    def forget(self, request_id: int) -> None:
        """Remove an answer, so that the same request may be tried again."""
        self.size_bytes -= len(self.held.pop(request_id, b""))

    def put(self, request_id: int, body: bytes) -> None:
        """Store an answer; drop the oldest ones beyond the bounds, and raise `floor` above them."""
        self.forget(request_id)
        self.held[request_id] = body
        self.size_bytes += len(body)
        while len(self.held) > 1 and (
            len(self.held) > ANSWERS_MAX or self.size_bytes > ANSWER_BYTES_MAX
        ):
            oldest = next(iter(self.held))
            self.forget(oldest)
            self.floor = max(self.floor, oldest)

    def newest(self) -> int:
        """Return the highest request number that this end-point has used."""
        return max(self.floor, *self.held) if self.held else self.floor

    def durable_floor(self) -> int:
        """Return the floor for a snapshot: requests that the snapshot drops become replays."""
        kept = {request_id for request_id, _ in self.durable()}
        return max(self.floor, *(self.held.keys() - kept), 0)

    def durable(self) -> Iterator[tuple[int, bytes]]:
        """Return the answers for a snapshot, oldest first."""
        kept: list[tuple[int, bytes]] = []
        size_bytes = 0
        for request_id in sorted(self.held, reverse=True):
            body = self.held[request_id]
            size_bytes += len(body)
            if size_bytes > DURABLE_ANSWER_BYTES_MAX:
                break
            kept.append((request_id, body))
        return reversed(kept)
