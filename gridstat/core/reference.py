"""The forwarding core in plain Python: oracle for the parity tests, baseline for benchmarks.

The methods follow an event: check the datagram, look the variable up, police and de-duplicate it,
flood or filter it by the rate law, and append one copy to each channel that it is due on. The code
is slow on purpose and easy to read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gridstat.core.closed_counters import ClosedCounters
from gridstat.core.counter_names import SEALED_REASONS
from gridstat.core.key_settings import checked_key, checked_keys, not_sealed
from gridstat.core.reference_datagram import (
    EVENT,
    OPTION_BYTES,
    Received,
    read_datagram,
    read_opened,
)
from gridstat.core.reference_egress import (
    BufferPool,
    DatagramWriter,
    Outgoing,
    PacedEgress,
    PackedEgress,
)
from gridstat.core.reference_seal import ReferenceOpening, ReferenceSealing, ReferenceSealKey
from gridstat.core.reference_sockets import MemoryLine, Sockets, UdpLine
from gridstat.core.reference_sources import Source, SourceState
from gridstat.core.reference_window import (
    CLOCK_AHEAD_NS,
    CLOCK_BEHIND_NS,
    QUIET_NS,
    Arrival,
    ArrivalRing,
    Refusal,
    SlotWindow,
)
from gridstat.core.rows import (
    BASELINE,
    CLASS_ALERT,
    PORT_DATA,
    PORT_URGENT,
    ChannelSpec,
    Limits,
    Row,
    check_channel,
    check_delta,
    check_limits,
    check_versions,
    counter_before,
)
from gridstat.model.copy_window import COPY_PATHS, CopyWindow, counted_every, open_slots
from gridstat.model.errors import LayoutError, LimitReached, Misuse, UnknownName
from gridstat.model.flooding import is_ahead, is_fresh
from gridstat.model.rate_law import slot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gridstat.core.key_settings import ChannelKey, ReceivingState, SendingState
    from gridstat.core.reference_datagram import Event
    from gridstat.core.rows import CopyFacts
    from gridstat.model.rate_law import Period

REASONS = {
    "malformed": ("short", "version", "epoch", "length", "option"),
    "unknown": ("channel", "variable"),
    "policed": ("port", "source", "stamp", "slot", "jump", "interval"),
}
ENDS = ("malformed", "unknown", "policed", "duplicate", "too_old", "not_due", "dispatched")
"""Every datagram that is malformed, and every event of the others, ends as exactly one of these."""


@dataclass(frozen=True, slots=True)
class Channel:
    """An outgoing channel with its socket and its egress."""

    spec: ChannelSpec
    line: MemoryLine | UdpLine
    egress: PackedEgress | PacedEgress


@dataclass(slots=True)
class Entry:
    """A row and the state of its variable."""

    row: Row
    seen: SlotWindow | ArrivalRing
    newest: Newest | None
    copies: RowCopies | None


class ReferenceCore:
    """The same calls as the compiled `Core`, with the same outcome; sockets only by `run`."""

    def __init__(self, limits: Limits | None = None, *, versions_max: int = 3) -> None:
        self._limits = limits or Limits()
        check_limits(self._limits)
        self._versions_max = check_versions(versions_max)
        self._pool = BufferPool(self._limits.pool_small, self._limits.pool_large)
        self._entries: dict[int, Entry] = {}
        self._sources: dict[int, Source] = {}
        self._channels: dict[int, Channel] = {}
        self._closed_counters = ClosedCounters()
        self._modes = 0
        self._touched: dict[int, Channel] = {}
        self._counts = dict.fromkeys(_counter_names(), 0)
        self._policed: dict[tuple[int, int], tuple[int, dict[str, int]]] = {}
        self._quiet_ns = self._listening_ns = 0
        self._sockets: Sockets | None = None

    # Changes by the management plane.

    @property
    def modes(self) -> int:
        """The active modes as they were set; the baseline (bit 0) is active beside them."""
        return self._modes

    def set_modes(self, mask: int) -> None:
        if not 0 <= mask < 2**64:
            raise LayoutError(f"modes {mask} do not fit into 64 bits")
        self._modes = mask

    def open_channel(self, spec: ChannelSpec) -> None:
        check_channel(spec, self._versions_max)
        if spec.channel_id in self._channels:
            raise LayoutError(f"channel {spec.channel_id} is open already", hint="close it first")
        if len(self._channels) >= self._limits.channels_max:
            raise LimitReached(f"{self._limits.channels_max} channels are open")
        if len(self._named_channels() | {spec.channel_id}) > 2 * self._limits.channels_max:
            raise LimitReached("too many closed channels are still named by rows")
        line = MemoryLine() if spec.address is None else UdpLine(spec.address)
        # Counters go on where the id's last channel ended: no pair of both comes twice.
        last_number = counter_before(spec, self._closed_counters.of(spec.channel_id))
        writer = DatagramWriter(spec, line, last_number=last_number)
        egress = PacedEgress(writer) if spec.bandwidth_bytes_per_s > 0 else PackedEgress(writer)
        self._closed_counters.opened(spec.channel_id)
        self._channels[spec.channel_id] = Channel(spec, line, egress)

    def close_channel(self, channel_id: int) -> dict[str, int]:
        """Close a channel, drop its queued events, and return its final counters."""
        channel = self._open(channel_id)
        channel.egress.close()
        channel.line.close()
        del self._channels[channel_id]
        self._closed_counters.closed(channel_id, channel.egress.writer.last_number)
        return channel.egress.writer.counters

    def release_channel(self, channel_id: int) -> None:
        """Send events too on a channel that was opened held."""
        writer = self._open(channel_id).egress.writer
        writer.is_held, writer.is_probed = False, True

    def hold_channel(self, channel_id: int, *, is_probed: bool) -> None:
        """Send no events until `release_channel`, and probes only if asked for."""
        writer = self._open(channel_id).egress.writer
        if not (writer.spec.is_sealed or writer.spec.is_held):
            raise Misuse(f"channel {channel_id} cannot be held", hint="open it with is_held")
        writer.is_held, writer.is_probed = True, is_probed

    def set_sending_key(self, channel_id: int, epoch: int, key: bytes, salt: bytes) -> None:
        """Seal with this key from the next datagram on."""
        checked_key(epoch, key, salt)
        sealing = ReferenceSealing(epoch, ReferenceSealKey(key, salt))
        self._sealed(channel_id).sealing = sealing

    def clear_sending_key(self, channel_id: int) -> None:
        """Take the key away: the channel sends nothing until it has another."""
        self._sealed(channel_id).sealing = None

    def sending_state(self, channel_id: int) -> SendingState:
        """Return the epoch in use, the datagrams under its key, and the counters."""
        writer = self._open(channel_id).egress.writer
        sealing = writer.sealing
        return {
            "epoch": -1 if sealing is None else sealing.epoch,
            "datagrams": 0 if sealing is None else sealing.datagrams,
            "first_counter": writer.first_number,
            "newest_counter": writer.last_number,
        }

    def set_receiving_keys(self, channel_id: int, keys: Iterable[ChannelKey]) -> None:
        """Accept these keys on a sealed source and no others; one that stays keeps its windows."""
        checked = checked_keys(keys)
        self._opening(channel_id).set_keys(checked)

    def receiving_state(self, channel_id: int) -> ReceivingState:
        """Return the epoch last authenticated, and the unknown epochs since the last call."""
        return self._opening(channel_id).state()

    def _sealed(self, channel_id: int) -> DatagramWriter:
        writer = self._open(channel_id).egress.writer
        if not writer.spec.is_sealed:
            raise not_sealed(channel_id)
        return writer

    def _opening(self, channel_id: int) -> ReferenceOpening:
        source = self._sources.get(channel_id)
        if source is None:
            raise UnknownName(f"no source {channel_id} is open")
        if not source.is_sealed:
            raise not_sealed(channel_id)
        return source.state.opening

    def open_source(
        self,
        channel_id: int,
        *,
        is_publisher: bool = False,
        back_channel: int = 0,
        is_sealed: bool = False,
    ) -> None:
        if not 0 < channel_id < 2**32 or not 0 <= back_channel < 2**32:
            raise LayoutError(f"{channel_id} or {back_channel} is not a channel id")
        known = self._sources.get(channel_id)
        state = SourceState(opened_ns=self._quiet_ns) if known is None else known.state
        if not is_sealed:
            state.opening.set_keys(())
        self._sources[channel_id] = Source(channel_id, is_publisher, back_channel, state, is_sealed)

    def close_source(self, channel_id: int) -> None:
        if self._sources.pop(channel_id, None) is None:
            raise UnknownName(f"no source {channel_id} is open")

    def source_states(self) -> dict[int, dict[str, int]]:
        """Return, by open source, when a datagram last came, the silence since, and the losses."""
        return {
            channel_id: source.state.facts(self._quiet_ns, self._listening_ns)
            for channel_id, source in self._sources.items()
        }

    def commit(self, upserts: Sequence[Row] = (), removals: Sequence[int] = ()) -> None:
        """Change the table by one atomic delta."""
        check_delta(tuple(upserts), tuple(removals))
        for route in (route for row in upserts for route in row.routes):
            self._open(route.channel_id)
        entries = dict(self._entries)
        for variable_id in removals:
            entries.pop(variable_id, None)
        for row in upserts:
            entries[row.variable_id] = self._entry(row, entries.get(row.variable_id))
        rings = sum(isinstance(entry.seen, ArrivalRing) for entry in entries.values())
        if len(entries) > self._limits.variables_max:
            raise LimitReached(f"{len(entries)} variables, at most {self._limits.variables_max}")
        if rings > self._limits.rings_max:
            raise LimitReached(f"{rings} aperiodic variables, at most {self._limits.rings_max}")
        self._entries = entries

    def _named_channels(self) -> set[int]:
        """The open channels, and the closed ones that a row would find again."""
        routes = (route for entry in self._entries.values() for route in entry.row.routes)
        return {*self._channels, *(route.channel_id for route in routes)}

    def _entry(self, row: Row, old: Entry | None) -> Entry:
        newest = Newest(row.newest_options_max) if row.keeps_newest else None
        if old and old.newest and newest and old.newest.options_max == newest.options_max:
            newest = old.newest
        if old and _clock_of(old.row) == _clock_of(row):
            return Entry(row, old.seen, newest, _copies_of(row, old.copies))
        seen: SlotWindow | ArrivalRing
        if row.period is None:
            seen = ArrivalRing(self._limits.ring_expiry_ns)
        else:
            seen = SlotWindow(row.period)
        return Entry(row, seen, newest, _copies_of(row, None))

    # The path of an event.

    def inject(self, datagram: bytes, *, port: int = PORT_DATA, now_ns: int) -> None:
        """Take one datagram as if received now, and send all that follows from it."""
        self._receive(datagram, port=port, now_ns=now_ns)
        for channel in self._touched.values():
            channel.egress.flush(now_ns)
        self._touched.clear()
        self._pump_paced(now_ns)
        self._note_quiet(now_ns)

    def pump(self, now_ns: int) -> None:
        """Send what waits for its channel's pace and may go by now, and the probes that are due."""
        self._pump_paced(now_ns)
        for channel in self._channels.values():
            if channel.spec.probe_interval_ns:
                channel.egress.probe(now_ns)
        self._note_quiet(now_ns)

    def _pump_paced(self, now_ns: int) -> None:
        for channel in self._channels.values():
            channel.egress.pump(now_ns)

    def _note_quiet(self, now_ns: int) -> None:
        self._listening_ns = self._listening_ns or now_ns
        self._quiet_ns = max(self._quiet_ns, now_ns)

    def _receive(self, datagram: bytes, *, port: int, now_ns: int) -> None:
        self._counts["datagrams_in"] += 1
        self._counts["bytes_in"] += len(datagram)
        received = self._read(datagram, port)
        if isinstance(received, str):
            self._counts[received] += 1
            return
        source = self._sources.get(received.channel_id)
        if source is not None:
            is_probe = not received.events
            source.state.note(received.counter, port=port, is_probe=is_probe, now_ns=now_ns)
        for event in received.events:
            end = self._end_of(event, source, port=port, now_ns=now_ns)
            self._counts[end] += 1
            if source is not None and source.is_publisher and end.startswith("policed_"):
                _, counts = self._policed.setdefault(
                    (source.channel_id, event.variable_id), (2, {})
                )
                reason = end.removeprefix("policed_")
                counts[reason] = counts.get(reason, 0) + 1

    def _read(self, datagram: bytes, port: int) -> Received | str:
        """Return the datagram, opened if it is sealed, or the name of the counter of its fault."""
        received = read_datagram(datagram, self._versions_max)
        if isinstance(received, str):
            return received
        source = self._sources.get(received.channel_id)
        if isinstance(received, Received):
            is_sealed = source is not None and source.is_sealed
            return "sealed_plain" if is_sealed else received
        if source is None or not source.is_sealed:
            return "sealed_unknown_channel"
        opened = source.state.opening.open(datagram, port)
        return opened if isinstance(opened, str) else read_opened(opened)

    def _end_of(self, event: Event, source: Source | None, *, port: int, now_ns: int) -> str:
        """Process the event and return the name of the counter that it ends in."""
        if source is None:
            return "unknown_channel"
        entry = self._entries.get(event.variable_id)
        if entry is None:
            return "unknown_variable"
        row = entry.row
        refusal = self._police(event, entry, source, port=port, now_ns=now_ns)
        if refusal is not None:
            return refusal
        slot = None if row.period is None else slot_of(event.created_ns, row.period, row.phase_ns)
        again = _offer(entry, event, slot, is_publisher=source.is_publisher, now_ns=now_ns)
        scope = _flooding_scope(row, self._modes | BASELINE, slot)
        is_counted = scope is None and again in {None, "duplicate"}
        if is_counted and entry.copies is not None and slot is not None:
            channel_id = 0 if source.is_publisher else source.channel_id
            entry.copies.note(channel_id, slot, is_first=again is None)
        if again is not None:
            return again
        if entry.newest is not None and not entry.newest.keep(event, now_ns):
            self._counts["newest_too_large"] += 1
        age_ns, bound_ns = now_ns - event.created_ns, self._limits.stamp_bound_ns
        if scope is not None and not _may_flood(row, entry.seen, age_ns, now_ns, bound_ns):
            self._counts["flood_withheld"] += 1
            scope = None
        return "dispatched" if self._dispatch(event, row, slot, source, scope) else "not_due"

    def _police(
        self, event: Event, entry: Entry, source: Source, *, port: int, now_ns: int
    ) -> str | None:
        """Return the counter of the rule that the event breaks, or None."""
        row = entry.row
        if port == PORT_URGENT and not row.is_urgent:
            return "policed_port"
        bound_ns = self._limits.stamp_bound_ns
        if not source.is_publisher:  # The first hop has looked already.
            return "policed_stamp" if _is_forged(row, event.created_ns - now_ns, bound_ns) else None
        if row.source != source.channel_id:
            return "policed_source"
        if not row.is_stamp_exempt:
            ahead_ns = event.created_ns - now_ns
            is_near = bound_ns == 0 or -behind_of(row, bound_ns) <= ahead_ns <= ahead_of(
                row, bound_ns
            )
            return None if is_near else "policed_stamp"
        if row.period is None:
            return None  # Its ring looks at the pace of what is no copy.
        keeps = entry.seen.pace.keeps(row.interval_ns_min, now_ns=now_ns, is_burst=True)
        return None if keeps else "policed_interval"

    def _dispatch(
        self, event: Event, row: Row, slot: int | None, source: Source, scope: int | None
    ) -> bool:
        """Append one copy to every channel that the event is due on; return whether there was
        one."""
        flooded: list[tuple[Channel, int]] = []
        if scope is not None:
            self._counts["flooded"] += 1
            flooded.extend(self._flooded(scope, source))
        copies = [*flooded, *self._routed(row, slot, scope)]
        port = PORT_URGENT if row.is_urgent else PORT_DATA
        outgoing = Outgoing(event.octets, port, self._pool)
        for channel, traffic_class in copies:
            channel.egress.append(outgoing, traffic_class)
            self._touched[channel.spec.channel_id] = channel
        return bool(copies)

    def _flooded(self, scope: int, source: Source) -> Iterator[tuple[Channel, int]]:
        """Yield all channels in the scope except the one back to the sender."""
        for channel_id, channel in sorted(self._channels.items()):
            if _is_in_scope(channel.spec, scope) and channel_id != source.back_channel:
                yield channel, CLASS_ALERT

    def _routed(
        self, row: Row, slot: int | None, scope: int | None
    ) -> Iterator[tuple[Channel, int]]:
        """Yield the channels outside of the scope where some term is active and due."""
        active = self._modes | BASELINE
        for route in row.routes:
            channel = self._channels.get(route.channel_id)
            if channel is None or (scope is not None and _is_in_scope(channel.spec, scope)):
                continue
            if any(
                term.modes & active and (slot is None or slot % term.every == 0)
                for term in route.terms
            ):
                yield channel, CLASS_ALERT if row.is_urgent else route.priority

    # Queries of the management plane.

    def take_output(self, channel_id: int) -> list[tuple[int, bytes]]:
        """The datagrams sent on a memory channel since the last call, each with its port."""
        line = self._open(channel_id).line
        if not isinstance(line, MemoryLine):
            raise UnknownName(f"channel {channel_id} keeps nothing in memory")
        return line.take()

    def newest(self, variable_id: int) -> bytes | None:
        """The newest event of a variable whose row keeps it, with all its options, or None."""
        entry = self._entries.get(variable_id)
        kept = entry.newest.event if entry is not None and entry.newest is not None else None
        return None if kept is None else kept.octets

    def copies(self, variable_id: int) -> CopyFacts | None:
        """Return the copies of a variable by incoming channel, or None if its row does not count
        them."""
        entry = self._entries.get(variable_id)
        return None if entry is None or entry.copies is None else entry.copies.facts()

    def policed(self) -> dict[tuple[int, int], tuple[int, dict[str, int]]]:
        """Return all counts of policed events, by publisher's channel and variable."""
        return {who: (life, dict(counts)) for who, (life, counts) in self._policed.items()}

    def counters(self) -> dict[str, int]:
        """All counters; `in` is the sum of all ends."""
        counts = dict(self._counts)
        for end, reasons in REASONS.items():
            counts[end] = sum(counts[f"{end}_{reason}"] for reason in reasons)
        counts["in"] = sum(counts[end] for end in ENDS)
        return counts

    def channel_counters(self, channel_id: int) -> dict[str, int]:
        """Counters of one channel: due = sent + drops + queued."""
        return dict(self._open(channel_id).egress.writer.counters)

    def pool_free(self) -> tuple[int, int]:
        """Return the number of free small and large buffers."""
        return self._pool.small, self._pool.large

    def _open(self, channel_id: int) -> Channel:
        channel = self._channels.get(channel_id)
        if channel is None:
            raise UnknownName(f"no channel {channel_id} is open")
        return channel

    # As a router of its own.

    def listen(self, host: str, data_port: int = 0, urgent_port: int = 0) -> tuple[int, int]:
        """Bind both ports (0: any free one) and return them."""
        self._sockets = Sockets(host, data_port, urgent_port)
        return self._sockets.ports

    def run(self, stop: Callable[[], bool], *, clock_ns: Callable[[], int]) -> None:
        """Forward one datagram at a time until `stop` returns True."""
        assert self._sockets is not None, "listen comes before run"
        while not stop():
            received = self._sockets.receive()
            if received is not None:
                port, datagram = received
                self.inject(datagram, port=port, now_ns=clock_ns())
            self.pump(clock_ns())

    def close(self) -> None:
        """Close every socket."""
        for channel_id in list(self._channels):
            self.close_channel(channel_id)
        if self._sockets is not None:
            self._sockets.close()


