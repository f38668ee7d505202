"""Kills of every broker at every persist and send of every operation, once before and once after.

An operation is run once, from a tree at rest, and the instructions of each broker are counted. Then
it is run again for each of these instructions, with a kill -9 there; the broker is started again,
and within five seconds of virtual time all nodes must be consistent, with nothing left over.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from gridstat.model.identifiers import VariableId
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    PublicationRequest,
    Publish,
    Subscribe,
    SubscriptionRequest,
    Unpublish,
    Unsubscribe,
)
from gridstat.net.command.machine import Send
from gridstat.net.command.operator_messages import RemoveFlooding, SetFlooding
from lab.simulation.bugs import planted
from lab.simulation.operator_node import OperatorNode
from lab.simulation.settled import copied, recorded
from lab.simulation.swarm import EndPointPlan
from lab.simulation.tree.bugs import BUGS
from lab.simulation.tree.faults import CountingKiller
from lab.simulation.tree.properties.checks import TreeProperties
from lab.simulation.tree.properties.floods import check_nothing_floods
from lab.simulation.tree.settled import settled_tree
from lab.simulation.tree.shapes import Outline, tree_plan
from lab.simulation.tree.swarm import FaultKind, Paces, TreeSwarm
from lab.simulation.world import NS_PER_MS, NS_PER_S, PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gridstat.net.command.machine import Persist
    from gridstat.net.command.operator_messages import OperatorAnswer
    from lab.simulation.application import Application
    from lab.simulation.tree.broker_node import TreeBrokerNode
    from lab.simulation.tree.grid import TreeGrid

OUTLINE: Final = Outline("unbalanced", "ample", 0)
PUBLISHER: Final = "c1/z0/p0"
SUBSCRIBER: Final = "c4/z0/p1"
VARIABLE: Final = f"{PUBLISHER}/v1"
OTHER: Final = f"{PUBLISHER}/v2"
LOWER: Final = f"{SUBSCRIBER}/v1"
"""Variable that is published below a broker in the middle."""
MIDDLE: Final = "east"
FLOODED: Final = {"root": VARIABLE, MIDDLE: LOWER}
"""Variable that an operator of each broker floods."""
SETTLED_NS: Final = 4 * NS_PER_S
LOOK_NS: Final = 100 * NS_PER_MS
QUIET_LOOKS: Final = 3
"""Number of successive checks without work that count as rest: a last message may be in transit."""
AWAY_NS: Final = 100 * NS_PER_MS
"""Time for which a killed broker stays away."""
CONSISTENT_NS: Final = 5 * NS_PER_S
REST_NS_MAX: Final = 30 * NS_PER_S
ANSWERED_NS_MAX: Final = 30 * NS_PER_S
"""Longest time until an operator is answered, with the children that have not confirmed."""
OPERATORS_FROM: Final = 10_000
"""First node number of the operators; no other node has these numbers."""
FORGOTTEN_NS: Final = 10 * NS_PER_S
"""Time at rest after which no broker keeps state that cannot be copied."""


@dataclass(frozen=True, slots=True)
class Point:
    """Failpoint of a broker: before or after its n-th instruction for an operation."""

    operation: str
    broker: str
    number: int
    is_before: bool
    instruction: str

    def __str__(self) -> str:
        when = "before" if self.is_before else "after"
        return f"{self.operation}: {self.broker} dies {when} {self.instruction} ({self.number})"


@dataclass(slots=True)
class Scene:
    """A tree at rest, with its properties and operators."""

    grid: TreeGrid
    properties: TreeProperties
    operators: dict[str, OperatorNode] = field(default_factory=dict)
    answers: list[OperatorAnswer] = field(default_factory=list)

    def application(self, name: str) -> Application:
        return self.grid.endpoints[name].application

    def add_operators(self) -> None:
        network = self.grid.network
        for number, broker in enumerate(FLOODED, start=OPERATORS_FROM):
            node = self.operators[broker] = OperatorNode(network, number, broker)
            network.nodes[node.peer] = node
            node.start()

    def set_flooding(self, broker: str) -> None:
        node = self.operators[broker]
        command = SetFlooding(request_id=node.next_id(), name=FLOODED[broker], every=2)
        node.ask(command, self.answers.append)

    def remove_flooding(self, broker: str) -> None:
        node = self.operators[broker]
        command = RemoveFlooding(request_id=node.next_id(), name=FLOODED[broker])
        node.ask(command, self.answers.append)

    def is_flooded(self, broker: str) -> bool:
        return FLOODED[broker] in self.grid.qos_brokers()[broker].parts.flooding.floods

    def rest(self, within_ns: int) -> str | None:
        """Run until nothing is in progress; return what still is at the deadline, or None."""
        world = self.grid.world
        end_ns = world.now_ns + within_ns
        quiet = 0
        while True:
            world.run_until(world.now_ns + LOOK_NS)
            self.properties.check_safety()
            unrest = self.properties.unrest()
            quiet = 0 if unrest is not None else quiet + 1
            if quiet == QUIET_LOOKS or world.now_ns >= end_ns:
                return unrest

    def await_operators(self) -> str | None:
        """Run until all operators are answered; a wait for an absent child ends after the rest."""
        world = self.grid.world
        end_ns = world.now_ns + ANSWERED_NS_MAX
        while waiting := [name for name, node in self.operators.items() if not node.is_idle]:
            if world.now_ns >= end_ns:
                return f"operators of {waiting} wait for an answer"
            world.run_until(world.now_ns + LOOK_NS)
        return self.rest(CONSISTENT_NS)


# The operations, each beginning where the one before has ended.


def _publish(scene: Scene) -> None:
    variables = [
        StatusVariable(VariableId(0), name, BuiltinType.FLOAT64, Period(1, 30))
        for name in (VARIABLE, OTHER)
    ]
    requests = tuple(PublicationRequest(variable=variable) for variable in variables)
    scene.application(PUBLISHER).ask(Publish(publications=requests))
    lower = StatusVariable(VariableId(0), LOWER, BuiltinType.FLOAT64, Period(1, 30))
    scene.application(SUBSCRIBER).ask(Publish(publications=(PublicationRequest(variable=lower),)))


def _quality(every: int) -> ModalQos:
    return ModalQos({0: QosRequest(every=every, latency_us=2_000_000, redundancy=2)})


def _subscribe(scene: Scene) -> None:
    request = SubscriptionRequest(name=VARIABLE, qos=_quality(2), label="s1")
    scene.application(SUBSCRIBER).ask(Subscribe(subscriptions=(request,)))


def _change(scene: Scene) -> None:
    application = scene.application(SUBSCRIBER)
    number = application.contracts["s1"].number
    application.ask(ChangeSubscription(subscription_id=number, qos=_quality(1)))


def _unsubscribe(scene: Scene) -> None:
    application = scene.application(SUBSCRIBER)
    number = application.contracts["s1"].number
    application.ask(Unsubscribe(subscription_ids=(number,)))


def _subscribe_again(scene: Scene) -> None:
    request = SubscriptionRequest(name=OTHER, qos=_quality(1), label="s2")
    scene.application(SUBSCRIBER).ask(Subscribe(subscriptions=(request,)))


def _unpublish(scene: Scene) -> None:
    """Withdraw a variable that a subscriber in another cloud takes."""
    scene.application(PUBLISHER).ask(Unpublish(names=(OTHER,)))


OPERATIONS: Final[dict[str, Callable[[Scene], None]]] = {
    "publish": _publish,
    "subscribe": _subscribe,
    "change": _change,
    "unsubscribe": _unsubscribe,
    "subscribe again": _subscribe_again,
    "unpublish": _unpublish,
    "flood": partial(Scene.set_flooding, broker="root"),
    "end the flood": partial(Scene.remove_flooding, broker="root"),
    "flood below": partial(Scene.set_flooding, broker=MIDDLE),
    "end the flood below": partial(Scene.remove_flooding, broker=MIDDLE),
}
FLOODS: Final = {"flood": "root", "flood below": MIDDLE}
ENDS: Final = {"end the flood": "root", "end the flood below": MIDDLE}
"""Operations that end a flood, with their brokers; despite any kill, none is left in the end."""


# Failpoints of the operations.


class Recorder:
    """Recorder of the instructions of all brokers; it kills none."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.operation = ""
        self._counts: Counter[tuple[str, bool]] = Counter()
        self._persists: dict[str, list[str]] = {}

    def before(self, node: TreeBrokerNode, instruction: Send | Persist) -> None:
        self._count(node.name, _describe(instruction), is_before=True)

    def after(self, node: TreeBrokerNode, instruction: Send | Persist) -> None:
        self._count(node.name, _describe(instruction), is_before=False)

    def _count(self, broker: str, instruction: str, *, is_before: bool) -> None:
        number = self._counts[broker, is_before]
        self._counts[broker, is_before] += 1
        self.points.append(Point(self.operation, broker, number, is_before, instruction))


