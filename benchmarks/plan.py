"""Plans for the processes of a run, as plain values that travel as one JSON line."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

MTU_BYTES = 1_472
"""Pinned for all experiments: an Ethernet frame without fragments."""

Keep = Literal["ring", "newest", "count"]

HEADER_BYTES = 16
EVENT_BYTES = 24
WIDE_EVENT_BYTES = 144
PAGE_BYTES = 4_096
MICROSECOND = (1, 1_000_000)
"""Period of the streaming variables: a closed loop takes less than a window's 256 slots."""

MILLISECOND = (1, 1_000)
SLOTS_PER_SPACING = 8


@dataclass(frozen=True, slots=True)
class Exit:
    """Channel on which the variables of a group leave, every n-th slot for each n."""

    channel_id: int
    every: tuple[int, ...] = (1,)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        return cls(channel_id=fields["channel_id"], every=tuple(fields["every"]))


@dataclass(frozen=True, slots=True)
class Group:
    """Variables `first_id` … `first_id + count - 1`, alike but for their source and phase.

    Variable i of the group comes from source channel `source + i % sources` and has phase
    `i * phase_step_ns`. `period` None means aperiodic.
    """

    first_id: int
    count: int
    period: tuple[int, int] | None = MICROSECOND
    source: int = 1
    sources: int = 1
    phase_step_ns: int = 0
    is_urgent: bool = False
    exits: tuple[Exit, ...] = ()

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        period = fields["period"]
        exits = tuple(Exit.from_json(exit_fields) for exit_fields in fields["exits"])
        return cls(**{**fields, "period": tuple(period) if period else None, "exits": exits})


@dataclass(frozen=True, slots=True)
class Outlet:
    """Outgoing event channel of a router, with the destination of its datagrams."""

    channel_id: int
    host: str
    data_port: int
    urgent_port: int

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class RouterPlan:
    """One status router: channels in and out, and its whole table."""

    outlets: tuple[Outlet, ...]
    groups: tuple[Group, ...]
    publishers: tuple[int, ...] = (1,)
    upstreams: tuple[int, ...] = ()
    host: str = "127.0.0.1"
    fifo_priority: int = 0
    seal: str = ""
    """Library that seals all channels; empty: they are not sealed."""

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        return cls(
            outlets=tuple(Outlet.from_json(outlet) for outlet in fields["outlets"]),
            groups=tuple(Group.from_json(group) for group in fields["groups"]),
            publishers=tuple(fields["publishers"]),
            upstreams=tuple(fields["upstreams"]),
            host=fields["host"],
            fifo_priority=fields["fifo_priority"],
            seal=fields["seal"],
        )


@dataclass(frozen=True, slots=True)
class SubscriberPlan:
    """Receivers of one process; each gets its own 4 KiB of the page file and a mode of keeping."""

    receivers: int
    groups: tuple[Group, ...]
    keep: tuple[Keep, ...]
    page_path: str
    ring_events: int = 262_144
    host: str = "127.0.0.1"
    is_background: bool = False
    is_real_time: bool = False
    seal: str = ""
    """Library that opens sealed channels; empty: they are not sealed."""
    channels: tuple[int, ...] = ()
    """Sealed channels of each receiver, in their order."""

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        groups = tuple(Group.from_json(group) for group in fields["groups"])
        lists = {"keep": tuple(fields["keep"]), "channels": tuple(fields["channels"])}
        return cls(**{**fields, "groups": groups, **lists})


@dataclass(frozen=True, slots=True)
class PublisherPlan:
    """Senders of one process, channel `first_channel` and up, all to the same router."""

    host: str
    data_port: int
    urgent_port: int
    page_path: str = ""
    receivers: int = 0
    senders: int = 1
    first_channel: int = 1
    is_background: bool = False
    seal: str = ""

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class FlooderPlan:
    """A stranger that knows a sealed channel, and not its key."""

    host: str
    channel_id: int
    seal: str
    is_joined: bool = False
    """Datagrams leave as segments of a few large sends, which costs the machine less."""
    event_bytes: int = WIDE_EVENT_BYTES

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**fields)


def fitting_period(spacing_s: float) -> tuple[int, int]:
    """Return a period for variables whose events lie `spacing_s` apart, give or take a stall.

    Two of them must not share a slot, and a stall of several spacings must not leave the window of
    256 slots: both would cost events of the measurement.
    """
    return 1, max(1, round(SLOTS_PER_SPACING / spacing_s))


Plan = RouterPlan | SubscriberPlan | PublisherPlan | FlooderPlan


def to_json(plan: Plan) -> dict[str, Any]:
    """Return the plan in the form of the receiving role's `from_json`."""
    return asdict(plan)
