"""The file of one cloud: settings of its leaf broker, its routers and its channels (S0 §6.5).

Names in the file are short (`e0`); everywhere else they are full (`c1/e0`).
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from gridstat.console.config.access_section import (
    RULES_IN_FILE_MAX,
    AccessRuleSection,
    AccessWord,
    access_rules_of,
)
from gridstat.console.config.channel_section import Address as ChannelAddress
from gridstat.console.config.channel_section import (
    ChannelName,
    Risks,
    directions,
    name_complaints,
)
from gridstat.console.config.config_errors import complaint
from gridstat.console.config.metrics_tls import MetricsTlsSection
from gridstat.console.config.toml_file import Section, load_settings
from gridstat.model.band_law import BandPolicy
from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.errors import LayoutError
from gridstat.model.identifiers import ChannelId
from gridstat.model.keys.key_settings import KeySettings
from gridstat.model.probe_law import (
    INTERVAL_MS_MAX,
    INTERVALS_PER_SILENCE,
    PROBES_DEFAULT,
    silence_limit_ms,
)
from gridstat.net.command.address import parse_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gridstat.model.access_rules import AccessRule
    from gridstat.model.errors import ConfigurationError
    from gridstat.net.command.address import Address

US_PER_MS: Final = 1_000
MS_PER_S: Final = 1_000
EPOCH_S_MIN: Final = 0.5
_WORD: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"
HINT: Final = "`gridstat up --folder FOLDER` writes the files of a working cloud, to begin from"


def _plain_name(value: str) -> str:
    if not re.fullmatch(_WORD, value):
        raise ValueError("a name is letters, digits, `.`, `_` and `-`|write it as in `west-1`")
    return value


def _literal_address(value: str) -> str:
    try:
        ipaddress.ip_address(value)
    except ValueError as error:
        raise ValueError("not an IP address|write it in digits, `127.0.0.1` or `::1`") from error
    return value


def _address(value: str) -> str:
    try:
        parse_address(value)
    except LayoutError as error:
        raise ValueError(f"not an address|{error.hint}, as in `127.0.0.1:7100`") from error
    return value


def _no_empty_parent(value: object) -> object:
    """Check the parent: the empty text of older files means none; a name without an address is
    refused."""
    if isinstance(value, str) and value:
        raise ValueError(
            "a broker needs its parent's address too|write a table, [parent], with name and "
            "addresses"
        )
    return value or None


Name = Annotated[str, AfterValidator(_plain_name)]
Host = Annotated[str, AfterValidator(_literal_address)]
Port = Annotated[int, Field(ge=0, le=65_535)]
AddressText = Annotated[str, AfterValidator(_address)]
LeaseTime = Annotated[float, Field(ge=0.2, le=3_600, strict=False)]
"""Seconds without a sign of the active broker after which the stand-by takes over."""


class ParentSection(Section):
    """`[parent]`: the broker above, and its addresses, tried in turn."""

    name: Name
    addresses: list[AddressText] = Field(min_length=1, max_length=16)

    def places(self) -> list[Address]:
        return [parse_address(text) for text in self.addresses]


Parent = Annotated[ParentSection | None, BeforeValidator(_no_empty_parent)]


class RouterSection(Section):
    """One `[[router]]`; coordinates serve drawing."""

    name: Name
    role: Literal["edge", "inner", "border"] = "inner"
    events_per_s_max: int = Field(default=1_000_000, ge=1, le=10**9)
    x: float = Field(default=0.0, strict=False)
    y: float = Field(default=0.0, strict=False)


class ChannelSection(Section):
    """One `[[channel]]`; `both_ways` declares the opposite direction with the same figures."""

    from_router: Name = Field(alias="from")
    to_router: Name = Field(alias="to")
    both_ways: bool = False
    name: ChannelName = ""
    risks: Risks = Field(default=[])
    from_address: ChannelAddress | None = None
    to_address: ChannelAddress | None = None
    bandwidth_bytes_per_s: int = Field(default=0, ge=0, le=10**12)
    latency_ms: float = Field(default=0.0, ge=0, le=60_000, strict=False)
    level: int = Field(default=1, ge=0, le=255)
    mtu_bytes: int = Field(default=1_232, ge=64, le=9_000)
    queue_events_max: int = Field(default=1_024, ge=1, le=2**20)
    security: Literal["hop", "none"] = "hop"


class KeysSection(Section):
    """`[keys]`: how often keys of sealed channels change; shorter times are for tests.

    An end follows the other one every quarter of a second, so an epoch has two steps at least.
    """

    epoch_s: float = Field(default=120.0, ge=EPOCH_S_MIN, le=120, strict=False)
    reseed_s: float = Field(default=3_600.0, ge=EPOCH_S_MIN, le=3_600, strict=False)
    life_s: float = Field(default=86_400.0, ge=2 * EPOCH_S_MIN, le=86_400, strict=False)

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.epoch_s > self.reseed_s:
            raise ValueError(
                f"epoch_s {self.epoch_s:g} is longer than reseed_s {self.reseed_s:g}|"
                "a seed serves one epoch at least: shorten epoch_s"
            )
        if self.reseed_s > self.life_s / 2:
            raise ValueError(
                f"reseed_s {self.reseed_s:g} is longer than half of life_s {self.life_s:g}|"
                "a fresh seed must be missed once without harm: shorten reseed_s"
            )
        return self

    def settings(self) -> KeySettings:
        times = (self.epoch_s, self.reseed_s, self.life_s)
        return KeySettings(*(round(time_s * MS_PER_S) for time_s in times))


def _probe_interval_ms(read: dict[str, Any]) -> int:
    """Return the default interval of probes; three may be lost before a silence is a failure."""
    silent_ms_max = int(read.get("silent_ms_max", PROBES_DEFAULT.silent_ms_max))
    return max(1, min(INTERVAL_MS_MAX, silent_ms_max // INTERVALS_PER_SILENCE))


class TimingSection(Section):
    """`[timing]`: how quickly a silence is a failure, and how long the absent are waited for.

    `silent_ms_max` and `probe_interval_ms` are the least of all channels: a channel whose bandwidth
    is too narrow for such probes has longer ones (`model/probe_law.py`).
    """

    silent_ms_max: int = Field(
        default=PROBES_DEFAULT.silent_ms_max, ge=INTERVALS_PER_SILENCE, le=600_000
    )
    probe_interval_ms: int = Field(default_factory=_probe_interval_ms, ge=1, le=INTERVAL_MS_MAX)
    change_lead_ms: int = Field(default=200, ge=1, le=10_000)
    grace_s: float = Field(default=60.0, ge=0, le=86_400, strict=False)
    lease_s: LeaseTime = 2.0
    quarantine_s: float = Field(default=3_600.0, ge=60, le=10**7, strict=False)


class QuotaSection(Section):
    """`[quota]`: what one identity may use; access rules raise it for some."""

    publications_max: int = Field(default=10_000, ge=0, le=10**6)
    subscriptions_max: int = Field(default=10_000, ge=0, le=10**7)
    sessions_max: int = Field(default=2, ge=1, le=10)
    capacity_share: float = Field(default=0.25, ge=0, le=1, strict=False)
    commands_per_s: int = Field(default=200, ge=0, le=10**6)
    patterns_max: int = Field(default=1_000, ge=0, le=10**5)


class BandsSection(Section):
    """`[bands]`: what happens when a subscription does not fit; `raise_after_s` is the hold-down
    after which a contract that was lowered may be raised again.
    """

    policy: Literal["first-come", "bands", "bands+preempt"] = BandPolicy.BANDS.value
    raise_after_s: float = Field(default=10.0, ge=0.1, le=3_600, strict=False)


class LogSection(Section):
    """`[log]`: level and format of the log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    json_lines: bool = Field(default=False, alias="json")


