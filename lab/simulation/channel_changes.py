"""Channels that operators add at run time beside others, with a name and a risk, and remove again.

In a single cloud between its routers, in a tree also between clouds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from gridstat.model.errors import NoSuchChannel
from gridstat.model.identifiers import ChannelId
from gridstat.net.command.operator_messages import AddNamedChannel, RemoveNamedChannel

if TYPE_CHECKING:
    from random import Random

    from gridstat.model.cloud import EventChannel
    from gridstat.net.command.endpoint_messages import RefusedOutcome
    from gridstat.net.command.operator_messages import OperatorAnswer
    from lab.simulation.operator_node import OperatorNode
    from lab.simulation.world import World

CHANGED_SEEDS: Final = 5
CHANGED_REST: Final = 2
"""Remainder of the seeds, one in five, in which channels are added by name."""
CHANGES_MAX: Final = 6
REMOVE_SHARE: Final = 0.4
NAMES: Final = ("second", "third")
RISKS: Final = ((), ("duct-1",), ("duct-1", "duct-2"))


class Wired(Protocol):
    """A cloud or a tree whose channels change."""

    @property
    def world(self) -> World: ...
    def owners_of_channels(self) -> list[str]: ...
    def channels_of(self, owner: str) -> tuple[EventChannel, ...]: ...
    def channel_operator(self, owner: str) -> OperatorNode: ...
    def channel_added(self, owner: str, channel: EventChannel) -> None: ...
    def channel_removed(self, owner: str, number: int) -> None: ...


def draw_changes(random: Random, seed: int, chaos_ns: int) -> tuple[int, ...]:
    """Draw the times of the changes, none in most seeds."""
    if seed % CHANGED_SEEDS != CHANGED_REST:
        return ()
    count = random.randint(1, CHANGES_MAX)
    return tuple(sorted(random.randint(0, chaos_ns) for _ in range(count)))


class ChannelChanges:
    """Named channels beside those of the files; what contracts need is not removed."""

    def __init__(self, wired: Wired) -> None:
        self._wired = wired
        self._world = wired.world
        self._added: list[tuple[str, EventChannel]] = []

    def plan(self, start_ns: int, times_ns: tuple[int, ...]) -> None:
        for at_ns in times_ns:
            self._world.at(start_ns + at_ns, self.change)

    def change(self) -> None:
        """Add a channel beside another one, or remove one that was added, by its name."""
        if self._added and self._world.chance(REMOVE_SHARE):
            self._remove(*self._added[self._pick(len(self._added))])
            return
        owners = self._wired.owners_of_channels()
        owner = owners[self._pick(len(owners))]
        channels = self._wired.channels_of(owner)
        beside = channels[self._pick(len(channels))]
        name, risks = NAMES[self._pick(len(NAMES))], RISKS[self._pick(len(RISKS))]
        channel = replace(beside, channel_id=ChannelId(0), name=name, risks=risks)
        operator = self._wired.channel_operator(owner)
        if operator.is_idle:
            add = AddNamedChannel(request_id=operator.next_id(), channel=channel)
            operator.ask(add, partial(self._is_added, owner, channel))

    def _is_added(self, owner: str, channel: EventChannel, answer: OperatorAnswer) -> None:
        if answer.refused is None:
            number = ChannelId(answer.facts["channel_id"])
            added = replace(channel, channel_id=number)
            self._wired.channel_added(owner, added)
            self._added.append((owner, added))

    def _remove(self, owner: str, channel: EventChannel) -> None:
        operator = self._wired.channel_operator(owner)
        if operator.is_idle:
            remove = RemoveNamedChannel(
                operator.next_id(), channel.from_router, channel.to_router, channel.name
            )
            operator.ask(remove, partial(self._is_removed, owner, channel))

    def _is_removed(self, owner: str, channel: EventChannel, answer: OperatorAnswer) -> None:
        if answer.refused is None or self._is_gone(owner, answer.refused):
            for one in [each for each in self._added if _place(*each) == _place(owner, channel)]:
                self._added.remove(one)
                self._wired.channel_removed(owner, int(one[1].channel_id))

    def _is_gone(self, owner: str, refused: RefusedOutcome) -> bool:
        """Return whether the channel was removed before: the answer to that was lost."""
        operator = self._wired.channel_operator(owner)
        is_unknown = refused.code == NoSuchChannel.code
        return is_unknown and operator.was_repeated and operator.is_at_present_broker

    def _pick(self, count: int) -> int:
        return self._world.between(0, count - 1)


def _place(owner: str, channel: EventChannel) -> tuple[str, str, str, str]:
    """Return what identifies a channel to operators: its number may be another after a loss."""
    return owner, *channel.way
