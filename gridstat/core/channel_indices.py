"""Indices of channels in the core's array, by channel id.

Rows carry indices, and the forwarding thread may hold an old version of the table for a while. So
an index is given to another channel only after no row names the old one and the thread has passed
the version in which one last did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.errors import LimitReached

if TYPE_CHECKING:
    from collections.abc import Callable


class ChannelIndices:
    """An index belongs to an id while the channel is open or a row names it."""

    def __init__(self, channels_max: int) -> None:
        self.capacity = 2 * channels_max
        """Twice the bound, as closed channels keep their index for a while."""
        self.of: dict[int, int] = {}
        self._channels_max = channels_max
        self._open: set[int] = set()
        self._rows: dict[int, int] = {}
        self._named: dict[int, tuple[int, ...]] = {}
        self._free = list(range(self.capacity - 1, -1, -1))
        self._released: list[tuple[int, int]] = []

    def take(self, channel_id: int, is_past: Callable[[int], bool]) -> int:
        """Return the index for a channel that opens; `is_past` says whether the thread has passed a
        version."""
        if len(self._open) >= self._channels_max:
            raise LimitReached("no room for another channel", hint="raise limits.channels_max")
        if channel_id not in self.of:
            self._free_released(is_past)
            if not self._free:
                raise LimitReached(
                    "too many closed channels are still named by rows",
                    hint="commit rows without them",
                )
            self.of[channel_id] = self._free.pop()
        self._open.add(channel_id)
        return self.of[channel_id]

    def close(self, channel_id: int, epoch: int) -> None:
        """Note that the channel is closed; `epoch` is the present version of the table."""
        self._open.discard(channel_id)
        self._release(channel_id, epoch)

    def name(self, variable_id: int, channel_ids: tuple[int, ...], epoch: int) -> None:
        """Note that the row of a variable names these channels from version `epoch` on."""
        for channel_id in channel_ids:
            self._rows[channel_id] = self._rows.get(channel_id, 0) + 1
        for channel_id in self._named.pop(variable_id, ()):
            self._rows[channel_id] -= 1
            self._release(channel_id, epoch)
        if channel_ids:
            self._named[variable_id] = channel_ids

    def _release(self, channel_id: int, epoch: int) -> None:
        if channel_id not in self._open and self._rows.get(channel_id, 0) == 0:
            self._rows.pop(channel_id, None)
            self._released.append((epoch, self.of.pop(channel_id)))

    def _free_released(self, is_past: Callable[[int], bool]) -> None:
        waiting, self._released = self._released, []
        for epoch, index in waiting:
            if is_past(epoch):
                self._free.append(index)
            else:
                self._released.append((epoch, index))
