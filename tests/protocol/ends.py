"""Parts that the tests of the ends share: a bare socket for datagrams, and waiting for states."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import numpy as np

from gridstat.net.codec.datagram import Datagram, decode_datagram

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from gridstat.endpoint import Receiver

NOW_NS = 1_700_000_000_000_000_000
MS = 1_000_000
ENDINGS = (
    "malformed",
    "policed_source",
    "unknown",
    "duplicate",
    "too_old",
    "policed_jump",
    "delivered",
    "ring_full",
)
"""Counters of a receiver, of which each event increases exactly one."""


def eventually(condition: Callable[[], str | None], *, within_s: float = 20.0) -> None:
    """Poll until `condition` has no complaint left; fail with the last complaint."""
    deadline = time.monotonic() + within_s
    while (complaint := condition()) is not None:
        assert time.monotonic() < deadline, complaint
        time.sleep(0.005)


def wait_for(receiver: Receiver, **counts: int) -> None:
    """Wait until the receiver's counters are at least these."""

    def complaint() -> str | None:
        counters = receiver.counters()
        missing = {name: counters[name] for name, least in counts.items() if counters[name] < least}
        return f"waiting for {counts}, still at {missing}" if missing else None

    eventually(complaint)


class Wire:
    """Both ports of a peer that reads datagrams as they are, without any gridstat code."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.data = socket.socket(family, socket.SOCK_DGRAM)
        self.urgent = socket.socket(family, socket.SOCK_DGRAM)
        for port in (self.data, self.urgent):
            port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            port.bind((host, 0))
            port.settimeout(10.0)
        self.address = (host, self.data.getsockname()[1], self.urgent.getsockname()[1])

    def take(self, count: int) -> list[Datagram]:
        """The next datagrams of the data port, checked and decoded."""
        return [decode_datagram(self.data.recv(65_536)) for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.data.close()
        self.urgent.close()


def columns(
    count: int, *, variables: int = 1, step_ns: int = MS
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`count` events round robin over the variables, each variable `step_ns` apart."""
    index = np.arange(count)
    variable_ids = (index % variables).astype(np.uint32)
    created_ns = (NOW_NS + index // variables * step_ns).astype(np.uint64)
    return variable_ids, index.astype(np.int64), created_ns
