"""Second cables of routers on loopback: what is sent to 127.0.0.2 is passed on to 127.0.0.1.

A router listens at 127.0.0.1 only; a channel with `to_address = "127.0.0.2"` reaches it over this
program. So one of two channels between the same two routers can be cut.
"""

from __future__ import annotations

import selectors
import socket
import threading
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

ROUTER_HOST: Final = "127.0.0.1"
CABLE_HOST: Final = "127.0.0.2"
DATAGRAM_BYTES_MAX: Final = 65_536
LOOK_S: Final = 0.1


class SecondCables:
    """Passes datagrams on while the `with` block lasts, until it is cut."""

    def __init__(self, ports: Iterable[int]) -> None:
        self._selector = selectors.DefaultSelector()
        self._sockets = []
        for port in ports:
            taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            taken.bind((CABLE_HOST, port))
            taken.setblocking(False)
            self._selector.register(taken, selectors.EVENT_READ, port)
            self._sockets.append(taken)
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
