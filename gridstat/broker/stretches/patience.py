"""How long an end-point waits for other clouds: so long, and then it has an answer in any case.

Who is away may be asked again later; a request that nobody answers would be forgotten by its
end-point, and granted to nobody in the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.desk import Desk

PATIENCE_TIMER: Final = "patience"


class Patience:
    """`_since` are the contracts that requests wait for, and the generations of them, by when they
    were asked in this life."""

    def __init__(self, desk: Desk, give_up: Callable[[int], None]) -> None:
        self._desk = desk
        self._give_up = give_up
        self._since: dict[tuple[int, int], int] = {}
        self._is_timer_set = False

    def begin(self, number: int) -> None:
        """A contract has been asked for; a pattern's has nobody who waits for it."""
        generation = self._awaited(number)
        if generation is not None:
            self._since.setdefault((number, generation), self._desk.now_ns)
            self._set_timer()

    def resume(self) -> None:
        """After a start all wait anew."""
        for number in sorted(self._desk.registry.tree.asked):
            self.begin(number)

    def look(self) -> None:
        """Give up what has waited for so long."""
        self._is_timer_set = False
        late_ns = self._desk.now_ns - self._desk.settings.ask_within_ns
        for key, since_ns in sorted(self._since.items()):
            number, generation = key
            if generation != self._awaited(number):
                del self._since[key]
            elif since_ns <= late_ns:
                del self._since[key]
                self._give_up(number)
        self._set_timer()

    def _awaited(self, number: int) -> int | None:
        """The generation that a request waits for; each change has its own time."""
        found = self._desk.registry.tree.asked.get(number)
        asked = None if found is None else found.waiting
        return asked.generation if asked is not None and asked.request_id else None

    def _set_timer(self) -> None:
        if self._since and not self._is_timer_set:
            self._is_timer_set = True
            first_ns = min(self._since.values()) + self._desk.settings.ask_within_ns
            self._desk.set_timer(PATIENCE_TIMER, first_ns - self._desk.now_ns)
