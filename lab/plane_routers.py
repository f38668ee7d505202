"""Routers of a management plane without a data plane: they hold their orders.

Each does only what a correct router must: it applies a change at once, confirms it with the digest
of the resulting table, and reports every channel as alive at once. The orders are the same objects
as in the message, which the broker holds too, so that most of the memory of a large plane is its
brokers'.
"""

from __future__ import annotations

from sys import getsizeof
from typing import Final

from gridstat.model.channel_security import HOP
from gridstat.net.command.machine import Connected, Received, Send
from gridstat.net.command.order_table import OrderTable
from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelSeed,
    ChannelStateChanged,
    ReportRouter,
    SeedAccepted,
    TableChanged,
)

HOST: Final = "10.0.0.1"
PORT_FIRST: Final = 1_024
PORTS: Final = 60_000


class PlaneRouter:
    """State machine like the agent of a real router, without a core and without end-points."""

    __slots__ = ("_broker", "_port", "_table", "name", "term")

    def __init__(self, name: str, broker: str, number: int) -> None:
        self.name = name
        self._broker = broker
        self._port = PORT_FIRST + number * 2 % PORTS
        self._table = OrderTable()
        self.term = 0

    @property
    def path_count(self) -> int:
        return len(self._table.paths)

    @property
    def size_bytes(self) -> int:
        """Return about how much memory this router itself takes."""
        held = self._table
        return sum(map(getsizeof, (held.channels, held.sources, held.variables, held.paths)))

    def handle(self, event: object, now_ns: int) -> list[Send]:
        del now_ns
        match event:
            case Connected():
                return [Send(self._broker, self._report())]
            case Received(message=ChangeTable() as change):
                return self._change(change)
            case Received(message=ChannelSeed() as seed) if seed.first_epoch < 0:
                accepted = SeedAccepted(
                    channel_id=seed.channel_id, number=seed.number, first_epoch=0
                )
                return [Send(self._broker, accepted)]
            case _:
                return []

    def _report(self) -> ReportRouter:
        return ReportRouter(
            host=HOST,
            data_port=self._port,
            urgent_port=self._port + 1,
            is_first_time=not self.term,
            digest=self._table.digest,
            term=self.term,
            command_host=HOST,
            command_port=1,
            datagram_versions=(1, 2, 3),
            endpoint_security=HOP,
        )

    def _change(self, change: ChangeTable) -> list[Send]:
        if change.term < self.term:
            return []
        self.term = change.term
        self._table.apply(change)
        reports = [
            Send(self._broker, ChannelStateChanged(channel_id=source.channel_id, is_up=True))
            for source in change.sources
            if source.silent_ms_max
        ]
        if not change.is_last:
            return reports
        return [
            Send(self._broker, TableChanged(number=change.number, digest=self._table.digest)),
            *reports,
        ]
