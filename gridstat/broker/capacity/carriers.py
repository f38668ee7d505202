"""Which channels carry each variable, and which of them could carry one more contract for nothing.

The second is asked for every subscription, and mostly as it was asked for the one before: so the
last answer is kept, grows with each contract alike, and is forgotten at any other change.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NONE: Final[frozenset[int]] = frozenset()


class Carriers:
    """A variable is in here exactly while some channel carries it."""

    def __init__(self) -> None:
        self._channels: dict[int, frozenset[int]] = {}
        self._serving: dict[int, tuple[Mapping[int, int], frozenset[int]]] = {}

    def __contains__(self, variable_id: int) -> bool:
        return variable_id in self._channels

    def of(self, variable_id: int) -> frozenset[int]:
        return self._channels.get(variable_id, _NONE)

    def join(
        self, variable_id: int, channel_ids: tuple[int, ...], everys: Mapping[int, int]
    ) -> None:
        """These channels carry the variable at these divisors, beside what they did before."""
        if not channel_ids:
            return
        self._channels[variable_id] = _joined(self.of(variable_id), channel_ids)
        known = self._serving.pop(variable_id, None)
        if known is not None and known[0] == everys:
            # What is taken at these divisors serves the next who asks for the same.
            self._serving[variable_id] = (everys, _joined(known[1], channel_ids))

    def leave(self, variable_id: int, gone: Iterable[int]) -> None:
        """A contract is given back, and these channels do not carry the variable any more."""
        self._serving.pop(variable_id, None)
        left = self._channels.get(variable_id)
        if left is not None:
            left = left.difference(gone)
            if left:
                self._channels[variable_id] = left
            else:
                del self._channels[variable_id]

    def serving(self, variable_id: int, everys: Mapping[int, int]) -> frozenset[int] | None:
        """The channels that serve these divisors already, if it is known."""
        known = self._serving.get(variable_id)
        return known[1] if known is not None and known[0] == everys else None

    def remember(self, variable_id: int, everys: Mapping[int, int], found: frozenset[int]) -> None:
        """Keep an answer, of a variable that is carried."""
        if variable_id in self._channels:
            self._serving[variable_id] = (everys, found)


@lru_cache(maxsize=16_384)
def _joined(some: frozenset[int], others: tuple[int, ...]) -> frozenset[int]:
    """Variables that go the same ways share the set of them."""
    return some.union(others)
