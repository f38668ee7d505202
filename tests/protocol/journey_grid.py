"""A small tree of two clouds in virtual time, with the real machines of every role.

The simulator of `lab.simulation.tree` runs the session of an end-point, the agents of the routers
and the brokers. This module adds the parts that the simulator models: the API above a session, and
the status router with the compiled core below an agent. One seed fixes the order of all messages.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from gridstat.core._core import Core
from gridstat.endpoint.change_notifier import ChangeNotifier
from gridstat.endpoint.connection import Connection
from gridstat.endpoint.deliverer import Deliverer
from gridstat.endpoint.expected_variables import ExpectedVariables
from gridstat.endpoint.options import refusal
from gridstat.endpoint.outgoing_channels import OutgoingChannels
from gridstat.endpoint.publication_registry import PublicationRegistry
from gridstat.endpoint.session_events import Requested
from gridstat.endpoint.subscription_registry import SubscriptionRegistry
from gridstat.net.command.endpoint_messages import RefusedOutcome
from gridstat.router import StatusRouter
from gridstat.router.agent_events import TableApplied
from gridstat.router.core_work import CoreWork
from lab.simulation.endpoint_node import EndPointNode
from lab.simulation.router_node import RouterNode
from lab.simulation.swarm import EndPointPlan
from lab.simulation.tree.grid import TreeGrid
from lab.simulation.tree.shapes import Outline, tree_plan
from lab.simulation.tree.swarm import Paces, TreeSwarm
from lab.simulation.world import NS_PER_MS, NS_PER_S
from tests.protocol.grids import SMALL
from tests.unit.endpoint.paper_grid import PaperClock, PaperReceiver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gridstat.endpoint.session_events import Answered
    from gridstat.net.command.endpoint_messages import EndPointCommand, Outcome
    from gridstat.router.agent_events import ApplyTable
    from lab.simulation.application import Asked
    from lab.simulation.tree.wires import CloudWires

Result = TypeVar("Result")
PUBLISHER, NEAR, FAR = "c1/hill/pmu-1", "c1/desk", "c2/desk"
SETTLED_NS = 6 * NS_PER_S
"""All sessions, borders and attachments stand by then."""
ANSWER_NS = 10 * NS_PER_S


class JourneyGrid(TreeGrid):
    """The tree `root` above the clouds c1 and c2, and three end-points with an API each."""

    def __init__(self) -> None:
        outline = Outline("pair", "ample", 0)
        plan = tree_plan(outline)
        names = (PUBLISHER, NEAR, FAR)
        endpoints = tuple(EndPointPlan(name, plan.clouds[name[:2]].edges) for name in names)
        self.cores: list[StatusRouter] = []
        swarm = TreeSwarm(1, outline, plan, endpoints, Paces())
        super().__init__(swarm)
        self.adopt(swarm, NoJudge(), is_traced=False)
        self.links: dict[str, SimulatedLink] = {}
        for endpoint in endpoints:
            node = JourneyEndPoint(
                self.network, endpoint.name, endpoint.edges, NoJudge(), self._next_number()
            )
            self.endpoints[endpoint.name] = node
            self._register(node)
            self.links[endpoint.name] = SimulatedLink(node)
        self.start()
        self.start_endpoints()
        self.world.run_until(SETTLED_NS)

    def add_router(self, name: str, wires: CloudWires, *, is_edge: bool) -> None:
        node = JourneyRouter(self.network, wires, name, self._next_number())
        node.is_edge = is_edge
        self.routers[name] = node
        self.cores.append(node.router)
        self._register(node)

    def connection(self, name: str) -> Connection:
        return Connection(self.links[name])  # type: ignore[arg-type]

    def close(self) -> None:
        for link in self.links.values():
            link.deliverer.close()
        for router in self.cores:
            router.close()


class JourneyRouter(RouterNode):
    """A simulated router whose orders also change a real status router and its compiled core."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.router = StatusRouter(
            self.name, Core(SMALL), clock_ns=lambda: self.world.now_ns, in_memory=True
        )
        self._core_work = CoreWork(self.router)

    def _apply(self, said: ApplyTable) -> None:
        super()._apply(said)
        assert self._core_work.perform(said) == [], f"{self.name} refuses an order"
        self.world.after(5 * NS_PER_MS, self._commit_core)

    def _commit_core(self) -> None:
        for event in self._core_work.work():
            assert isinstance(event, TableApplied), f"{self.name} cannot commit: {event}"


class JourneyEndPoint(EndPointNode):
    """A simulated end-point whose answers go to the API instead of a simulated application."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.answers: dict[int, Answered] = {}

    def _answered(self, word: Answered) -> None:
        self.answers[word.token] = word


class SimulatedLink:
    """The parts of `CloudLink` around a simulated session; a request runs the simulated world."""

    def __init__(self, node: JourneyEndPoint) -> None:
        self.name = node.name
        self._node = node
        self._token = 0
        clock, receiver = PaperClock(), PaperReceiver()
        self.deliverer = Deliverer(receiver, clock)  # type: ignore[arg-type]
        self.board = ChangeNotifier(self.deliverer.post, clock, None)
        listening = ExpectedVariables(receiver, self.deliverer, clock)
        self.subscriptions = SubscriptionRegistry(
            self, listening, self.deliverer, clock, self.board
        )
        self.publications = PublicationRegistry(self, OutgoingChannels(), self.board)

    @property
    def attached_edges(self) -> tuple[str, ...]:
        return tuple(sorted(self._node.attached))

    def ask(
        self,
        command: EndPointCommand,
        use: Callable[[tuple[Outcome, ...], tuple[bytes, ...]], Result],
    ) -> Future[Result]:
        self._token += 1
        world = self._node.world
        self._node.tell(Requested(self._token, command, ANSWER_NS))
        end_ns = world.now_ns + ANSWER_NS
        while self._token not in self._node.answers and world.now_ns < end_ns:
            world.run_until(world.now_ns + NS_PER_MS)
        answered = self._node.answers[self._token]
        for outcome in answered.outcomes:
            if isinstance(outcome, RefusedOutcome):
                raise refusal(outcome)
        future: Future[Result] = Future()
        future.set_result(use(answered.outcomes, answered.newest))
        self.deliverer.run_posted()
        return future


class NoJudge:
    """Judge of the simulator that has no property to check."""

    def answered(self, node: EndPointNode, asked: Asked, outcomes: Iterable[Outcome]) -> None:
        del node, asked, outcomes

    def not_answered(self, node: EndPointNode, asked: Asked) -> None:
        del node, asked
