"""Channels that contracts with a tight latency closed to another contract while it was decided.

More load on such a channel might make the earlier contract late, so brokers plan around it. The
check of a refusal, or of a lowered contract, comes later: meanwhile the earlier contract may have
ended, been refused itself, or been changed to a longer latency. A contract that is granted with
fewer paths than desired is not raised for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.net.command.segment_messages import (
    ContractGranted,
    ContractRefused,
    NotReserved,
    Reserve,
)
from lab.simulation.tree.properties.promises import has_tight_latency, is_roomy, relied_on
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.broker.records.parent_state import AskedContract
    from lab.simulation.tree.grid import TreeGrid
    from lab.simulation.tree.properties.ways import Channel

DECIDING: Final = (ContractGranted, ContractRefused, NotReserved, Reserve)
"""Messages that a broker sends while it decides a contract."""


class _Decided(NamedTuple):
    contract: str
    name: str
    subscriber: str


class ClosedChannels:
    """Channels closed at any moment of a contract's decisions; kept where refusals are checked."""

    def __init__(self, grid: TreeGrid) -> None:
        self._grid = grid
        self._closed: dict[_Decided, set[Channel]] = {}

    def sent(self, message: object) -> None:
        """Note what is closed to a contract that a broker decides at this moment."""
        if not isinstance(message, DECIDING):
            return
        if not self._grid.swarm.is_quiet or not is_roomy(self._grid):
            return
        cloud, _, number = message.contract.partition("#")
        leaf = self._grid.leaf(cloud)
        asked = None if leaf is None else leaf.registry.tree.asked.get(int(number))
        if asked is None:
            return
        decided = _Decided(message.contract, asked.record.name, asked.record.subscriber)
        found = relied_on(self._grid) | set(_taken(self._grid, message.contract))
        if found:
            self._closed.setdefault(decided, set()).update(found)

    def to_contract(self, contract: str) -> frozenset[Channel]:
        """Return the channels that were closed to a contract."""
        found = (some for decided, some in self._closed.items() if decided.contract == contract)
        return frozenset().union(*found)

    def to_request(self, name: str, subscriber: str) -> frozenset[Channel]:
        """Return the channels that were closed to a subscriber's requests of a variable."""
        wanted = (name, subscriber)
        found = (some for decided, some in self._closed.items() if decided[1:] == wanted)
        return frozenset().union(*found)


def _taken(grid: TreeGrid, besides: str) -> Iterator[Channel]:
    """Yield the channels reserved, or tried, for undecided requests of a tight latency."""
    for cloud, leaf in grid.leaves().items():
        for number, asked in leaf.registry.tree.asked.items():
            contract = f"{cloud}#{number}"
            if contract != besides and _asks_for_tight_latency(grid, asked):
                yield from _taken_for(grid, contract, asked.record.name)


def _asks_for_tight_latency(grid: TreeGrid, asked: AskedContract) -> bool:
    record = asked.unanswered
    leaf = None if record is None else grid.leaf(cloud_of(record.name))
    publication = (
        None if record is None or leaf is None else leaf.registry.publications.get(record.name)
    )
    if record is None or publication is None:
        return False
    period = publication.variable.period
    return has_tight_latency({mode: qos.desired(period) for mode, qos in record.qos.modes.items()})


def _taken_for(grid: TreeGrid, contract: str, name: str) -> Iterator[Channel]:
    """Yield the channels that carry a contract's variable between clouds, or its segments."""
    publisher = grid.leaf(cloud_of(name))
    publication = None if publisher is None else publisher.registry.publications.get(name)
    for owner, broker in grid.qos_brokers().items():
        for number, account in broker.state.channels.accounts.items():
            if publication and publication.variable.variable_id in account.carriage.streams:
                yield owner, number
    for cloud, leaf in grid.leaves().items():
        for record in leaf.registry.segments():
            if record.contract == contract:
                yield from ((cloud, one) for path in record.paths for one in path.channel_ids)