def _offer(
    entry: Entry, event: Event, slot: int | None, *, is_publisher: bool, now_ns: int
) -> Refusal | None:
    if isinstance(entry.seen, SlotWindow):
        assert slot is not None
        return entry.seen.offer(
            slot,
            is_publisher=is_publisher,
            now_ns=now_ns,
            is_replayed=entry.row.is_replayed,
            near_slots=None if entry.row.is_stamp_exempt else _near_slots(entry.row, now_ns),
        )
    return entry.seen.offer(
        Arrival(event.created_ns, event.sequence, now_ns),
        interval_ns_min=entry.row.interval_ns_min if is_publisher else 0,
        is_burst=entry.row.is_stamp_exempt,
    )


def _near_slots(row: Row, now_ns: int) -> range | None:
    """Return the slots of stamps near the present, with two slots of grace for early ones.

    The slots at the bounds of 64 bits stand for all beyond, and are near nothing.
    """
    if row.period is None or now_ns > 2**64 - 1 - CLOCK_AHEAD_NS:
        return None
    first = slot_of(max(0, now_ns - CLOCK_BEHIND_NS), row.period, row.phase_ns)
    last = slot_of(now_ns + CLOCK_AHEAD_NS, row.period, row.phase_ns) + 2
    return range(max(first, 1 - 2**63), min(last, 2**63 - 2) + 1)


