"""Settings of logs and recorders; every bound has a name and a default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

MIB: Final = 1024 * 1024
LEDGER_S: Final = 60.0
"""Maximum age of the newest ledger reading in a log without losses."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Bounds of one log.

    A segment is closed when it reaches a size or an age. Near `log_bytes_max` the recorder raises
    an alarm; at it, appending is refused until segments are released: no record is dropped before
    the pipeline has archived it.
    """

    segment_bytes_max: int = 128 * MIB
    segment_s_max: float = 3_600.0
    log_bytes_max: int = 8_192 * MIB
    alarm_share: float = 0.8

    def __post_init__(self) -> None:
        assert 0 < self.segment_bytes_max <= self.log_bytes_max
        assert self.segment_s_max > 0
        assert 0 < self.alarm_share <= 1


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """Bounds of a whole recorder: its logs, the time between syncs, and the waiting events.

    `side` bounds each of the logs beside the events. Ledgers and counters are released when they
    are `account_s_max` old, and the oldest before the alarm of their log. Streams, contracts and
    gaps are never released, since every reader of the events needs them.
    """

    events: LogSettings = field(default_factory=LogSettings)
    side: LogSettings = field(
        default_factory=lambda: LogSettings(
            segment_bytes_max=32 * MIB, segment_s_max=86_400.0, log_bytes_max=1_024 * MIB
        )
    )
    sync_s: float = 0.2
    ring_events_max: int = 2 * MIB
    ring_bytes_max: int = 512 * MIB
    rows_bytes_max: int = 64 * MIB
    account_s_max: float = 7 * 86_400.0
    free_bytes_alarm: int = 512 * MIB
    """Free space of the file system below which an alarm is raised."""

    def __post_init__(self) -> None:
        assert self.sync_s > 0
        assert self.ring_events_max > 0
        assert self.ring_bytes_max > 0
        assert self.rows_bytes_max > 0
        assert self.account_s_max > 0
        assert self.free_bytes_alarm >= 0
