"""Attack: one host opens and closes connections as fast as it can, each with a handshake begun."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from gridstat.net.command.identity import Role
from tests.attacks.hostile_connections import attacker, source
from tests.protocol.command_parties import BROKER, ROUTER, Registry, party, until

SOURCE_PER_S_MAX = 50


def first_bytes() -> bytes:
    """Return the first flight of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="c1").do_handshake()
    return outgoing.read()


def test_handshakes_of_one_source_beyond_its_rate_are_not_begun(registry: Registry) -> None:
    async def attack() -> None:
        loop = asyncio.get_running_loop()
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            attacker(broker.address) as hostile,
            party(registry.credentials(ROUTER)) as router,
        ):
            counters, flight = broker.driver.counters, first_bytes()
            began_s = loop.time()
            for _ in range(300):
                await hostile.connect(source(0))
                hostile.connections[-1].say(flight)
                hostile.connections[-1].say(b"nonsense")
            await until(lambda: hostile.ended == 300)
            lasted_s = loop.time() - began_s
            begun = 300 - counters.refused["source_rate"] - counters.refused["source_pending"]
            assert begun <= SOURCE_PER_S_MAX * (1 + lasted_s)
            router.connect_to(broker)
            await until(lambda: broker.machine.is_connected(ROUTER.peer))
            assert not router.failures

    asyncio.run(attack())
