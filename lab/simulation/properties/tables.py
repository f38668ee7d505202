"""The tables of all routers, computed again from the live contracts; an oracle for the broker.

Written from the description of the protocol and not from `broker/tables/router_orders.py`, so that
a mistake there is not repeated here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.model.probe_law import probe_interval_ms, silence_limit_ms
from gridstat.net.command.router_messages import (
    ChannelOrder,
    PathOrder,
    SourceOrder,
    VariableOrder,
)
from lab.simulation.modes import terms
from lab.simulation.router_node import ModelTable
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from gridstat.broker.leaf_broker import LeafBroker
    from gridstat.broker.records.registry import Registry
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.order_table import OrderTable
    from lab.simulation.cloud import Cloud

VERSION: Final = 3
KINDS: Final = ("channels", "sources", "variables", "paths")


def check_tables(cloud: Cloud, broker: LeafBroker) -> None:
    """Check that oracle, broker, agent and core hold the same orders, router by router."""
    expected = expected_tables(broker.registry)
    for name, table in expected.items():
        wanted = broker.tables[name].wanted
        node = cloud.routers.get(name)
        _compare(name, "the broker wants", wanted, table)
        if node is not None and node.is_up and node.agent is not None:
            _compare(name, "the core holds", node.table, table)
            if wanted.digest != node.agent.table.digest:
                raise PropertyBroken("tables are in step", f"{name} has another digest")


def check_bare_tables(cloud: Cloud, broker: LeafBroker) -> None:
    """Check that routers without attachments hold only their channels with each other."""
    channels = broker.registry.channels
    for name in broker.registry.routers:
        node, wanted = cloud.routers.get(name), broker.tables[name].wanted
        extra = [*wanted.variables, *wanted.paths]
        extra += [
            number for number in (*wanted.channels, *wanted.sources) if number not in channels
        ]
        if extra:
            raise PropertyBroken("nothing is left behind", f"orders {extra} of router {name}")
        if node is not None and node.agent is not None and node.is_up:
            _compare(name, "the core holds", node.table, wanted)
            if wanted.digest != node.agent.table.digest:
                raise PropertyBroken("tables are in step", f"{name} has another digest")


def _compare(
    router: str, whose: str, found: ModelTable | OrderTable, expected: ModelTable | OrderTable
) -> None:
    if (
        found.paths == expected.paths
        and found.variables == expected.variables
        and found.channels == expected.channels
        and found.sources == expected.sources
    ):
        return
    for kind in KINDS:
        left, right = getattr(found, kind), getattr(expected, kind)
        for key in sorted(left.keys() | right.keys()):
            if left.get(key) != right.get(key):
                raise PropertyBroken(
                    "tables are those of the contracts",
                    f"{router}, {kind} {key}: {whose} {left.get(key)}, and not {right.get(key)}",
                )


def expected_tables(registry: Registry) -> dict[str, ModelTable]:
    tables = {name: ModelTable() for name in registry.routers}
    _order_channels(registry, tables)
    _order_attachments(registry, tables)
    carried: dict[tuple[str, int], StatusVariable] = {}
    sources: dict[tuple[str, int], int] = {}
    local: set[tuple[str, int]] = set()
    for publication in registry.publications.values():
        publisher = registry.endpoints[publication.publisher]
        number = int(publication.variable.variable_id)
        for edge, attachment in publisher.attachments.items():
            carried[edge, number] = publication.variable
            sources[edge, number] = attachment.up_channel_id
    for subscription in registry.subscriptions.values():
        record, number = subscription.record, int(subscription.variable.variable_id)
        subscriber = registry.endpoints[record.subscriber]
        for index, path in enumerate(record.paths):
            last = path.routers[-1]
            local.add((last, number))
            down = subscriber.attachments[last].down_channel_id
            head = (record.subscription_id << 16) + (record.generation % 256 << 8) + index * 16
            found = terms(record.granted, index)
            for path_id, (every, priority, modes) in enumerate(found, start=head):
                for router, channel_id in zip(path.routers, (*path.channel_ids, down), strict=True):
                    carried[router, number] = subscription.variable
                    tables[router].paths[path_id] = PathOrder(
                        path_id=path_id,
                        variable_id=number,
                        channel_id=channel_id,
                        every=every,
                        modes=modes,
                        priority=priority,
                    )
    for (router, number), variable in carried.items():
        source = sources.get((router, number), 0)
        tables[router].variables[number] = VariableOrder(
            variable_id=number,
            period=variable.period,
            phase_ns=variable.phase_ns if variable.period is not None else int(variable.is_belated),
            source=source,
            is_urgent=variable.is_alert,
            interval_ns_min=variable.interval_ns_min or variable.replay_interval_ns,
            keeps_newest=(router, number) in local,
            delay_ms=variable.delay_ms if source else 0,
        )
    return tables


def _order_channels(registry: Registry, tables: dict[str, ModelTable]) -> None:
    ends = {
        (one.from_router, one.to_router, one.name): number
        for number, one in registry.channels.items()
    }
    for number, channel in registry.channels.items():
        sender, receiver = channel.from_router, channel.to_router
        if sender not in registry.reports or receiver not in registry.reports:
            continue
        report = registry.reports[receiver]
        tables[sender].channels[number] = ChannelOrder(
            channel_id=number,
            to=receiver,
            host=report.host,
            data_port=report.data_port,
            urgent_port=report.urgent_port,
            level=channel.level,
            floods=True,
            mtu_bytes=channel.mtu_bytes,
            bandwidth_bytes_per_s=channel.bandwidth_bytes_per_s,
            queue_events_max=channel.queue_events_max,
            datagram_version=VERSION,
            probe_interval_ms=probe_interval_ms(channel.bandwidth_bytes_per_s),
            probes_only_when_idle=all(
                registry.reports[end].counts_data_as_life for end in (sender, receiver)
            ),
        )
        tables[receiver].sources[number] = SourceOrder(
            channel_id=number,
            sender=sender,
            back_channel=ends.get((receiver, sender, channel.name), 0),
            silent_ms_max=silence_limit_ms(probe_interval_ms(channel.bandwidth_bytes_per_s)),
            is_sealed=True,
        )


def _order_attachments(registry: Registry, tables: dict[str, ModelTable]) -> None:
    for name, endpoint in registry.endpoints.items():
        for edge, here in endpoint.attachments.items():
            tables[edge].channels[here.down_channel_id] = ChannelOrder(
                channel_id=here.down_channel_id,
                to=name,
                host=here.host,
                data_port=here.data_port,
                urgent_port=here.urgent_port,
                datagram_version=VERSION,
                is_endpoint=True,
            )
            tables[edge].sources[here.up_channel_id] = SourceOrder(
                channel_id=here.up_channel_id, sender=name, is_publisher=True, is_sealed=True
            )
