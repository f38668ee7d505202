"""Builds each part of a running grid from its plan; the only place that knows them all."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gridstat.console.grid import router_key, subscriber_key
from gridstat.core._core import Core
from gridstat.model.errors import ConfigurationError
from gridstat.router import ChannelSpec, Limits, StatusRouter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gridstat.console.grid import Grid
    from gridstat.console.static_plan import PlannedChannel, RouterPlan

Address = tuple[str, int, int]
"""Host, data port, urgent port."""


def build_router(name: str, *, limits: Limits | None = None) -> StatusRouter:
    """A router with an empty table and no ports yet."""
    core = Core(Limits() if limits is None else limits)
    return StatusRouter(name, core, clock_ns=time.monotonic_ns)


def connect_router(
    router: StatusRouter, plan: RouterPlan, *, addresses: Mapping[str, Address]
) -> None:
    """Open what the plan names and have its table, then close what it does not name.

    Also for a change while the router runs: what stays the same is not touched.
    """
    for source in plan.sources:
        router.open_source(
            source.channel_id, is_publisher=source.is_publisher, back_channel=source.back_channel
        )
    for channel in plan.channels:
        router.open_channel(channel_spec(channel, addresses))
    router.become(plan.variables, plan.paths)
    router.keep_only(
        channels=frozenset(channel.channel_id for channel in plan.channels),
        sources=frozenset(source.channel_id for source in plan.sources),
    )


def channel_spec(planned: PlannedChannel, addresses: Mapping[str, Address]) -> ChannelSpec:
    channel = planned.channel
    return ChannelSpec(
        channel_id=planned.channel_id,
        level=channel.level,
        floods=channel.floods,
        mtu_bytes=channel.mtu_bytes,
        bandwidth_bytes_per_s=channel.bandwidth_bytes_per_s,
        queue_events_max=channel.queue_events_max,
        address=addresses[planned.to_key],
    )


def fixed_addresses(grid: Grid, *, needed: set[str]) -> dict[str, Address]:
    """The addresses that a file itself names, by `router_key` and `subscriber_key`.

    A router that runs alone can learn no others, so the needed ones must be there.
    """
    known = {
        **{router_key(router.name): router.endpoint for router in grid.routers},
        **{subscriber_key(entry.name): entry.endpoint for entry in grid.subscribers},
    }
    for key in sorted(needed):
        if not known[key].has_fixed_ports:
            raise ConfigurationError(
                f"{grid.source}: {key}: its ports are left to be chosen",
                hint="a router that runs by itself must know them: "
                "write data_port and urgent_port for it, or start all with `gridstat up`",
            )
    return {key: endpoint.address for key, endpoint in known.items() if endpoint.has_fixed_ports}