class CloudSettings(Section):
    """The whole file of a leaf broker."""

    cloud: Name
    parent: Parent = None
    x: float = Field(default=100.0, strict=False)
    y: float = Field(default=100.0, strict=False)
    certificates: str = "certificates"
    journal: str = "journal.sqlite"
    host: Host = "127.0.0.1"
    port: Port = 0
    name_service_port: Port = 0
    metrics_port: Port | None = None
    metrics_host: Host | None = None
    metrics_tls: MetricsTlsSection | None = None
    router: list[RouterSection] = Field(min_length=1, max_length=10_000)
    channel: list[ChannelSection] = Field(default=[], max_length=100_000)
    timing: TimingSection = TimingSection()
    quota: QuotaSection = QuotaSection()
    bands: BandsSection = BandsSection()
    keys: KeysSection = KeysSection()
    access: AccessWord | None = None
    access_rule: list[AccessRuleSection] = Field(default=[], max_length=RULES_IN_FILE_MAX)
    log: LogSection = LogSection()


@dataclass(frozen=True, slots=True)
class Topology:
    """Routers and channels with their full names, and the access rules.

    Channels are numbered from 1 in file order. `access` is None if the file does not say whether
    the rules are enforced.
    """

    cloud: str
    routers: tuple[Router, ...]
    channels: tuple[EventChannel, ...]
    rules: tuple[AccessRule, ...] = ()
    access: AccessWord | None = None


