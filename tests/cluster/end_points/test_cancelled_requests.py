"""Cancelled requests on a real cloud: they leave no contract, and the connection works."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import gridstat
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from gridstat.endpoint.connection import Connection
    from tests.cluster.end_points.local_cloud import LocalCloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
RATE = 50


def test_whoever_cancels_gets_no_contract_and_the_connection_works_on(
    cloud: LocalCloud, pmu: Connection
) -> None:
    voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=RATE)
    with cloud.connect("c1/hasty") as hasty:

        async def give_up() -> None:
            waiting = asyncio.wrap_future(hasty.subscribe_later([voltage.name]))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            asked = asyncio.ensure_future(hasty.run(hasty.subscribe, voltage.name))
            await asyncio.sleep(0)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked

        asyncio.run(give_up())
        found = hasty.subscribe(voltage.name)
        assert found.contract.paths

        def others() -> str | None:
            held = hasty._link.subscriptions._by_id
            return None if list(held.values()) == [found] else f"{len(held)} contracts"

        eventually(others)
