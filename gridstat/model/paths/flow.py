"""Minimum-cost flow of several units that share no arc (or no router).

Successive shortest paths after Suurballe: each new unit may reroute earlier ones. The potentials
are lower bounds of the distance to the sink, so each search is directed towards it; a router is
split in two only while a unit passes through it.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from gridstat.model.paths.graph import NEVER, Neighbours

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gridstat.model.paths.budget import Budget

FAR: Final = NEVER >> 1
"""Distance above that of all reachable labels and below that of unreachable ones."""

PLAIN: Final = 0
SHARED: Final = 1
ENTRY: Final = 2
EXIT: Final = 3
"""Marks of labels: PLAIN carries no unit; SHARED carries some and has free capacity; ENTRY and EXIT
are the two halves of a full router."""

INSIDE: Final = NEVER
"""Pseudo arc: the step from a full router's exit back to its entry."""

TAKEN_OVER: Final = NEVER + 1
"""Offset of an arc: the step to a twin label whose arc is taken over and must be replaced."""


@dataclass(frozen=True, slots=True)
class Network:
    """Network of a flow: labels 0 to `routers` - 1 are routers, followed by their exits.

    Labels from 2 · `routers` on are terminals of units. `node_disjoint` says that a router takes
    one unit only, except those in `ends`; otherwise only those in `single` do. `twins` are labels
    that leave by the same arcs.
    """

    routers: int
    out: list[Neighbours]
    heads: list[int]
    origins: list[tuple[int, int]]
    sink: int
    ends: frozenset[int]
    node_disjoint: bool
    twins: dict[int, tuple[int, ...]]
    single: frozenset[int] = frozenset()

    def takes_one(self, label: int) -> bool:
        """Return whether only one unit may pass through a label."""
        if label >= self.routers or label in self.ends:
            return False
        return self.node_disjoint or label in self.single

    @property
    def units(self) -> int:
        return sum(units for _, units in self.origins)


Flow = dict[int, int]
"""Arc → label that it leaves; each such arc carries one unit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Maximum weights of a flow's first unit, first two units and so on.

    `entries` is the weight of a unit before it leaves its origin.
    """

    entries: dict[int, int]
    most: list[int]


def flow(
    network: Network,
    weights: Sequence[int],
    potentials: list[int],
    limits: Limits | None = None,
    *,
    budget: Budget,
) -> Flow | None:
    """Return the flow of least weight that carries all units of all origins; None if there is none.

    `potentials` has a consistent lower bound of the weight from each label to the sink; the list
    is changed. Every number of units is carried at its least weight before the next one is added,
    so a flow that exceeds a limit at one unit cannot keep it later. A flow is always completed, and
    the labels that it settles are charged to the budget.
    """
    residual = _Residual(network, weights, potentials, limits.entries if limits else {})
    carried = 0
    for unit in range(network.units):
        if unit:
            residual.settle()
        weight = residual.augment()
        budget.charge(residual.settled)
        if weight is None:
            return None
        carried += weight
        if limits is not None and carried > limits.most[unit]:
            return None
    return residual.carrying


def walks(network: Network, carrying: Flow) -> list[tuple[int, list[int]]]:
    """Return a flow as one walk for each unit: (label of the origin, arcs).

    The walks are unique if routers take one unit; otherwise walks that meet might swap ends.
    """
    leaving: dict[int, list[int]] = {}
    for arc in sorted(carrying, reverse=True):
        leaving.setdefault(carrying[arc], []).append(arc)
    found: list[tuple[int, list[int]]] = []
    for origin, units in network.origins:
        for _ in range(units):
            label, arcs = origin, list[int]()
            while label != network.sink:
                arcs.append(leaving[label].pop())
                label = network.heads[arcs[-1]]
            found.append((origin, arcs))
    return found


