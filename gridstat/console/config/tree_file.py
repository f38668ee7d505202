"""The file of a broker above others: its children, and the channels between their clouds.

A channel belongs in the file of the lowest broker above both of its ends. Routers have full names
here (`c1/b0`); `cloud_file.py` is the file of a broker with routers of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AfterValidator, Field

from gridstat.console.config.channel_section import Address as ChannelAddress
from gridstat.console.config.channel_section import (
    ChannelName,
    Risks,
    directions,
    name_complaints,
)
from gridstat.console.config.cloud_file import (
    US_PER_MS,
    Host,
    KeysSection,
    LeaseTime,
    LogSection,
    Name,
    Parent,
    Port,
)
from gridstat.console.config.config_errors import complaint
from gridstat.console.config.metrics_tls import MetricsTlsSection
from gridstat.console.config.toml_file import Section, load_settings
from gridstat.model.band_law import BandPolicy
from gridstat.model.cloud import EventChannel, check_name
from gridstat.model.errors import LayoutError
from gridstat.model.identifiers import ChannelId
from gridstat.net.command.tree_messages import BORDERS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gridstat.model.errors import ConfigurationError

CHILDREN_MAX: Final = 4_096
HINT: Final = "`gridstat up` leaves the files of a working tree in its folder, to begin from"


def _router_name(value: str) -> str:
    try:
        check_name(value)
    except LayoutError as error:
        raise ValueError(f"{error.args[0]}|{error.hint}") from error
    if "/" not in value:
        raise ValueError("a router of which cloud?|write its full name, as in `c1/b0`")
    return value


RouterName = Annotated[str, AfterValidator(_router_name)]


class ChildSection(Section):
    """One `[[child]]`: a broker that may join below this one."""

    name: Name


class BorderChannelSection(Section):
    """One `[[channel]]` between clouds; `both_ways` declares the opposite direction with the same
    figures."""

    from_router: RouterName = Field(alias="from")
    to_router: RouterName = Field(alias="to")
    both_ways: bool = False
    name: ChannelName = ""
    risks: Risks = Field(default=[])
    from_address: ChannelAddress | None = None
    to_address: ChannelAddress | None = None
    bandwidth_bytes_per_s: int = Field(default=0, ge=0, le=10**12)
    latency_ms: float = Field(default=0.0, ge=0, le=60_000, strict=False)
    mtu_bytes: int = Field(default=1_232, ge=64, le=9_000)
    queue_events_max: int = Field(default=1_024, ge=1, le=2**20)
    security: Literal["hop", "none"] = "hop"


class TreeQuotaSection(Section):
    """`[quota]`: what one identity may reserve of each channel that this broker owns."""

    capacity_share_max: float = Field(default=0.5, ge=0, le=1, strict=False)


class TreeBandsSection(Section):
    """`[bands]`: what happens where a channel of this broker is full. A contract that was lowered
    for another, on its channels or in a cloud, may be raised again after `raise_after_s`.
    """

    policy: Literal["first-come", "bands"] = BandPolicy.BANDS.value
    raise_after_s: float = Field(default=10.0, ge=0.1, le=3_600, strict=False)


class TreeSettings(Section):
    """The whole file of a QoS broker; without a parent it is the root."""

    broker: Name
    parent: Parent = None
    certificates: str = "certificates"
    journal: str = "journal.sqlite"
    lease_s: LeaseTime = 2.0
    host: Host = "127.0.0.1"
    port: Port = 0
    metrics_port: Port | None = None
    metrics_host: Host | None = None
    metrics_tls: MetricsTlsSection | None = None
    child: list[ChildSection] = Field(min_length=1, max_length=CHILDREN_MAX)
    channel: list[BorderChannelSection] = Field(default=[], max_length=100_000)
    keys: KeysSection = KeysSection()
    quota: TreeQuotaSection = TreeQuotaSection()
    bands: TreeBandsSection = TreeBandsSection()
    log: LogSection = LogSection()

    @property
    def children(self) -> tuple[str, ...]:
        return tuple(child.name for child in self.child)


def load_tree(path: Path) -> tuple[TreeSettings, tuple[EventChannel, ...]]:
    """A broker's file; raises `ConfigurationError` naming file, key and remedy."""
    settings = load_settings(path, TreeSettings, hint=HINT)
    for problem in _complaints(settings, file=str(path)):
        raise problem
    return settings, border_channels(settings.channel)


def border_channels(sections: Sequence[BorderChannelSection]) -> tuple[EventChannel, ...]:
    """One-way channels in file order, numbered from 1; their owner adds its depth to both."""
    ways = [way for section in sections for way in directions(section)]
    return tuple(
        EventChannel(
            channel_id=ChannelId(number),
            from_router=from_router,
            to_router=to_router,
            bandwidth_bytes_per_s=section.bandwidth_bytes_per_s,
            latency_us=round(section.latency_ms * US_PER_MS),
            level=0,
            mtu_bytes=section.mtu_bytes,
            queue_events_max=section.queue_events_max,
            security=section.security,
            name=section.name,
            risks=tuple(section.risks),
            to_host=to_host,
        )
        for number, (from_router, to_router, to_host, section) in enumerate(ways, start=1)
    )


def border_complaints(
    sections: Sequence[BorderChannelSection], *, file: str
) -> Iterator[ConfigurationError]:
    """Yield the errors in channels between clouds, of any owner."""
    borders: dict[str, set[str]] = {}
    for index, section in enumerate(sections):
        for end in (section.from_router, section.to_router):
            known = borders.setdefault(cloud_of(end), set())
            if end not in known and len(known) == BORDERS_MAX:
                yield complaint(
                    file,
                    f"channel[{index}]",
                    f'"{end}" is the {BORDERS_MAX + 1}th border router of cloud {cloud_of(end)}',
                    hint=f"let the channel begin or end at one of the {BORDERS_MAX} before",
                )
            known.add(end)
        cloud = cloud_of(section.from_router)
        if cloud == cloud_of(section.to_router):
            yield complaint(
                file,
                f"channel[{index}].to",
                f"both ends are in cloud {cloud}",
                hint="a channel inside a cloud stands in that cloud's own file",
            )
    yield from name_complaints(sections, file=file)


def cloud_of(router: str) -> str:
    return router.partition("/")[0]


def _complaints(settings: TreeSettings, *, file: str) -> Iterator[ConfigurationError]:
    above = {settings.broker: "this broker itself"}
    if settings.parent is not None:
        if settings.parent.name == settings.broker:
            yield complaint(
                file,
                "parent.name",
                f'"{settings.broker}" is this broker itself',
                hint="every broker of a tree has a name of its own",
            )
        above[settings.parent.name] = "its parent"
    for index, child in enumerate(settings.child):
        if child.name in above:
            yield complaint(
                file,
                f"child[{index}].name",
                f'"{child.name}" is {above[child.name]}',
                hint="a child is a broker below this one, and stands here once",
            )
        above[child.name] = f"child[{index}] already"
    yield from border_complaints(settings.channel, file=file)