def _describe(instruction: Send | Persist) -> str:
    if isinstance(instruction, Send):
        return f"{type(instruction.message).__name__} to {instruction.peer}"
    return "a persist"


def failpoints(operation: str, *, bug: str = "") -> list[Point]:
    """Return all instructions of all brokers for an operation."""
    scene = _scene(operation, bug)
    recorder = Recorder()
    recorder.operation = operation
    for node in scene.grid.brokers.values():
        node.killer = recorder
    OPERATIONS[operation](scene)
    unrest = scene.rest(REST_NS_MAX) or scene.await_operators()
    assert unrest is None, unrest
    return recorder.points


def kill_at(point: Point, *, bug: str = "") -> str:
    """Return what is wrong after a broker has died at a failpoint; empty if nothing is."""
    with planted(bug, BUGS):
        scene = _scene(point.operation, bug)
        try:
            return _kill_at(scene, point)
        except PropertyBroken as broken:
            return f"{point}: {broken}"
        except AssertionError as error:
            return f"{point}: a machine fails: {error!r}"


def _kill_at(scene: Scene, point: Point) -> str:
    grid, world = scene.grid, scene.grid.world
    node = grid.brokers[point.broker]
    killed: list[int] = []

    def restart(dead: TreeBrokerNode) -> None:
        killed.append(world.now_ns)
        world.after(AWAY_NS, dead.start)

    node.on_killed = restart
    node.killer = CountingKiller(point.number, is_before=point.is_before)
    OPERATIONS[point.operation](scene)
    end_ns = world.now_ns + REST_NS_MAX
    while not killed:
        if world.now_ns >= end_ns:
            return f"{point}: it did not get there"
        world.run_until(world.now_ns + LOOK_NS)
    unrest = scene.rest(killed[0] + AWAY_NS + CONSISTENT_NS - world.now_ns)
    if unrest is not None:
        return f"{point}: not consistent in time: {unrest}"
    scene.properties.check_rest()
    return _end_flood(scene, point)


