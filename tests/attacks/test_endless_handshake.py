"""Attack: a peer without a certificate sends bytes without end, to be kept by the server."""

from __future__ import annotations

import asyncio

from gridstat.net.command.identity import Role
from tests.attacks.hostile_connections import attacker, source
from tests.protocol.command_parties import BROKER, Registry, party, until

RECORD_OF_HANDSHAKE = b"\x16\x03\x01\x40\x00"
FIRST_OF_64_KIB = b"\x01\x00\xff\xff"
"""Heads of a TLS record of 16 KiB, and of a first message that goes on for four such records."""


def test_more_than_8_kib_before_the_certificate_ends_the_connection(registry: Registry) -> None:
    async def attack() -> None:
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            attacker(broker.address) as hostile,
        ):
            await hostile.connect(source(0))
            (connection,) = hostile.connections
            connection.say(RECORD_OF_HANDSHAKE + FIRST_OF_64_KIB)
            connection.say(bytes(8_192 - len(RECORD_OF_HANDSHAKE + FIRST_OF_64_KIB)))
            await until(lambda: broker.driver.counters.bytes_in == 8_192)
            assert broker.driver.counters.pending == 1
            connection.say(b"x")
            await until(lambda: connection.is_ended)
            assert broker.driver.counters.refused == {"too_many_bytes": 1}
            await until(lambda: broker.driver.counters.pending == 0)

    asyncio.run(attack())
