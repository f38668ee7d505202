"""What each end-point was answered last, so that a repeated request is answered and not redone.

Request identifiers grow within an end-point (they start from its wall clock), so the newest few
hundred are enough: one that is older than all of them can only be a replay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWERS_MAX: Final = 256
ANSWER_BYTES_MAX: Final = 1_048_576
"""Of all that are kept of one end-point, but always the newest one."""
DURABLE_ANSWER_BYTES_MAX: Final = 65_536
"""Of one end-point, in a snapshot; a repeated request beyond that is refused as a replay."""


@dataclass(slots=True)
class AnswerCache:
    """So many answers by request, and bytes; whatever else is at or below `floor` is a replay."""

    floor: int = 0
    held: dict[int, bytes] = field(default_factory=dict)
    size_bytes: int = 0

    def is_replay(self, request_id: int) -> bool:
        return request_id <= self.floor and request_id not in self.held

    def forget(self, request_id: int) -> None:
        """The request came to nothing; the same identifier may try again."""
        self.size_bytes -= len(self.held.pop(request_id, b""))

    def put(self, request_id: int, body: bytes) -> None:
        """Keep an answer; the oldest requests make room, and nothing older is taken again."""
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
        """The highest request identifier that this end-point has used."""
        return max(self.floor, *self.held) if self.held else self.floor

    def durable_floor(self) -> int:
        """The floor of a snapshot: all that it does not keep is a replay after it."""
        kept = {request_id for request_id, _ in self.durable()}
        return max(self.floor, *(self.held.keys() - kept), 0)

    def durable(self) -> Iterator[tuple[int, bytes]]:
        """The answers worth a place in a snapshot, oldest first."""
        kept: list[tuple[int, bytes]] = []
        size_bytes = 0
        for request_id in sorted(self.held, reverse=True):
            body = self.held[request_id]
            size_bytes += len(body)
            if size_bytes > DURABLE_ANSWER_BYTES_MAX:
                break
            kept.append((request_id, body))
        return reversed(kept)
