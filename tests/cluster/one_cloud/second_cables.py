"""Second cables of routers on loopback: what is sent to 127.0.0.2 is passed on to 127.0.0.1.

A router listens at 127.0.0.1 only; a channel with `to_address = "127.0.0.2"` reaches it over this
program. So one of two channels between the same two routers can be cut.
"""

from __future__ import annotations

import selectors
import socket
import threading
from typing import Final, Self

ROUTER_HOST: Final = "127.0.0.1"
CABLE_HOST: Final = "127.0.0.2"
DATAGRAM_BYTES_MAX: Final = 65_536
LOOK_S: Final = 0.1


class SecondCables:
    """Passes datagrams on while the `with` block lasts, until it is cut."""

    def __init__(self, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._sockets = [_free_socket() for _ in range(count)]
        self.ports = [each.getsockname()[1] for each in self._sockets]
        for port, taken in zip(self.ports, self._sockets, strict=True):
            self._selector.register(taken, selectors.EVENT_READ, port)
        self._onward = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._is_cut = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.passed = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._selector.close()
        for each in (*self._sockets, self._onward):
            each.close()

    def cut(self) -> None:
        """Lose everything from now on."""
        self._is_cut.set()

    def _run(self) -> None:
        while not self._is_over.is_set():
            for key, _ in self._selector.select(LOOK_S):
                assert isinstance(key.fileobj, socket.socket)
                self._pass_on(key.fileobj, key.data)

    def _pass_on(self, taken: socket.socket, port: int) -> None:
        while True:
            try:
                datagram = taken.recv(DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return
            if not self._is_cut.is_set():
                self.passed += 1
                self._onward.sendto(datagram, (ROUTER_HOST, port))


def _free_socket() -> socket.socket:
    """Return a socket of the second cable whose port is free at the router's address too."""
    while True:
        taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        taken.bind((CABLE_HOST, 0))
        taken.setblocking(False)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tried:
            try:
                tried.bind((ROUTER_HOST, taken.getsockname()[1]))
            except OSError:
                taken.close()
            else:
                return taken
