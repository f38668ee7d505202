"""Stand-ins for those who talk to a leaf broker: routers that hold real tables, a plain verifier,
a small cloud of two disjoint ways, and requests as end-points would make them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gridstat.model.channel_security import HOP, NONE, Security
from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId, VariableId
from gridstat.model.qos import MODES_MAX, ModalQos, QosRequest
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.model.status import BuiltinType, StatusVariable
from gridstat.net.command.endpoint_messages import (
    PublicationRequest,
    Publish,
    Subscribe,
    SubscriptionRequest,
)
from gridstat.net.command.endpoint_signatures import CertificateFacts
from gridstat.net.command.messages import (
    ChangeTable,
    ChannelSeed,
    ReportRouter,
    RouterAccepted,
    TableChanged,
)
from gridstat.net.command.order_table import OrderTable

CLOUD = "c1"
EVERY_MODE = frozenset(range(1, MODES_MAX))
"""Modes of brokers that define all of them; a daemon defines none."""
PMU = "c1/north/pmu"
CENTRE = "c1/centre/display"
VOLTAGE = f"{PMU}/voltage"
WALL_NS = 1_800_000_000 * NS_PER_S
CERTIFICATE_END_S = 2_000_000_000


class PlainVerifier:
    """Certificates are `role/name` in plain bytes, and a signature repeats what it signs."""

    def certificate(self, der: bytes) -> CertificateFacts:
        role, _, name = der.decode().partition("/")
        return CertificateFacts(role, name, der, CERTIFICATE_END_S)

    def signature(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        return signature == public_key + message


@dataclass
class FakeRouter:
    """Holds what it is ordered, and confirms unless told to keep silent."""

    name: str
    port: int
    host: str = "10.0.0.1"
    instance: str = "1"
    table: OrderTable = field(default_factory=OrderTable)
    is_connected: bool = False
    is_silent: bool = False
    is_first_time: bool = True
    attached: set[str] = field(default_factory=set)
    versions: tuple[int, ...] = (1, 2, 3)
    endpoint_security: Security = HOP
    seeds: list[ChannelSeed] = field(default_factory=list)
    counts_data_as_life: bool = True
    takes_probe_interval: bool = True
    accepted: list[RouterAccepted] = field(default_factory=list)
    changes: list[ChangeTable] = field(default_factory=list)
    unconfirmed: list[TableChanged] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    """Why its core cannot hold the rows of some variables."""

    @property
    def peer(self) -> str:
        return f"router/{self.name}"

    def report(self) -> ReportRouter:
        return ReportRouter(
            host=self.host,
            data_port=self.port,
            urgent_port=self.port + 1,
            command_host=self.host,
            command_port=self.port + 2,
            is_first_time=self.is_first_time,
            digest=self.table.digest,
            datagram_versions=self.versions,
            attached=tuple(sorted(self.attached)),
            counts_data_as_life=self.counts_data_as_life,
            takes_probe_interval=self.takes_probe_interval,
            endpoint_security=self.endpoint_security,
        )

    def crash(self) -> None:
        """Come back as a new process: empty, on other ports, without its end-points."""
        self.table.clear()
        self.instance = str(int(self.instance) + 1)
        self.port += 1_000
        self.is_first_time = True
        self.attached.clear()


def ring(
    *, bandwidth_bytes_per_s: int = 0, security: Security | None = None
) -> tuple[list[Router], list[EventChannel]]:
    """Two disjoint ways between two edges at either side.

    e0 and e1 are the publishers' edges, e2 and e3 the subscribers'; i0 and i1 stand between. With a
    bandwidth, channels are plain unless told otherwise, so that numbers are those of plain events.
    """
    routers = [
        Router(f"{CLOUD}/{name}", RouterRole.EDGE if name[0] == "e" else RouterRole.INNER)
        for name in ("e0", "e1", "e2", "e3", "i0", "i1")
    ]
    pairs = ["e0 i0", "e1 i1", "i0 e2", "i1 e3", "e0 i1", "e1 i0", "i0 e3", "i1 e2", "i0 i1"]
    ways = [pair.split() for pair in pairs]
    both = [*ways, *(way[::-1] for way in ways)]
    channels = [
        EventChannel(
            ChannelId(number),
            f"{CLOUD}/{start}",
            f"{CLOUD}/{end}",
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
            latency_us=500,
            security=security or (NONE if bandwidth_bytes_per_s else HOP),
        )
        for number, (start, end) in enumerate(both, start=1)
    ]
    return routers, channels


def check_soundness(table: OrderTable, change: ChangeTable) -> None:
    """Check as a real router does: no path without its variable, and none without its channel."""
    after = OrderTable()
    after.channels.update(table.channels)
    after.variables.update(table.variables)
    after.paths.update(table.paths)
    after.sources.update(table.sources)
    after.apply(change)
    if change.is_last:
        for path in after.paths.values():
            assert path.variable_id in after.variables, f"path {path.path_id:x} is of no variable"
            assert path.channel_id in after.channels, f"path {path.path_id:x} leads nowhere"


def variable(name: str, **facts: Any) -> StatusVariable:
    given: dict[str, Any] = {"value_type": BuiltinType.FLOAT64, "period": Period(1, 60), **facts}
    return StatusVariable(VariableId(0), name, **given)


def publish(*variables: StatusVariable) -> Publish:
    return Publish(publications=tuple(PublicationRequest(variable=one) for one in variables))


def subscribe(*names: str | QosRequest | None, value_type: Any = None) -> Subscribe:
    """Names, and at the end the quality for all of them."""
    request = next((one for one in names if isinstance(one, QosRequest)), QosRequest())
    asked = [
        SubscriptionRequest(name=name, qos=ModalQos({0: request}), value_type=value_type)
        for name in names
        if isinstance(name, str)
    ]
    return Subscribe(subscriptions=tuple(asked))
