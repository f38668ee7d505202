"""Changes that an operator makes to a simulated cloud at run time: routers and channels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId
from gridstat.net.command.operator_messages import (
    AddChannel,
    AddRouter,
    RemoveChannel,
    RemoveRouter,
)
from lab.simulation.topology import CLOUD

if TYPE_CHECKING:
    from gridstat.net.command.operator_messages import OperatorAnswer
    from lab.simulation.cloud import Cloud


class CloudChanges:
    """Changes of a cloud, one at a time; an added router may be removed again."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._world = cloud.world
        self._added: list[Router] = []

    def change(self) -> None:
        operator = self._cloud.operator
        if not operator.is_idle:
            return
        if self._added and self._world.chance(0.5):
            self._remove(self._added.pop())
        else:
            self._add()

    def _add(self) -> None:
        """Add a router, then channels between it and up to two others, both ways."""
        operator = self._cloud.operator
        number = len(self._cloud.routers)
        router = Router(f"{CLOUD}/r{number}", RouterRole.INNER)
        names = list(self._cloud.routers)
        neighbours = {self._pick(names), self._pick(names)}
        operator.ask(
            AddRouter(request_id=operator.next_id(), router=router),
            partial(self._router_added, router),
        )
        for neighbour in sorted(neighbours):
            for ends in ((router.name, neighbour), (neighbour, router.name)):
                channel = EventChannel(ChannelId(0), *ends, latency_us=300)
                operator.ask(
                    AddChannel(request_id=operator.next_id(), channel=channel),
                    partial(self._channel_added, channel),
                )

    def _router_added(self, router: Router, answer: OperatorAnswer) -> None:
        if answer.refused is None and router.name not in self._cloud.routers:
            self._added.append(router)
            self._cloud.add_router(router).start()

    def _channel_added(self, channel: EventChannel, answer: OperatorAnswer) -> None:
        if answer.refused is None:
            number = ChannelId(answer.facts["channel_id"])
            if number not in self._cloud.channels.ends:
                self._cloud.channels.add(
                    [EventChannel(number, channel.from_router, channel.to_router)]
                )

    def _remove(self, router: Router) -> None:
        """Remove the router's channels, then the router; what is still in use stays."""
        operator = self._cloud.operator
        for one, other in self._cloud.channels.ends.values():
            if router.name in (one, other):
                operator.ask(
                    RemoveChannel(request_id=operator.next_id(), from_router=one, to_router=other),
                    _whatever,
                )
        operator.ask(RemoveRouter(request_id=operator.next_id(), name=router.name), _whatever)

    def _pick(self, some: list[str]) -> str:
        return some[self._world.between(0, len(some) - 1)]


def _whatever(_: OperatorAnswer) -> None:
    """Ignore the answer: done and still in use are both correct."""
