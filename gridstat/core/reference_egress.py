"""The way out of one channel, in plain Python: packed at once, or paced from bounded queues.

A channel without a declared bandwidth has no queue: events of one receive call are packed into
runs of equal segments, as one GSO send wants them. A channel with a declared bandwidth is paced
to it from nine queues in strict order. `egress.c` is the fast copy of this file.
"""

from __future__ import annotations

import errno
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from gridstat.core.rows import PORT_DATA, PORT_URGENT, ChannelSpec

HEADER = struct.Struct(">BBHIQ")
"""version, key_epoch, length (without padding), channel_id, counter."""

VERSION = 1
CLASSES = 9
SEGMENTS_MAX = 64
RUN_BYTES_MAX = 65_000
SMALL_BYTES_MAX = 256
LOWER_LAYER_BYTES = 28
"""IPv4 and UDP headers, charged to a paced channel with every datagram."""

CREDIT_NS_MAX = 2_000_000
"""How far behind its pace a channel may be and still catch up; more idle time is lost."""

COUNTERS = (
    "due", "sent", "queued", "queue_full", "pool_empty", "send_failed", "too_large",
    "datagrams_out", "bytes_out", "fallback", "mtu_changes",
)  # fmt: skip

_NS_PER_S = 1_000_000_000


class Line(Protocol):
    """Where the datagrams of a channel go; `OSError` when they cannot."""

    def send(self, port: int, datagram: bytes) -> None:
        """Hand one datagram over."""


@dataclass(slots=True)
class BufferPool:
    """How many more events may wait in queues, by size; an event waits once for all channels."""

    small: int
    large: int

    def take(self, event: bytes) -> bool:
        """Reserve a buffer that holds the event, if one is left."""
        if len(event) <= SMALL_BYTES_MAX:
            self.small -= (is_free := self.small > 0)
        else:
            self.large -= (is_free := self.large > 0)
        return is_free

    def give_back(self, event: bytes) -> None:
        if len(event) <= SMALL_BYTES_MAX:
            self.small += 1
        else:
            self.large += 1


@dataclass(slots=True, eq=False)
class Outgoing:
    """One event on its way out, shared by all channels that it is due on."""

    event: bytes
    port: int
    pool: BufferPool
    references: int = 0

    def hold(self) -> bool:
        """One more queue holds the event; the first needs a buffer from the pool."""
        if self.references == 0 and not self.pool.take(self.event):
            return False
        self.references += 1
        return True

    def release(self) -> None:
        self.references -= 1
        if self.references == 0:
            self.pool.give_back(self.event)


class Mouth:
    """Numbers, counts and sends the datagrams of one channel: due = sent + drops + queued."""

    def __init__(self, spec: ChannelSpec, line: Line) -> None:
        self.spec = spec
        self.counters = dict.fromkeys(COUNTERS, 0)
        self._line = line
        self._counter = 0

    def send(self, port: int, events: list[bytes], *, pad_to_bytes: int = 0) -> int:
        """Send the events as one datagram and return its bytes, padding included."""
        self._counter += 1
        length = HEADER.size + sum(map(len, events))
        header = HEADER.pack(VERSION, 0, length, self.spec.channel_id, self._counter)
        datagram = b"".join((header, *events)).ljust(pad_to_bytes, b"\0")
        try:
            self._line.send(port, datagram)
        except OSError as error:
            reason = "too_large" if error.errno == errno.EMSGSIZE else "send_failed"
            self.counters[reason] += len(events)
        else:
            self.counters["sent"] += len(events)
            self.counters["datagrams_out"] += 1
            self.counters["bytes_out"] += len(datagram)
        return len(datagram)


@dataclass(slots=True)
class Run:
    """Datagrams for one GSO send: all but the last have the length of the first, the stride."""

    segments: list[list[bytes]] = field(default_factory=list)
    segment_bytes: int = 0
    stride: int = 0


