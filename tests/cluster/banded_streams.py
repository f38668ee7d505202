"""Streams of which every slot is sent, over channels that are as wide as a test needs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

from gridstat.model.probe_law import INTERVALS_PER_SILENCE, ProbeSettings
from gridstat.model.rate_law import NS_PER_S, Period, slot_of
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.endpoint.publisher import Publication
    from gridstat.endpoint.subscriber import Subscription

PERIOD = Period(1, 60)
SEALED_EVENT_BYTES = 28 + 16 + 24 + 16
PROBES = ProbeSettings(500 // INTERVALS_PER_SILENCE, 500)


def wide_enough(events_per_s: int) -> int:
    """Return the least bandwidth that carries so many sealed events beside the probes."""
    wanted = events_per_s * SEALED_EVENT_BYTES
    bandwidth = wanted
    while bandwidth - PROBES.bytes_per_s_of(bandwidth) < wanted:
        bandwidth += 1
    return bandwidth


class Streams:
    """Sends each slot of several variables while the block lasts."""

    def __init__(self, publications: Sequence[Publication]) -> None:
        self._publications = publications
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.slots = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        slot = slot_of(time.time_ns(), PERIOD) + 1
        while not self._is_over.is_set():
            created_ns = slot * NS_PER_S // 60
            time.sleep(max(0, created_ns - time.time_ns()) / NS_PER_S)
            for each in self._publications:
                each.send(float(slot), created_ns=created_ns)
            slot += 1
            self.slots += 1

    def await_more(self, count: int) -> None:
        until = self.slots + count
        eventually(lambda: None if self.slots >= until else f"{until - self.slots} slots to go")


def everys(subscriptions: Sequence[Subscription]) -> list[int]:
    return sorted(each.contract.granted[0].every for each in subscriptions)


def await_everys(subscriptions: Sequence[Subscription], wanted: list[int]) -> None:
    def complaint() -> str | None:
        found = everys(subscriptions)
        return None if found == wanted else f"every {found} instead of {wanted}"

    eventually(complaint)
