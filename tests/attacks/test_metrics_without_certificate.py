"""Attack: a stranger reads the metrics, or holds the port with handshakes that never end."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from gridstat.console.config.metrics_tls import MetricsTls
from gridstat.console.daemons.metrics_server import MetricsServer
from tests.attacks.hostile_connections import attacker, source
from tests.attacks.test_full_metrics_port import ASKED, NoFigures
from tests.protocol.command_parties import BROKER, Registry, until


def tls_of(registry: Registry) -> MetricsTls:
    files = registry.credentials(BROKER).files
    return MetricsTls(files.certificate, files.key, files.authority)


async def health(address: tuple[str, int], context: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection(*address, ssl=context)
    try:
        writer.write(ASKED)
        return await reader.read()
    finally:
        writer.transport.abort()


def test_only_a_client_with_a_certificate_is_answered(registry: Registry) -> None:
    async def attack() -> None:
        server = MetricsServer(NoFigures, health=lambda: "")
        address = await server.start("127.0.0.1", 0, tls=tls_of(registry))
        try:
            stranger = registry.context("operator/c1/x", has_certificate=False)
            answer = b""
            with suppress(ssl.SSLError, ConnectionError):
                answer = await health(address, stranger)
            assert answer == b""
            honest = registry.context("operator/c1/monitor")
            assert b"200 OK" in await health(address, honest)
            await until(lambda: server.counters.pending == 0)
        finally:
            await server.close()

    asyncio.run(attack())


def test_handshakes_that_do_not_end_hold_few_places(registry: Registry) -> None:
    async def attack() -> None:
        server = MetricsServer(NoFigures, health=lambda: "")
        address = await server.start("127.0.0.1", 0, tls=tls_of(registry))
        honest = registry.context("operator/c1/monitor")
        try:
            async with attacker(address) as hostile:
                await hostile.connect(*(source(n) for n in range(60)))
                await until(lambda: hostile.ended >= 60 - 16)
                assert server.counters.pending <= 16
                assert b"200 OK" in await health(address, honest)
            await until(lambda: server.counters.pending == 0)
        finally:
            await server.close()

    asyncio.run(attack())
