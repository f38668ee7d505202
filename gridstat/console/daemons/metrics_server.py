"""HTTP server of a daemon: `/metrics` for Prometheus, `/health` for monitoring.

The figures are taken on the daemon's own event loop, so that nothing is read while it changes. The
text is made in a thread, since with thousands of contracts it takes a second. A slow, long or wrong
request costs one connection and nothing else: the listener has few places, and whoever has not
asked yet gives way to the next, so `/health` answers under a full house.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from gridstat.model.errors import GridStatError, LinkDown
from gridstat.net.command.connection_admission import AdmissionLimits, ConnectionAdmission
from gridstat.net.command.listener import ConnectionCounters, Listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client.registry import Collector

    from gridstat.console.config.metrics_tls import MetricsTls
    from gridstat.net.command.address import Address

REQUEST_BYTES_MAX: Final = 8_192
REQUEST_WITHIN_S: Final = 5.0
SCRAPES_MAX: Final = 4
"""Pages of metrics that are made or sent at once; `/health` is answered beside them."""
LIMITS: Final = AdmissionLimits(
    pending_max=16, source_pending_max=16, source_per_s_max=500, replaced_after_ns=0
)
"""Connections whose request has not come: the oldest gives way, so a slow client blocks nobody."""


class MetricsServer:
    """Answers GET on two paths, on a listener with few places of its own."""

    def __init__(self, figures: Callable[[], Collector], *, health: Callable[[], str]) -> None:
        self.counters = ConnectionCounters()
        self._figures = figures
        self._health = health
        self._admission = ConnectionAdmission(LIMITS)
        self._listener: Listener | None = None
        self._tls: MetricsTls | None = None
        self._waiting: dict[int, _HttpConnection] = {}
        """Connections whose request has not come, by their tickets."""
        self._connections: set[asyncio.Task[None]] = set()
        self._scrapes = 0

    async def start(self, host: str, port: int, *, tls: MetricsTls | None = None) -> Address:
        """Listen and return the address, with the port that the system chose for 0."""
        context = None if tls is None else tls.context()
        listener = Listener(self, self._admission, self.counters, tls=context)
        try:
            bound = await listener.open(host, port)
        except OSError as error:
            raise LinkDown(
                f"metrics cannot listen on {host} port {port}: {error.strerror}",
                hint="choose another metrics_port, or 0 for any free one",
            ) from error
        self._listener, self._tls = listener, tls
        return bound

    def reload(self) -> tuple[str, ...]:
        """Read the certificate, the key and the authority again; return what was read, in words.

        Connections that are being opened under the old authority end. If a file cannot be used, all
        of them stay as they were.
        """
        if self._listener is None or self._tls is None:
            return ()
        try:
            context = self._tls.context()
        except GridStatError as error:
            return (f"metrics certificates NOT ({error.args[0]})",)
        self._listener.use(context)
        for ticket in list(self._waiting):
            self._abandon(ticket)
        return ("metrics certificates",)

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            for ticket in list(self._waiting):
                self._abandon(ticket)
            await self._listener.wait_begun()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    # Callbacks of the listener.

    def refusal(self) -> str:
        return ""

    def begin(self, ticket: int) -> asyncio.Protocol:
        connection = _HttpConnection(lambda: self._leave(ticket), self._serve)
        self._waiting[ticket] = connection
        self.counters.pending += 1
        return connection

    def give_way(self, ticket: int) -> None:
        self.counters.refused["gave_way"] += 1
        self._abandon(ticket)

    def _abandon(self, ticket: int) -> None:
        connection = self._waiting[ticket]
        self._leave(ticket)
        connection.abort()

    def _leave(self, ticket: int) -> None:
        if self._waiting.pop(ticket, None) is not None:
            self.counters.pending -= 1
            self._admission.leave(ticket)

    # Answering.

    def _serve(self, head: bytes, connection: _HttpConnection) -> None:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        match (method, path):
            case (b"GET", b"/metrics") if self._scrapes >= SCRAPES_MAX:
                self.counters.refused["scrapes"] += 1
                connection.answer(_response("503 Service Unavailable", b"too many at once\n"))
            case (b"GET", b"/metrics"):
                task = asyncio.get_running_loop().create_task(self._scrape(connection))
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)
            case (b"GET", b"/health"):
                complaint = self._health()
                status = "503 Service Unavailable" if complaint else "200 OK"
                connection.answer(_response(status, (complaint or "ok").encode() + b"\n"))
            case (b"GET", _):
                connection.answer(_response("404 Not Found", b"/metrics and /health are here\n"))
            case _:
                connection.answer(_response("405 Method Not Allowed", b"only GET\n"))

    async def _scrape(self, connection: _HttpConnection) -> None:
        self._scrapes += 1
        try:
            text = await asyncio.to_thread(exposition, self._figures())
            connection.answer(_response("200 OK", text, CONTENT_TYPE_LATEST))
            await connection.finished.wait()
        finally:
            self._scrapes -= 1
            connection.abort()


class _HttpConnection(asyncio.Protocol):
    """One connection: a request within a bound of bytes and time, one answer, and the end."""

    def __init__(
        self, leave: Callable[[], None], serve: Callable[[bytes, _HttpConnection], None]
    ) -> None:
        self.finished = asyncio.Event()
        self._leave = leave
        self._serve = serve
        self._head = b""
        self._is_served = False
        self._is_abandoned = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def abort(self) -> None:
        """End at once, also if the connection is not ready yet."""
        self._is_abandoned = True
        if self._transport is not None:
            self._transport.abort()

    def answer(self, response: bytes) -> None:
        """Send the answer and close; a client that does not read it is cut off in time."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(response)
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._is_abandoned:
            self._transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(REQUEST_WITHIN_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._is_served:
            return
        self._head += data[: REQUEST_BYTES_MAX + 1]
        if b"\r\n\r\n" in self._head:
            self._is_served = True
            self._leave()
            self._serve(self._head, self)
        elif len(self._head) > REQUEST_BYTES_MAX:
            self.abort()

    def eof_received(self) -> bool:
        # A client may close its direction once it has asked; one that has not asked is done.
        return self._is_served

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        if self._timer is not None:
            self._timer.cancel()
        self.finished.set()


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
