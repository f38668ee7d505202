"""Attack: connections that never begin their handshake fill a server's memory and its places."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gridstat.net.command import session_table
from gridstat.net.command.identity import Role
from tests.attacks.hostile_connections import attacker, source
from tests.protocol.command_parties import BROKER, ROUTER, Registry, party, until

if TYPE_CHECKING:
    import pytest

PENDING_MAX = 256
SOURCE_PENDING_MAX = 16


def test_one_source_holds_few_places(registry: Registry) -> None:
    async def attack() -> None:
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            attacker(broker.address) as hostile,
            party(registry.credentials(ROUTER)) as router,
        ):
            await hostile.connect(*[source(0)] * 40)
            await until(lambda: hostile.ended >= 40 - SOURCE_PENDING_MAX)
            counters = broker.driver.counters
            assert counters.pending == SOURCE_PENDING_MAX
            # On a slow machine the first are old enough to give way before the last have come.
            refused = counters.refused["source_pending"] + counters.refused["gave_way"]
            assert refused == 40 - SOURCE_PENDING_MAX
            router.connect_to(broker)
            await until(lambda: broker.machine.is_connected(ROUTER.peer))

    asyncio.run(attack())


def test_many_sources_hold_few_places_and_a_router_still_gets_one(registry: Registry) -> None:
    async def attack() -> None:
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            attacker(broker.address) as hostile,
            party(registry.credentials(ROUTER)) as router,
        ):
            for turn in range(4):
                await hostile.connect(*(source(n) for n in range(150)))
                assert broker.driver.counters.pending <= PENDING_MAX, turn
            await until(lambda: hostile.ended >= 600 - PENDING_MAX)
            counters = broker.driver.counters
            assert counters.pending == PENDING_MAX
            assert counters.refused["gave_way"] == 600 - PENDING_MAX
            assert len(broker.driver._sessions._all) == PENDING_MAX
            router.connect_to(broker)
            await until(lambda: broker.machine.is_connected(ROUTER.peer))
            assert not router.failures

    asyncio.run(attack())


def test_memory_is_returned_once_the_crowd_has_gone(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    returned: list[int] = []

    async def attack() -> None:
        async with party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker:
            pending = broker.driver._sessions._pending
            monkeypatch.setattr(session_table, "CALM_AFTER_S", 0.05)
            monkeypatch.setattr(
                session_table, "return_freed_memory", lambda: returned.append(len(pending))
            )
            async with attacker(broker.address) as hostile:
                await hostile.connect(*(source(n) for n in range(PENDING_MAX)))
                await until(lambda: len(pending) == PENDING_MAX)
                assert not returned
            await until(lambda: bool(returned))

    asyncio.run(attack())
    assert returned[0] < PENDING_MAX / 2


def test_all_places_are_free_after_the_attack(registry: Registry) -> None:
    async def attack() -> None:
        async with party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker:
            async with attacker(broker.address) as hostile:
                await hostile.connect(*(source(n) for n in range(300)))
            await until(lambda: broker.driver.counters.pending == 0)
            assert not broker.driver._sessions._all
            assert broker.driver._sessions._admission.pending == 0

    asyncio.run(attack())
