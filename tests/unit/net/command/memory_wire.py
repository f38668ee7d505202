"""Two sessions joined by a wire in memory, which a test may cut, hold or corrupt."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class MemoryTransport(asyncio.Transport):
    """One end of the wire; bytes arrive at the other in a later turn of the loop."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.other: MemoryTransport | None = None
        self.change: Callable[[bytes], bytes] = lambda sent: sent
        self.held: list[bytes] | None = None
        """While it is a list, nothing leaves."""
        self._is_closing = False
        self._is_reading = True
        self._unread: list[bytes | None] = []
        """Data that came while there was no reader; None is the end."""
        self._loop = asyncio.get_running_loop()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self._is_closing
        if self.held is not None:
            self.held.append(bytes(data))
        else:
            self._loop.call_soon(self._deliver, self.change(bytes(data)))

    def write_eof(self) -> None:
        if self.held is None:
            self._loop.call_soon(self._deliver_end)

    def waiting_bytes(self) -> int:
        return sum(map(len, self.held or ()))

    def extra(self, name: str, default: Any = None) -> Any:
        return ("memory", 1) if name == "peername" else default

    # As asyncio calls them.
    get_write_buffer_size = waiting_bytes
    get_extra_info = extra

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        assert self._is_reading
        self._is_reading = False

    def resume_reading(self) -> None:
        assert not self._is_reading
        self._is_reading = True
        unread, self._unread = self._unread, []
        for data in unread:
            self._loop.call_soon(self._arrive, data)

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self.protocol.connection_lost, None)
            self._loop.call_soon(self._deliver_end)

    def _deliver(self, data: bytes) -> None:
        assert self.other is not None
        self.other._arrive(data)

    def _deliver_end(self) -> None:
        assert self.other is not None
        self.other._arrive(None)

    def _arrive(self, data: bytes | None) -> None:
        if self._is_closing:
            return
        if not self._is_reading or self._unread:
            self._unread.append(data)
        elif data is not None:
            self.protocol.data_received(data)
        elif not self.protocol.eof_received():
            self.close()


def join(one: asyncio.Protocol, two: asyncio.Protocol) -> tuple[MemoryTransport, MemoryTransport]:
    """Connect two protocols as a TCP connection would."""
    ends = MemoryTransport(one), MemoryTransport(two)
    ends[0].other, ends[1].other = ends[1], ends[0]
    two.connection_made(ends[1])
    one.connection_made(ends[0])
    return ends
