"""Latencies promised to contracts: no new load may make an older contract late (S0-53).

Each path is registered with the elements that it crosses, channels by number and routers by name.
When the prediction of an element changes, so does that of every path over it. The paths that
become late are returned, and the request that caused the change is then refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Element: TypeAlias = int | str
"""A channel's number or a router's name."""


class PathKey(NamedTuple):
    """One path of one subscription."""

    subscription_id: int
    path_index: int


@dataclass(slots=True)
class _Promise:
    """Elements of a path, its present prediction, and the latency promised at most."""

    elements: tuple[Element, ...]
    latency_us: int
    latency_us_max: int


class LatencyPromises:
    """Register of promised paths; the latency of each is always the sum over its elements."""

    def __init__(self) -> None:
        self._promises: dict[PathKey, _Promise] = {}
        self._over: dict[Element, dict[PathKey, _Promise]] = {}
        self._late: set[PathKey] = set()

    def make(
        self, key: PathKey, elements: Sequence[Element], latency_us: int, latency_us_max: int
    ) -> None:
        assert key not in self._promises, f"{key} is promised already"
        promise = _Promise(tuple(elements), latency_us, latency_us_max)
        self._promises[key] = promise
        if latency_us > latency_us_max:
            self._late.add(key)
        for element in promise.elements:
            self._over.setdefault(element, {})[key] = promise

    def end(self, key: PathKey) -> None:
        self._late.discard(key)
        for element in self._promises.pop(key).elements:
            keys = self._over[element]
            del keys[key]
            if not keys:
                del self._over[element]

    def move(self, element: Element, by_us: int) -> list[PathKey]:
        """Change the prediction of an element; return the paths that this makes late."""
        late = []
        for key, promise in self._over.get(element, {}).items():
            was_kept = promise.latency_us <= promise.latency_us_max
            promise.latency_us += by_us
            is_kept = promise.latency_us <= promise.latency_us_max
            if was_kept and not is_kept:
                late.append(key)
                self._late.add(key)
            elif is_kept and not was_kept:
                self._late.discard(key)
        return late

    def latency_us(self, key: PathKey) -> int:
        """Return the latency that is predicted for the path now."""
        return self._promises[key].latency_us

    def late_us(self, key: PathKey) -> int:
        """Return by how much the path is predicted to be late; 0 or less if it is not."""
        promise = self._promises[key]
        return promise.latency_us - promise.latency_us_max

    def elements(self, key: PathKey) -> tuple[Element, ...]:
        """Return the channels and routers that a path crosses."""
        return self._promises[key].elements

    def over(self, element: Element) -> list[PathKey]:
        """Return the paths over a channel or router, in order."""
        return sorted(self._over.get(element, ()))

    def late(self) -> list[PathKey]:
        """Return the paths predicted to be late, which happens when a capacity is reduced."""
        return sorted(self._late)

    def some_over(self, element: Element, most: int) -> Iterator[PathKey]:
        """Yield at most so many paths over a channel or router, first those held for longest."""
        return islice(self._over.get(element, ()), most)

    def __len__(self) -> int:
        return len(self._promises)

    def __contains__(self, key: PathKey) -> bool:
        return key in self._promises

    def keys(self) -> Iterable[PathKey]:
        return self._promises.keys()
