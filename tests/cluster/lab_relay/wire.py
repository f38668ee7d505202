"""Two namespaces, a relay between them, and a socket at either end, for the tests in here."""

from __future__ import annotations

import contextlib
import struct
import time
from typing import TYPE_CHECKING, Self

from lab.netns import Network
from lab.relay import Direction, LinkFaults, Relay, WireCounters
from lab.relay.program import relay_path
from lab.sockets import open_socket

if TYPE_CHECKING:
    import socket

NAME = "wire"
A_TURN = 100
"""Datagrams on their way at once: fewer than any queue on the way holds, for any user."""

PATIENCE_S = 20.0


class Wire:
    """Both ends and the relay; datagrams are numbers of eight bytes, then filling."""

    def __init__(self, *, is_sanitized: bool = False) -> None:
        self._stack = contextlib.ExitStack()
        self._is_sanitized = is_sanitized

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            network = stack.enter_context(Network())
            self.near, self.far, middle = (network.add(name) for name in ("near", "far", "middle"))
            gap = network.join(self.near, self.far, middle=middle)
            assert gap is not None
            binary = relay_path(is_sanitized=self._is_sanitized)
            self.relay = stack.enter_context(Relay(middle.prefix, binary=binary))
            self.relay.add_wire(NAME, *gap)
            self.sender = stack.enter_context(open_socket(self.near))
            self.receiver = stack.enter_context(open_socket(self.far))
            self.receiver.settimeout(PATIENCE_S)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def forward(self) -> WireCounters:
        return self.relay.counters(NAME)[Direction.FORWARD]

    def set(self, faults: LinkFaults) -> None:
        """Set faults from the seed's first frame on, with a whole wire and no frame in transit."""
        self.relay.heal(NAME)
        self.relay.set_faults(NAME, faults)
        self.drain()

    def send(self, number: int, filling: bytes = b"") -> None:
        self.sender.sendto(struct.pack(">Q", number) + filling, self.receiver.getsockname())

    def send_all(self, count: int) -> list[int]:
        """Sends the numbers from 0 on, a turn at a time; the numbers that came, in their order."""
        before = self.forward
        came: list[int] = []
        for first in range(0, count, A_TURN):
            for number in range(first, min(first + A_TURN, count)):
                self.send(number)
            self.wait_settled(before.in_ + min(first + A_TURN, count))
            came += self.drain()
        return came

    def wait_settled(self, arrivals: int) -> WireCounters:
        """Wait until the relay has received so many frames, and none is in transit."""
        deadline = time.monotonic() + PATIENCE_S
        while (now := self.forward).in_ < arrivals or now.waiting:
            assert time.monotonic() < deadline, now
        assert now.is_reconciled
        return now

    def drain(self) -> list[int]:
        """Return the numbers of the datagrams in the receiver's queue."""
        return [struct.unpack_from(">Q", raw)[0] for raw in drained(self.receiver)]


def drained(receiver: socket.socket) -> list[bytes]:
    receiver.setblocking(False)
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(receiver.recv(65_536))
    receiver.settimeout(PATIENCE_S)
    return found
