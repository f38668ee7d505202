"""Connections that an attacker without a certificate can make: they say nothing, or nonsense."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gridstat.net.command.address import Address


class HostileConnection(asyncio.Protocol):
    """A connection that sends nothing by itself, and notes when the server ends it."""

    def __init__(self) -> None:
        self.is_ended = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def eof_received(self) -> None:
        self.is_ended = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_ended = True

    def say(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


def source(number: int) -> str:
    """Return an address of loopback that is not that of honest parties."""
    return f"127.0.{1 + number // 250}.{1 + number % 250}"


class Attacker:
    """Opens connections from any loopback address; closes all of them at the end."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self.connections: list[HostileConnection] = []

    async def connect(self, *sources: str) -> None:
        """Open one connection from each of these addresses, in this order."""
        loop = asyncio.get_running_loop()
        for host in sources:
            _, made = await loop.create_connection(
                HostileConnection, *self._target, local_addr=(host, 0)
            )
            self.connections.append(made)

    @property
    def ended(self) -> int:
        return sum(connection.is_ended for connection in self.connections)

    def close(self) -> None:
        for connection in self.connections:
            assert connection.transport is not None
            connection.transport.abort()


@asynccontextmanager
async def attacker(target: Address) -> AsyncIterator[Attacker]:
    made = Attacker(target)
    try:
        yield made
    finally:
        made.close()
        await asyncio.sleep(0)


def connected_socket(target: Address, host: str) -> socket.socket:
    """Return a connection from an address, without an event loop."""
    return socket.create_connection(target, timeout=10, source_address=(host, 0))
