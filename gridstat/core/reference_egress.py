"""Egress of one channel in plain Python: packed at once, or paced from bounded queues.

A channel without a declared bandwidth has no queue: events of one receive call are packed into
runs of equal segments, as one GSO send wants them. A channel with a declared bandwidth is paced
to it from nine queues in strict order. `egress.c` is the fast copy of this file.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from gridstat.core.counter_names import CHANNEL_COUNTERS
from gridstat.core.key_settings import TAG_BYTES
from gridstat.core.rows import CLASS_REPLAY, PORT_DATA, PORT_URGENT, ChannelSpec
from gridstat.model.wire_law import wire_bytes

if TYPE_CHECKING:
    from gridstat.core.reference_seal import ReferenceSealing

HEADER = struct.Struct(">BBHIQ")
"""version, key_epoch, length (without padding), channel_id, counter."""

CLASSES = 9
SEGMENTS_MAX = 64
RUN_BYTES_MAX = 65_000
SMALL_BYTES_MAX = 256
REPLAYS_PER_S = 2_000
"""Datagrams of replay that a line takes one by one: no other event waits longer for one of them."""
CREDIT_NS_MAX = 2_000_000
"""Idle time that a channel may still use later; longer idle time is lost."""

_NS_PER_S = 1_000_000_000


class Line(Protocol):
    """Socket of a channel; `send` raises `OSError` when it cannot send."""

    @property
    def is_ipv6(self) -> bool:
        """True if IPv6 headers are counted."""

    def send(self, port: int, datagram: bytes) -> None:
        """Hand one datagram over."""


@dataclass(slots=True)
class BufferPool:
    """Free buffers by size; a queued event takes one buffer for all channels."""

    small: int
    large: int
    small_kept: int = field(init=False)
    large_kept: int = field(init=False)

    def __post_init__(self) -> None:
        self.small_kept, self.large_kept = self.small // 2, self.large // 2

    def take(self, event: bytes, *, is_spare: bool) -> bool:
        """Reserve a buffer for the event, if one is free; replay may use only half of them."""
        if len(event) <= SMALL_BYTES_MAX:
            self.small -= (is_free := self.small > is_spare * self.small_kept)
        else:
            self.large -= (is_free := self.large > is_spare * self.large_kept)
        return is_free

    def give_back(self, event: bytes) -> None:
        if len(event) <= SMALL_BYTES_MAX:
            self.small += 1
        else:
            self.large += 1


@dataclass(slots=True, eq=False)
class Outgoing:
    """One outgoing event, shared by all channels that it is due on."""

    event: bytes
    port: int
    pool: BufferPool
    references: int = 0

    def hold(self, *, is_spare: bool) -> bool:
        """Count one more queue that holds the event; the first takes a buffer from the pool."""
        if self.references == 0 and not self.pool.take(self.event, is_spare=is_spare):
            return False
        self.references += 1
        return True

    def release(self) -> None:
        self.references -= 1
        if self.references == 0:
            self.pool.give_back(self.event)


@dataclass(frozen=True, slots=True)
class Datagram:
    """A finished datagram, numbered in the order of finishing, and how many events it holds."""

    octets: bytes
    events: int


class DatagramWriter:
    """Numbers, counts and sends the datagrams of one channel: due = sent + drops + queued."""

    def __init__(self, spec: ChannelSpec, line: Line, *, last_number: int = 0) -> None:
        self.spec = spec
        self.counters = dict.fromkeys(CHANNEL_COUNTERS, 0)
        self.last_number = last_number
        self._line = line
        self._next_probe_ns = 0
        self.sent_ns: int | None = None
        """Time of the last flush of events; they count as a sign of life like a probe."""
        self._has_failed = False
        """True if events could not be sent since the last probe."""
        self.first_number = last_number + 1
        self.sealing: ReferenceSealing | None = None
        self.is_held = spec.is_held
        self.is_probed = True
        self.overhead_bytes = HEADER.size + (TAG_BYTES if spec.is_sealed else 0)

    def silence(self) -> str | None:
        """Return the counter of due events that the channel does not send, or None if it sends."""
        if self.is_held:
            return "unproven"
        return "no_key" if self._has_no_key() else None

    def _has_no_key(self) -> bool:
        return self.spec.is_sealed and (self.sealing is None or self.sealing.is_used_up)

    def drop(self, reason: str) -> None:
        """Count an event that is not sent."""
        self.counters[reason] += 1
        self._has_failed = True

    def finish(self, events: list[bytes], port: int, *, pad_to_bytes: int = 0) -> Datagram:
        """Put a header before the events and seal them; the padding is not part of `length`."""
        self.last_number += 1
        length = HEADER.size + sum(map(len, events))
        epoch = 0 if self.sealing is None else self.sealing.epoch
        header = HEADER.pack(
            self.spec.datagram_version, epoch, length, self.spec.channel_id, self.last_number
        )
        octets = b"".join((header, *events))
        if self.sealing is not None:
            octets = self.sealing.key.seal(octets, port)
            self.sealing.datagrams += 1
        return Datagram(octets.ljust(pad_to_bytes, b"\0"), len(events))

    def send(self, port: int, datagram: Datagram) -> None:
        try:
            self._line.send(port, datagram.octets)
        except OSError:
            self.counters["send_failed"] += datagram.events
            self._has_failed = True
        else:
            self.counters["sent"] += datagram.events
            self.counters["datagrams_out"] += 1
            self.counters["bytes_out"] += len(datagram.octets)

    def probe(self, now_ns: int) -> Datagram | None:
        """Send a probe if one is due; probes that were missed are not sent later.

        Where a channel is probed only when it is idle, events put the next probe off until an
        interval after them, unless some of them could not be sent.
        """
        interval_ns = self.spec.probe_interval_ns
        is_over = self.spec.probes_only_when_held and not self.is_held
        if not self.is_probed or is_over or now_ns < self._next_probe_ns:
            return None
        is_postponed = self.spec.probes_only_when_idle and not self._has_failed
        if is_postponed and self.sent_ns is not None:
            self._next_probe_ns = max(self._next_probe_ns, self.sent_ns + interval_ns)
            if now_ns < self._next_probe_ns:
                return None
        next_ns = self._next_probe_ns + interval_ns
        self._next_probe_ns = next_ns if next_ns > now_ns else now_ns + interval_ns
        self._has_failed = False
        if self._has_no_key():
            self.counters["probes_failed"] += 1
            return None
        probe = self.finish([], PORT_DATA)
        before = self.counters["datagrams_out"]
        self.send(PORT_DATA, probe)
        self._has_failed = False
        is_sent = self.counters["datagrams_out"] > before
        self.counters["probes_sent" if is_sent else "probes_failed"] += 1
        return probe

    def wire_bytes(self, datagram: Datagram) -> int:
        """Return the bytes of the datagram on the line, with the headers of all its IP
        fragments."""
        return wire_bytes(len(datagram.octets), self.spec.mtu_bytes, is_ipv6=self._line.is_ipv6)


@dataclass(slots=True)
class Run:
    """Datagrams for one GSO send: all but the last have the length of the first, the stride."""

    segment_bytes: int
    """Of the open segment: header, tag and events."""
    finished: list[Datagram] = field(default_factory=list)
    events: list[bytes] = field(default_factory=list)
    stride: int = 0


class PackedEgress:
    """A channel without a queue: nothing waits longer than the receive call that brought it."""

    def __init__(self, writer: DatagramWriter) -> None:
        self.writer = writer
        self._runs = {port: Run(writer.overhead_bytes) for port in (PORT_URGENT, PORT_DATA)}

    def append(self, outgoing: Outgoing, traffic_class: int) -> None:
        del traffic_class  # Without a queue no event overtakes another.
        event, port = outgoing.event, outgoing.port
        self.writer.counters["due"] += 1
        silence = self.writer.silence()
        if silence is not None:
            self.writer.drop(silence)
            return
        if self.writer.overhead_bytes + len(event) > self.writer.spec.mtu_bytes:
            self._send_run(port)
            self.writer.send(port, self.writer.finish([event], port))
            return
        run = self._runs[port]
        if run.segment_bytes + len(event) > (run.stride or self.writer.spec.mtu_bytes):
            self._start_segment(port, len(event))
            run = self._runs[port]
        run.events.append(event)
        run.segment_bytes += len(event)

    def flush(self, now_ns: int) -> None:
        """Send what is open, urgent first."""
        self._send_run(PORT_URGENT)
        self._send_run(PORT_DATA)
        self.writer.sent_ns = now_ns

    def pump(self, now_ns: int) -> None:
        """Do nothing: the flush has sent everything."""

    def probe(self, now_ns: int) -> None:
        """Send a probe if one is due."""
        self.writer.probe(now_ns)

    def close(self) -> None:
        """Do nothing: no buffer is held."""

    def _start_segment(self, port: int, event_bytes: int) -> None:
        """Begin the next segment of the run, or the next run."""
        run = self._runs[port]
        stride = run.stride or run.segment_bytes
        segments = len(run.finished) + 1
        if (
            segments == SEGMENTS_MAX
            or (segments + 1) * stride > RUN_BYTES_MAX
            or self.writer.overhead_bytes + event_bytes > stride
        ):
            self._send_run(port)
            return
        run.finished.append(self.writer.finish(run.events, port, pad_to_bytes=stride))
        run.stride = stride
        run.events = []
        run.segment_bytes = self.writer.overhead_bytes

    def _send_run(self, port: int) -> None:
        run, self._runs[port] = self._runs[port], Run(self.writer.overhead_bytes)
        if run.events:
            run.finished.append(self.writer.finish(run.events, port))
        for datagram in run.finished:
            self.writer.send(port, datagram)


class PacedEgress:
    """A channel with a bandwidth: bounded queues, one per class, lower classes always first."""

    def __init__(self, writer: DatagramWriter) -> None:
        self.writer = writer
        self.next_free_ns = 0
        self._queues: list[deque[Outgoing]] = [deque() for _ in range(CLASSES)]

    def append(self, outgoing: Outgoing, traffic_class: int) -> None:
        counters = self.writer.counters
        counters["due"] += 1
        queue = self._queues[traffic_class]
        if len(queue) >= self.writer.spec.queue_events_max:
            counters["queue_full"] += 1
        elif not outgoing.hold(is_spare=traffic_class == CLASS_REPLAY):
            counters["pool_empty"] += 1
        else:
            queue.append(outgoing)
            counters["queued"] += 1
            counters["replay_queued"] = len(self._queues[CLASS_REPLAY])

    def flush(self, now_ns: int) -> None:
        """Do nothing: the pump sends."""

    def pump(self, now_ns: int) -> None:
        """Send what the bandwidth allows by now."""
        if self.next_free_ns <= now_ns:
            self._drop_if_silent()
        while self.next_free_ns <= now_ns and (queue := self._first_queue()) is not None:
            port = queue[0].port
            datagram = self.writer.finish(self._take_together(queue), port)
            self.writer.send(port, datagram)
            self.writer.sent_ns = now_ns
            self._charge(datagram, now_ns)

    def _drop_if_silent(self) -> None:
        silence = self.writer.silence()
        while silence is not None and (queue := self._first_queue()) is not None:
            self._take(queue)
            self.writer.drop(silence)

    def probe(self, now_ns: int) -> None:
        """Send a probe if one is due; it overtakes queued events, but uses the same line."""
        probe = self.writer.probe(now_ns)
        if probe is not None:
            self._charge(probe, now_ns)

    def _charge(self, datagram: Datagram, now_ns: int) -> None:
        """Mark the line as busy for the time that the datagram takes."""
        bandwidth = self.writer.spec.bandwidth_bytes_per_s
        busy_ns = -(-self.writer.wire_bytes(datagram) * _NS_PER_S // bandwidth)
        self.next_free_ns = max(self.next_free_ns, now_ns - CREDIT_NS_MAX) + busy_ns

    def close(self) -> None:
        """Release the buffers of all waiting events; those events were not sent."""
        for queue in self._queues:
            self.writer.counters["send_failed"] += len(queue)
            while queue:
                self._take(queue)

    def _take_together(self, queue: deque[Outgoing]) -> list[bytes]:
        """Take the next events in strict order, as long as they share a port and fit together.

        Replay shares with none, and takes no more than the line sends in half a millisecond.
        """
        port, replay = queue[0].port, self._queues[CLASS_REPLAY]
        bytes_max = self.writer.spec.mtu_bytes
        if queue is replay:
            bytes_max = min(bytes_max, self.writer.spec.bandwidth_bytes_per_s // REPLAYS_PER_S)
        events = [self._take(queue)]
        room_bytes = bytes_max - self.writer.overhead_bytes - len(events[0])
        while (following := self._first_queue()) is not None:
            waiting = following[0]
            if waiting.port != port or len(waiting.event) > room_bytes:
                break
            if (following is replay) != (queue is replay):
                break
            room_bytes -= len(waiting.event)
            events.append(self._take(following))
        return events

    def _first_queue(self) -> deque[Outgoing] | None:
        return next((queue for queue in self._queues if queue), None)

    def _take(self, queue: deque[Outgoing]) -> bytes:
        outgoing = queue.popleft()
        outgoing.release()
        self.writer.counters["queued"] -= 1
        self.writer.counters["replay_queued"] = len(self._queues[CLASS_REPLAY])
        return outgoing.event
