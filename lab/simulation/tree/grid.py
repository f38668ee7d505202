"""One simulated tree: every node of it, made from a swarm's plan."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gridstat.broker.leaf_broker import LeafBroker
from gridstat.broker.settings import BrokerSettings
from gridstat.broker.tree.qos_broker import QosBroker
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.cloud import RouterRole
from lab.simulation.endpoint_node import EndPointNode
from lab.simulation.journal import Facts, SimulatedJournal
from lab.simulation.network import Network
from lab.simulation.router_node import RouterNode
from lab.simulation.rules import with_rules
from lab.simulation.tree.broker_node import TreeBrokerNode
from lab.simulation.tree.slow_faults import set_clocks
from lab.simulation.tree.wire_changes import TreeWiring
from lab.simulation.tree.wires import CloudWires, TreeWires
from lab.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.context import Outside
    from lab.simulation.endpoint_node import Judge
    from lab.simulation.node import Node
    from lab.simulation.tree.broker_node import Broker
    from lab.simulation.tree.swarm import TreeSwarm

STEPS_MAX = 120_000


class TreeGrid:
    """Nodes of a simulated tree; `brokers`, `routers` and `endpoints` are all processes by name."""

    def __init__(self, swarm: TreeSwarm) -> None:
        self.swarm = swarm
        world = self.world = World(swarm.seed)
        self.network = Network(
            world, delay_ns_max=swarm.paces.delay_ns_max, is_all_encoded=swarm.is_all_encoded
        )
        self.files = swarm.plan
        """The plan as in the files of the brokers; that of the swarm follows the operators."""
        self.wiring = TreeWiring(self)
        self.wires = TreeWires(world, swarm.plan)
        self.routers = self.wires.routers
        self.crashes = 0
        """Number of routers so far that have lost their tables, or could not apply one."""
        self.on_journal_lost: list[Callable[[str], None]] = []
        self._terms_min: dict[str, int] = {}
        self._number = 0
        owner: dict[int, tuple[str, object, int]] = {}
        self.brokers: dict[str, TreeBrokerNode] = {}
        for name, plan in swarm.plan.brokers.items():
            journal = SimulatedJournal(
                world, commit_ns_max=swarm.paces.commit_ns_max, facts=Facts(owner)
            )
            node = TreeBrokerNode(self.network, plan, journal, self._next_number())
            node.make = partial(self._make, name)
            self.brokers[name] = node
            self._register(node)
        for name, cloud in swarm.plan.clouds.items():
            wires = CloudWires(self.wires, name)
            for router in cloud.routers:
                self.add_router(router.name, wires, is_edge=router.role is RouterRole.EDGE)
        self.endpoints: dict[str, EndPointNode] = {}

    @property
    def clouds(self) -> tuple[str, ...]:
        return tuple(self.swarm.plan.clouds)

    def adopt(self, swarm: TreeSwarm, judge: Judge, *, is_traced: bool) -> None:
        """Become the tree of this seed, with its draws, delays and end-points."""
        self.swarm = swarm
        self.files = swarm.plan
        self.world.begin(swarm.seed, is_traced=is_traced)
        self.world.steps_max = STEPS_MAX
        self.network.delay_ns_max = swarm.paces.delay_ns_max
        self.network.is_all_encoded = swarm.is_all_encoded
        self.network.encoded.clear()
        for node in self.brokers.values():
            node.journal.commit_ns_max = swarm.paces.commit_ns_max
            settings = swarm.settings(node.name)
            node.settings_above = settings if isinstance(settings, TreeSettings) else None
        for plan in swarm.endpoints:
            endpoint = EndPointNode(self.network, plan.name, plan.edges, judge, self._next_number())
            self.endpoints[plan.name] = endpoint
            self._register(endpoint)
        set_clocks(self, swarm.seed)

    def add_router(self, name: str, wires: CloudWires, *, is_edge: bool) -> None:
        node = RouterNode(self.network, wires, name, self._next_number())
        node.is_edge = is_edge
        self.routers[name] = node
        self._register(node)

    def replace_broker(self, name: str) -> TreeBrokerNode:
        """Make a process that takes a broker's place and journal, unknown to the old process."""
        old = self.brokers[name]
        old.become_impostor()
        new = TreeBrokerNode(self.network, old.plan, old.journal, self._next_number())
        new.make, new.lives, new.term_highest = old.make, old.lives, old.term_highest
        new.process = old.process  # So that the instance is a new one, too.
        new.clock_offset_ns = old.clock_offset_ns
        new.on_killed, new.on_restored = old.on_killed, old.on_restored
        new.on_returned, new.on_sent = old.on_returned, old.on_sent
        new.settings_above = old.settings_above
        self.brokers[name] = new
        self._register(new)
        return new

    def lose_journal(self, name: str) -> None:
        """Lose the journal of a broker that is down; the next one begins above all its terms."""
        node = self.brokers[name]
        before = max(node.term_highest, self._terms_min.get(name, 1) - 1, node.durable_term())
        self._terms_min[name] = before + 1
        node.journal.lose()
        self.wiring.journal_lost(name)
        for hear in self.on_journal_lost:
            hear(name)

    def start(self) -> None:
        """Start brokers and routers at once; the seed decides which is faster."""
        for node in (*self.brokers.values(), *self.routers.values()):
            node.start()

    def start_endpoints(self) -> None:
        for endpoint in self.endpoints.values():
            endpoint.start()

    # The machines.

    def leaf(self, cloud: str) -> LeafBroker | None:
        broker = self.brokers[cloud].broker
        assert broker is None or isinstance(broker, LeafBroker)
        return broker

    def leaves(self) -> dict[str, LeafBroker]:
        """Return the leaf brokers that are up, by cloud."""
        return {name: broker for name in self.clouds if (broker := self.leaf(name)) is not None}

    def qos_brokers(self) -> dict[str, QosBroker]:
        """Return the QoS brokers that are up, by name."""
        return {
            name: node.broker
            for name, node in self.brokers.items()
            if isinstance(node.broker, QosBroker)
        }

    def _make(self, name: str, outside: Outside) -> Broker:
        plan, settings = self.files, self.swarm.settings(name)
        settings = replace(settings, term_min=self._terms_min.get(name, 0))
        if isinstance(settings, BrokerSettings):
            cloud = plan.clouds[name]
            settings = with_rules(settings)
            return LeafBroker(settings, outside, routers=cloud.routers, channels=cloud.channels)
        broker = plan.brokers[name]
        return QosBroker(settings, outside, children=broker.children, channels=broker.channels)

    def _register(self, node: Node) -> None:
        self.network.nodes[node.peer] = node

    def _next_number(self) -> int:
        self._number += 1
        return self._number
