"""Contracts between clouds of one random tree: what the brokers grant, and what the wires allow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from gridstat.broker.settings import Quotas
from gridstat.model.errors import RedundancyNotSatisfiable
from gridstat.model.identifiers import VariableId
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from gridstat.net.command.endpoint_messages import (
    GrantedOutcome,
    PublicationRequest,
    Publish,
    RefusedOutcome,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
)
from lab.simulation.tree.disjoint.random_trees import end_points, random_tree
from lab.simulation.tree.disjoint.wire_flow import Allowed, Ends, allowed
from lab.simulation.tree.grid import TreeGrid
from lab.simulation.tree.shapes import Outline
from lab.simulation.tree.swarm import Paces, TreeSwarm
from lab.simulation.world import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.model.cloud import EventChannel
    from gridstat.net.command.endpoint_messages import EndPointCommand, Outcome
    from lab.simulation.application import Asked
    from lab.simulation.endpoint_node import EndPointNode

SETTLED_NS: Final = 6 * NS_PER_S
STEP_NS: Final = 20 * NS_PER_MS
ANSWER_NS_MAX: Final = 60 * NS_PER_S
REDUNDANCIES: Final = (1, 2, 2, 2, 3, 3, 4)
BAND_SHARE: Final = 0.4
"""Share of requests that accept fewer paths than desired."""
_EXIST: Final = re.compile(r"(\d+) disjoint paths? .* requested, and (\d+) exist")


@dataclass(frozen=True, slots=True)
class Wish:
    """One request: from whom to whom, how many paths, and how many at least."""

    publisher: str
    subscriber: str
    redundancy: int
    redundancy_worst: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a request; `fault` is empty if the wires say the same."""

    seed: int
    wish: Wish
    allowed: Allowed
    paths: int
    fault: str

    def __str__(self) -> str:
        return (
            f"tree {self.seed}: {self.wish.publisher} to {self.wish.subscriber}, "
            f"{self.wish.redundancy} paths ({self.wish.redundancy_worst} at least), wires allow "
            f"{self.allowed.node_disjoint} node-disjoint and {self.allowed.link_disjoint} "
            f"link-disjoint: {self.fault or 'as the wires say'}"
        )


class RoomySwarm(TreeSwarm):
    """A tree without faults in which no share bounds a contract."""

    def quotas(self) -> Quotas:
        return Quotas(capacity_share=1.0)


class Answers:
    """Keeps the last answer of each end-point."""

    def __init__(self) -> None:
        self.last: dict[str, tuple[Outcome, ...]] = {}

    def answered(self, node: EndPointNode, asked: Asked, outcomes: tuple[Outcome, ...]) -> None:
        del asked
        self.last[node.name] = outcomes

    def not_answered(self, node: EndPointNode, asked: Asked) -> None:
        raise AssertionError(f"{node.name} got no answer to {asked.command}")


