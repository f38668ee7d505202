"""Memory of brokers: the size of all objects that can be reached from each.

Each broker counts as a separate process: objects that several brokers share count for each. Nothing
is traced while a plane works, so tables that are copied when they grow count once.
"""

from __future__ import annotations

import gc
from sys import getsizeof
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from lab.grid_pairs import brokers_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.tree_storms import Pair, TreeSubscribers
    from lab.management_plane import ManagementPlane

LEAVES_LOOKED_AT: Final = 8


def bytes_per_subscription(
    subscribers: TreeSubscribers, pairs: Sequence[Pair], count: int
) -> float:
    """Return the growth of all brokers on the way together for each of so many more contracts."""
    plan = subscribers.plane.grid.plan
    ways = [first.clouds for first in subscribers.firsts(pairs)]
    names = sorted({name for way in ways for name in brokers_on(plan, way)})
    subscribers.publish(pairs, -(-count // len(pairs)))
    before = sum(_broker_bytes(subscribers.plane, names))
    granted = subscribers.storm(pairs, count).granted
    return (sum(_broker_bytes(subscribers.plane, names)) - before) / granted


def bytes_at_rest(subscribers: TreeSubscribers) -> dict[str, int]:
    """Return the present sizes of the mean leaf broker, the mean QoS broker and the root."""
    plane = subscribers.plane
    plan = plane.grid.plan
    leaves = list(plan.clouds)[:: max(1, len(plan.clouds) // LEAVES_LOOKED_AT)]
    of_leaves = _broker_bytes(plane, leaves)
    of_others = _broker_bytes(plane, [name for name in plan.brokers if name not in plan.clouds])
    return {
        "leaf_broker": sum(of_leaves) // len(of_leaves),
        "qos_broker": sum(of_others) // len(of_others),
        "root": of_others[0],
    }


def _broker_bytes(plane: ManagementPlane, names: Iterable[str]) -> list[int]:
    # A broker refers to its clock, the clock to this plane, and the plane to all brokers.
    others = {id(plane), *(id(one) for one in plane.brokers.values())}
    brokers = [plane.brokers[f"broker/{name}"] for name in names]
    return [reached_bytes(_below(one), set(others)) for one in brokers]


def reached_bytes(start: Iterable[object], seen: set[int]) -> int:
    """Return the size of all reachable objects, each once, without code and without those seen."""
    total, waiting = 0, list(start)
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            total += getsizeof(one)
            waiting += _below(one)
    return total


def _below(one: object) -> Iterator[object]:
    if isinstance(one, Struct):
        # Objects that the collector does not track have no referents there.
        yield from (getattr(one, name) for name in one.__struct_fields__)
    elif isinstance(one, FunctionType):
        yield from (cell.cell_contents for cell in one.__closure__ or ())
    elif isinstance(one, MethodType):
        yield one.__self__
    elif not isinstance(one, type | ModuleType | BuiltinFunctionType):
        yield from (
            found for found in gc.get_referents(one) if not isinstance(found, type | ModuleType)
        )
