"""Counts of what a broker above clouds holds, made again only if it holds something else.

What is counted is compared by value at each look, and holdings are never changed in place. The
broker's own books are not kept here: they are read and compared each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

from gridstat.broker.tree.tree_operations import body_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.tree.qos_broker import QosBroker
    from gridstat.broker.tree.tree_operations import Holding, HoldingBody

Counted = TypeVar("Counted")
Count = TypeVar("Count")


class LastCount(Generic[Counted, Count]):
    """Last count of each broker; what is counted is immutable."""

    def __init__(self, count: Callable[[Counted], Count]) -> None:
        self._count = count
        self._last: WeakKeyDictionary[QosBroker, tuple[Counted, Count]] = WeakKeyDictionary()

    def of(self, broker: QosBroker, counted: Counted) -> Count:
        last = self._last.get(broker)
        if last is None or last[0] != counted:
            last = self._last[broker] = counted, self._count(counted)
        return last[1]


def _decoded(holdings: tuple[Holding, ...]) -> tuple[HoldingBody, ...]:
    return tuple(map(body_of, holdings))


_BODIES: LastCount[tuple[Holding, ...], tuple[HoldingBody, ...]] = LastCount(_decoded)


def bodies(broker: QosBroker) -> tuple[HoldingBody, ...]:
    """Return the decoded bodies of all holdings; the same values while these are the same."""
    return _BODIES.of(broker, tuple([holding for holding, _ in broker.state.holdings.all()]))