class Trial:
    """One tree at rest, whose end-points ask for contracts one after another."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.plan = random_tree(seed)
        swarm = RoomySwarm(
            seed=seed,
            outline=Outline("disjoint", "ample", seed),
            plan=self.plan,
            endpoints=end_points(seed, self.plan),
            paces=Paces(),
        )
        self._random = Random(f"disjoint wishes {seed}")
        self._answers = Answers()
        self.grid = TreeGrid(swarm)
        self.grid.adopt(swarm, self._answers, is_traced=False)
        self.grid.world.steps_max = 1 << 40
        self.grid.start()
        self.grid.start_endpoints()
        self.grid.world.run_until(SETTLED_NS)
        for name in self.grid.endpoints:
            self._publish(name)
        self._edges = {one.name: one.edges for one in swarm.endpoints}

    def verdicts(self, count: int) -> Iterator[Verdict]:
        """Ask for so many contracts, each drawn at random, and judge each answer."""
        for _ in range(count):
            yield self.judge(self._wish())

    def _wish(self) -> Wish:
        publisher, subscriber = self._random.sample(sorted(self.grid.endpoints), 2)
        redundancy = self._random.choice(REDUNDANCIES)
        is_band = self._random.random() < BAND_SHARE
        worst = self._random.randint(1, redundancy) if is_band else redundancy
        return Wish(publisher, subscriber, redundancy, worst)

    def judge(self, wish: Wish) -> Verdict:
        """Ask for one contract, compare the answer with the wires, and end the contract."""
        wires = allowed(self.plan, Ends(self._edges[wish.publisher], self._edges[wish.subscriber]))
        qos = QosRequest(redundancy=wish.redundancy, redundancy_worst=wish.redundancy_worst)
        request = SubscriptionRequest(name=f"{wish.publisher}/v", qos=ModalQos({0: qos}))
        (outcome,) = self._ask(wish.subscriber, Subscribe(subscriptions=(request,)))
        if isinstance(outcome, GrantedOutcome):
            number = outcome.subscription_id
            self._ask(wish.subscriber, Unsubscribe(subscription_ids=(number,)))
            fault = self._fault_of_grant(wish, wires, outcome)
            return Verdict(self.seed, wish, wires, len(outcome.paths), fault)
        assert isinstance(outcome, RefusedOutcome), outcome
        return Verdict(self.seed, wish, wires, 0, _fault_of_refusal(wish, wires, outcome))

    def _publish(self, name: str) -> None:
        variable = StatusVariable(VariableId(0), f"{name}/v", BuiltinType.FLOAT64, Period(1, 30))
        self._ask(name, Publish(publications=(PublicationRequest(variable=variable),)))

    def _ask(self, name: str, command: EndPointCommand) -> tuple[Outcome, ...]:
        world = self.grid.world
        self._answers.last.pop(name, None)
        self.grid.endpoints[name].application.ask(command)
        end_ns = world.now_ns + ANSWER_NS_MAX
        while name not in self._answers.last and world.now_ns < end_ns:
            world.run_until(world.now_ns + STEP_NS)
        return self._answers.last[name]

    def _fault_of_grant(self, wish: Wish, wires: Allowed, outcome: GrantedOutcome) -> str:
        expected = min(wish.redundancy, wires.link_disjoint)
        count, text = len(outcome.paths), "; ".join(outcome.degraded)
        if expected < wish.redundancy_worst or count != expected:
            return f"{count} paths granted: {text}"
        if outcome.is_node_disjoint != (wires.node_disjoint >= count):
            return f"called node-disjoint: {outcome.is_node_disjoint}"
        if count < wish.redundancy and not _is_true(text, wish.redundancy, wires):
            return f"lowered for a wrong reason: {text}"
        return self._fault_of_paths(wish, outcome)

    def _fault_of_paths(self, wish: Wish, outcome: GrantedOutcome) -> str:
        """Return how the paths differ from what the answer says of them."""
        edges = {*self._edges[wish.publisher], *self._edges[wish.subscriber]}
        wires = {(one.from_router, one.to_router) for one in self._channels()}
        steps: list[tuple[str, str]] = []
        inner: list[str] = []
        for path in outcome.paths:
            steps += zip(path.routers, path.routers[1:], strict=False)
            inner += [name for name in path.routers if name not in edges]
            if not {path.routers[0], path.routers[-1]} <= edges:
                return f"a path does not join the edges: {path.routers}"
        if not set(steps) <= wires:
            return f"paths over wires that do not exist: {set(steps) - wires}"
        if len(set(steps)) < len(steps):
            return f"paths share a channel: {outcome.paths}"
        if outcome.is_node_disjoint and len(set(inner)) < len(inner):
            return f"called node-disjoint, and share a router: {outcome.paths}"
        return ""

    def _channels(self) -> Iterator[EventChannel]:
        for broker in self.plan.brokers.values():
            yield from broker.channels
        for cloud in self.plan.clouds.values():
            yield from cloud.channels


def _fault_of_refusal(wish: Wish, wires: Allowed, outcome: RefusedOutcome) -> str:
    if wires.link_disjoint >= wish.redundancy_worst:
        return f"refused: {outcome.reason}"
    if outcome.code != RedundancyNotSatisfiable.code or not _is_true(
        outcome.reason, wish.redundancy, wires
    ):
        return f"refused for a wrong reason: {outcome.reason}"
    return ""


def _is_true(text: str, wanted: int, wires: Allowed) -> bool:
    """Return whether a text says how many paths were wanted and how many the wires allow."""
    found = _EXIST.search(text)
    return found is not None and tuple(map(int, found.groups())) == (wanted, wires.link_disjoint)


def judged_tree(seed: int, count: int) -> list[Verdict]:
    """Return the verdicts on so many contracts of the tree of a seed."""
    return list(Trial(seed).verdicts(count))
