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
DURABLE_ANSWER_BYTES_MAX: Final = 65_536
"""Of one end-point, in a snapshot; a repeated request beyond that is refused as a replay."""


@dataclass(slots=True)
class AnswerBook:
    """At most `ANSWERS_MAX` answers by request; whatever is at or below `floor` is a replay."""

    floor: int = 0
    held: dict[int, bytes] = field(default_factory=dict)

    def is_replay(self, request_id: int) -> bool:
        return request_id <= self.floor and request_id not in self.held

    def forget(self, request_id: int) -> None:
        """The request came to nothing; the same identifier may try again."""
        self.held.pop(request_id, None)

    def put(self, request_id: int, body: bytes) -> None:
        """Keep an answer; the oldest requests make room, and nothing older is taken again."""
        self.held[request_id] = body
        while len(self.held) > ANSWERS_MAX:
            oldest = next(iter(self.held))
            del self.held[oldest]
            self.floor = max(self.floor, oldest)

    def newest(self) -> int:
        """The highest request identifier that this end-point has used."""
        return max(self.held, default=self.floor)

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
