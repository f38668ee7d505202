"""Attack: end-points with valid certificates open as many sessions as a server has places."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

from gridstat.model.errors import QuotaReached
from gridstat.net.command.identity import Role
from gridstat.net.command.session_table import TableSettings
from tests.protocol.command_parties import BROKER, PATIENT, ROUTER, Registry, party, until

SERVED = [Role.ROUTER, Role.ENDPOINT, Role.OPERATOR]
SESSIONS_MAX = 8
END_POINTS_MAX = 6


def test_end_points_leave_places_for_a_router_and_an_operator(registry: Registry) -> None:
    async def attack() -> None:
        table = TableSettings(session=PATIENT, sessions_max=SESSIONS_MAX)
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(
                party(registry.credentials(BROKER), serves=SERVED, table=table)
            )
            greedy = [
                await stack.enter_async_context(party(registry.credentials(f"endpoint/c1/x/{n}")))
                for n in range(SESSIONS_MAX)
            ]
            for end_point in greedy:
                end_point.connect_to(server)
            await until(lambda: sum(one.failed_with(QuotaReached) for one in greedy) == 2)
            assert server.driver.counters.sessions == END_POINTS_MAX
            assert server.driver.counters.refused["QuotaReached"] >= 2
            for peer in (ROUTER.peer, "operator/c1/op"):
                honest = await stack.enter_async_context(party(registry.credentials(peer)))
                honest.connect_to(server)
                await until(partial(server.machine.is_connected, peer))
                assert not honest.failures

    asyncio.run(attack())
