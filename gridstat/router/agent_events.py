"""Events and instructions of a router's agent, beyond those of every state machine.

The driver brings the events from the core (`status_router.py`) and performs the instructions.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct

from gridstat.model.keys.channel_keys import KeyNews
from gridstat.net.command.machine import Event, Instruction
from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelSeed,
    RefusedRows,
    ReportCounters,
)


class TableApplied(Struct, frozen=True):
    """The core has committed all changes up to this number (of `ApplyTable`).

    All but the rows of the `refused` variables, with the reasons.
    """

    number: int
    refused: RefusedRows = msgspec.field(default_factory=dict)


class TableFailed(Struct, frozen=True):
    """A change failed; the core does not hold what the table says.

    Number 0: no change waits for an answer, for a channel that opened late touched the rows.
    """

    number: int
    code: int
    reason: str


class SourceSilent(Struct, frozen=True):
    """An incoming channel was silent for longer than its order allows."""

    channel_id: int
    silent_ms: int


class SourceReceived(Struct, frozen=True):
    """An incoming channel receives datagrams, for the first time or again."""

    channel_id: int


class WaterMarkCrossed(Struct, frozen=True):
    """A paced channel's queue rose to its high mark, or fell back to its low one."""

    channel_id: int
    is_on: bool
    queued_events: int


class SourcePoliced(Struct, frozen=True):
    """Policed events of a publisher, by reason, in totals of one count.

    Another `count_id` means that the core has restarted the count of that variable.
    """

    channel_id: int
    variable_id: int
    count_id: int
    counts: dict[str, int]


class CountersRead(Struct, frozen=True):
    """The answer to `ReadCounters`."""

    report: ReportCounters


class SeedTaken(Struct, frozen=True):
    """The core accepts the keys of a seed on an incoming channel, from this epoch on."""

    channel_id: int
    number: int
    first_epoch: int


class AddressChecked(Struct, frozen=True):
    """The answer to `CheckAddress`; if it is proved, the channel sends events from now on."""

    channel_id: int
    is_proved: bool


class Drain(Struct, frozen=True):
    """The process is about to end: accept no end-points, and close their sessions."""


class Leave(Struct, frozen=True):
    """The queues are empty: close the session with the broker too."""


class ApplyTable(Struct, frozen=True):
    """Apply a change to the core; numbers count over the life of the process, not the session.

    With `begins_anew` the change is a whole table, in one piece: what it does not name goes.
    """

    number: int
    change: ChangeTable


class SetModes(Struct, frozen=True):
    """The active modes as a mask; bit 0, the baseline, is always among them."""

    mask: int


class TakeSeed(Struct, frozen=True):
    """Install the keys of a seed; for an incoming channel the answer is `SeedTaken`."""

    message: ChannelSeed


class ForgetSeeds(Struct, frozen=True):
    """Forget seeds whose channels are not open: the session that brought them has ended.

    Those of the kept channels stay: the edge router gave them itself.
    """

    kept: tuple[int, ...] = ()


class CheckAddress(Struct, frozen=True):
    """Release a held channel if this counter was sent on it; the answer is `AddressChecked`."""

    channel_id: int
    counter: int


class HoldChannel(Struct, frozen=True):
    """Send no events on a channel, and probes only if it is probed."""

    channel_id: int
    is_probed: bool


class ReadCounters(Struct, frozen=True):
    """Read all counters of the core; the answer is `CountersRead`."""


RouterEvent: TypeAlias = (
    Event
    | TableApplied
    | TableFailed
    | SourceSilent
    | SourceReceived
    | WaterMarkCrossed
    | SourcePoliced
    | CountersRead
    | SeedTaken
    | AddressChecked
    | KeyNews
    | Drain
    | Leave
)
RouterInstruction: TypeAlias = (
    Instruction
    | ApplyTable
    | SetModes
    | ReadCounters
    | TakeSeed
    | ForgetSeeds
    | CheckAddress
    | HoldChannel
)
