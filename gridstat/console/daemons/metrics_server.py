"""HTTP server of a daemon: `/metrics` for Prometheus, `/health` for monitoring.

The figures are taken on the daemon's own event loop, so that nothing is read while it changes. The
text is made in a thread, since with thousands of contracts it takes a second. A slow, long or wrong
request costs one connection and nothing else.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from gridstat.model.errors import LinkDown

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client.registry import Collector

REQUEST_BYTES_MAX: Final = 8_192
REQUEST_WITHIN_S: Final = 5.0
CONNECTIONS_MAX: Final = 16


class MetricsServer:
    """Answers GET on two paths; at most so many connections at once."""

    def __init__(self, figures: Callable[[], Collector], *, health: Callable[[], str]) -> None:
        self._figures = figures
        self._health = health
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen and return the address, with the port that the system chose for 0."""
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            raise LinkDown(
                f"metrics cannot listen on {host} port {port}: {error.strerror}",
                hint="choose another metrics_port, or 0 for any free one",
            ) from error
        bound = self._server.sockets[0].getsockname()
        return bound[0], bound[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) <= CONNECTIONS_MAX:
                async with asyncio.timeout(REQUEST_WITHIN_S):
                    writer.write(await self._answer(reader))
                    await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        match (method, path):
            case (b"GET", b"/metrics"):
                text = await asyncio.to_thread(exposition, self._figures())
                return _response("200 OK", text, CONTENT_TYPE_LATEST)
            case (b"GET", b"/health"):
                complaint = self._health()
                status = "503 Service Unavailable" if complaint else "200 OK"
                return _response(status, (complaint or "ok").encode() + b"\n")
            case (b"GET", _):
                return _response("404 Not Found", b"/metrics and /health are here\n")
            case _:
                return _response("405 Method Not Allowed", b"only GET\n")


def exposition(collector: Collector) -> bytes:
    """The families of a collector as Prometheus reads them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)


def _response(status: str, body: bytes, content_type: str = "text/plain; charset=utf-8") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
