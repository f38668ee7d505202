"""Faults of a simulated cloud, and the repair of each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gridstat.router.agent_events import WaterMarkCrossed
from lab.simulation.mending import Mending
from lab.simulation.swarm import FaultKind
from lab.simulation.world import NS_PER_MS, PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.simulation.broker_node import BrokerNode
    from lab.simulation.cloud import Cloud
    from lab.simulation.endpoint_node import EndPointNode
    from lab.simulation.node import Node
    from lab.simulation.router_node import RouterNode

SUDDEN_SHARE: Final = 0.4
MOVE_WITHIN_MS: Final = 2_000
HEARD_NS: Final = 300 * NS_PER_MS
"""Time after which most routers have received the term of a new broker."""
AWAY_SHARE: Final = 0.7
CONGESTED: Final = "a congested channel takes nothing new"
KNOWN_NS: Final = 500 * NS_PER_MS
"""Time within which a broker has heard of a water mark."""
OUTSPOKEN: Final = frozenset(
    {
        FaultKind.BACK_PRESSURE,
        FaultKind.ABSENCE,
        FaultKind.CHANNEL_CUT,
        FaultKind.CLOCK_OFFSET,
        FaultKind.DISK_FULL,
        FaultKind.END_POINT_CRASH,
    }
)
"""Faults that keep no router from being heard."""


class Faults:
    """Faults of a cloud, each of limited duration; `stop` ends all that are in effect."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._world = cloud.world
        self._mending = Mending(cloud.world)
        self._doing: dict[FaultKind, Callable[[], None]] = {
            FaultKind.SESSION_LOSS: self._lose_session,
            FaultKind.ROUTER_CRASH: self._crash_router,
            FaultKind.BROKER_CRASH: self._crash_broker,
            FaultKind.END_POINT_CRASH: self._crash_endpoint,
            FaultKind.PAUSE: self._pause,
            FaultKind.PARTITION: self._separate,
            FaultKind.SLOW_PEER: self._slow_down,
            FaultKind.DISK_FULL: self._fill_disk,
            FaultKind.CHANNEL_CUT: self._cut_channel,
            FaultKind.CORE_FULL: self._fill_core,
            FaultKind.STALE_BROKER: self._replace_broker,
            FaultKind.BACK_PRESSURE: self._press,
            FaultKind.CLOCK_OFFSET: lambda: None,
            FaultKind.ABSENCE: self._cut_off,
            FaultKind.JOURNAL_LOSS: self._lose_journal,
        }

    def plan(self, start_ns: int) -> None:
        """Schedule the swarm's faults, counted from `start_ns`."""
        for at_ns, kind in self._cloud.swarm.faults:
            self._world.at(start_ns + at_ns, self._do, kind)

    def stop(self) -> None:
        """Repair whatever is broken."""
        self._mending.stop()

    def _do(self, kind: FaultKind) -> None:
        if self._world.is_traced:
            self._world.tell("fault", kind.name)
        self._doing[kind]()

    def _some(self, names: list[str]) -> str | None:
        return names[self._world.between(0, len(names) - 1)] if names else None

    def _some_router(self) -> RouterNode | None:
        routers = self._cloud.routers
        name = self._some([name for name, found in routers.items() if found.is_up])
        return None if name is None else routers[name]

    def _some_endpoint(self) -> EndPointNode | None:
        endpoints = self._cloud.endpoints
        name = self._some([name for name, found in endpoints.items() if found.is_up])
        return None if name is None else endpoints[name]

    # The network.

    def _lose_session(self) -> None:
        clients: list[Node] = [*self._cloud.routers.values(), *self._cloud.endpoints.values()] * 2
        client = clients[self._world.between(0, len(clients) - 1)]
        sessions = [link.session for link in client.links.values() if link.session is not None]
        if sessions:
            sessions[self._world.between(0, len(sessions) - 1)].cut()

    def _separate(self) -> None:
        """Separate some routers and their end-points from the broker."""
        if self._cloud.network.apart:
            return
        share = 0.1 + 0.5 * self._world.draw()
        chosen = {node.peer for node in self._cloud.routers.values() if self._world.chance(share)}
        chosen |= {
            node.peer
            for node in self._cloud.endpoints.values()
            if f"router/{node.edges[0]}" in chosen
        }
        self._cloud.network.separate(chosen)
        self._mending.after(200, 2_500, partial(self._cloud.network.separate, set()))

    def _slow_down(self) -> None:
        node = self._some_router() if self._world.chance(0.7) else self._some_endpoint()
        if node is None or node.peer in self._cloud.network.slow:
            return
        slowness_ns = self._world.between(50, 900) * NS_PER_MS
        self._set_slowness(node, slowness_ns)
        self._mending.after(500, 4_000, partial(self._set_slowness, node, 0))

    def _cut_off(self) -> None:
        """Cut an end-point off from all of its edges, for a while; always the same one."""
        endpoints = list(self._cloud.endpoints.values())
        peer = endpoints[self._cloud.swarm.seed % len(endpoints)].peer
        away = self._cloud.network.away
        if peer not in away:
            away.add(peer)
            self._cloud.network.separate_all(peer)
            self._mending.after(300, 2_500, partial(away.discard, peer))

    def _set_slowness(self, node: Node, slowness_ns: int) -> None:
        if slowness_ns:
            self._cloud.network.slow[node.peer] = slowness_ns
        else:
            self._cloud.network.slow.pop(node.peer, None)
        for session in node.sessions.values():
            session.slowness_ns = slowness_ns

    # Event channels.

    def _cut_channel(self) -> None:
        """Cut a wire, one way or both, for a while."""
        channels = self._cloud.channels
        numbers = list(channels.ends)
        number = numbers[self._world.between(0, len(numbers) - 1)]
        cut = [number]
        if self._world.chance(0.5):
            ends = channels.ends[number][::-1]
            cut += [other for other, found in channels.ends.items() if found == ends]
        for one in cut:
            channels.set_cut(one, is_cut=True)
            self._mending.after(50, 1_500, partial(channels.set_cut, one, is_cut=False))

    def _press(self) -> None:
        """Fill the queue of a paced channel, and empty it again."""
        router = self._some_router()
        if router is None or not router.table.channels or router.is_paused:
            return
        numbers = [
            number for number in router.table.channels if number in self._cloud.channels.ends
        ]
        if numbers:
            number = numbers[self._world.between(0, len(numbers) - 1)]
            router.tell(WaterMarkCrossed(number, is_on=True, queued_events=800))
            relieve = partial(self._relieve, router, number, router.process, self._world.now_ns)
            self._mending.after(200, 3_000, relieve)

    def _relieve(self, router: RouterNode, number: int, process: int, pressed_ns: int) -> None:
        if router.process == process:
            if self._world.now_ns - pressed_ns > KNOWN_NS:
                self._check_congested(number)
            router.tell(WaterMarkCrossed(number, is_on=False, queued_events=10))

    def _check_congested(self, number: int) -> None:
        """Check that the broker knows of a congested channel, in seeds without any silence."""
        broker = self._cloud.broker
        if broker is None or not {kind for _, kind in self._cloud.swarm.faults} <= OUTSPOKEN:
            return
        if not broker.reservations.resources.channels[number].is_back_pressured:
            raise PropertyBroken(CONGESTED, f"channel {number} has been congested for a while")

    # Processes.

    def _crash_router(self) -> None:
        router = self._some_router()
        if router is not None:
            self._cloud.crashes += 1
            router.crash(is_sudden=self._world.chance(SUDDEN_SHARE))
            self._mending.after(20, 2_000, partial(self._restart, router))

    def _crash_broker(self) -> None:
        """Crash the broker; in half of all seeds during the next move of a contract, if any."""
        is_half = self._cloud.swarm.seed & 2
        self._crash_broker_in(MOVE_WITHIN_MS if is_half else 0)

    def _crash_broker_in(self, patience_ms: int) -> None:
        broker = self._cloud.broker_node
        if patience_ms and broker.is_up and not self._is_moving():
            self._world.after(NS_PER_MS, self._crash_broker_in, patience_ms - 1)
        elif broker.is_up:
            broker.crash(is_sudden=self._world.chance(SUDDEN_SHARE))
            self._mending.after(20, 3_000, partial(self._restart, broker))

    def _is_moving(self) -> bool:
        """Return whether a contract has new paths that not all routers have confirmed yet."""
        broker = self._cloud.broker
        contracts = () if broker is None else broker.registry.subscriptions.values()
        return broker is not None and any(
            not broker.tables[name].is_in_step
            for contract in contracts
            if contract.retiring
            for path in contract.record.paths
            for name in path.routers
        )

    def _crash_endpoint(self) -> None:
        endpoint = self._some_endpoint()
        if endpoint is not None:
            endpoint.crash(is_sudden=self._world.chance(SUDDEN_SHARE))
            self._mending.after(20, 6_000, partial(self._restart, endpoint))

    def _restart(self, node: RouterNode | BrokerNode | EndPointNode) -> None:
        if not node.is_up:
            node.start()

    def _pause(self) -> None:
        """Pause a process as by SIGSTOP; after three seconds its peers close the sessions."""
        draw = self._world.draw()
        node: Node | None = self._cloud.broker_node
        if draw > 0.3:  # noqa: PLR2004 — a share.
            node = self._some_router() if draw < 0.7 else self._some_endpoint()  # noqa: PLR2004
        if node is None or node.is_paused or not node.is_up:
            return
        node.pause()
        self._mending.after(50, 4_500, node.resume)

    def _replace_broker(self) -> None:
        """Start a second broker while the first continues; some routers still reach the first."""
        old = self._cloud.broker_node
        if not old.is_up or old.is_paused or self._cloud.network.impostor is not None:
            return
        old.become_impostor()
        self._cloud.network.impostor = old
        new = self._cloud.new_broker()
        new.clock_offset_ns = old.clock_offset_ns
        for _, session in sorted(old.sessions.items()):
            if self._world.chance(0.8):
                session.cut()
        new.start()
        self._world.after(HEARD_NS, self._send_routers_away, new)
        self._mending.after(500, 3_000, partial(self._end_impostor, old))

    def _send_routers_away(self, new: BrokerNode) -> None:
        """Let peers of the new broker dial again; some may reach the old one."""
        for peer, session in sorted(new.sessions.items()):
            if peer.startswith("router/") and self._world.chance(AWAY_SHARE):
                session.cut()

    def _end_impostor(self, old: BrokerNode) -> None:
        self._cloud.network.impostor = None
        if old.is_up:
            old.crash(is_sudden=False)

    # Storage.

    def _lose_journal(self) -> None:
        """Lose the journal with the broker's process; the operator ends any other one first."""
        impostor = self._cloud.network.impostor
        if impostor is not None:
            impostor.crash(is_sudden=False)
            self._cloud.network.impostor = None
        broker = self._cloud.broker_node
        if broker.is_up:
            broker.crash(is_sudden=self._world.chance(SUDDEN_SHARE))
        self._cloud.lose_journal()
        self._mending.after(20, 3_000, partial(self._restart, broker))

    def _fill_disk(self) -> None:
        self._cloud.journal.is_full = True
        self._mending.after(50, 1_500, self._empty_disk)

    def _empty_disk(self) -> None:
        self._cloud.journal.is_full = False

    def _fill_core(self) -> None:
        router = self._some_router()
        if router is not None:
            self._cloud.crashes += 1
            router.is_core_full = True
            self._mending.after(20, 1_500, partial(self._empty_core, router))

    def _empty_core(self, router: RouterNode) -> None:
        router.is_core_full = False
