"""One simulated cloud: every node of it, made from a swarm's plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.cloud import RouterRole
from lab.simulation.broker_node import BrokerNode
from lab.simulation.channels import Channels
from lab.simulation.endpoint_node import EndPointNode
from lab.simulation.journal import SimulatedJournal
from lab.simulation.network import Network
from lab.simulation.operator_node import OperatorNode
from lab.simulation.router_node import RouterNode
from lab.simulation.topology import CLOUD
from lab.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.leaf_broker import LeafBroker
    from gridstat.model.cloud import Router
    from lab.simulation.endpoint_node import Judge
    from lab.simulation.node import Node
    from lab.simulation.swarm import Swarm


class Cloud:
    """Nodes of a simulated cloud; `routers` are all that run, also those removed from the cloud."""

    clouds = (CLOUD,)

    def __init__(self, swarm: Swarm) -> None:
        self.swarm = swarm
        world = self.world = World(swarm.seed)
        self.network = Network(
            world, delay_ns_max=swarm.delay_ns_max, is_all_encoded=swarm.is_all_encoded
        )
        self.channels = Channels(world)
        self.channels.add(swarm.topology.channels)
        self.journal = SimulatedJournal(world, commit_ns_max=swarm.commit_ns_max)
        self._number = 0
        self.broker_lives = 0
        self.crashes = 0
        """Number of routers so far that have lost their tables, or could not apply one."""
        self.on_restored: Callable[[LeafBroker], None] | None = None
        self.on_journal_lost: Callable[[], None] | None = None
        self.on_returned: Callable[[LeafBroker, bytes], None] | None = None
        self.on_pushed: Callable[[bytes], None] | None = None
        self.on_grace_over: Callable[[str], None] | None = None
        self.broker_node = self.new_broker()
        self.operator = OperatorNode(self.network, self._next_number())
        self._register(self.operator)
        self.routers: dict[str, RouterNode] = self.channels.routers
        for router in swarm.topology.routers:
            self.add_router(router)
        self.endpoints: dict[str, EndPointNode] = {}

    def adopt(self, swarm: Swarm, judge: Judge, *, is_traced: bool) -> None:
        """Become the cloud of this seed, with its draws, delays and end-points."""
        self.swarm = swarm
        self.world.begin(swarm.seed, is_traced=is_traced)
        self.network.delay_ns_max = swarm.delay_ns_max
        self.network.is_all_encoded = swarm.is_all_encoded
        self.network.encoded.clear()
        self.journal.commit_ns_max = swarm.commit_ns_max
        for plan in swarm.endpoints:
            number = self._next_number()
            node = EndPointNode(self.network, plan.name, plan.edges, judge, number)
            self.endpoints[plan.name] = node
            self._register(node)
        self._set_clocks()

    @property
    def broker(self) -> LeafBroker | None:
        return self.broker_node.broker

    def new_broker(self) -> BrokerNode:
        """Make a process that takes the broker's place."""
        swarm = self.swarm
        node = BrokerNode(
            self.network, swarm.topology, swarm.settings, self.journal, self._next_number()
        )
        if self.broker_lives:
            node.settings = self.broker_node.settings
            node.patterns_refused = self.broker_node.patterns_refused
            node.are_refusals_left_out = self.broker_node.are_refusals_left_out
        node.on_restored = self._restored
        node.on_returned = self._returned
        node.on_pushed = self._pushed
        node.on_grace_over = self._grace_over
        self.broker_node = node
        self._register(node)
        return node

    def add_router(self, router: Router) -> RouterNode:
        node = RouterNode(self.network, self.channels, router.name, self._next_number())
        node.is_edge = router.role is RouterRole.EDGE
        self.routers[router.name] = node
        self._register(node)
        return node

    def start(self) -> None:
        """Start broker and routers at once; the seed decides which is faster."""
        self.broker_node.start()
        for router in self.routers.values():
            router.start()
        self.operator.start()

    def lose_journal(self) -> None:
        """Lose the journal of the broker, which is down and has no other process."""
        self.broker_node.lose_journal()
        if self.on_journal_lost is not None:
            self.on_journal_lost()

    def operator_of(self, cloud: str) -> OperatorNode | None:
        """Return the operator of a cloud: there is one cloud, and one operator."""
        return self.operator if cloud == CLOUD else None

    def start_endpoints(self) -> None:
        for endpoint in self.endpoints.values():
            endpoint.start()

    def _restored(self, broker: LeafBroker) -> None:
        self.broker_lives += 1
        if self.on_restored is not None:
            self.on_restored(broker)

    def _returned(self, broker: LeafBroker, body: bytes) -> None:
        if self.on_returned is not None:
            self.on_returned(broker, body)

    def _pushed(self, body: bytes) -> None:
        if self.on_pushed is not None:
            self.on_pushed(body)

    def _grace_over(self, endpoint: str) -> None:
        if self.on_grace_over is not None:
            self.on_grace_over(endpoint)

    def _register(self, node: Node) -> None:
        self.network.nodes[node.peer] = node

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _set_clocks(self) -> None:
        most_ns = self.swarm.clock_offset_ns_max
        if most_ns:
            self.broker_node.clock_offset_ns = self.world.between(-most_ns, most_ns)
            for node in self.endpoints.values():
                node.clock_offset_ns = self.world.between(-most_ns, most_ns)
