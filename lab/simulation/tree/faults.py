"""Faults of a simulated tree, and the repair of each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gridstat.net.command.segment_messages import Commit, Release
from lab.simulation.mending import Mending
from lab.simulation.tree.broker_node import Killed
from lab.simulation.tree.properties.promises import contracts_between, lowering_cuts
from lab.simulation.tree.slow_faults import SlowFaults
from lab.simulation.tree.swarm import FaultKind
from lab.simulation.world import NS_PER_MS
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.net.command.machine import Persist, Send
    from lab.simulation.journal import SimulatedJournal
    from lab.simulation.node import Node
    from lab.simulation.router_node import RouterNode
    from lab.simulation.tree.broker_node import TreeBrokerNode
    from lab.simulation.tree.grid import TreeGrid

SUDDEN_SHARE: Final = 0.4
KILL_WITHIN: Final = 40
"""Most instructions until a broker dies that is to die during an operation."""
AT_ONCE_SHARE: Final = 0.3
USED_SHARE: Final = 0.7
"""Share of the cuts inside clouds that hit a channel which carries a contract, if there is one."""
FULL_AT_ORDER_SHARE: Final = 0.7
"""Share of the full disks that are full when a child is told to commit or to release."""
PATHS_CUT_MS: Final = (400, 2_500)
"""Duration of the cuts: most contracts are planned again meanwhile."""
HEARD_NS: Final = 300 * NS_PER_MS
"""Time after which most children of a new broker have received its term."""


class CountingKiller:
    """Killer that ends a broker before or after its n-th instruction from now on."""

    def __init__(self, count: int, *, is_before: bool) -> None:
        self._left = count
        self._is_before = is_before

    def before(self, node: TreeBrokerNode, instruction: Send | Persist) -> None:
        del instruction
        self._count(node, is_counted=self._is_before)

    def after(self, node: TreeBrokerNode, instruction: Send | Persist) -> None:
        del instruction
        self._count(node, is_counted=not self._is_before)

    def _count(self, node: TreeBrokerNode, *, is_counted: bool) -> None:
        self._left -= is_counted
        if self._left < 0:
            node.killer = None
            raise Killed


class TreeFaults:
    """Faults of a tree, each of limited duration; `stop` ends all that are in effect."""

    def __init__(self, grid: TreeGrid) -> None:
        self._grid = grid
        self._world = grid.world
        self._mending = Mending(grid.world)
        slow = SlowFaults(grid, self._mending)
        self._doing: dict[FaultKind, Callable[[], None]] = {
            FaultKind.SESSION_LOSS: self._lose_session,
            FaultKind.BROKER_SESSION_LOSS: self._lose_broker_session,
            FaultKind.ROUTER_CRASH: self._crash_router,
            FaultKind.BROKER_CRASH: self._crash_broker,
            FaultKind.END_POINT_CRASH: self._crash_endpoint,
            FaultKind.PAUSE: self._pause,
            FaultKind.PARTITION: self._separate,
            FaultKind.DISK_FULL: self._fill_disk,
            FaultKind.CHANNEL_CUT: self._cut_channel,
            FaultKind.BORDER_CUT: self._cut_border,
            FaultKind.CORE_FULL: self._fill_core,
            FaultKind.STALE_BROKER: self._replace_broker,
            FaultKind.PATHS_CUT: self._cut_paths,
            FaultKind.JOURNAL_LOSS: self._lose_journal,
            FaultKind.SLOW_PEER: slow.slow_down,
            FaultKind.BACK_PRESSURE: slow.press,
        }
        for node in grid.brokers.values():
            node.on_killed = self._killed

    def plan(self, start_ns: int) -> None:
        """Schedule the swarm's faults, counted from `start_ns`."""
        for at_ns, kind in self._grid.swarm.faults:
            self._world.at(start_ns + at_ns, self._do, kind)

    def stop(self) -> None:
        """Repair whatever is broken, and break nothing more."""
        for node in self._grid.brokers.values():
            node.killer = node.on_ordered = None
        self._mending.stop()

    def cut_for_good(self) -> None:
        """Cut a wire between clouds that a contract uses, if there is one, and leave it cut."""
        used = [
            (owner, number)
            for owner, broker in self._grid.qos_brokers().items()
            for number, account in broker.state.channels.accounts.items()
            if account.carriage.streams
        ]
        if used:
            owner, number = used[self._world.between(0, len(used) - 1)]
            for one in self._wire(owner, number):
                self._grid.wires.owned[owner].set_cut(one, is_cut=True)

    def _do(self, kind: FaultKind) -> None:
        if self._world.is_traced:
            self._world.tell("fault", kind.name)
        self._doing[kind]()

    def _some_up(self, nodes: list[Node]) -> Node | None:
        found = [node for node in nodes if node.is_up]
        return found[self._world.between(0, len(found) - 1)] if found else None

    # The network.

    def _lose_session(self) -> None:
        self._cut_session([*self._grid.routers.values(), *self._grid.endpoints.values()])

    def _lose_broker_session(self) -> None:
        self._cut_session([node for node in self._grid.brokers.values() if node.plan.parent])

    def _cut_session(self, clients: list[Node]) -> None:
        client = self._some_up(clients)
        sessions = () if client is None else client.links.values()
        found = [link.session for link in sessions if link.session is not None]
        if found:
            found[self._world.between(0, len(found) - 1)].cut()

    def _separate(self) -> None:
        """Separate a broker and all below it from the rest; both sides continue."""
        if self._grid.network.apart or len(self._grid.brokers) == 1:
            return
        plan = self._grid.swarm.plan
        names = [name for name, broker in plan.brokers.items() if broker.parent]
        top = names[self._world.between(0, len(names) - 1)]
        below = {name for name, broker in plan.brokers.items() if top in (name, *broker.above)}
        chosen = {f"broker/{name}" for name in below}
        chosen |= {
            node.peer
            for node in (*self._grid.routers.values(), *self._grid.endpoints.values())
            if cloud_of(node.name) in below
        }
        self._grid.network.separate(chosen)
        self._mending.after(200, 5_000, partial(self._grid.network.separate, set()))

    # Event channels.

    def _cut_channel(self) -> None:
        """Cut a wire inside a cloud; most often one that carries a contract between clouds."""
        clouds = self._grid.clouds
        used = sorted(
            {
                (cloud, int(number))
                for cloud, leaf in self._grid.leaves().items()
                for found in leaf.registry.subscriptions.values()
                for path in found.record.paths
                for number in path.channel_ids
                if found.record.contract
            }
        )
        if used and self._world.chance(USED_SHARE):
            self._cut_wire(*used[self._world.between(0, len(used) - 1)])
            return
        self._cut(clouds[self._world.between(0, len(clouds) - 1)])

    def _cut_border(self) -> None:
        plan = self._grid.swarm.plan
        owners = [name for name, broker in plan.brokers.items() if broker.channels]
        if owners:
            self._cut(owners[self._world.between(0, len(owners) - 1)])

    def _cut(self, owner: str) -> None:
        """Cut a wire, one way or both, for a while."""
        channels = self._grid.wires.owned[owner]
        numbers = list(channels.ends)
        self._cut_wire(owner, numbers[self._world.between(0, len(numbers) - 1)])

    def _cut_wire(self, owner: str, number: int) -> None:
        channels = self._grid.wires.owned[owner]
        for one in self._wire(owner, number):
            channels.set_cut(one, is_cut=True)
            self._mending.after(50, 2_500, partial(channels.set_cut, one, is_cut=False))

    def _cut_paths(self) -> None:
        """Cut all paths of a contract at once, so that less than its grant is left.

        Contracts of several modes are few, so every other cut is of one of them, if there are any.
        """
        contracts = list(contracts_between(self._grid))
        modal = [contract for contract in contracts if len(contract.desired) > 1]
        is_modal = bool(modal) and self._world.chance(0.5)
        found = [
            wires
            for contract in (modal if is_modal else contracts)
            for wires in lowering_cuts(self._grid, contract)
        ]
        if found:
            for owner, number in found[self._world.between(0, len(found) - 1)]:
                channels = self._grid.wires.owned[owner]
                channels.set_cut(number, is_cut=True)
                mending = partial(channels.set_cut, number, is_cut=False)
                self._mending.after(*PATHS_CUT_MS, mending)

    def _wire(self, owner: str, number: int) -> list[int]:
        """Return a channel, and with some chance the one that leads back."""
        found = self._grid.wires.owned[owner].ends
        back = found[number][::-1] if self._world.chance(0.5) else ("", "")
        return [number, *(other for other, ends in found.items() if ends == back)]

    # Processes.

    def _crash_router(self) -> None:
        router = self._some_up(list(self._grid.routers.values()))
        if router is not None:
            self._grid.crashes += 1
            router.crash(is_sudden=self._world.chance(SUDDEN_SHARE))
            self._mending.after(20, 2_000, partial(self._restart, router))

    def _crash_broker(self) -> None:
        """Crash a broker at once, or at one of its next instructions."""
        names = [name for name, node in self._grid.brokers.items() if node.is_up]
        if not names:
            return
        node = self._grid.brokers[names[self._world.between(0, len(names) - 1)]]
        if self._world.chance(AT_ONCE_SHARE):
            node.crash(is_sudden=self._world.chance(SUDDEN_SHARE))
            self._killed(node)
        else:
            count = self._world.between(0, KILL_WITHIN)
            node.killer = CountingKiller(count, is_before=self._world.chance(0.5))

    def _killed(self, node: TreeBrokerNode) -> None:
        node.killer = None
        self._mending.after(20, 4_000, partial(self._restart, node))

    def _crash_endpoint(self) -> None:
        endpoint = self._some_up(list(self._grid.endpoints.values()))
        if endpoint is not None:
            endpoint.crash(is_sudden=self._world.chance(SUDDEN_SHARE))
            self._mending.after(20, 6_000, partial(self._restart, endpoint))

    def _restart(self, node: Node) -> None:
        if not node.is_up:
            node.start()

    def _pause(self) -> None:
        """Pause a process as by SIGSTOP; after three seconds its peers close the sessions."""
        nodes: list[Node] = list(self._grid.brokers.values())
        if self._world.chance(0.4):
            nodes = list(self._grid.routers.values())
        node = self._some_up(nodes)
        if node is not None and not node.is_paused:
            node.pause()
            self._mending.after(50, 4_500, node.resume)

    def _replace_broker(self) -> None:
        """Start a second broker while the first continues; some children still reach the first."""
        names = [name for name, node in self._grid.brokers.items() if node.is_up]
        if not names or self._grid.network.impostor is not None:
            return
        name = names[self._world.between(0, len(names) - 1)]
        old = self._grid.brokers[name]
        if old.is_paused:
            return
        new = self._grid.replace_broker(name)
        self._grid.network.impostor = old
        for _, session in sorted(old.sessions.items()):
            if self._world.chance(0.8):
                session.cut()
        new.start()
        self._world.after(HEARD_NS, self._send_children_away, new)
        self._mending.after(500, 3_000, partial(self._end_impostor, old))

    def _send_children_away(self, new: TreeBrokerNode) -> None:
        """Let peers of the new broker dial again; some may reach the old one."""
        for peer, session in sorted(new.sessions.items()):
            if peer.partition("/")[2] in new.plan.children:
                session.cut()

    def _end_impostor(self, old: TreeBrokerNode) -> None:
        self._grid.network.impostor = None
        if old.is_up:
            old.crash(is_sudden=False)

    # Storage.

    def _lose_journal(self) -> None:
        """Lose a journal with its broker's process; the operator ends any other one first."""
        impostor = self._grid.network.impostor
        if impostor is not None:
            impostor.crash(is_sudden=False)
            self._grid.network.impostor = None
        names = list(self._grid.brokers)
        node = self._grid.brokers[names[self._world.between(0, len(names) - 1)]]
        if node.is_up:
            node.crash(is_sudden=self._world.chance(SUDDEN_SHARE))
        node.killer = None
        if self._world.is_traced:
            self._world.tell(node.peer, "LOSES ITS JOURNAL")
        self._grid.lose_journal(node.name)
        self._mending.after(20, 4_000, partial(self._restart, node))

    def _fill_disk(self) -> None:
        """Fill a disk now, or when its broker is next told to commit or release something."""
        nodes = list(self._grid.brokers.values())
        if len(nodes) > 1 and self._world.chance(FULL_AT_ORDER_SHARE):
            order = Commit if self._world.chance(0.5) else Release
            for node in nodes:
                node.on_ordered = partial(self._fill_at, order)
            return
        self._fill(nodes[self._world.between(0, len(nodes) - 1)].journal)

    def _fill_at(self, order: type, node: TreeBrokerNode, message: object) -> None:
        if type(message) is order and not node.is_impostor:
            for each in self._grid.brokers.values():
                each.on_ordered = None
            self._fill(node.journal)

    def _fill(self, journal: SimulatedJournal) -> None:
        journal.is_full = True
        self._mending.after(50, 1_500, partial(self._empty_disk, journal))

    def _fill_core(self) -> None:
        routers = list(self._grid.routers.values())
        router = routers[self._world.between(0, len(routers) - 1)]
        self._grid.crashes += 1
        router.is_core_full = True
        self._mending.after(20, 1_500, partial(self._empty_core, router))

    @staticmethod
    def _empty_disk(journal: SimulatedJournal) -> None:
        journal.is_full = False

    @staticmethod
    def _empty_core(router: RouterNode) -> None:
        router.is_core_full = False