def _clock_of(row: Row) -> tuple[Period, int] | None:
    """Return the slots' definition; a change of it makes the window meaningless."""
    return None if row.period is None else (row.period, row.phase_ns)


def _counter_names() -> Iterator[str]:
    for end, reasons in REASONS.items():
        yield from (f"{end}_{reason}" for reason in reasons)
    yield from ("duplicate", "too_old", "not_due", "dispatched", "flooded")
    yield from ("datagrams_in", "bytes_in", "newest_too_large", "flood_withheld", *SEALED_REASONS)


@dataclass(slots=True)
class Newest:
    """The newest event of a variable by its stamp; `newest.c` is the fast version.

    When the kept event is older than a second the next one replaces it whatever its stamp, as the
    publisher's clock may have been set back.
    """

    options_max: int
    event: Event | None = None
    kept_ns: int = 0

    def keep(self, event: Event, now_ns: int) -> bool:
        """Keep the event unless the kept one is newer; False: the event is too large."""
        if self.event is not None:
            is_old = now_ns - self.kept_ns >= QUIET_NS
            if event.created_ns < self.event.created_ns and not is_old:
                return True
        if len(event.octets) > EVENT.size + OPTION_BYTES * self.options_max:
            return False
        self.event, self.kept_ns = event, now_ns
        return True


