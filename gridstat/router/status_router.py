"""A status router: commands in, tables and channels out, and the core in between.

Commands change the path table at once; the rows they touch reach the core coalesced, when the
caller's loop finds them due (`wait_s`, `commit_due`). There is no thread and no timer here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from gridstat.model.errors import UnknownName
from gridstat.model.rate_law import NS_PER_S
from gridstat.router.commit_queue import CommitQueue
from gridstat.router.forwarding_table import forwarding_row
from gridstat.router.path_table import PathTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gridstat.core.rows import ChannelSpec, Row
    from gridstat.model.identifiers import ChannelId, PathId, VariableId
    from gridstat.router.path_table import CarriedVariable, Path


class ForwardingCore(Protocol):
    """What a router needs of the core; the compiled one and a test's stand-in both give it."""

    def open_channel(self, spec: ChannelSpec) -> None: ...
    def close_channel(self, channel_id: int) -> dict[str, int]: ...
    def open_source(
        self, channel_id: int, *, is_publisher: bool = False, back_channel: int = 0
    ) -> None: ...
    def close_source(self, channel_id: int) -> None: ...
    def commit(self, upserts: Sequence[Row] = (), removals: Sequence[int] = ()) -> None: ...
    def set_modes(self, mask: int) -> None: ...
    def counters(self) -> dict[str, int]: ...
    def thread_counters(self) -> dict[str, int]: ...
    def channel_counters(self, channel_id: int) -> dict[str, int]: ...
    def latency_histogram(self) -> list[tuple[int, int]]: ...
    def listen(self, host: str, data_port: int = 0, urgent_port: int = 0) -> tuple[int, int]: ...
    def start(self, *, cpu: int | None = None, fifo_priority: int = 0) -> object: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class TableChange:
    """One command's worth of changes; tearing down comes first, so identifiers may be reused."""

    torn_down: tuple[PathId, ...] = ()
    dropped: tuple[VariableId, ...] = ()
    carried: tuple[CarriedVariable, ...] = ()
    set_up: Mapping[PathId, Path] = field(default_factory=dict)


class StatusRouter:
    """Owns its core; every path leads to an open channel, and every change ends in a commit."""

    def __init__(self, name: str, core: ForwardingCore, *, clock_ns: Callable[[], int]) -> None:
        self.name = name
        self._core = core
        self._table = PathTable()
        self._queue = CommitQueue(clock_ns)
        self._channels: dict[int, ChannelSpec] = {}
        self._sources: dict[int, tuple[bool, int]] = {}
        self._is_running = False

    def listen(self, host: str, *, data_port: int = 0, urgent_port: int = 0) -> tuple[int, int]:
        """Take the two ports (0: any free one); the answer says which."""
        return self._core.listen(host, data_port, urgent_port)

    def open_channel(self, spec: ChannelSpec) -> None:
        """Open an outgoing channel, or open it anew where it now leads elsewhere."""
        if self._channels.get(spec.channel_id) == spec:
            return
        if spec.channel_id in self._channels:
            self._core.close_channel(spec.channel_id)
        self._core.open_channel(spec)
        self._channels[spec.channel_id] = spec

    def close_channel(self, channel_id: int) -> None:
        if self._channels.pop(channel_id, None) is not None:
            self._core.close_channel(channel_id)

    def open_source(
        self, channel_id: ChannelId, *, is_publisher: bool = False, back_channel: int = 0
    ) -> None:
        """Accept what arrives on a channel; a publisher's is policed."""
        if self._sources.get(channel_id) == (is_publisher, back_channel):
            return
        self.close_source(channel_id)
        self._core.open_source(channel_id, is_publisher=is_publisher, back_channel=back_channel)
        self._sources[channel_id] = (is_publisher, back_channel)

    def close_source(self, channel_id: int) -> None:
        if self._sources.pop(channel_id, None) is not None:
            self._core.close_source(channel_id)

    def change(self, change: TableChange) -> None:
        """Take commands into the path table; the core hears of them within 10 ms."""
        for path_id, path in change.set_up.items():
            if path.channel_id not in self._channels:
                raise UnknownName(
                    f"path {path_id} leads to channel {path.channel_id}, "
                    f"which router {self.name} has not opened"
                )
        for path_id in change.torn_down:
            self._queue.touch(self._table.tear_down(path_id))
        for variable_id in change.dropped:
            self._queue.touch(self._table.drop(variable_id))
        for variable in change.carried:
            self._queue.touch(self._table.carry(variable))
        for path_id, path in change.set_up.items():
            self._queue.touch(self._table.set_up(path_id, path))

    def become(self, variables: Iterable[CarriedVariable], paths: Mapping[PathId, Path]) -> None:
        """Have exactly this table: what differs changes, what does not keeps its windows."""
        wanted = {variable.variable_id: variable for variable in variables}
        self.change(
            TableChange(
                torn_down=tuple(self._table.path_ids() - paths.keys()),
                carried=tuple(wanted.values()),
                set_up=paths,
            )
        )
        gone = tuple(
            variable.variable_id
            for variable in self._table.variables()
            if variable.variable_id not in wanted
        )
        self.change(TableChange(dropped=gone))

    def wait_s(self) -> float | None:
        """How long the caller's loop may wait before `commit_due` has something to do."""
        wait_ns = self._queue.wait_ns()
        return None if wait_ns is None else wait_ns / NS_PER_S

    def commit_due(self) -> int:
        """Hand the due changes to the core; answers how many variables they touched."""
        return self._commit(self._queue.take_due())

    def keep_only(self, *, channels: frozenset[int], sources: frozenset[int]) -> None:
        """Close what a new plan no longer names; no path leads there once that is committed."""
        self.commit_all()
        for channel_id in self._channels.keys() - channels:
            self.close_channel(channel_id)
        for channel_id in self._sources.keys() - sources:
            self.close_source(channel_id)

    def commit_all(self) -> int:
        return self._commit(self._queue.take_all())

    def set_modes(self, mask: int) -> None:
        self._core.set_modes(mask)

    def start(self, *, cpu: int | None = None, fifo_priority: int = 0) -> None:
        self.commit_all()
        self._core.start(cpu=cpu, fifo_priority=fifo_priority)
        self._is_running = True

    def refuse_new(self) -> None:
        """First half of draining: nothing more comes in, what is queued still goes out."""
        for channel_id in tuple(self._sources):
            self.close_source(channel_id)

    def queued_events(self) -> int:
        """What the paced channels still hold; draining is over at 0."""
        return sum(
            self._core.channel_counters(channel_id)["queued"] for channel_id in self._channels
        )

    def close(self) -> None:
        if self._is_running:
            self._core.stop()
            self._is_running = False
        self._core.close()

    def counters(self) -> dict[str, int]:
        """The core's counters, with what its sockets lost before the core saw it."""
        lost = self._core.thread_counters()["kernel_dropped"]
        return {**self._core.counters(), "kernel_dropped": lost}

    def channel_counters(self) -> dict[int, dict[str, int]]:
        return {
            channel_id: self._core.channel_counters(channel_id)
            for channel_id in sorted(self._channels)
        }

    def latency_histogram(self) -> list[tuple[int, int]]:
        return self._core.latency_histogram()

    def _commit(self, touched: frozenset[VariableId]) -> int:
        if not touched:
            return 0
        upserts: list[Row] = []
        removals: list[int] = []
        for variable_id in sorted(touched):
            variable = self._table.variable(variable_id)
            if variable is None:
                removals.append(variable_id)
            else:
                upserts.append(forwarding_row(variable, self._table.paths_of(variable_id)))
        self._core.commit(upserts, removals)
        return len(touched)
