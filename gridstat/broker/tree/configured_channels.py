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

Ends = tuple[str, str]


class ConfiguredChannels:
    """Numbers by the two ends of a channel; in the order of the file before any replay."""

    def __init__(self, channels: OwnedChannels) -> None:
        self._channels = channels
        self._of_file: dict[Ends, EventChannel] = {
            (found.channel.from_router, found.channel.to_router): found.channel
            for found in channels.accounts.values()
        }
        self._numbered: dict[Ends, int] = {}
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
        for from_router, to_router, index in operation.numbers:
            ends = (from_router, to_router)
            if not index:
                self._numbered.pop(ends, None)
                continue
            if ends not in self._channels.between:
                added.append(self._add(ends, index))
            self._numbered[ends] = self._channels.between[ends] & CHANNELS_MAX

        def undo() -> None:
            self._numbered, self._is_numbered = before, was_numbered
            for number in added:
                self._channels.remove(number)
            for channel in removed:
                self._add((channel.from_router, channel.to_router), channel.channel_id)
            self._channels.index_last = index_before

        done.undo.append(undo)
        return added

    def forgotten(self, operation: ChannelsNumbered) -> list[int]:
        between = self._channels.between
        ends = [(one, other) for one, other, index in operation.numbers if not index]
        return [between[pair] for pair in ends if pair in between]

    def _add(self, ends: Ends, index: int) -> int:
        number = self._channels.numbered(index & CHANNELS_MAX)
        known = self._of_file.get(ends) or EventChannel(number, *ends)
        self._channels.add(replace(known, channel_id=number))
        if ends not in self._of_file:
            self._channels.mark(number, NOT_IN_FILE, is_up=False)
        return number

    def unnumbered(self, unused: list[int]) -> list[ChannelsNumbered]:
        """Return the operation that numbers new channels and drops these unused ones."""
        index_next = self._channels.next_number() & CHANNELS_MAX
        dropped = [self._channels.accounts[number].channel for number in unused]
        numbers = [(found.from_router, found.to_router, 0) for found in dropped]
        for ends in self._of_file:
            known = self._channels.between.get(ends)
            if ends in self._numbered:
                continue
            index = index_next if known is None else known & CHANNELS_MAX
            index_next += known is None
            numbers.append((*ends, index))
        if self._is_numbered and not numbers:
            return []
        return [ChannelsNumbered(numbers=tuple(numbers))]

    def missing_in_file(self) -> list[int]:
        """Return the numbers of channels that are no longer in the file."""
        accounts = self._channels.accounts
        return [number for number, found in accounts.items() if NOT_IN_FILE in found.down_at]

    def operations(self) -> Iterator[ChannelsNumbered | TreeChannelAdded | TreeChannelRemoved]:
        """Return all numbers as operations, then the changes that operators have made."""
        if self._is_numbered:
            numbers = tuple((*ends, index) for ends, index in self._numbered.items())
            yield ChannelsNumbered(numbers=numbers, index_last=self._channels.index_last)
        between, accounts = self._channels.between, self._channels.accounts
        for ends, index in self._numbered.items():
            number = self._channels.numbered(index)
            if between.get(ends) != number:
                yield TreeChannelRemoved(channel_id=number)
        for ends, known in between.items():
            if self._numbered.get(ends) != known & CHANNELS_MAX:
                yield TreeChannelAdded(channel=accounts[known].channel)
