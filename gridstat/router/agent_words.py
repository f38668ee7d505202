"""What a router's agent hears and says beyond the words that all machines share.

The driver brings the events from the core (`status_router.py`) and does what the instructions say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from gridstat.net.command.machine import Event, Instruction

if TYPE_CHECKING:
    from gridstat.net.command.router_messages import ChangeTable, ReportCounters


@dataclass(frozen=True, slots=True)
class TableApplied:
    """The core has committed all changes up to this number (of `ApplyTable`)."""

    number: int


@dataclass(frozen=True, slots=True)
class TableFailed:
    """A change cannot be made; what the core now holds is not what the table says.

    Number 0: no change waits for an answer, for a channel that opened late touched the rows.
    """

    number: int
    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class SourceSilent:
    """Nothing came on an incoming channel for longer than its order allows."""

    channel_id: int
    silent_ms: int


@dataclass(frozen=True, slots=True)
class SourceHeard:
    """An incoming channel speaks, for the first time or again."""

    channel_id: int


@dataclass(frozen=True, slots=True)
class WaterMarkCrossed:
    """A paced channel's queue rose to its high mark, or fell back to its low one."""

    channel_id: int
    is_on: bool
    queued_events: int


@dataclass(frozen=True, slots=True)
class CountersRead:
    """The answer to `ReadCounters`."""

    report: ReportCounters


@dataclass(frozen=True, slots=True)
class Drain:
    """The process is about to end: take in nobody, and let the end-points go elsewhere."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The queues are empty: take leave of the broker too."""


@dataclass(frozen=True, slots=True)
class ApplyTable:
    """Bring the core to a change; numbers count over the life of the process, not the session.

    With `begins_anew` the change is a whole table, in one piece: what it does not name goes.
    """

    number: int
    change: ChangeTable


@dataclass(frozen=True, slots=True)
class SetModes:
    """The active modes as a mask; bit 0, the baseline, is always among them."""

    mask: int


@dataclass(frozen=True, slots=True)
class ReadCounters:
    """Say `CountersRead` with everything that the core counts."""


RouterEvent: TypeAlias = (
    Event
    | TableApplied
    | TableFailed
    | SourceSilent
    | SourceHeard
    | WaterMarkCrossed
    | CountersRead
    | Drain
    | Leave
)
RouterInstruction: TypeAlias = Instruction | ApplyTable | SetModes | ReadCounters
