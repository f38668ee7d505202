"""The namespaces and wires of a planned grid: one namespace a party, one relay for all wires.

Wires between routers and to end-points go through the relay, which impairs or cuts them; without
one (`is_relayed` False, for measuring latencies) they can still be cut, in the kernel.
"""

from __future__ import annotations

import contextlib
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from lab.errors import LabError
from lab.grid_plan import BROKER, GridPlan, Management, link_name
from lab.netns import Namespace, Network, cut_egress, heal_egress
from lab.relay import Direction, LinkFaults, Relay, WireCounters

if TYPE_CHECKING:
    from collections.abc import Iterator

RELAY = "relay"
FORWARDING = "/proc/sys/net/ipv4/ip_forward"


class GridNetwork:
    """Owns every namespace of a grid while the `with` block lasts, and nothing that runs in them.

    A wire's name is `near-far` as the plan has it, and forward is from near to far.
    """

    def __init__(
        self, plan: GridPlan, *, is_relayed: bool = True, as_user: bool | None = None
    ) -> None:
        self._plan = plan
        self._is_relayed = is_relayed
        self._as_user = as_user
        self._stack = contextlib.ExitStack()
        self._relay: Relay | None = None
        self._wires = {link_name(near, far): (near, far) for near, far in plan.wires}
        self._cuts: set[tuple[str, str]] = set()
        self.namespaces: dict[str, Namespace] = {}

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            network = stack.enter_context(Network(as_user=self._as_user))
            self._build(network, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.__exit__(*details)  # type: ignore[arg-type]

    @property
    def wires(self) -> list[str]:
        return list(self._wires)

    def cut(self, wire: str, *, direction: Direction = Direction.BOTH) -> None:
        if self._relay is not None:
            self._relay.cut(wire, direction=direction)
            return
        for sender, receiver in set(self._ends(wire, direction)) - self._cuts:
            cut_egress(self.namespaces[sender], receiver)
            self._cuts.add((sender, receiver))

    def heal(self, wire: str, *, direction: Direction = Direction.BOTH) -> None:
        if self._relay is not None:
            self._relay.heal(wire, direction=direction)
            return
        for sender, receiver in set(self._ends(wire, direction)) & self._cuts:
            heal_egress(self.namespaces[sender], receiver)
            self._cuts.remove((sender, receiver))

    def set_faults(
        self, wire: str, faults: LinkFaults, *, direction: Direction = Direction.BOTH
    ) -> None:
        self._relayed().set_faults(wire, faults, direction=direction)

    def clear(self, wire: str) -> None:
        self._relayed().clear(wire)

    def counters(self, wire: str) -> dict[Direction, WireCounters]:
        return self._relayed().counters(wire)

    def _build(self, network: Network, stack: contextlib.ExitStack) -> None:
        routers = [router.name for router in self._plan.routers]
        points = [point.name for point in self._plan.end_points]
        for name in [BROKER, *routers, *points]:
            self.namespaces[name] = network.add(name)
        middle = network.add(RELAY) if self._is_relayed else None
        if middle is not None:
            self._relay = stack.enter_context(Relay(middle.prefix))
        for wire, (near, far) in self._wires.items():
            gap = network.join(self.namespaces[near], self.namespaces[far], middle=middle)
            if self._relay is not None and gap is not None:
                self._relay.add_wire(wire, *gap)
        match self._plan.management:
            case Management.APART:
                for name in [*routers, *points]:
                    network.join(self.namespaces[BROKER], self.namespaces[name])
            case Management.IN_BAND:
                network.join(self.namespaces[BROKER], self.namespaces[routers[0]])
                self._lay_routes((BROKER, routers[0]))

    def _lay_routes(self, first: tuple[str, str]) -> None:
        """Add the routes between the broker and every other party, over the fewest wires."""
        for router in self._plan.routers:
            self.namespaces[router.name].run("sh", "-c", f"echo 1 > {FORWARDING}")
        commands: dict[str, list[str]] = {name: [] for name in self.namespaces}
        for way in shortest_ways([first, *self._wires.values()], BROKER):
            target = way[-1]
            for here, following in pairwise(way[:-1]):
                commands[here].append(self._route(here, following, target))
            if way[-2] != BROKER:
                commands[target].append(self._route(target, way[-2], BROKER))
        for name, lines in commands.items():
            if lines:
                self.namespaces[name].configure(lines)

    def _route(self, here: str, following: str, target: str) -> str:
        near, far = self.namespaces[here], self.namespaces[following]
        return (
            f"route add {self.namespaces[target].host}/32 via {far.host} "
            f"dev {near.devices[following]} onlink src {near.host}"
        )

    def _ends(self, wire: str, direction: Direction) -> Iterator[tuple[str, str]]:
        """Yield sender and receiver of each requested direction."""
        if wire not in self._wires:
            raise LabError(f"there is no wire {wire}", hint=f"there are {', '.join(self._wires)}")
        near, far = self._wires[wire]
        if direction is not Direction.BACKWARD:
            yield near, far
        if direction is not Direction.FORWARD:
            yield far, near

    def _relayed(self) -> Relay:
        if self._relay is None:
            raise LabError("these wires have no relay", hint="build the grid with is_relayed=True")
        return self._relay


def shortest_ways(wires: list[tuple[str, str]], start: str) -> list[list[str]]:
    """Return a way with the fewest wires from `start` to every other reachable place."""
    neighbours: dict[str, list[str]] = {}
    for near, far in wires:
        neighbours.setdefault(near, []).append(far)
        neighbours.setdefault(far, []).append(near)
    ways = {start: [start]}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        for following in neighbours.get(here, []):
            if following not in ways:
                ways[following] = [*ways[here], following]
                waiting.append(following)
    return [way for name, way in ways.items() if name != start]
