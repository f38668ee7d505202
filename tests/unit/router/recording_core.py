"""A stand-in for the core that only records its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gridstat.model.errors import LinkDown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.core.rows import ChannelSpec, CopyFacts, Row
    from gridstat.model.errors import GridStatError


class RecordingCore:
    """Remembers commits and calls in order; forwards nothing.

    `unreachable` names channels that cannot be opened, `refusal` is what a commit then raises.
    """

    def __init__(self) -> None:
        self.commits: list[tuple[tuple[Row, ...], tuple[int, ...]]] = []
        self.calls: list[str] = []
        self.opened: dict[int, ChannelSpec] = {}
        self.sources: set[int] = set()
        self.sealed: set[int] = set()
        self.rows: dict[int, Row] = {}
        self.unreachable: set[int] = set()
        self.refusal: GridStatError | None = None
        self.states: dict[int, dict[str, int]] = {}
        self.sent: dict[int, int] = {}
        """Channel → counter at which it closed."""
        self.queued = 0
        self.replay_queued = 0
        self.policed_events: dict[tuple[int, int], tuple[int, dict[str, int]]] = {}

    def open_channel(self, spec: ChannelSpec) -> None:
        if spec.channel_id in self.unreachable:
            raise LinkDown(f"channel {spec.channel_id} cannot open")
        self.calls.append(f"open channel {spec.channel_id}")
        self.opened[spec.channel_id] = spec

    def source_states(self) -> dict[int, dict[str, int]]:
        return self.states

    def newest(self, variable_id: int) -> bytes | None:
        return bytes((variable_id,)) if self.commits else None

    def copies(self, _: int) -> CopyFacts | None:
        return None

    def policed(self) -> dict[tuple[int, int], tuple[int, dict[str, int]]]:
        return dict(self.policed_events)

    def close_channel(self, channel_id: int) -> dict[str, int]:
        self.calls.append(f"close channel {channel_id}")
        self.sent[channel_id] = self.sending_state(channel_id)["newest_counter"]
        del self.opened[channel_id]
        return {}

    def set_sending_key(self, channel_id: int, epoch: int, key: bytes, salt: bytes) -> None:
        del key, salt
        self.calls.append(f"sending key {channel_id} {epoch}")

    def clear_sending_key(self, channel_id: int) -> None:
        self.calls.append(f"no key {channel_id}")

    def sending_state(self, channel_id: int) -> dict[str, int]:
        before = self.sent.get(channel_id, 9)
        return {
            "epoch": -1,
            "datagrams": 0,
            "first_counter": before + 1,
            "newest_counter": before + 3,
        }

    def release_channel(self, channel_id: int) -> None:
        self.calls.append(f"release {channel_id}")

    def hold_channel(self, channel_id: int, *, is_probed: bool) -> None:
        self.calls.append(f"hold {channel_id} {is_probed}")

    def set_receiving_keys(self, channel_id: int, keys: Sequence[tuple[int, bytes, bytes]]) -> None:
        self.calls.append(f"receiving keys {channel_id} {len(keys)}")

    def receiving_state(self, channel_id: int) -> dict[str, Any]:
        del channel_id
        return {"epochs": (), "dropped_epochs": (), "unknown_epochs": ()}

    def open_source(
        self,
        channel_id: int,
        *,
        is_publisher: bool = False,
        back_channel: int = 0,
        is_sealed: bool = False,
    ) -> None:
        if is_sealed:
            self.sealed.add(channel_id)
        self.calls.append(f"open source {channel_id} {is_publisher} {back_channel}")
        self.sources.add(channel_id)

    def close_source(self, channel_id: int) -> None:
        self.calls.append(f"close source {channel_id}")
        self.sources.remove(channel_id)

    def commit(self, upserts: Sequence[Row] = (), removals: Sequence[int] = ()) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.calls.append("commit")
        self.commits.append((tuple(upserts), tuple(removals)))
        for variable_id in removals:
            self.rows.pop(variable_id, None)
        self.rows |= {row.variable_id: row for row in upserts}

    def set_modes(self, mask: int) -> None:
        self.calls.append(f"modes {mask}")

    def counters(self) -> dict[str, int]:
        return {"in": 0}

    def thread_counters(self) -> dict[str, int]:
        return {"kernel_dropped": 4}

    def channel_counters(self, channel_id: int) -> dict[str, int]:
        return {"queued": self.queued, "sent": channel_id} | (
            {"replay_queued": self.replay_queued} if self.replay_queued else {}
        )

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