def _end_flood(scene: Scene, point: Point) -> str:
    """Check that the operator's answer holds; end all floods and check that none is left."""
    broker = (FLOODS | ENDS).get(point.operation)
    if broker is None:
        return ""
    unrest = scene.await_operators()
    if unrest is not None:
        return f"{point}: {unrest}"
    is_done = scene.answers[-1].refused is None
    if is_done and scene.is_flooded(broker) != (point.operation in FLOODS):
        return f"{point}: it was done, and is not so: {scene.answers[-1].facts}"
    if scene.is_flooded(broker):
        scene.remove_flooding(broker)
        unrest = scene.rest(CONSISTENT_NS) or scene.await_operators()
        if unrest is not None or scene.answers[-1].refused is not None:
            return f"{point}: it cannot be ended: {unrest or scene.answers[-1].refused}"
        scene.properties.check_rest()
    check_nothing_floods(scene.grid)
    return ""


def all_points() -> Iterator[Point]:
    for operation in OPERATIONS:
        yield from failpoints(operation)


# Trees at rest, before each operation.


def _scene(operation: str, bug: str) -> Scene:
    written, shared, seed = _record(operation, bug)
    swarm = _swarm()
    settings: dict[object, object] = {name: swarm.settings(name) for name in swarm.plan.brokers}
    scene = copied(written, {**shared, **settings})
    assert isinstance(scene, Scene)
    scene.grid.world.random.seed(seed)
    return scene


@lru_cache(maxsize=64)
def _record(operation: str, bug: str) -> tuple[bytes, dict[object, object], int]:
    """Record the tree after all operations before this one; `bug` is a key of the cache."""
    before = list(OPERATIONS)[: list(OPERATIONS).index(operation)]
    if not before:
        scene = _first_scene()
    else:
        scene = _scene(before[-1], bug)
        OPERATIONS[before[-1]](scene)
        unrest = scene.rest(REST_NS_MAX) or scene.await_operators()
        assert unrest is None, unrest
        scene.properties.check_rest()
    world = scene.grid.world
    world.run_until(world.now_ns + FORGOTTEN_NS)
    written, shared = recorded(scene)
    return written, shared, len(before)


def _first_scene() -> Scene:
    swarm = _swarm()
    properties = TreeProperties()
    grid = settled_tree(swarm)
    assert grid is not None, "a tree without work or faults does not come up"
    grid.adopt(swarm, properties, is_traced=False)
    properties.watch(grid)
    grid.start_endpoints()
    scene = Scene(grid, properties)
    scene.add_operators()
    unrest = scene.rest(SETTLED_NS)
    assert unrest is None, unrest
    return scene


def _swarm() -> TreeSwarm:
    plan = tree_plan(OUTLINE)
    endpoints = tuple(
        EndPointPlan(name, plan.clouds[name.partition("/")[0]].edges)
        for name in (PUBLISHER, SUBSCRIBER)
    )
    faults = ((0, FaultKind.BROKER_CRASH),)
    return TreeSwarm(
        seed=1, outline=OUTLINE, plan=plan, endpoints=endpoints, paces=Paces(), faults=faults
    )
