"""A wire into one router that can be cut, channel by channel; the router advertises it."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from types import TracebackType

HERE: Final = "127.0.0.9"
"""Address of the loopback network that is used only here."""
CHANNEL_ID: Final = slice(4, 8)
DATAGRAM_BYTES_MAX: Final = 65_536
POLL_S: Final = 0.1


class Wire:
    """Passes datagrams on to the same ports of `host`, but for those of cut channels."""

    def __init__(self, host: str, ports: tuple[int, ...]) -> None:
        self._host = host
        self._is_over = threading.Event()
        self._cut: frozenset[int] = frozenset()
        self._stack = ExitStack()
        self._sockets = {self._bound(port): port for port in ports}
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._stack.close()

    def cut(self, channel_id: int) -> None:
        self._cut |= {channel_id}

    def mend(self) -> None:
        self._cut = frozenset()

    def _bound(self, port: int) -> socket.socket:
        found = self._stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        found.bind((HERE, port))
        found.setblocking(False)
        return found

    def _run(self) -> None:
        while not self._is_over.is_set():
            readable, _, _ = select.select(list(self._sockets), [], [], POLL_S)
            for found in readable:
                self._pass_on(found)

    def _pass_on(self, found: socket.socket) -> None:
        """Forward all waiting datagrams, so that a burst costs one poll."""
        while True:
            try:
                datagram = found.recv(DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return
            if int.from_bytes(datagram[CHANNEL_ID], "big") not in self._cut:
                found.sendto(datagram, (self._host, self._sockets[found]))
