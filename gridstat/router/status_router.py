"""A status router: orders in, tables and channels out, and the core in between.

Orders change the path table at once; the rows they touch reach the core coalesced, when the
caller's loop finds them due (`wait_s`, `commit_due`). There is no thread and no timer here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from secrets import token_bytes
from typing import TYPE_CHECKING, Final, Protocol

from gridstat.model.errors import GridStatError, LayoutError, UnknownName
from gridstat.model.identifiers import ChannelId, PathId, VariableId
from gridstat.model.keys.channel_keys import STEP_S, ChannelKeys, KeyNews, SeedInstalled
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.router_messages import ReportCounters
from gridstat.net.command.session_messages import MANY_MAX
from gridstat.router.commit_queue import CommitQueue
from gridstat.router.forwarding_table import forwarding_row
from gridstat.router.liveness import SourceLiveness
from gridstat.router.path_table import PathTable
from gridstat.router.policed_reports import PolicedEvents
from gridstat.router.router_channels import ChannelCore, RouterChannels, Source
from gridstat.router.table_orders import check_delta, check_whole, converted, valid_part
from gridstat.router.water_marks import WaterMarks, promised_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gridstat.core.rows import ChannelSpec, CopyFacts, Row
    from gridstat.net.command.router_messages import ChangeTable, ChannelSeed, SourceOrder
    from gridstat.router.agent_events import SourcePoliced
    from gridstat.router.channel_reports import ChannelNews
    from gridstat.router.path_table import CarriedVariable, Path

RETRY_EVERY_NS: Final = NS_PER_S
"""Interval of attempts to open a channel whose address could not be reached."""
KEYLESS_NS: Final = 10 * NS_PER_S
"""Time without a key after which a channel counts as one that does not get any."""
POLLS_PER_SILENCE: Final = 5
POLL_S_MIN, POLL_S_MAX = 0.02, 0.1
"""Bounds of the poll interval: a poll wakes the process, and back-pressure is reported after the
longest."""
NEAR_POLL_S_MIN: Final = 0.004
"""Shortest poll interval for a source that is nearly silent; the forwarding thread checks every 10
ms."""

REFUSALS_MAX: Final = 64
"""Refused commits after which all remaining rows are refused, to bound the work of a table."""
REASON_MAX: Final = 128
"""Characters of the reason for which a row is refused."""


class ForwardingCore(ChannelCore, Protocol):
    """Part of the core that a router needs; the compiled core and a test's stand-in both have
    it."""

    def source_states(self) -> dict[int, dict[str, int]]: ...
    def commit(self, upserts: Sequence[Row] = (), removals: Sequence[int] = ()) -> None: ...
    def newest(self, variable_id: int) -> bytes | None: ...
    def copies(self, variable_id: int) -> CopyFacts | None: ...
    def policed(self) -> dict[tuple[int, int], tuple[int, dict[str, int]]]: ...
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
    """Changes of one command; paths are torn down first, so identifiers may be reused."""

    torn_down: tuple[PathId, ...] = ()
    dropped: tuple[VariableId, ...] = ()
    carried: tuple[CarriedVariable, ...] = ()
    set_up: Mapping[PathId, Path] = field(default_factory=dict)


class StatusRouter:
    """Owns its core; every path leads to a commanded channel, and every change ends in a commit.

    In memory, channels have no address: the owner of the core carries their datagrams.
    """

    def __init__(
        self,
        name: str,
        core: ForwardingCore,
        *,
        clock_ns: Callable[[], int],
        in_memory: bool = False,
        random_bytes: Callable[[int], bytes] = token_bytes,
    ) -> None:
        self.name = name
        self._core = core
        self._clock_ns = clock_ns
        self._in_memory = in_memory
        self._table = PathTable()
        self._queue = CommitQueue(clock_ns)
        self._uncommitted: frozenset[VariableId] = frozenset()
        self._refused: dict[int, str] = {}
        self._orders_refused = 0
        self._keys = ChannelKeys(core, random_bytes)
        self._keys_ns = 0
        self._keyless_since: dict[int, int] = {}
        self._channels = RouterChannels(
            core, self._keys, clock_ns=clock_ns, random_bytes=random_bytes
        )
        self._liveness = SourceLiveness()
        self._marks = WaterMarks()
        self._policed = PolicedEvents()
        self._retry_ns = 0
        self._is_running = False
        self._fifo_priority = 0

    def listen(self, host: str, *, data_port: int = 0, urgent_port: int = 0) -> tuple[int, int]:
        """Bind the two ports (0: any free one) and return them."""
        return self._core.listen(host, data_port, urgent_port)

    # The broker's orders.

    def apply(self, change: ChangeTable) -> None:
        """Take a change of the table, or a whole one; what it does not touch goes on unharmed.

        A change that makes no sense is refused whole, and a whole table is taken without the
        orders that make none (`orders_refused`). What opens is open before any row leads
        there, and what closes closes after the last row has left.
        """
        try:
            parts = converted(change, in_memory=self._in_memory)
        except LayoutError:
            if not change.begins_anew:
                raise
            # The broker would send the same invalid orders again; the others are valid.
            change, self._orders_refused = valid_part(change)
            parts = converted(change, in_memory=self._in_memory)
        specs, carried, paths = parts
        closed_channels: Iterable[int] = change.closed_channels
        closed_sources: Iterable[int] = change.closed_sources
        if change.begins_anew:
            check_whole(change)
            named = {spec.channel_id for spec in specs}
            closed_channels = self._channels.specs.keys() - named
            sources = {order.channel_id for order in change.sources}
            closed_sources = tuple(self._channels.sources.keys() - sources)
        else:
            check_delta(change, channels=self._channels.commanded_ids(), table=self._table)
        for channel_id in closed_channels:
            self._channels.close_later(channel_id)
        for channel_id in closed_sources:
            self.close_source(channel_id)
        for spec in specs:
            self.open_channel(spec)
        for order in change.sources:
            self._open_commanded(order)
        if change.begins_anew:
            self.become(carried, paths)
        else:
            # A path is torn down before its variable is dropped, even if it is set up again.
            moved = (path_id for path_id, path in paths.items() if self._moves(path_id, path))
            torn_down = (*map(PathId, change.torn_down), *moved)
            dropped = tuple(VariableId(variable_id) for variable_id in change.dropped)
            self.change(TableChange(torn_down, dropped, carried, paths))
        self._queue.touch(self._uncommitted)
        self._uncommitted = frozenset()
        self._close_unused()

    def _moves(self, path_id: PathId, path: Path) -> bool:
        before = self._table.path(path_id)
        return before is not None and before.variable_id != path.variable_id

    def _open_commanded(self, order: SourceOrder) -> None:
        self.open_source(
            ChannelId(order.channel_id),
            is_publisher=order.is_publisher,
            back_channel=order.back_channel,
            is_sealed=order.is_sealed,
        )
        self._liveness.watch(
            order.channel_id,
            silent_ms_max=order.silent_ms_max,
            probe_interval_ms=order.probe_interval_ms,
        )

    def poll(self) -> list[ChannelNews]:
        """Return changes of the channels since the last time: silence, return, back-pressure."""
        now_ns = self._clock_ns()
        if now_ns >= self._retry_ns:
            self._retry_ns = now_ns + RETRY_EVERY_NS
            for channel_id in self._channels.retry():
                self._queue.touch(self._table.variables_on(ChannelId(channel_id)))
        queued = {
            channel_id: promised_events(self._core.channel_counters(channel_id))
            for channel_id in self._marks.channel_ids()
            if self._channels.is_open(channel_id)
        }
        return [*self._liveness.judge(self._core.source_states()), *self._marks.judge(queued)]

    # Keys of sealed channels.

    def take_seed(self, message: ChannelSeed) -> list[SeedInstalled]:
        """Install the keys of a seed; return it if it is for a source that accepts it now."""
        now_ns = self._clock_ns()
        if message.first_epoch >= 0:
            self._keys.use(message.seed, message.first_epoch, now_ns)
            return []
        return self._keys.accept(message.seed, now_ns)

    def take_installed(self) -> list[SeedInstalled]:
        """Return the seeds that had waited for their sources, and are accepted now."""
        return self._channels.take_installed()

    def forget_seeds(self, kept: Iterable[int] = ()) -> None:
        """Forget the seeds of channels that are not open, except those of kept ones."""
        self._keys.forget_waiting(frozenset(kept))

    def poll_keys(self) -> list[KeyNews]:
        """Move the keys of all channels on, if it is time; return what people must know of it."""
        now_ns = self._clock_ns()
        if now_ns < self._keys_ns:
            return []
        self._keys_ns = now_ns + int(STEP_S * NS_PER_S)
        news = self._keys.step(now_ns)
        self._keyless_since = {
            channel_id: self._keyless_since.get(channel_id, now_ns)
            for channel_id in self._keys.keyless()
        }
        return news

    # Proofs of end-points' addresses.

    def check_address(self, channel_id: int, counter: int) -> bool:
        """Release a held channel if the counter was sent on it; return whether it was."""
        return self._channels.check_address(channel_id, counter)

    def hold_channel(self, channel_id: int, *, is_probed: bool) -> None:
        """Send no events on a channel, and probes only if asked for."""
        self._channels.hold(channel_id, is_probed=is_probed)

    def poll_policed(self) -> list[SourcePoliced]:
        """Return the events policed since the last second, if one has passed."""
        now_ns = self._clock_ns()
        if not self._policed.is_due(now_ns):
            return []
        return self._policed.judge(self._core.policed(), now_ns)

    def poll_after_s(self) -> float:
        """Return the time until the next poll: often enough for the shortest watched silence.

        When a source is nearly silent for too long, the poll is due exactly when it will be.
        """
        silent_ns, after_ns = self._liveness.silent_ns_min, self._liveness.silent_after_ns
        if silent_ns is None:
            return POLL_S_MAX
        regular_s = max(POLL_S_MIN, min(POLL_S_MAX, silent_ns / NS_PER_S / POLLS_PER_SILENCE))
        if after_ns is None:
            return regular_s
        return min(regular_s, max(NEAR_POLL_S_MIN, after_ns / NS_PER_S))

    def report(self) -> ReportCounters:
        """All counters, as a broker wants them."""
        counters = {
            **self.counters(),
            "channels_waiting": len(self._channels.waiting_ids()),
            "orders_refused": self._orders_refused,
            "rows_refused": len(self._refused),
            "channels_without_key": len(self._keys.keyless()),
            "channels_long_without_key": self._long_keyless(),
            "seeds_overdue": len(self._keys.overdue(self._clock_ns())),
            "key_trials_dropped": self._keys.trials_dropped,
            "fifo_priority": self._fifo_priority,
        }
        return ReportCounters(
            router=counters, channels=self.channel_counters(), sources=self._core.source_states()
        )

    def _long_keyless(self) -> int:
        """Return the number of channels that have had no key for longer than an exchange takes."""
        since_ns = self._clock_ns() - KEYLESS_NS
        return sum(each <= since_ns for each in self._keyless_since.values())

    def refused_rows(self) -> dict[int, str]:
        """Return the reasons for which the core cannot hold some rows; of very many, the first."""
        return {each: self._refused[each] for each in islice(sorted(self._refused), MANY_MAX)}

    def newest(self, variable_id: int) -> bytes | None:
        """Return the newest event of a variable that the broker wants kept, if there was one."""
        return self._core.newest(variable_id)

    def copies(self, variable_id: int) -> CopyFacts | None:
        """Return the copies of a variable by incoming channel, where they are counted."""
        return self._core.copies(variable_id)

    # Channels and tables, one by one.

    def open_channel(self, spec: ChannelSpec) -> None:
        """Open an outgoing channel; reopen it where its address changes."""
        was_open = self._channels.is_open(spec.channel_id)
        self._channels.open(spec)
        if was_open != self._channels.is_open(spec.channel_id):
            self._queue.touch(self._table.variables_on(ChannelId(spec.channel_id)))
        if spec.bandwidth_bytes_per_s:
            self._marks.watch(spec.channel_id, queue_events_max=spec.queue_events_max)
        else:
            self._marks.forget(spec.channel_id)

    def close_channel(self, channel_id: int) -> None:
        self._channels.close(channel_id)
        self._marks.forget(channel_id)

    def open_source(
        self,
        channel_id: ChannelId,
        *,
        is_publisher: bool = False,
        back_channel: int = 0,
        is_sealed: bool = False,
    ) -> None:
        """Accept datagrams of a channel; a publisher's is policed."""
        self._channels.open_source(Source(channel_id, is_publisher, back_channel, is_sealed))

    def close_source(self, channel_id: int) -> None:
        self._channels.close_source(channel_id)
        self._liveness.forget(channel_id)

    def change(self, change: TableChange) -> None:
        """Change the path table; the core follows within 10 ms."""
        for path_id, path in change.set_up.items():
            if path.channel_id not in self._channels.specs:
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
        """Set exactly this table: only differences change, all else keeps its windows."""
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
        """Return the time until `commit_due` has something to do; None when the core holds
        everything commanded."""
        wait_ns = self._queue.wait_ns()
        return None if wait_ns is None else wait_ns / NS_PER_S

    def commit_due(self) -> int:
        """Commit the due changes to the core; return how many variables they touched."""
        return self._commit(self._queue.take_due())

    def commit_all(self) -> int:
        return self._commit(self._queue.take_all())

    def keep_only(self, *, channels: frozenset[int], sources: frozenset[int]) -> None:
        """Close channels that a new plan does not name, after all changes are committed."""
        self.commit_all()
        for channel_id in sorted(self._channels.specs.keys() - channels):
            self.close_channel(channel_id)
        for channel_id in sorted(self._channels.sources.keys() - sources):
            self.close_source(channel_id)

    def set_modes(self, mask: int) -> None:
        self._core.set_modes(mask)

    # Start and end of the router.

    def start(self, *, cpu: int | None = None, fifo_priority: int = 0) -> str | None:
        """Start forwarding; return the scheduling that the machine refused, if any."""
        self.commit_all()
        complaint = self._core.start(cpu=cpu, fifo_priority=fifo_priority)
        self._is_running = True
        self._fifo_priority = fifo_priority
        return complaint if isinstance(complaint, str) else None

    def refuse_new(self) -> None:
        """Close all sources, as the first half of draining; queued events are still sent."""
        for channel_id in tuple(self._channels.sources):
            self.close_source(channel_id)

    def queued_events(self) -> int:
        """Return the number of events queued by paced channels; draining has ended at 0."""
        return sum(counters["queued"] for counters in self.channel_counters().values())

    def close(self) -> None:
        if self._is_running:
            self._core.stop()
            self._is_running = False
        self._core.close()

    def counters(self) -> dict[str, int]:
        """Return the core's counters, with the losses of its sockets."""
        lost = self._core.thread_counters()["kernel_dropped"]
        return {**self._core.counters(), "kernel_dropped": lost}

    def channel_counters(self) -> dict[int, dict[str, int]]:
        return {
            channel_id: self._core.channel_counters(channel_id)
            for channel_id in self._channels.open_ids()
        }

    def latency_histogram(self) -> list[tuple[int, int]]:
        return self._core.latency_histogram()

    def _commit(self, touched: frozenset[VariableId]) -> int:
        if not touched:
            return 0
        began_ns = self._clock_ns()
        upserts: list[Row] = []
        removals: list[int] = []
        for variable_id in sorted(touched):
            variable = self._table.variable(variable_id)
            if variable is None:
                removals.append(variable_id)
            else:
                upserts.append(forwarding_row(variable, self._open_paths(variable_id)))
        try:
            refused = _commit_most(self._core, upserts, removals)
        except GridStatError:
            # The rows are as before; the next change of the table tries these again.
            self._uncommitted |= touched
            raise
        finally:
            self._queue.committed(began_ns=began_ns)
        self._note_refused(touched, refused)
        self._close_unused()
        return len(touched)

    def _note_refused(
        self, touched: frozenset[VariableId], refused: Mapping[int, GridStatError]
    ) -> None:
        """Note refused rows, and raise for new ones: each is reported once, so that the whole
        table, sent again, is confirmed except for it. Every change tries the row again."""
        new = sorted(refused.keys() - self._refused.keys())
        reasons = {each: str(error.args[0])[:REASON_MAX] for each, error in refused.items()}
        self._refused = {
            each: why for each, why in self._refused.items() if each not in touched
        } | reasons
        self._uncommitted |= {VariableId(variable_id) for variable_id in refused}
        if new:
            raise refused[new[0]]

    def _open_paths(self, variable_id: VariableId) -> list[Path]:
        return [
            path
            for path in self._table.paths_of(variable_id)
            if self._channels.is_open(path.channel_id)
        ]

    def _close_unused(self) -> None:
        """Close channels that no row uses, once every change has reached the core."""
        if self._queue.wait_ns() is None and not self._uncommitted:
            for channel_id in self._channels.close_unused():
                self._marks.forget(channel_id)


def _commit_most(
    core: ForwardingCore, upserts: Sequence[Row], removals: Sequence[int]
) -> dict[int, GridStatError]:
    """Commit all rows except those that the core refuses; return the errors by variable. One
    refused row must not keep the others from being forwarded; the core keeps the old row of a
    refused variable."""
    try:
        core.commit(upserts, removals)
    except GridStatError as error:
        if not upserts:
            raise
        last = error
    else:
        return {}
    if removals:  # Removals free capacity, and fail for no row.
        core.commit((), removals)
    refused: dict[int, GridStatError] = {}
    refusals = 0
    waiting: list[Sequence[Row]] = [upserts]
    while waiting:
        rows = waiting.pop()
        try:
            if refusals >= REFUSALS_MAX:
                raise last
            core.commit(rows, ())
        except GridStatError as error:
            last = error
            refusals += 1
            if len(rows) == 1 or refusals > REFUSALS_MAX:
                refused |= {row.variable_id: error for row in rows}
            else:
                waiting += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]
    return refused