class PackedEgress:
    """A channel without a queue: nothing waits longer than the receive call that brought it."""

    def __init__(self, mouth: Mouth) -> None:
        self.mouth = mouth
        self._runs = {PORT_URGENT: Run(), PORT_DATA: Run()}

    def append(self, outgoing: Outgoing, traffic_class: int) -> None:
        del traffic_class  # Without a queue nobody waits, so nobody overtakes.
        event, port = outgoing.event, outgoing.port
        self.mouth.counters["due"] += 1
        if HEADER.size + len(event) > self.mouth.spec.mtu_bytes:
            self._send_run(port)
            self.mouth.send(port, [event])
            return
        if not self._has_room(self._runs[port], len(event)):
            self._send_run(port)
        run = self._runs[port]
        if not run.segments or run.segment_bytes + len(event) > self._capacity(run):
            run.segments.append([])
            run.segment_bytes = HEADER.size
        run.segments[-1].append(event)
        run.segment_bytes += len(event)

    def flush(self, now_ns: int) -> None:
        del now_ns
        self._send_run(PORT_URGENT)
        self._send_run(PORT_DATA)

    def pump(self, now_ns: int) -> None:
        """Nothing is ever left over from the flush."""

    def close(self) -> None:
        """Nothing to give back."""

    def _capacity(self, run: Run) -> int:
        return run.stride if len(run.segments) > 1 else self.mouth.spec.mtu_bytes

    def _has_room(self, run: Run, event_bytes: int) -> bool:
        """Whether the event can still join the run, in its last segment or in one more."""
        count = len(run.segments)
        if count == 0 or run.segment_bytes + event_bytes <= self._capacity(run):
            return True
        if count == 1:
            run.stride = run.segment_bytes
        return (
            count < SEGMENTS_MAX
            and (count + 1) * run.stride <= RUN_BYTES_MAX
            and HEADER.size + event_bytes <= run.stride
        )

    def _send_run(self, port: int) -> None:
        segments = self._runs[port].segments
        stride = self._runs[port].stride
        self._runs[port] = Run()
        for index, events in enumerate(segments):
            is_last = index == len(segments) - 1
            self.mouth.send(port, events, pad_to_bytes=0 if is_last else stride)


class PacedEgress:
    """A channel with a bandwidth: bounded queues, one per class, lower classes always first."""

    def __init__(self, mouth: Mouth) -> None:
        self.mouth = mouth
        self.next_free_ns = 0
        self._queues: list[deque[Outgoing]] = [deque() for _ in range(CLASSES)]

    def append(self, outgoing: Outgoing, traffic_class: int) -> None:
        counters = self.mouth.counters
        counters["due"] += 1
        queue = self._queues[traffic_class]
        if len(queue) >= self.mouth.spec.queue_events_max:
            counters["queue_full"] += 1
        elif not outgoing.hold():
            counters["pool_empty"] += 1
        else:
            queue.append(outgoing)
            counters["queued"] += 1

    def flush(self, now_ns: int) -> None:
        self.pump(now_ns)

    def pump(self, now_ns: int) -> None:
        """Send what the bandwidth allows by now."""
        while self.next_free_ns <= now_ns and (first := self._first_queue()) is not None:
            port = first[0].port
            sent_bytes = self.mouth.send(port, self._take_datagram(first))
            busy_ns = -(
                -(sent_bytes + LOWER_LAYER_BYTES)
                * _NS_PER_S
                // self.mouth.spec.bandwidth_bytes_per_s
            )
            self.next_free_ns = max(self.next_free_ns, now_ns - CREDIT_NS_MAX) + busy_ns

    def close(self) -> None:
        """Give the buffers of all waiting events back."""
        for queue in self._queues:
            while queue:
                self._take(queue)

    def _take_datagram(self, queue: deque[Outgoing] | None) -> list[bytes]:
        """The next events in strict order, as long as they share a port and fit together."""
        assert queue
        port = queue[0].port
        events = [self._take(queue)]
        room_bytes = self.mouth.spec.mtu_bytes - HEADER.size - len(events[0])
        while (queue := self._first_queue()) is not None:
            following = queue[0]
            if following.port != port or len(following.event) > room_bytes:
                break
            events.append(self._take(queue))
            room_bytes -= len(following.event)
        return events

    def _first_queue(self) -> deque[Outgoing] | None:
        return next((queue for queue in self._queues if queue), None)

    def _take(self, queue: deque[Outgoing]) -> bytes:
        outgoing = queue.popleft()
        outgoing.release()
        self.mouth.counters["queued"] -= 1
        return outgoing.event
