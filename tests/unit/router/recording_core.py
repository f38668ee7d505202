"""A stand-in for the core that only writes down what it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.core.rows import ChannelSpec, Row


class RecordingCore:
    """Remembers commits and calls in order; forwards nothing."""

    def __init__(self) -> None:
        self.commits: list[tuple[tuple[Row, ...], tuple[int, ...]]] = []
        self.calls: list[str] = []
        self.queued = 0

    def open_channel(self, spec: ChannelSpec) -> None:
        self.calls.append(f"open channel {spec.channel_id}")

    def close_channel(self, channel_id: int) -> dict[str, int]:
        self.calls.append(f"close channel {channel_id}")
        return {}

    def open_source(
        self, channel_id: int, *, is_publisher: bool = False, back_channel: int = 0
    ) -> None:
        self.calls.append(f"open source {channel_id} {is_publisher} {back_channel}")

    def close_source(self, channel_id: int) -> None:
        self.calls.append(f"close source {channel_id}")

    def commit(self, upserts: Sequence[Row] = (), removals: Sequence[int] = ()) -> None:
        self.calls.append("commit")
        self.commits.append((tuple(upserts), tuple(removals)))

    def set_modes(self, mask: int) -> None:
        self.calls.append(f"modes {mask}")

    def counters(self) -> dict[str, int]:
        return {"in": 0}

    def thread_counters(self) -> dict[str, int]:
        return {"kernel_dropped": 4}

    def channel_counters(self, channel_id: int) -> dict[str, int]:
        return {"queued": self.queued, "sent": channel_id}

    def latency_histogram(self) -> list[tuple[int, int]]:
        return []

    def listen(self, host: str, data_port: int = 0, urgent_port: int = 0) -> tuple[int, int]:
        self.calls.append(f"listen {host}")
        return data_port or 5_000, urgent_port or 5_001

    def start(self, *, cpu: int | None = None, fifo_priority: int = 0) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def close(self) -> None:
        self.calls.append("close")
