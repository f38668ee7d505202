"""Answers of an end-point to edges that ask for a proof of its address.

The proof is a counter that came on the channel; the session's thread polls until one has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import ProveAddress

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_S: Final = 0.01
ASKED_NS_MAX: Final = 10 * NS_PER_S
"""Time after which an unanswered question is forgotten; the edge has given up before."""

ANSWERED_MAX: Final = 64
"""Channels whose questions wait, and channels whose last answer is known."""


class AddressProver:
    """Questions that wait for a datagram; `newest_counter` returns None until one has come."""

    def __init__(
        self, newest_counter: Callable[[int], int | None], *, clock_ns: Callable[[], int]
    ) -> None:
        self._newest_counter = newest_counter
        self._clock_ns = clock_ns
        self._asked: dict[int, tuple[str, int]] = {}
        self._answered: dict[int, int] = {}

    @property
    def is_asked(self) -> bool:
        """True while a question is not answered."""
        return bool(self._asked)

    def ask(self, edge: str, channel_id: int) -> None:
        """Note the question of an edge."""
        if channel_id in self._asked or len(self._asked) < ANSWERED_MAX:
            self._asked[channel_id] = edge, self._clock_ns() + ASKED_NS_MAX

    def step(self) -> list[tuple[str, ProveAddress]]:
        """Return the answers that are possible now, each with its edge.

        A counter that was the answer before was wrong, or is proved: a newer one must come.
        """
        now_ns, found = self._clock_ns(), []
        for channel_id, (edge, until_ns) in tuple(self._asked.items()):
            counter = self._newest_counter(channel_id)
            if counter is not None and counter != self._answered.get(channel_id):
                self._answered.pop(channel_id, None)
                self._answered[channel_id] = counter
                found.append((edge, ProveAddress(channel_id=channel_id, counter=counter)))
                while len(self._answered) > ANSWERED_MAX:
                    del self._answered[next(iter(self._answered))]
                del self._asked[channel_id]
            elif until_ns <= now_ns:
                del self._asked[channel_id]
        return found
