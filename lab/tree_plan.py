"""Plan of a tree of brokers: parents and children, the clouds below, the channels between them.

A leaf broker has its cloud's name. A channel between clouds belongs to the lowest broker above both
of its ends and is numbered in that broker's order, so a number means another channel elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.model.cloud import EventChannel
from gridstat.model.identifiers import ChannelId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gridstat.model.cloud import Router

BORDER_BIT: Final = 1 << 31
DEPTH_SHIFT: Final = 23
DEPTH_MASK: Final = 0xFF


@dataclass(frozen=True, slots=True)
class CloudPlan:
    """Content of a leaf broker's file; `edges` serve end-points, `borders` other clouds."""

    name: str
    routers: tuple[Router, ...]
    channels: tuple[EventChannel, ...]
    edges: tuple[str, ...]
    borders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """One broker: its place, and the channels between clouds that it owns."""

    name: str
    parent: str
    children: tuple[str, ...]
    above: tuple[str, ...]
    """Names of the brokers above, root first."""
    channels: tuple[EventChannel, ...] = ()

    @property
    def depth(self) -> int:
        return len(self.above)


@dataclass(frozen=True, slots=True)
class BorderLink:
    """Link between two border routers of different clouds."""

    one: str
    other: str
    latency_us: int
    bandwidth_bytes_per_s: int = 0
    queue_events_max: int = 1_024
    name: str = ""
    risks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TreePlan:
    """Brokers and clouds of a tree, parents before children."""

    brokers: dict[str, BrokerPlan]
    clouds: dict[str, CloudPlan]

    def scope(self, cloud: str) -> tuple[str, ...]:
        """Return the brokers above a cloud, root first, and its own."""
        return (*self.brokers[cloud].above, cloud)

    def common(self, one: str, other: str) -> str:
        """Return the lowest broker above both clouds; a cloud's own if they are the same."""
        return _common(self.scope(one), self.scope(other))

    def owner_of(self, cloud: str, channel_id: int) -> str:
        """Return the owner of the channel to which a router of this cloud gives a number."""
        if channel_id < BORDER_BIT:
            return cloud
        return self.brokers[cloud].above[depth_of(channel_id)]


def plan_tree(
    children: Mapping[str, tuple[str, ...]],
    clouds: Mapping[str, CloudPlan],
    links: Iterable[BorderLink],
) -> TreePlan:
    """Return the plan of brokers, parents first; a single one is a cloud without a parent."""
    above: dict[str, tuple[str, ...]] = {}
    for name in children or clouds:
        above.setdefault(name, ())
        for child in children.get(name, ()):
            above[child] = (*above[name], name)
    owned: dict[str, list[EventChannel]] = {}
    for link in links:
        one, other = cloud_of(link.one), cloud_of(link.other)
        owner = _common((*above[one], one), (*above[other], other))
        own = owned.setdefault(owner, [])
        depth = len(above[owner])
        for sender, receiver in ((link.one, link.other), (link.other, link.one)):
            number = BORDER_BIT | depth << DEPTH_SHIFT | len(own) + 1
            own.append(
                EventChannel(
                    ChannelId(number),
                    sender,
                    receiver,
                    bandwidth_bytes_per_s=link.bandwidth_bytes_per_s,
                    latency_us=link.latency_us,
                    level=depth,
                    queue_events_max=link.queue_events_max,
                    name=link.name,
                    risks=link.risks,
                )
            )
    brokers = {
        name: BrokerPlan(
            name,
            parent=higher[-1] if higher else "",
            children=tuple(children.get(name, ())),
            above=higher,
            channels=tuple(owned.get(name, ())),
        )
        for name, higher in above.items()
    }
    return TreePlan(brokers, dict(clouds))


def depth_of(channel_id: int) -> int:
    """Return the depth of the broker that owns a channel between clouds."""
    return channel_id >> DEPTH_SHIFT & DEPTH_MASK


def cloud_of(name: str) -> str:
    """Return the cloud of a router, an end-point or a variable: the first part of its name."""
    return name.partition("/")[0]


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> str:
    shared = ""
    for above, same in zip(one, other, strict=False):
        if above != same:
            break
        shared = above
    assert shared, "the two are not in one tree"
    return shared
