"""The cheapest way to send several units at once, none of them sharing an arc (or a router).

Successive shortest paths in the manner of Suurballe: each new unit may push earlier ones aside.
The potentials are lower bounds of the distance to the sink, so each search walks towards it and
visits little else; a router is split in two only while a unit passes through it.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from gridstat.model.paths.graph import NEVER, Neighbours

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FAR: Final = NEVER >> 1
"""Farther than any label that can be reached, nearer than any that cannot."""

PLAIN: Final = 0
SHARED: Final = 1
ENTRY: Final = 2
EXIT: Final = 3
"""What a label is to the search: PLAIN carries no unit; SHARED carries some and has room for more;
ENTRY and EXIT are the two halves of a router that is full."""

INSIDE: Final = NEVER
"""In place of an arc: the step from a full router's exit back to its entry."""

TAKEN_OVER: Final = NEVER + 1
"""Added to an arc: the step to a twin whose arc one takes over, so that it must find another."""


@dataclass(frozen=True, slots=True)
class Network:
    """What a flow runs through: labels 0 to `routers` - 1 are routers, then come their exits.

    Labels from 2 · `routers` on are places where units start or end. `lone` says whether a router
    takes one unit only; those in `ends` take many. `twins` are labels that leave by the same arcs.
    """

    routers: int
    out: list[Neighbours]
    heads: list[int]
    origins: list[tuple[int, int]]
    sink: int
    ends: frozenset[int]
    lone: bool
    twins: dict[int, tuple[int, ...]]

    @property
    def units(self) -> int:
        return sum(units for _, units in self.origins)


Flow = dict[int, int]
"""Arc → label that it leaves; each such arc carries one unit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a flow's first unit, first two units and so on may weigh at most.

    `entries` is what a unit of an origin weighs before it starts.
    """

    entries: dict[int, int]
    most: list[int]


def flow(
    network: Network,
    weights: Sequence[int],
    potentials: list[int],
    limits: Limits | None = None,
) -> Flow | None:
    """The flow of least weight that carries all units of all origins, or None if there is none.

    `potentials` holds for each label a consistent lower bound of the weight from there to the
    sink; the list is changed. Any number of units is carried at its least weight before the next
    one is added, so a flow that exceeds a limit on the way will not keep it later.
    """
    residual = _Residual(network, weights, potentials, limits.entries if limits else {})
    carried = 0
    for unit in range(network.units):
        if unit:
            residual.settle()
        weight = residual.augment()
        if weight is None:
            return None
        carried += weight
        if limits is not None and carried > limits.most[unit]:
            return None
    return residual.carrying


def walks(network: Network, carrying: Flow) -> list[tuple[int, list[int]]]:
    """A flow as one walk a unit: (label of the origin, arcs) each.

    Where routers take one unit there is a single reading; else walks that meet might swap ends.
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
    """A flow in the making: every arc that carries a unit is tight under the potentials."""

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

    def augment(self) -> int | None:
        """Send one more unit, and tell what it adds to the weight; None if no way is left."""
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
        return None

    def _steps(self, label: int) -> Iterator[tuple[int, int, int]]:
        """Steps from a label that carries units: over free arcs, or back against a unit's way."""
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
        """Lay the new unit along the steps found."""
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
        """Mark who carries what, before one more unit is sent."""
        network, marks, was_split = self._network, bytearray(len(self._out)), self._split
        self._marks, self._entering, self._split = marks, {}, set()
        for arc, tail in self.carrying.items():
            head = network.heads[arc]
            self._entering.setdefault(head, []).append(arc)
            for label in (tail, head, *network.twins.get(tail, ())):
                if network.lone and label < network.routers and label not in network.ends:
                    marks[label], marks[label + network.routers] = ENTRY, EXIT
                    self._split.add(label)
                else:
                    marks[label] = SHARED
        for label in self._split - was_split:
            self._potentials[label + network.routers] = self._potentials[label]
