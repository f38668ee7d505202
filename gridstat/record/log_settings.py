"""What may be set of a log; every bound has a name and a default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

MIB: Final = 1024 * 1024
LEDGER_S: Final = 60.0
"""So old the newest reading of a ledger in the log may be, if nothing was lost meanwhile."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Bounds of one log.

    A segment is closed when it has grown or aged enough. Near `log_bytes_max` the recorder raises
    an alarm; at it, appending is refused until segments are released: nothing is thrown away that
    the pipeline has not yet taken over.
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
    """Bounds of a whole recorder: its logs, how long an event may be unsafe, how many may wait.

    Beside the events, `side` bounds each of the small logs. Ledgers and counters are released when
    they are `account_s_max` old, and the oldest before the alarm of their log; streams, contracts
    and gaps never, for every reader of the events needs them.
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
    """With less room on the file system the alarm is raised, however small the logs are."""

    def __post_init__(self) -> None:
        assert self.sync_s > 0
        assert self.ring_events_max > 0
        assert self.ring_bytes_max > 0
        assert self.rows_bytes_max > 0
        assert self.account_s_max > 0
        assert self.free_bytes_alarm >= 0
