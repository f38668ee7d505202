"""Translation of a plan's groups into the core's rows and channels, for router and reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from benchmarks.plan import MTU_BYTES, Group, RouterPlan
from benchmarks.sealed_channels import key_of
from gridstat.core.rows import (
    DATAGRAM_VERSION_SEALED,
    ChannelSpec,
    Limits,
    Route,
    Row,
    Term,
)
from gridstat.model.rate_law import Period

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gridstat.core._core import Core

ROWS_PER_COMMIT = 10_000


class Forwarding(Protocol):
    """Interface that the compiled core and the reference have in common here."""

    def open_channel(self, spec: ChannelSpec) -> None: ...

    def open_source(
        self,
        channel_id: int,
        *,
        is_publisher: bool = False,
        back_channel: int = 0,
        is_sealed: bool = False,
    ) -> None: ...

    def commit(self, upserts: list[Row]) -> None: ...


def period_of(group: Group) -> Period | None:
    """Return the group's period in the model's form."""
    return Period(*group.period) if group.period is not None else None


def rows_of(group: Group) -> Iterator[Row]:
    """Yield one row per variable of the group."""
    period = period_of(group)
    routes = tuple(
        Route(channel_id=way.channel_id, terms=tuple(Term(every) for every in way.every))
        for way in sorted(group.exits, key=lambda way: way.channel_id)
    )
    for index in range(group.count):
        yield Row(
            variable_id=group.first_id + index,
            period=period,
            phase_ns=index * group.phase_step_ns,
            source=group.source + index % group.sources,
            is_urgent=group.is_urgent,
            routes=routes,
        )


def limits_for(plan: RouterPlan) -> Limits:
    """Return limits with room for the plan's table, and no less than the defaults."""
    usual = Limits()
    variables = sum(group.count for group in plan.groups)
    rings = sum(group.count for group in plan.groups if group.period is None)
    return Limits(
        variables_max=max(usual.variables_max, variables), rings_max=max(usual.rings_max, rings)
    )


def load(core: Forwarding, plan: RouterPlan, *, in_memory: bool = False) -> None:
    """Open the plan's channels and sources and commit its rows."""
    for outlet in plan.outlets:
        address = (outlet.host, outlet.data_port, outlet.urgent_port)
        core.open_channel(
            ChannelSpec(
                channel_id=outlet.channel_id,
                mtu_bytes=MTU_BYTES,
                address=None if in_memory else address,
                datagram_version=DATAGRAM_VERSION_SEALED if plan.seal else 1,
                is_sealed=bool(plan.seal),
            )
        )
    for channel_id in plan.publishers:
        core.open_source(channel_id, is_publisher=True, is_sealed=bool(plan.seal))
    for channel_id in plan.upstreams:
        core.open_source(channel_id, is_publisher=False, is_sealed=bool(plan.seal))
    for batch in _batches(row for group in plan.groups for row in rows_of(group)):
        core.commit(batch)


def load_keys(core: Core, plan: RouterPlan) -> None:
    """Give the sealed channels of a plan their keys."""
    for outlet in plan.outlets:
        core.set_sending_key(outlet.channel_id, *key_of(outlet.channel_id))
    for channel_id in (*plan.publishers, *plan.upstreams):
        core.set_receiving_keys(channel_id, [key_of(channel_id)])


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == ROWS_PER_COMMIT:
            yield batch
            batch = []
    if batch:
        yield batch
