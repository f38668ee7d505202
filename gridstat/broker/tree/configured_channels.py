"""Channels in a broker's configuration file, and the permanent number of each.

Holdings and clouds identify channels by number. A channel's number therefore becomes durable when
the channel is first seen in the file; from then on the order of the file has no meaning.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gridstat.broker.tree.owned_channels import CHANNELS_MAX, NOT_IN_FILE
from gridstat.broker.tree.tree_operations import (
    ChannelsNumbered,
    TreeChannelAdded,
    TreeChannelRemoved,
)
from gridstat.model.cloud import EventChannel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.broker.records.operation import Applied
    from gridstat.broker.tree.owned_channels import OwnedChannels
    from gridstat.model.cloud import Way


class ConfiguredChannels:
    """Numbers by the ends and the name of a channel; in the order of the file before any replay."""

    def __init__(self, channels: OwnedChannels) -> None:
        self._channels = channels
        self._of_file: dict[Way, EventChannel] = {
            found.channel.way: found.channel for found in channels.accounts.values()
        }
        self._numbered: dict[Way, int] = {}
        self._is_numbered = False

    def begin_replay(self) -> None:
        """Drop the numbers by file order, since a journal with durable numbers follows."""
        if not self._is_numbered:
            self._channels.clear()

    def apply(self, operation: ChannelsNumbered, done: Applied) -> list[int]:
        """Apply the numbers, and return those of channels that are new."""
        was_numbered, self._is_numbered = self._is_numbered, True
        before, index_before = dict(self._numbered), self._channels.index_last
        self._channels.index_last = max(self._channels.index_last, operation.index_last)
        added: list[int] = []
        removed = [self._channels.remove(number) for number in self.forgotten(operation)]
        for way, index in operation.by_way:
            if not index:
                self._numbered.pop(way, None)
                continue
            if way not in self._channels.on:
                added.append(self._add(way, index))
            self._numbered[way] = self._channels.on[way] & CHANNELS_MAX

        def undo() -> None:
            self._numbered, self._is_numbered = before, was_numbered
            for number in added:
                self._channels.remove(number)
            for channel in removed:
                self._add(channel.way, channel.channel_id)
            self._channels.index_last = index_before

        done.undo.append(undo)
        return added

    def forgotten(self, operation: ChannelsNumbered) -> list[int]:
        on = self._channels.on
        return [on[way] for way, index in operation.by_way if not index and way in on]

    def _add(self, way: Way, index: int) -> int:
        number = self._channels.numbered(index & CHANNELS_MAX)
        known = self._of_file.get(way) or EventChannel(number, way[0], way[1], name=way[2])
        self._channels.add(replace(known, channel_id=number))
        if way not in self._of_file:
            self._channels.mark(number, NOT_IN_FILE, is_up=False)
        return number

    def unnumbered(self, unused: list[int]) -> list[ChannelsNumbered]:
        """Return the operation that numbers new channels and drops these unused ones."""
        index_next = self._channels.next_number() & CHANNELS_MAX
        dropped = [self._channels.accounts[number].channel for number in unused]
        numbers = [(found.way, 0) for found in dropped]
        for way in self._of_file:
            known = self._channels.on.get(way)
            if way in self._numbered:
                continue
            index = index_next if known is None else known & CHANNELS_MAX
            index_next += known is None
            numbers.append((way, index))
        if self._is_numbered and not numbers:
            return []
        return [ChannelsNumbered.of(numbers)]

    def missing_in_file(self) -> list[int]:
        """Return the numbers of channels that are no longer in the file."""
        accounts = self._channels.accounts
        return [number for number, found in accounts.items() if NOT_IN_FILE in found.down_at]

    def operations(self) -> Iterator[ChannelsNumbered | TreeChannelAdded | TreeChannelRemoved]:
        """Return all numbers as operations, then the changes that operators have made."""
        if self._is_numbered:
            yield ChannelsNumbered.of(self._numbered.items(), self._channels.index_last)
        on, accounts = self._channels.on, self._channels.accounts
        for way, index in self._numbered.items():
            number = self._channels.numbered(index)
            if on.get(way) != number:
                yield TreeChannelRemoved(channel_id=number)
        for way, known in on.items():
            if self._numbered.get(way) != known & CHANNELS_MAX:
                yield TreeChannelAdded(channel=accounts[known].channel)
