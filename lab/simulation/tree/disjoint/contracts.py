"""Contracts between clouds of one random tree: what the brokers grant, and what the wires allow."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Final

from gridstat.broker.settings import Quotas
from gridstat.model.errors import (
    LatencyNotSatisfiable,
    RedundancyNotSatisfiable,
    SearchUndecided,
)
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
from lab.simulation.tree.disjoint.wire_flow import Allowed, Ends, Wire, allowed, wires_of
from lab.simulation.tree.grid import TreeGrid
from lab.simulation.tree.shapes import Outline
from lab.simulation.tree.swarm import Paces, TreeSwarm
from lab.simulation.world import NS_PER_MS, NS_PER_S
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.net.command.endpoint_messages import EndPointCommand, Outcome
    from lab.simulation.application import Asked
    from lab.simulation.endpoint_node import EndPointNode

SETTLED_NS: Final = 6 * NS_PER_S
STEP_NS: Final = 20 * NS_PER_MS
ANSWER_NS_MAX: Final = 60 * NS_PER_S
REDUNDANCIES: Final = (1, 2, 2, 2, 3, 3, 4)
BAND_SHARE: Final = 0.4
"""Share of requests that accept fewer paths than desired."""
BOUNDS: Final = ("none", "none", "none", "ample", "tight", "middle", "middle")
AMPLE_US: Final = 500_000
"""Latency that no path of these trees comes near, and within which copies are recognised."""
UNDECIDED_SHARE_MAX: Final = 0.01
"""Part of the requests of which a broker may say that its search took too long."""
_TOO_MUCH: Final = re.compile(r"take (\d+) µs, (\d+) µs too much")
_IN_TIME: Final = re.compile(
    r"(\d+) disjoint paths? .* requested, and (\d+) were found in (\d+) µs"
)
_EXIST: Final = re.compile(r"(\d+) disjoint paths? .* requested, and (\d+) exist")


@dataclass(frozen=True, slots=True)
class Wish:
    """One request: from whom to whom, how many paths, how many at least, and how fast.

    A bound is ample if every path keeps it, tight if none can, and in the middle otherwise.
    """

    publisher: str
    subscriber: str
    redundancy: int
    redundancy_worst: int
    bound: str = "none"
    latency_us: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a request; `fault` is empty if the wires say the same."""

    seed: int
    wish: Wish
    allowed: Allowed
    paths: int
    fault: str
    is_undecided: bool = False

    def __str__(self) -> str:
        return (
            f"tree {self.seed}: {self.wish.publisher} to {self.wish.subscriber}, "
            f"{self.wish.redundancy} paths ({self.wish.redundancy_worst} at least) "
            f"in {self.wish.latency_us or 'any'} µs, wires allow "
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
        self._wires = {(one.owner, one.number): one for one in wires_of(self.plan)}

    def verdicts(self, count: int) -> Iterator[Verdict]:
        """Ask for so many contracts, each drawn at random, and judge each answer."""
        for _ in range(count):
            yield self.judge(self._wish())

    def _wish(self) -> Wish:
        publisher, subscriber = self._random.sample(sorted(self.grid.endpoints), 2)
        redundancy = self._random.choice(REDUNDANCIES)
        is_band = self._random.random() < BAND_SHARE
        worst = self._random.randint(1, redundancy) if is_band else redundancy
        wish = Wish(publisher, subscriber, redundancy, worst, self._random.choice(BOUNDS))
        return replace(wish, latency_us=self._bound_us(wish))

    def _bound_us(self, wish: Wish) -> int:
        fastest_us = max(1, self._allowed(wish).fastest_us)
        match wish.bound:
            case "ample":
                return AMPLE_US
            case "tight":
                return self._random.randint(1, fastest_us)
            case "middle":
                return self._random.randint(fastest_us, 4 * fastest_us + 2_000)
        return 0

    def _allowed(self, wish: Wish) -> Allowed:
        return allowed(self.plan, Ends(self._edges[wish.publisher], self._edges[wish.subscriber]))

    def judge(self, wish: Wish) -> Verdict:
        """Ask for one contract, compare the answer with the wires, and end the contract."""
        wires = self._allowed(wish)
        qos = QosRequest(redundancy=wish.redundancy, redundancy_worst=wish.redundancy_worst)
        if wish.latency_us:
            qos = replace(qos, latency_us=wish.latency_us)
        request = SubscriptionRequest(name=f"{wish.publisher}/v", qos=ModalQos({0: qos}))
        (outcome,) = self._ask(wish.subscriber, Subscribe(subscriptions=(request,)))
        if isinstance(outcome, GrantedOutcome):
            number = outcome.subscription_id
            self._ask(wish.subscriber, Unsubscribe(subscription_ids=(number,)))
            fault = self._fault_of_grant(wish, wires, outcome)
            return Verdict(self.seed, wish, wires, len(outcome.paths), fault)
        assert isinstance(outcome, RefusedOutcome), outcome
        if outcome.code == SearchUndecided.code:
            return Verdict(self.seed, wish, wires, 0, "", is_undecided=True)
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
        most = min(wish.redundancy, wires.link_disjoint)
        count, text = len(outcome.paths), "; ".join(outcome.degraded)
        is_enough = wish.redundancy_worst <= count <= most
        if not is_enough or (count < most and wish.bound != "middle"):
            return f"{count} paths granted: {text}"
        is_node = outcome.is_node_disjoint
        if is_node and wires.node_disjoint < count:
            return "called node-disjoint"
        if not is_node and wires.node_disjoint >= count and wish.bound != "middle":
            return "not called node-disjoint"
        if count < wish.redundancy and not _is_true_of_grant(text, wish, wires, count):
            return f"lowered for a wrong reason: {text}"
        return self._fault_of_paths(wish, outcome)

    def _fault_of_paths(self, wish: Wish, outcome: GrantedOutcome) -> str:
        """Return how the paths differ from what the answer says of them."""
        edges = {*self._edges[wish.publisher], *self._edges[wish.subscriber]}
        used: list[Wire] = []
        ducts: list[str] = []
        inner: list[str] = []
        for path in outcome.paths:
            found = [self._wire(*way) for way in zip(path.routers, path.channel_ids, strict=False)]
            wires = [one for one in found if one is not None]
            ends = [(one.from_router, one.to_router) for one in wires]
            if ends != list(pairwise(path.routers)) or not {ends[0][0], ends[-1][1]} <= edges:
                return f"a path does not join its routers, or the edges: {path}"
            used += wires
            ducts += {duct for one in wires for duct in one.ducts}
            inner += [name for name in path.routers if name not in edges]
            least_us = sum(one.latency_us for one in wires)
            if wish.latency_us and not least_us <= path.latency_us <= wish.latency_us:
                return f"a path of {least_us} µs is granted in {path.latency_us} µs"
        return _shared(outcome, used, ducts, inner)

    def _wire(self, router: str, number: int) -> Wire | None:
        """Return the wire that leaves a router, by its number there and its owner."""
        owner = self.plan.owner_of(cloud_of(router), number)
        return self._wires.get((owner, number))


def _shared(outcome: GrantedOutcome, used: list[Wire], ducts: list[str], inner: list[str]) -> str:
    """Return what paths share that they must not share: of each path what it uses."""
    if len(set(used)) < len(used):
        return f"paths share a channel: {outcome.paths}"
    if len(set(ducts)) < len(ducts):
        return f"paths share a duct: {outcome.paths}"
    if outcome.is_node_disjoint and len(set(inner)) < len(inner):
        return f"called node-disjoint, and share a router: {outcome.paths}"
    return ""


def _fault_of_refusal(wish: Wish, wires: Allowed, outcome: RefusedOutcome) -> str:
    is_in_time = wish.bound in {"none", "ample"}
    if is_in_time and wires.link_disjoint >= wish.redundancy_worst:
        return f"refused: {outcome.reason}"
    if wires.link_disjoint >= wish.redundancy_worst:
        if outcome.code != LatencyNotSatisfiable.code or not _is_true_of_latency(
            outcome.reason, wish, wires
        ):
            return f"refused for a wrong reason: {outcome.reason}"
        return ""
    if outcome.code != RedundancyNotSatisfiable.code or not _is_true(
        outcome.reason, wish.redundancy, wires
    ):
        return f"refused for a wrong reason: {outcome.reason}"
    return ""


def _is_true_of_latency(text: str, wish: Wish, wires: Allowed) -> bool:
    """Return whether a text about latency states true numbers, where it states any."""
    too_much = _TOO_MUCH.search(text)
    if too_much is not None:
        takes_us, missing_us = map(int, too_much.groups())
        if takes_us - missing_us != wish.latency_us or takes_us < wires.fastest_us:
            return False
    return _EXIST.search(text) is None or _is_true(text, wish.redundancy, wires)


def _is_true_of_grant(text: str, wish: Wish, wires: Allowed, count: int) -> bool:
    """Return whether a text says why fewer paths are granted: no more exist, or not in time."""
    found = _IN_TIME.search(text)
    if found is not None and wish.bound == "middle":
        return tuple(map(int, found.groups())) == (wish.redundancy, count, wish.latency_us)
    return _is_true(text, wish.redundancy, wires)


def _is_true(text: str, wanted: int, wires: Allowed) -> bool:
    """Return whether a text says how many paths were wanted and how many the wires allow."""
    found = _EXIST.search(text)
    return found is not None and tuple(map(int, found.groups())) == (wanted, wires.link_disjoint)


def judged_tree(seed: int, count: int) -> list[Verdict]:
    """Return the verdicts on so many contracts of the tree of a seed."""
    return list(Trial(seed).verdicts(count))
