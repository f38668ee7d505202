"""Attack: silent connections take all places of the port that serves `/health`."""

from __future__ import annotations

import asyncio

from prometheus_client.registry import Collector

from gridstat.console.daemons.metrics_server import MetricsServer
from tests.attacks.hostile_connections import attacker, source
from tests.protocol.command_parties import until

ASKED = b"GET /health HTTP/1.1\r\n\r\n"


class NoFigures(Collector):
    """Collector of a daemon that counts nothing."""

    def collect(self) -> list[object]:  # type: ignore[override]
        return []


async def health(address: tuple[str, int]) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(ASKED)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_health_answers_while_silent_connections_hold_the_port() -> None:
    async def attack() -> None:
        server = MetricsServer(NoFigures, health=lambda: "")
        address = await server.start("127.0.0.1", 0)
        try:
            async with attacker(address) as hostile:
                await hostile.connect(*[source(0)] * 20)
                assert b"200 OK" in await health(address)
                await hostile.connect(*[source(n) for n in range(40)])
                assert b"200 OK" in await health(address)
                # Half a request holds no place either.
                for connection in hostile.connections:
                    connection.say(ASKED[:-1])
                assert b"200 OK" in await health(address)
                assert server.counters.pending <= 16
                assert server.counters.refused["gave_way"] > 0
            await until(lambda: server.counters.pending == 0)
        finally:
            await server.close()

    asyncio.run(attack())


def test_a_client_that_does_not_read_its_answers_leaves_health_alone() -> None:
    async def attack() -> None:
        server = MetricsServer(NoFigures, health=lambda: "")
        address = await server.start("127.0.0.1", 0)
        try:
            async with attacker(address) as hostile:
                await hostile.connect(*[source(0)] * 16)
                for connection in hostile.connections:
                    connection.say(b"GET /metrics HTTP/1.1\r\n\r\n")
                assert b"200 OK" in await health(address)
        finally:
            await server.close()

    asyncio.run(attack())
