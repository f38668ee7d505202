"""The file of one managed router: who it is, where it listens, and where its broker is.

What the router forwards is not in it: channels and paths come from the broker.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from gridstat.console.config.cloud_file import AddressText, Host, KeysSection, LogSection, Port
from gridstat.console.config.config_errors import complaint
from gridstat.console.config.metrics_tls import (
    LOOPBACK,
    MetricsTls,
    MetricsTlsSection,
    metrics_tls,
)
from gridstat.console.config.toml_file import Section, beside, load_settings, settings_of
from gridstat.core.rows import DATAGRAM_VERSION_MAX, Limits
from gridstat.model.channel_security import HOP, Security
from gridstat.model.cloud import RouterRole, check_name
from gridstat.model.errors import LayoutError
from gridstat.model.keys.key_settings import KEYS_DEFAULT, KeySettings
from gridstat.net.command.address import parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gridstat.net.command.address import Address

ARGUMENTS: Final = "arguments"
EDGE_KEYS: Final = ("endpoint_security", "keys")
"""Keys about the channels of end-points, which attach to edge routers alone."""
HINT: Final = "`gridstat router --help` shows a file to begin from"


def _full_name(value: str) -> str:
    try:
        check_name(value)
    except LayoutError as error:
        raise ValueError(f"{error.args[0]}|{error.hint}") from error
    if "/" not in value:
        raise ValueError("a router's name begins with its cloud|write it as in `c1/e0`")
    return value


class BrokerSection(Section):
    """`[broker]`: its addresses, tried in turn, or the name services that know them."""

    name: str = ""
    addresses: list[AddressText] = Field(default=[], max_length=16)
    name_service: list[AddressText] = Field(default=[], max_length=16)


class ListenSection(Section):
    """`[listen]`: address for events; `advertised_host` is sent to others instead of `host`."""

    host: Host = "127.0.0.1"
    data_port: Port = 0
    urgent_port: Port = 0
    advertised_host: Host | None = None


class CommandSection(Section):
    """`[command]`: where end-points open their sessions."""

    host: Host | None = None
    port: Port = 0
    advertised_host: Host | None = None


class LimitsSection(Section):
    """`[limits]`: bounds of the core and of the edge, fixed at the start."""

    variables_max: int = Field(default=131_072, ge=1, le=2**24)
    rings_max: int = Field(default=1_024, ge=1, le=2**20)
    channels_max: int = Field(default=1_024, ge=1, le=2**16)
    pool_small: int = Field(default=8_192, ge=0, le=2**22)
    pool_large: int = Field(default=256, ge=0, le=2**18)
    end_points_max: int = Field(default=1_024, ge=1, le=65_536)


class ThreadSection(Section):
    """`[thread]`: what the forwarding thread asks of the machine."""

    cpu: int | None = Field(default=None, ge=0, le=4_095)
    fifo_priority: int | None = Field(default=None, ge=0, le=99)
    locks_memory: bool = False


class RouterSettings(Section):
    """The whole file of a router."""

    name: Annotated[str, AfterValidator(_full_name)]
    role: Literal["edge", "inner", "border"] = "inner"
    certificates: str = "certificates"
    versions_max: int = Field(default=DATAGRAM_VERSION_MAX, ge=1, le=DATAGRAM_VERSION_MAX)
    metrics_port: Port | None = None
    metrics_host: Host | None = None
    metrics_tls: MetricsTlsSection | None = None
    broker: BrokerSection
    listen: ListenSection = ListenSection()
    command: CommandSection = CommandSection()
    endpoint_security: Literal["hop", "none"] = "hop"
    keys: KeysSection = KeysSection()
    limits: LimitsSection = LimitsSection()
    thread: ThreadSection = ThreadSection()
    log: LogSection = LogSection()


@dataclass(frozen=True, slots=True)
class RouterPlan:
    """A router as its file describes it, in plain values; ports of 0 are chosen at the start."""

    name: str
    role: RouterRole
    certificates: Path
    brokers: tuple[Address, ...]
    name_services: tuple[Address, ...]
    listen: tuple[str, int, int]
    advertised_host: str
    command: Address
    command_advertised_host: str
    limits: Limits
    end_points_max: int = 1_024
    versions_max: int = DATAGRAM_VERSION_MAX
    endpoint_security: Security = HOP
    """Whether the channels of end-points are sealed."""
    keys: KeySettings = KEYS_DEFAULT
    """Times of the seeds that an edge router gives to its end-points."""
    cpu: int | None = None
    fifo_priority: int | None = None
    """Priority of the forwarding thread; None: the usual one, if the process may have it; 0:
    ordinary scheduling."""
    locks_memory: bool = False
    metrics_port: int | None = None
    metrics_host: str = LOOPBACK
    metrics_tls: MetricsTls | None = None
    log_level: str = "info"
    is_log_json: bool = False

    @property
    def cloud(self) -> str:
        return self.name.partition("/")[0]

    @property
    def is_edge(self) -> bool:
        return self.role is RouterRole.EDGE


def load_router(path: Path) -> RouterPlan:
    """A router's file; raises `ConfigurationError` naming file, key and remedy."""
    return _plan_of(load_settings(path, RouterSettings, hint=HINT), path)