@dataclass(slots=True)
class RowCopies:
    """Counts of a row's copies by incoming channel; `forwarding_table.c` is the fast version.

    Each channel that brings copies gets a path index while one is free. A channel that brings no
    copies any more loses its index, and its counts, to a new one.
    """

    period: Period
    every: int
    window: CopyWindow = field(default_factory=CopyWindow)
    channel_ids: list[int] = field(default_factory=list)

    def note(self, channel_id: int, slot: int, *, is_first: bool) -> None:
        if slot < 0 or slot % self.every:
            return
        path = self._path(channel_id)
        if path is not None:
            self.window.note(path, slot // self.every, is_first=is_first)

    def facts(self) -> CopyFacts:
        counted = self.window.counts(open_slots(self.period, self.every))
        return {
            "every": self.every,
            "path_count": len(self.channel_ids),
            "channel_ids": [*self.channel_ids, *[0] * (COPY_PATHS - len(self.channel_ids))],
            "passed": counted.passed,
            "came": list(counted.came),
            "first": list(counted.first),
        }

    def _path(self, channel_id: int) -> int | None:
        if channel_id in self.channel_ids:
            return self.channel_ids.index(channel_id)
        if len(self.channel_ids) < COPY_PATHS:
            self.channel_ids.append(channel_id)
            return len(self.channel_ids) - 1
        path = next(self.window.idle_paths(), None)
        if path is not None:
            self.channel_ids[path] = channel_id
            self.window.came[path] = self.window.first[path] = 0
        return path


def _copies_of(row: Row, old: RowCopies | None) -> RowCopies | None:
    """Return the counts of a row, if it counts copies; former counts continue if they are of the
    same slots."""
    if row.period is None or not row.counted_every:
        return None
    every = counted_every(row.period, row.counted_every)
    return old if old is not None and old.every == every else RowCopies(row.period, every)


def _flooding_scope(row: Row, active: int, slot: int | None) -> int | None:
    """Return the widest flooding scope that an active mode requests for this slot, or None."""
    levels = (
        flood.level
        for flood in row.floods
        if flood.modes & active and (slot is None or slot % flood.every == 0)
    )
    return min(levels, default=None)


def _is_in_scope(spec: ChannelSpec, scope: int) -> bool:
    return spec.floods and spec.level >= scope


def ahead_of(row: Row, bound_ns: int) -> int:
    """Return how far ahead a stamp of this row may be at the first hop."""
    return row.ahead_ns_max if row.has_stamp_bounds else bound_ns


def behind_of(row: Row, bound_ns: int) -> int:
    """Return how far behind a stamp of this row may be at the first hop."""
    return row.behind_ns_max if row.has_stamp_bounds else bound_ns


def _may_flood(
    row: Row, seen: SlotWindow | ArrivalRing, age_ns: int, now_ns: int, stamp_bound_ns: int
) -> bool:
    """Return whether the event may flood: not a possible copy of a forgotten event, which would
    circulate for ever."""
    if isinstance(seen, ArrivalRing) and seen.is_crowded(now_ns):
        return False
    return row.is_stamp_exempt or is_fresh(age_ns, stamp_bound_ns)


def _is_forged(row: Row, ahead_ns: int, stamp_bound_ns: int) -> bool:
    """Return whether a flooding event has a forged stamp of the future, which would silence a
    sparse flood."""
    return bool(row.floods) and not row.is_stamp_exempt and is_ahead(ahead_ns, stamp_bound_ns)