def load_cloud(path: Path) -> tuple[CloudSettings, Topology]:
    """A broker's file; raises `ConfigurationError` naming file, key and remedy."""
    settings = load_settings(path, CloudSettings, hint=HINT)
    return settings, topology_of(settings, file=str(path))


def topology_of(settings: CloudSettings, *, file: str) -> Topology:
    for problem in _complaints(settings, file=file):
        raise problem
    ways = [way for section in settings.channel for way in directions(section)]
    return Topology(
        cloud=settings.cloud,
        routers=tuple(
            Router(
                name=f"{settings.cloud}/{section.name}",
                role=RouterRole(section.role),
                events_per_s_max=section.events_per_s_max,
                x=section.x,
                y=section.y,
            )
            for section in settings.router
        ),
        channels=tuple(
            EventChannel(
                channel_id=ChannelId(number),
                from_router=f"{settings.cloud}/{from_router}",
                to_router=f"{settings.cloud}/{to_router}",
                bandwidth_bytes_per_s=section.bandwidth_bytes_per_s,
                latency_us=round(section.latency_ms * US_PER_MS),
                level=section.level,
                mtu_bytes=section.mtu_bytes,
                queue_events_max=section.queue_events_max,
                security=section.security,
                name=section.name,
                risks=tuple(section.risks),
                to_host=to_host,
            )
            for number, (from_router, to_router, to_host, section) in enumerate(ways, start=1)
        ),
        rules=access_rules_of(settings.access_rule, file=file),
        access=settings.access,
    )


def _complaints(settings: CloudSettings, *, file: str) -> Iterator[ConfigurationError]:
    if settings.parent is not None and settings.parent.name == settings.cloud:
        yield complaint(
            file,
            "parent.name",
            f'"{settings.cloud}" is this broker itself',
            hint="every broker of a tree has a name of its own",
        )
    yield from _timing_complaints(settings.timing, file=file)
    names = [router.name for router in settings.router]
    for index, name in enumerate(names):
        if names.index(name) != index:
            yield complaint(
                file,
                f"router[{index}].name",
                f'"{name}" is already router[{names.index(name)}]',
                hint="give every router its own name",
            )
    yield from _channel_complaints(settings.channel, names, file=file)


def _timing_complaints(timing: TimingSection, *, file: str) -> Iterator[ConfigurationError]:
    needed_ms = silence_limit_ms(timing.probe_interval_ms)
    if timing.silent_ms_max < needed_ms:
        yield complaint(
            file,
            "timing.silent_ms_max",
            f"{timing.silent_ms_max} is less than {INTERVALS_PER_SILENCE} probe intervals of "
            f"{timing.probe_interval_ms} ms",
            hint=f"raise it to {needed_ms}, or leave probe_interval_ms out",
        )


def _channel_complaints(
    channels: Sequence[ChannelSection], names: Sequence[str], *, file: str
) -> Iterator[ConfigurationError]:
    for index, channel in enumerate(channels):
        for key, name in (("from", channel.from_router), ("to", channel.to_router)):
            if name not in names:
                yield complaint(
                    file,
                    f"channel[{index}].{key}",
                    f'there is no router "{name}"',
                    hint=f"routers of this file: {', '.join(names)}",
                )
        if channel.from_router == channel.to_router:
            yield complaint(
                file,
                f"channel[{index}].to",
                f'"{channel.to_router}" is where the channel begins',
                hint="a channel joins two routers",
            )
    yield from name_complaints(channels, file=file)
