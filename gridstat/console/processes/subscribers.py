"""The process of all subscribers: each has a connection of its own and contracts by pattern."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from gridstat.console.processes.simulation_process import edges_of, play
from gridstat.endpoint.connection_setup import connect
from gridstat.model.cloud import is_pattern
from gridstat.model.qos import BASELINE_MODE
from gridstat.model.rate_law import slot_of

if TYPE_CHECKING:
    from gridstat.console.access import Access
    from gridstat.console.grid import Grid, Subscriber
    from gridstat.console.processes.lines import Line
    from gridstat.endpoint.connection import Connection
    from gridstat.endpoint.subscriber import Subscription

KEEP_EVENTS: Final = 4_096
RECENT_SLOTS: Final = 512
DRAIN_S: Final = 0.25


class Tally:
    """Counts of one subscription's events, slot by slot."""

    def __init__(self, subscriber: str, subscription: Subscription) -> None:
        self._subscriber = subscriber
        self._subscription = subscription
        self._granted_ns = time.time_ns()
        self._first_slot: int | None = None
        self._delivered = 0
        self._duplicates = 0
        self._recent: deque[int] = deque(maxlen=RECENT_SLOTS)

    @property
    def has_slots(self) -> bool:
        """Alerts, which a pattern catches as well, come when they come: nothing is ever due."""
        variable = self._subscription.variable
        return variable is not None and variable.period is not None

    def drain(self) -> None:
        """Count what has come since the last time."""
        variable = self._subscription.variable
        if variable is None or variable.period is None:
            self._subscription.read()
            return
        for created_ns in self._subscription.read()["created_ns"].tolist():
            slot = slot_of(created_ns, variable.period, variable.phase_ns)
            if slot in self._recent:
                self._duplicates += 1
                continue
            self._recent.append(slot)
            self._first_slot = slot if self._first_slot is None else min(self._first_slot, slot)
            self._delivered += 1

    def figures(self) -> dict[str, Any]:
        granted = self._subscription.contract.granted.get(BASELINE_MODE)
        variable = self._subscription.variable
        assert variable is not None
        assert variable.period is not None
        due_slot = slot_of(self._granted_ns, variable.period, variable.phase_ns) + 1
        return {
            "subscriber": self._subscriber,
            "variable": self._subscription.name,
            "every": 1 if granted is None else granted.every,
            "from_slot": due_slot if self._first_slot is None else min(due_slot, self._first_slot),
            "delivered": self._delivered,
            "duplicates": self._duplicates,
        }


class Subscribers:
    """Attached and subscribed once constructed; patterns catch what is published later."""

    def __init__(self, grid: Grid, access: Access) -> None:
        self._connections: list[Connection] = []
        self._tallies: list[Tally] = []
        try:
            for subscriber in grid.subscribers:
                self._connect(subscriber, access)
        except BaseException:
            self.close()
            raise

    def _connect(self, subscriber: Subscriber, access: Access) -> None:
        connection = connect(
            edges_of(access, subscriber.edges),
            subscriber.name,
            certificates=access.certificates.path,
            timeout_s=30.0,
        )
        self._connections.append(connection)

        def caught(subscription: Subscription) -> None:
            self._tallies.append(Tally(subscriber.name, subscription))

        for name in subscriber.patterns:
            if is_pattern(name):
                connection.subscribe_pattern(
                    name, caught, qos=subscriber.qos, keep_events=KEEP_EVENTS
                )
            else:
                caught(connection.subscribe(name, qos=subscriber.qos, keep_events=KEEP_EVENTS))

    def handle(self, do: str) -> Line:
        self.work()
        figures = [tally.figures() for tally in tuple(self._tallies) if tally.has_slots]
        return {"is": "report", "subscriptions": figures}

    def wait_s(self) -> float | None:
        return DRAIN_S

    def work(self) -> None:
        for tally in tuple(self._tallies):
            tally.drain()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


if __name__ == "__main__":
    sys.exit(play(Subscribers))
