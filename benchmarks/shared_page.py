"""Page of counters through which a subscriber closes a publisher's loop, without a message.

Receiver i writes u64s at byte 4,096 * i: delivered, datagrams, duplicates, ring full, last receive.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from benchmarks.plan import PAGE_BYTES

if TYPE_CHECKING:
    from pathlib import Path

WORDS_PER_PAGE = PAGE_BYTES // 8


def create_pages(path: Path, count: int) -> None:
    """Create a file of `count` zeroed pages; in /dev/shm it is never written to a disk."""
    path.write_bytes(bytes(PAGE_BYTES * count))


class SharedPages:
    """A reader's view of the pages of all receivers of a run."""

    def __init__(self, path: Path, count: int) -> None:
        with path.open("r+b") as file:
            # Never unmapped by hand: the array below may outlive this object, and unmaps it then.
            mapped = mmap.mmap(file.fileno(), PAGE_BYTES * count)
        words: npt.NDArray[np.uint64] = np.frombuffer(mapped, np.uint64)
        self._delivered = words[::WORDS_PER_PAGE]
        self._duplicates = words[2::WORDS_PER_PAGE]

    def delivered(self) -> list[int]:
        """Return the events delivered so far, per receiver."""
        return [int(count) for count in self._delivered]

    def delivered_least(self) -> int:
        """Return the events delivered so far at the receiver that is furthest behind."""
        return int(self._delivered.min())

    def duplicates(self) -> int:
        """Return the number of duplicates, over all receivers."""
        return int(self._duplicates.sum())
