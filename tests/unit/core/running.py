"""A core that really runs: its thread, its sockets, and plain sockets at both ends."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gridstat.core._core import Core
from gridstat.core._ends import Sender
from gridstat.core.rows import ChannelSpec, Limits, Route, Row, Term
from gridstat.model.rate_law import Period
from tests.protocol.grids import datagram, event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMITS = Limits(variables_max=2_048, rings_max=32, channels_max=64, pool_small=256, pool_large=8)
MICROSECOND = Period(1, 1_000_000)
SOURCE = 900
ENDS = ("malformed", "unknown", "policed", "duplicate", "too_old", "not_due", "dispatched")


def eventually(
    complaint: Callable[[], str | None], *, within_s: float = 20.0, pause_s: float = 0.005
) -> None:
    """Poll until there is no complaint left; fail with the last one."""
    deadline = time.monotonic() + within_s
    while (text := complaint()) is not None:
        assert time.monotonic() < deadline, text
        time.sleep(pause_s)


class Hop:
    """One running core with plain sockets as publisher and subscribers."""

    def __init__(
        self, *, subscribers: int = 1, posix: bool = False, host: str = "127.0.0.1"
    ) -> None:
        self.family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.core = Core(LIMITS, posix=posix)
        self.host = host
        self.ports = self.core.listen(host)
        self.publisher = socket.socket(self.family, socket.SOCK_DGRAM)
        self.subscribers = [
            socket.socket(self.family, socket.SOCK_DGRAM) for _ in range(subscribers)
        ]
        for number, subscriber in enumerate(self.subscribers, start=1):
            subscriber.bind((host, 0))
            subscriber.settimeout(10)
            port = subscriber.getsockname()[1]
            spec = ChannelSpec(number, mtu_bytes=1_232, address=(host, port, port))
            self.core.open_channel(spec)
        self.core.open_source(SOURCE)

    def row(self, variable_id: int, every: int = 1, *, channels: int = 1) -> Row:
        routes = tuple(Route(number, (Term(every),)) for number in range(1, channels + 1))
        return Row(variable_id, MICROSECOND, routes=routes)

    def sender(self) -> Sender:
        """A publisher that sends many events in one call."""
        return Sender(SOURCE, (self.host, *self.ports))

    def send(self, variable_id: int, created_ns: int, *, port: int = 0) -> None:
        raw = datagram(SOURCE, event(variable_id, created_ns))
        self.publisher.sendto(raw, (self.host, self.ports[port]))

    def settled(self, events: int) -> Callable[[], str | None]:
        """A complaint until so many events have met their end, which is later than coming in."""

        def complaint() -> str | None:
            counters = self.core.counters()
            ended = sum(counters[end] for end in ENDS)
            return None if ended >= events else f"{ended} of {events} events have met their end"

        return complaint

    def close(self) -> None:
        self.core.close()
        self.publisher.close()
        for subscriber in self.subscribers:
            subscriber.close()


@contextmanager
def hop(*, subscribers: int = 1, posix: bool = False, host: str = "127.0.0.1") -> Iterator[Hop]:
    """A hop that ends with the block, whatever happens in it."""
    made = Hop(subscribers=subscribers, posix=posix, host=host)
    try:
        yield made
    finally:
        made.close()