class _Residual:
    """A growing flow: every arc with a unit has reduced weight 0 under the potentials."""

    __slots__ = (
        "_entering",
        "_entries",
        "_marks",
        "_mask",
        "_network",
        "_out",
        "_potentials",
        "_remaining",
        "_shift",
        "_split",
        "_weights",
        "carrying",
        "settled",
    )

    def __init__(
        self,
        network: Network,
        weights: Sequence[int],
        potentials: list[int],
        entries: dict[int, int],
    ) -> None:
        self._entries = entries
        self._network = network
        self._out = network.out
        self._weights = weights
        self._potentials = potentials
        self._shift = len(network.out).bit_length()
        self._mask = (1 << self._shift) - 1
        self._marks = bytearray(len(network.out))
        self._remaining = dict(network.origins)
        self._entering: dict[int, list[int]] = {}
        self._split: set[int] = set()
        self.carrying: Flow = {}
        self.settled = 0
        """Labels that the last unit settled on its way."""

    def augment(self) -> int | None:
        """Send one more unit, and return its additional weight; None if no path is left."""
        potentials, weights, marks, out = self._potentials, self._weights, self._marks, self._out
        shift, mask, sink = self._shift, self._mask, self._network.sink
        reached = [FAR] * len(out)
        before: dict[int, tuple[int, int]] = {}
        settled: list[int] = []
        heap: list[int] = []
        for label, units in self._remaining.items():
            if units and potentials[label] < FAR:
                reached[label] = self._entries.get(label, 0) + potentials[label]
                heappush(heap, reached[label] << shift | label)
        while heap:
            key = heappop(heap)
            label, distance = key & mask, key >> shift
            if distance > reached[label]:
                continue
            if label == sink:
                self.settled = len(settled)
                self._raise_potentials(settled, reached, distance)
                self._carry(before)
                return distance
            settled.append(label)
            here = distance - potentials[label]
            if marks[label]:
                for step, head, weight in self._steps(label):
                    there = here + weight + potentials[head]
                    if there < reached[head]:
                        reached[head] = there
                        before[head] = (label, step)
                        heappush(heap, there << shift | head)
                continue
            for arc, head in out[label]:
                there = here + weights[arc] + potentials[head]
                if there < reached[head]:
                    reached[head] = there
                    before[head] = (label, arc)
                    heappush(heap, there << shift | head)
        self.settled = len(settled)
        return None

    def _steps(self, label: int) -> Iterator[tuple[int, int, int]]:
        """Yield steps from a label with units: over free arcs, or back against a unit."""
        mark, carrying, weights = self._marks[label], self.carrying, self._weights
        if mark != ENTRY:
            for arc, head in self._out[label]:
                if arc not in carrying:
                    yield arc, head, weights[arc]
                elif carrying[arc] != label and mark == SHARED:
                    yield TAKEN_OVER + arc, carrying[arc], 0
        if mark == EXIT:
            yield INSIDE, label - self._network.routers, 0
        else:
            for arc in self._entering.get(label, ()):
                tail = carrying[arc]
                if self._marks[tail] == ENTRY:
                    tail += self._network.routers
                yield ~arc, tail, -weights[arc]

    def _raise_potentials(self, settled: list[int], reached: list[int], distance: int) -> None:
        potentials = self._potentials
        for label in settled:
            potentials[label] += distance - reached[label]

    def _carry(self, before: dict[int, tuple[int, int]]) -> None:
        """Add the new unit along the steps found."""
        routers, carrying, label = self._network.routers, self.carrying, self._network.sink
        while label in before:
            label, step = before[label]
            if step < 0:
                del carrying[~step]
            elif step >= TAKEN_OVER:
                carrying[step - TAKEN_OVER] = label
            elif step != INSIDE:
                carrying[step] = label - routers if routers <= label < 2 * routers else label
        self._remaining[label] -= 1

    def settle(self) -> None:
        """Mark the labels with units, before one more unit is sent."""
        network, marks, was_split = self._network, bytearray(len(self._out)), self._split
        self._marks, self._entering, self._split = marks, {}, set()
        for arc, tail in self.carrying.items():
            head = network.heads[arc]
            self._entering.setdefault(head, []).append(arc)
            for label in (tail, head, *network.twins.get(tail, ())):
                if network.takes_one(label):
                    marks[label], marks[label + network.routers] = ENTRY, EXIT
                    self._split.add(label)
                else:
                    marks[label] = SHARED
        for label in self._split - was_split:
            self._potentials[label + network.routers] = self._potentials[label]
