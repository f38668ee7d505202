"""Work of applications in a simulated cloud, or in several, drawn during the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from gridstat.model.identifiers import VariableId
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from gridstat.net.command.endpoint_messages import (
    ChangePublication,
    ChangeSubscription,
    Detach,
    FindVariables,
    LedgerEntry,
    PublicationRequest,
    Publish,
    ReportLedger,
    Subscribe,
    SubscriptionRequest,
    Unpublish,
    Unsubscribe,
)
from lab.simulation.modes import MODES_DEFINED, MODES_UNDEFINED
from lab.simulation.swarm import Work
from lab.simulation.world import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.simulation.endpoint_node import EndPointNode
    from lab.simulation.world import World

PERIODS: Final = (Period(1, 10), Period(1, 30), Period(1, 60))
EVERYS: Final = (1, 1, 2, 3, 4, 6)
LATENCY_US: Final = 2_000_000
TIGHT_US: Final = (1_500, 6_000, 50_000)
"""Bounds for single paths; disjoint paths within a tight bound are tested separately."""
SHORT_US: Final = (2_000, 3_000, 4_000, 6_000, LATENCY_US)
LATENCY_BAND: Final = 8
"""Ratio of the worst accepted latency to the desired one, where they differ."""
SEVERAL_SHARE: Final = 0.6
MANY_PATHS_SHARE: Final = 0.04
"""Share of requests for as many paths as there may be, or one fewer; others take two, or one."""
CROWDED_WORST: Final = 8
"""Worst divisor where many share narrow channels."""
MODAL_SHARE: Final = 0.25
UNDEFINED_SHARE: Final = 0.05
MODES_DEFINED_IN_ORDER: Final = tuple(sorted(MODES_DEFINED))
VARIABLES_MAX: Final = 6
"""Most variables of one end-point."""
LEDGER_NS: Final = 5 * NS_PER_S
ALERT_NS_MIN: Final = 20 * NS_PER_MS
RETURN_MS: Final = (50, 3_000)


class Planned(Protocol):
    """Scheduled work: time, kind and end-point."""

    @property
    def work(self) -> tuple[tuple[int, Work, int], ...]: ...
    @property
    def paths_max(self) -> int: ...
    @property
    def is_crowded(self) -> bool: ...


class Grid(Protocol):
    """A cloud, or several, with its applications."""

    @property
    def world(self) -> World: ...
    @property
    def swarm(self) -> Planned: ...
    @property
    def clouds(self) -> tuple[str, ...]: ...
    @property
    def endpoints(self) -> dict[str, EndPointNode]: ...


class Workload:
    """Workload whose requests only use what the application was told."""

    def __init__(self, grid: Grid, change_cloud: Callable[[], None] | None = None) -> None:
        self._grid = grid
        self._world = grid.world
        self._change_cloud = change_cloud
        self._doing: dict[Work, Callable[[EndPointNode], None]] = {
            Work.PUBLISH: self._publish,
            Work.UNPUBLISH: self._unpublish,
            Work.CHANGE_PERIOD: self._change_period,
            Work.SUBSCRIBE: self._subscribe,
            Work.SUBSCRIBE_PATTERN: self._subscribe_pattern,
            Work.SUBSCRIBE_ALL: self._subscribe_all,
            Work.CHANGE_QUALITY: self._change_quality,
            Work.UNSUBSCRIBE: self._unsubscribe,
            Work.FIND: self._find,
            Work.LEAVE: self._leave,
        }
        self.is_over = False

    def plan(self, start_ns: int) -> None:
        """Schedule the swarm's work, counted from `start_ns`; first of all everyone publishes."""
        nodes = list(self._grid.endpoints.values())
        for node in nodes:
            self._world.at(start_ns, self._do, Work.PUBLISH, node)
            self._world.at(start_ns + NS_PER_S // 2, self._do, Work.SUBSCRIBE, node)
            self._world.at(start_ns + self._world.between(0, LEDGER_NS), self._report, node)
        for at_ns, work, number in self._grid.swarm.work:
            self._world.at(start_ns + at_ns, self._do, work, nodes[number])

    def restart(self, node: EndPointNode) -> None:
        """Publish the wanted variables of a new process, then subscribe to something."""
        if node.wanted:
            requests = tuple(
                PublicationRequest(variable=_variable(name, period))
                for name, period in node.wanted.items()
            )
            node.application.ask(Publish(publications=requests))
        self._do(Work.SUBSCRIBE, node)

    def subscribe(self, node: EndPointNode) -> None:
        """Let an end-point subscribe to one more variable."""
        self._do(Work.SUBSCRIBE, node)

    def _do(self, work: Work, node: EndPointNode) -> None:
        if work is Work.CHANGE_CLOUD:
            if self._change_cloud is not None:
                self._change_cloud()
        elif self._is_free(node):
            if self._world.is_traced:
                self._world.tell(node.peer, f"WANTS {work.name}")
            self._doing[work](node)

    @staticmethod
    def _is_free(node: EndPointNode) -> bool:
        application = node.application
        is_awake = node.is_up and not node.is_paused
        return is_awake and not application.has_left and not application.is_ending_all

    def _pick(self, some: list[str]) -> str:
        return some[self._world.between(0, len(some) - 1)]

    def _some_cloud(self) -> str:
        clouds = self._grid.clouds
        return clouds[0] if len(clouds) == 1 else clouds[self._world.between(0, len(clouds) - 1)]

    # Publishing.

    def _publish(self, node: EndPointNode) -> None:
        requests: list[PublicationRequest] = []
        for number in range(1, VARIABLES_MAX + 1):
            name = f"{node.name}/v{number}"
            if name not in node.wanted and len(requests) < self._world.between(1, 3):
                is_alert = self._world.chance(0.1)
                period = None if is_alert else PERIODS[self._world.between(0, 2)]
                node.wanted[name] = period
                requests.append(PublicationRequest(variable=_variable(name, period)))
        if requests:
            node.application.ask(Publish(publications=tuple(requests)))

    def _unpublish(self, node: EndPointNode) -> None:
        names = list(node.application.publications)
        if names:
            name = self._pick(names)
            node.wanted.pop(name, None)
            node.application.ask(Unpublish(names=(name,)))

    def _change_period(self, node: EndPointNode) -> None:
        names = [
            name
            for name, variable in node.application.publications.items()
            if variable.period is not None
        ]
        if names:
            period = PERIODS[self._world.between(0, 2)]
            node.application.ask(ChangePublication(name=self._pick(names), period=period))

    # Subscribing.

    def _subscribe(self, node: EndPointNode) -> None:
        names = [
            name
            for other in self._grid.endpoints.values()
            for name in other.application.publications
        ]
        if self._world.chance(0.05):
            names = [f"{self._some_cloud()}/nobody/nothing"]
        if names:
            count = 1 + self._world.chance(0.25)
            node.application.ask(
                Subscribe(
                    subscriptions=tuple(
                        self._request(node, self._pick(names)) for _ in range(count)
                    )
                )
            )

    def _subscribe_pattern(self, node: EndPointNode) -> None:
        number = self._world.between(0, 5)
        cloud = self._some_cloud()
        patterns = [
            f"{cloud}/z0/*/v{number}",
            f"{cloud}/z1/p{number}/*",
            f"{cloud}/*/p0/v1",
            f"{cloud}/*/*/v{number % 3 + 1}",
        ]
        request = self._request(node, self._pick(patterns))
        node.application.ask(Subscribe(subscriptions=(request,)))

    def _subscribe_all(self, node: EndPointNode) -> None:
        """Ask for all that an end-point of another cloud publishes, some of it in little time.

        All of it goes one way, and each load makes the way slower for those who came before.
        """
        home = node.name.partition("/")[0]
        others = [
            each
            for each in self._grid.endpoints.values()
            if each.application.publications and each.name.partition("/")[0] != home
        ]
        if not others:
            return
        other = others[self._world.between(0, len(others) - 1)]
        wanted = tuple(
            SubscriptionRequest(
                name=name,
                qos=ModalQos({0: QosRequest(every=1, latency_us=self._short_latency_us())}),
                label=node.application.next_label(),
            )
            for name in other.application.publications
        )
        node.application.ask(Subscribe(subscriptions=wanted))

    def _short_latency_us(self) -> int:
        return SHORT_US[self._world.between(0, len(SHORT_US) - 1)]

    def _request(self, node: EndPointNode, name: str) -> SubscriptionRequest:
        label = node.application.next_label()
        return SubscriptionRequest(name=name, qos=self._quality(), label=label)

    def _quality(self) -> ModalQos:
        """Draw a quality: mostly of the baseline, sometimes of several modes, rarely undefined."""
        world = self._world
        if self._grid.swarm.is_crowded:
            every, priority = world.between(1, 2), world.between(1, 6)
            worst = CROWDED_WORST if world.chance(0.8) else None
            return ModalQos({0: QosRequest(every=every, priority=priority, every_worst=worst)})
        modes = {0: self._quality_in_a_mode()}
        if world.chance(MODAL_SHARE):
            for mode in MODES_DEFINED_IN_ORDER:
                if world.chance(0.6):
                    modes[mode] = self._quality_in_a_mode()
            if len(modes) > 1 and world.chance(0.2):
                del modes[0]
        if world.chance(UNDEFINED_SHARE):
            mode = MODES_UNDEFINED[world.between(0, len(MODES_UNDEFINED) - 1)]
            modes[mode] = self._quality_in_a_mode()
        return ModalQos(modes)

    def _quality_in_a_mode(self) -> QosRequest:
        world = self._world
        every = EVERYS[world.between(0, len(EVERYS) - 1)]
        redundancy = _redundancy(world.draw(), self._grid.swarm.paths_max)
        is_tight = redundancy == 1 and world.chance(0.3)
        latency_us = TIGHT_US[world.between(0, 2)] if is_tight else LATENCY_US
        return QosRequest(
            every=every,
            latency_us=latency_us,
            redundancy=redundancy,
            priority=world.between(1, 6),
            every_worst=every * 4 if world.chance(0.3) else None,
            latency_us_worst=latency_us * LATENCY_BAND if world.chance(0.3) else None,
            redundancy_worst=1 if world.chance(0.5) else None,
        )

    def _change_quality(self, node: EndPointNode) -> None:
        numbers = [
            one.number
            for one in node.application.contracts.values()
            if one.number and one.is_qos_certain
        ]
        if numbers:
            number = numbers[self._world.between(0, len(numbers) - 1)]
            node.application.ask(ChangeSubscription(subscription_id=number, qos=self._quality()))

    def _unsubscribe(self, node: EndPointNode) -> None:
        application = node.application
        held = [*application.contracts.values(), *application.patterns.values()]
        if not held:
            return
        if self._world.chance(0.2) and application.is_idle and all(one.number for one in held):
            application.ask(Unsubscribe())
            return
        chosen = held[self._world.between(0, len(held) - 1)]
        if chosen.number:
            application.ask(Unsubscribe(subscription_ids=(chosen.number,)))

    def _report(self, node: EndPointNode) -> None:
        """Report the ledger of the contracts at intervals, as every subscriber does."""
        if self.is_over:
            return
        contracts = node.application.contracts.values()
        if self._is_free(node) and contracts:
            entries = tuple(
                LedgerEntry(subscription_id=one.number, delivered=self._world.steps)
                for one in contracts
            )
            node.application.ask(ReportLedger(entries=entries))
        self._world.after(LEDGER_NS, self._report, node)

    def _find(self, node: EndPointNode) -> None:
        node.application.ask(FindVariables(pattern=f"{node.name.split('/')[0]}/**"))

    def _leave(self, node: EndPointNode) -> None:
        """Detach the end-point, and start it again as another process."""
        if node.attached:
            node.application.ask(Detach())
            self._world.after(self._world.between(*RETURN_MS) * NS_PER_MS, self._return, node)

    def _return(self, node: EndPointNode) -> None:
        if self.is_over:
            return
        if not node.is_up:
            node.start()
        elif not node.is_paused and node.application.has_left:
            self._world.after(NS_PER_S // 2, self._return, node)


def _redundancy(draw: float, most: int) -> int:
    """Return how many paths are asked for; one draw decides it, so that others stay the same."""
    if draw < MANY_PATHS_SHARE and most > 2:  # noqa: PLR2004 — the usual number.
        return most - (draw < MANY_PATHS_SHARE / 2)
    return 1 + (draw < SEVERAL_SHARE)


def _variable(name: str, period: Period | None) -> StatusVariable:
    return StatusVariable(
        VariableId(0),
        name,
        BuiltinType.FLOAT64,
        period,
        is_alert=period is None,
        interval_ns_min=ALERT_NS_MIN if period is None else 0,
    )
