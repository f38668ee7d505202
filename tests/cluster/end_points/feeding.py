"""Publishes in the background, one event in the middle of each slot, until the block ends."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gridstat.endpoint.publisher import Publication
    from gridstat.model.status import Value

NS_PER_S = 1_000_000_000


def stamp(slot: int, rate: int) -> int:
    """The slot's own time, rounded up so that it belongs to this slot."""
    return -(-slot * NS_PER_S // rate)


@contextmanager
def feeding(
    publication: Publication, rate: int, value: Callable[[int], Value] = float
) -> Iterator[list[bool]]:
    """Send value(0), value(1) and so on; yield the result of each `send`."""
    said: list[bool] = []
    is_over = threading.Event()

    def feed() -> None:
        slot = time.time_ns() * rate // NS_PER_S + 1
        while not is_over.wait(max(0.0, (stamp(slot, rate) - time.time_ns()) / NS_PER_S)):
            said.append(publication.send(value(len(said)), created_ns=stamp(slot, rate)))
            slot += 1

    thread = threading.Thread(target=feed, name="feeding")
    thread.start()
    try:
        yield said
    finally:
        is_over.set()
        thread.join()
