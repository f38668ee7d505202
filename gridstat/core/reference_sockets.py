"""Sockets of the reference core: one datagram a call, as a plain router would do it."""

from __future__ import annotations

import select
import socket

from gridstat.core.rows import PORT_DATA, PORT_URGENT

DATAGRAM_BYTES_MAX = 65_535
RECEIVE_BUFFER_BYTES = 8 << 20
TIMEOUT_S = 0.02
"""Longest wait for a datagram, after which the caller reads its clock again."""


class MemoryLine:
    """Keeps what a channel sends until a test takes it; paced as if it were IPv4."""

    is_ipv6 = False

    def __init__(self) -> None:
        self._datagrams: list[tuple[int, bytes]] = []

    def send(self, port: int, datagram: bytes) -> None:
        self._datagrams.append((port, datagram))

    def take(self) -> list[tuple[int, bytes]]:
        taken, self._datagrams = self._datagrams, []
        return taken

    def close(self) -> None:
        """Do nothing: no socket is open."""


class UdpLine:
    """Sends a channel's datagrams to the two ports of its peer."""

    def __init__(self, address: tuple[str, int, int]) -> None:
        host, data_port, urgent_port = address
        family, peer = _resolve(host, data_port)
        self.is_ipv6 = family == socket.AF_INET6
        self._peers = {PORT_DATA: peer, PORT_URGENT: _resolve(host, urgent_port)[1]}
        self._socket = socket.socket(family, socket.SOCK_DGRAM)

    def send(self, port: int, datagram: bytes) -> None:
        self._socket.sendto(datagram, self._peers[port])

    def close(self) -> None:
        self._socket.close()


class Sockets:
    """The two ports of a router, the urgent one read first."""

    def __init__(self, host: str, data_port: int, urgent_port: int) -> None:
        self._data = _bound(host, data_port)
        self._urgent = _bound(host, urgent_port)

    @property
    def ports(self) -> tuple[int, int]:
        """The data port and the urgent port."""
        return self._data.getsockname()[1], self._urgent.getsockname()[1]

    def receive(self) -> tuple[int, bytes] | None:
        """The next datagram and its port, or None when none comes for a while."""
        ready, _, _ = select.select([self._urgent, self._data], [], [], TIMEOUT_S)
        if self._urgent in ready:
            return PORT_URGENT, self._urgent.recv(DATAGRAM_BYTES_MAX)
        if self._data in ready:
            return PORT_DATA, self._data.recv(DATAGRAM_BYTES_MAX)
        return None

    def close(self) -> None:
        self._data.close()
        self._urgent.close()


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    family, _, _, _, peer = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    return family, peer


def _bound(host: str, port: int) -> socket.socket:
    family, address = _resolve(host, port)
    opened = socket.socket(family, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    opened.bind(address)
    return opened
