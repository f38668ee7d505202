"""What may be set of a log; every bound has a name and a default."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Bounds of one log.

    A segment is closed when it has grown or aged enough. Near `log_bytes_max` the recorder raises
    an alarm; at it, appending is refused until segments are released: nothing is thrown away that
    the pipeline has not yet taken over.
    """

    segment_bytes_max: int = 128 * 1024 * 1024
    segment_s_max: float = 3_600.0
    log_bytes_max: int = 8 * 1024 * 1024 * 1024
    alarm_share: float = 0.8

    def __post_init__(self) -> None:
        assert 0 < self.segment_bytes_max <= self.log_bytes_max
        assert self.segment_s_max > 0
        assert 0 < self.alarm_share <= 1