def router_from_arguments(document: Mapping[str, Any]) -> RouterPlan:
    """Return the settings of a router that a command line describes."""
    settings = settings_of(document, RouterSettings, file=ARGUMENTS)
    return _plan_of(settings, Path.cwd() / ARGUMENTS)


def _plan_of(settings: RouterSettings, path: Path) -> RouterPlan:
    _check(settings, file=str(path))
    listen, command, limits = settings.listen, settings.command, settings.limits
    advertised_host = listen.advertised_host or listen.host
    return RouterPlan(
        name=settings.name,
        role=RouterRole(settings.role),
        certificates=beside(path, settings.certificates),
        brokers=tuple(parse_address(text) for text in settings.broker.addresses),
        name_services=tuple(parse_address(text) for text in settings.broker.name_service),
        listen=(listen.host, listen.data_port, listen.urgent_port),
        advertised_host=advertised_host,
        command=(command.host or listen.host, command.port),
        command_advertised_host=command.advertised_host or command.host or advertised_host,
        limits=Limits(
            variables_max=limits.variables_max,
            rings_max=limits.rings_max,
            channels_max=limits.channels_max,
            pool_small=limits.pool_small,
            pool_large=limits.pool_large,
        ),
        end_points_max=limits.end_points_max,
        versions_max=settings.versions_max,
        endpoint_security=settings.endpoint_security,
        keys=settings.keys.settings(),
        cpu=settings.thread.cpu,
        fifo_priority=settings.thread.fifo_priority,
        locks_memory=settings.thread.locks_memory,
        metrics_port=settings.metrics_port,
        metrics_host=settings.metrics_host or LOOPBACK,
        metrics_tls=metrics_tls(
            path, settings.metrics_host, settings.metrics_port, settings.metrics_tls
        ),
        log_level=settings.log.level,
        is_log_json=settings.log.json_lines,
    )


def _check(settings: RouterSettings, *, file: str) -> None:
    """Check rules that involve several keys."""
    for key in EDGE_KEYS:
        if key in settings.model_fields_set and settings.role != RouterRole.EDGE.value:
            raise complaint(
                file,
                key,
                f'is for edge routers, and role is "{settings.role}"',
                hint=f'leave {key} out, or write role = "edge"; channels between routers are set '
                "in the cloud's file",
            )
    cloud = settings.name.partition("/")[0]
    broker = settings.broker
    if broker.name not in {"", cloud}:
        raise complaint(
            file,
            "broker.name",
            f'"{broker.name}" is not the broker of cloud "{cloud}"',
            hint="a router obeys the leaf broker of its own cloud; leave the key out",
        )
    if bool(broker.addresses) == bool(broker.name_service):
        raise complaint(
            file,
            "broker",
            "says both addresses and name_service" if broker.addresses else "says not where it is",
            hint='write addresses = ["127.0.0.1:7100"], or name_service = ["127.0.0.1:7101"]',
        )
    for key, host, advertised in (
        ("listen", settings.listen.host, settings.listen.advertised_host),
        ("command", settings.command.host, settings.command.advertised_host),
    ):
        is_any = host is not None and ipaddress.ip_address(host).is_unspecified
        if is_any and advertised is None:
            raise complaint(
                file,
                f"{key}.host",
                f'"{host}" is every address of this machine, and others need one of them',
                hint=f"write {key}.advertised_host, the address at which others reach it",
            )
    ports = (settings.listen.data_port, settings.listen.urgent_port)
    if ports[0] and ports[0] == ports[1]:
        raise complaint(
            file,
            "listen.urgent_port",
            f"{ports[1]} is the data port",
            hint="alerts need a port of their own",
        )
