"""The latencies that contracts rest on: no new load may make an older contract late (S0-53).

Each path is known by the elements it crosses, channels by number and routers by name. When an
element's prediction moves, every path over it moves along, and those that thereby become late are
named; the newcomer that moved it is then refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Element: TypeAlias = int | str
"""A channel's number or a router's name."""


class PathKey(NamedTuple):
    """One path of one subscription."""

    subscription_id: int
    path_index: int


@dataclass(slots=True)
class _Promise:
    """What a path is predicted to take now, and what it was promised to take at most."""

    elements: tuple[Element, ...]
    latency_us: int
    latency_us_max: int


class LatencyPromises:
    """The latency of every promised path is the sum over its elements, at any time."""

    def __init__(self) -> None:
        self._promises: dict[PathKey, _Promise] = {}
        self._over: dict[Element, dict[PathKey, _Promise]] = {}

    def make(
        self, key: PathKey, elements: Sequence[Element], latency_us: int, latency_us_max: int
    ) -> None:
        assert key not in self._promises, f"{key} is promised already"
        promise = _Promise(tuple(elements), latency_us, latency_us_max)
        self._promises[key] = promise
        for element in promise.elements:
            self._over.setdefault(element, {})[key] = promise

    def end(self, key: PathKey) -> None:
        for element in self._promises.pop(key).elements:
            keys = self._over[element]
            del keys[key]
            if not keys:
                del self._over[element]

    def move(self, element: Element, by_us: int) -> list[PathKey]:
        """The element's prediction has moved; the paths that this makes late."""
        late = []
        for key, promise in self._over.get(element, {}).items():
            was_kept = promise.latency_us <= promise.latency_us_max
            promise.latency_us += by_us
            if was_kept and promise.latency_us > promise.latency_us_max:
                late.append(key)
        return late

    def latency_us(self, key: PathKey) -> int:
        """What the path is predicted to take now."""
        return self._promises[key].latency_us

    def late_us(self, key: PathKey) -> int:
        """By how much the path is predicted to be late; not above 0 if it is not."""
        promise = self._promises[key]
        return promise.latency_us - promise.latency_us_max

    def over(self, element: Element) -> list[PathKey]:
        """The paths over a channel or router, in order."""
        return sorted(self._over.get(element, ()))

    def late(self) -> list[PathKey]:
        """Paths whose prediction is above their promise: a capacity was reduced under them."""
        return sorted(
            key
            for key, promise in self._promises.items()
            if promise.latency_us > promise.latency_us_max
        )

    def __len__(self) -> int:
        return len(self._promises)

    def __contains__(self, key: PathKey) -> bool:
        return key in self._promises

    def keys(self) -> Iterable[PathKey]:
        return self._promises.keys()
