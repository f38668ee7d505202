"""The static plan of a file-described grid: identifiers, and one shortest path per subscription.

Numbers are given in the file's order, so each process that reads the same file agrees without
talking. Paths are found breadth-first and nobody asks whether there is room: admission and disjoint
paths are a broker's work, and this plan gives way to it where one runs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gridstat.console.grid import EventChannel, router_key, subscriber_key
from gridstat.model.errors import ConfigurationError
from gridstat.model.identifiers import ChannelId, PathId, VariableId
from gridstat.router import CarriedVariable, Path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gridstat.console.grid import Grid, Pmu, Subscriber


@dataclass(frozen=True, slots=True)
class PlannedVariable:
    """One quantity of one PMU, with its number."""

    variable_id: VariableId
    name: str
    pmu: Pmu


@dataclass(frozen=True, slots=True)
class PlannedChannel:
    """An outgoing channel of a router; `to_key` says who listens at its end."""

    channel_id: ChannelId
    to_key: str
    channel: EventChannel


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """An incoming channel of a router, from a router or from a PMU."""

    channel_id: ChannelId
    is_publisher: bool = False
    back_channel: int = 0


@dataclass(frozen=True, slots=True)
class RouterPlan:
    """Everything that one router must know but the addresses of its neighbours."""

    name: str
    sources: tuple[PlannedSource, ...]
    channels: tuple[PlannedChannel, ...]
    variables: tuple[CarriedVariable, ...]
    paths: Mapping[PathId, Path]


@dataclass(frozen=True, slots=True)
class StaticPlan:
    """All routers' plans; variables and channels are numbered from 1."""

    variables: tuple[PlannedVariable, ...]
    channel_of_pmu: Mapping[str, ChannelId]
    channel_of_subscriber: Mapping[str, ChannelId]
    routers: Mapping[str, RouterPlan]

    def variables_of(self, subscriber: Subscriber) -> Iterator[PlannedVariable]:
        return (variable for variable in self.variables if subscriber.wants(variable.name))


def static_plan(grid: Grid) -> StaticPlan:
    """Number everything and lay one path per subscriber and variable; raises where none leads."""
    builder = _PlanBuilder(grid)
    for subscriber in grid.subscribers:
        builder.subscribe(subscriber)
    return StaticPlan(
        variables=builder.variables,
        channel_of_pmu=builder.channel_of_pmu,
        channel_of_subscriber=builder.channel_of_subscriber,
        routers={router.name: builder.router_plan(router.name) for router in grid.routers},
    )


def shortest_way(grid: Grid, from_router: str, to_router: str) -> list[EventChannel] | None:
    """The fewest channels between two routers, the file's first among equals; None without any."""
    came_by: dict[str, EventChannel] = {}
    waiting = deque([from_router])
    while waiting and to_router != from_router and to_router not in came_by:
        here = waiting.popleft()
        for channel in grid.channels:
            there = channel.to_router
            if channel.from_router == here and there != from_router and there not in came_by:
                came_by[there] = channel
                waiting.append(there)
    way: list[EventChannel] = []
    at = to_router
    while at != from_router:
        if at not in came_by:
            return None
        way.append(came_by[at])
        at = came_by[at].from_router
    return way[::-1]


class _PlanBuilder:
    """Collects, per router, the paths through it; numbers are given once, at the start."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        names = [(pmu, name) for pmu in grid.pmus for name in pmu.variable_names()]
        self.variables = tuple(
            PlannedVariable(VariableId(number), name, pmu)
            for number, (pmu, name) in enumerate(names, start=1)
        )
        pmus_from = len(grid.channels) + 1
        subscribers_from = pmus_from + len(grid.pmus)
        self._channel_ids = {
            (channel.from_router, channel.to_router): ChannelId(number)
            for number, channel in enumerate(grid.channels, start=1)
        }
        self.channel_of_pmu = {
            pmu.name: ChannelId(number) for number, pmu in enumerate(grid.pmus, start=pmus_from)
        }
        self.channel_of_subscriber = {
            subscriber.name: ChannelId(number)
            for number, subscriber in enumerate(grid.subscribers, start=subscribers_from)
        }
        self._paths: dict[str, dict[PathId, Path]] = {router.name: {} for router in grid.routers}
        self._path_count = 0

    def subscribe(self, subscriber: Subscriber) -> None:
        for variable in self.variables:
            if subscriber.wants(variable.name):
                self._lay(variable, subscriber)

    def _lay(self, variable: PlannedVariable, subscriber: Subscriber) -> None:
        way = shortest_way(self._grid, variable.pmu.router, subscriber.router)
        if way is None:
            raise ConfigurationError(
                f'{self._grid.source}: subscriber "{subscriber.name}": no channels lead from '
                f'router "{variable.pmu.router}" (of {variable.name}) to "{subscriber.router}"',
                hint="add a [[channel]] for each hop; channels are one-way",
            )
        for channel in way:
            channel_id = self._channel_ids[channel.from_router, channel.to_router]
            self._add(channel.from_router, variable, channel_id, every=subscriber.every)
        last = self.channel_of_subscriber[subscriber.name]
        self._add(subscriber.router, variable, last, every=subscriber.every)

    def _add(
        self, router: str, variable: PlannedVariable, channel_id: ChannelId, *, every: int
    ) -> None:
        self._path_count += 1
        path = Path(variable.variable_id, channel_id, every)
        self._paths[router][PathId(self._path_count)] = path

    def router_plan(self, name: str) -> RouterPlan:
        paths = self._paths[name]
        through = {path.variable_id for path in paths.values()}
        return RouterPlan(
            name=name,
            sources=tuple(self._sources(name)),
            channels=tuple(self._channels(name)),
            # A variable that nobody takes is carried all the same by its first router: its events
            # are then counted as not due instead of unknown.
            variables=tuple(
                self._carried(variable, name)
                for variable in self.variables
                if variable.variable_id in through or variable.pmu.router == name
            ),
            paths=paths,
        )

    def _carried(self, variable: PlannedVariable, router: str) -> CarriedVariable:
        is_first = variable.pmu.router == router
        return CarriedVariable(
            variable_id=variable.variable_id,
            period=variable.pmu.period,
            phase_ns=variable.pmu.phase_ns,
            source=self.channel_of_pmu[variable.pmu.name] if is_first else 0,
        )

    def _sources(self, router: str) -> Iterator[PlannedSource]:
        for channel in self._grid.channels:
            if channel.to_router == router:
                back = self._channel_ids.get((router, channel.from_router), 0)
                channel_id = self._channel_ids[channel.from_router, router]
                yield PlannedSource(channel_id, back_channel=back)
        for pmu in self._grid.pmus:
            if pmu.router == router:
                yield PlannedSource(self.channel_of_pmu[pmu.name], is_publisher=True)

    def _channels(self, router: str) -> Iterator[PlannedChannel]:
        for channel in self._grid.channels:
            if channel.from_router == router:
                channel_id = self._channel_ids[router, channel.to_router]
                to_key = router_key(channel.to_router)
                yield PlannedChannel(channel_id, to_key, channel=channel)
        for subscriber in self._grid.subscribers:
            if subscriber.router == router:
                yield PlannedChannel(
                    self.channel_of_subscriber[subscriber.name],
                    subscriber_key(subscriber.name),
                    channel=EventChannel(router, subscriber.name),
                )
