"""A stream under test: a publication at its slots from a thread, and what a subscription got."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

from gridstat.model.rate_law import NS_PER_S, Period, slot_of
from lab.declared_delay import is_too_late

if TYPE_CHECKING:
    from gridstat.endpoint.publisher import Publication
    from gridstat.endpoint.subscriber import Subscription


class Stream:
    """Sends the slot's number as its value, at every slot while the block lasts.

    A slot that its edge might take for too old is left out. Where each slot counts, the publication
    declares a delay.
    """

    def __init__(self, publication: Publication) -> None:
        period = publication.variable.period
        assert period is not None
        self._publication = publication
        self._period: Period = period
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent: list[int] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        slot = slot_of(time.time_ns(), self._period) + 1
        while not self._is_over.is_set():
            created_ns = slot * self._period.seconds * NS_PER_S // self._period.per_seconds
            time.sleep(max(0, created_ns - time.time_ns()) / NS_PER_S)
            is_due = not is_too_late(created_ns, self._publication.variable.delay_ms)
            if is_due and self._publication.send(float(slot), created_ns=created_ns):
                self.sent.append(slot)
            slot += 1

    def complaint_below(self, count: int) -> str | None:
        return None if len(self.sent) >= count else f"{len(self.sent)} of {count} sent"


def slots_of(subscription: Subscription) -> list[int]:
    """The slots that arrived since the last time, by their values, in the order of arrival."""
    values = subscription.read()["value"].view("f8")
    return [int(value) for value in values.tolist()]
