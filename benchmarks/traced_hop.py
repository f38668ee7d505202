"""One event at a time through a hop that keeps what the kernel and the hop stamped on its way.

The hop is the core in plain Python, whose every step can be seen; the compiled one counts how long
events are with it, and keeps no stamps. Publisher and subscriber are the compiled ends.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from benchmarks.plan import MTU_BYTES, Exit, Group, Outlet, RouterPlan, fitting_period
from benchmarks.roles import table
from benchmarks.roles.pacing import reached
from gridstat.core._ends import Receiver, Sender
from gridstat.core.reference import ReferenceCore
from gridstat.core.reference_datagram import read_datagram
from gridstat.model.rate_law import Period

if TYPE_CHECKING:
    from types import TracebackType

    from benchmarks.statistics import Int64s

LOOPBACK = "127.0.0.1"
SO_TIMESTAMPNS = 35
"""Linux's, which the standard library does not name; also the type of the stamp's message."""
TIMESPEC = struct.Struct("@ll")
DATAGRAM_BYTES_MAX = 2_048
LOOK_EVERY_S = 0.05
VERSIONS = 2
IN, OUT, VARIABLE = 1, 1_000, 1


@dataclass(frozen=True, slots=True)
class Traced:
    """Stamps of the events that came through, all by one clock, in the order of their creation."""

    created_ns: Int64s
    hop_kernel_ns: Int64s
    hop_taken_ns: Int64s
    hop_sent_ns: Int64s
    received_ns: Int64s
    lost: int

    def after(self, first: int) -> Traced:
        """Without so many of the first."""
        return Traced(
            created_ns=self.created_ns[first:],
            hop_kernel_ns=self.hop_kernel_ns[first:],
            hop_taken_ns=self.hop_taken_ns[first:],
            hop_sent_ns=self.hop_sent_ns[first:],
            received_ns=self.received_ns[first:],
            lost=self.lost,
        )


class TracedHop:
    """A socket, the core behind it, and the one thread that serves both."""

    def __init__(self, outlet: Outlet, period: tuple[int, int]) -> None:
        group = Group(VARIABLE, 1, period, exits=(Exit(OUT),))
        plan = RouterPlan(outlets=(outlet,), groups=(group,), publishers=(IN,))
        self._core = ReferenceCore(table.limits_for(plan))
        table.load(self._core, plan, in_memory=True)
        self._next = (outlet.host, outlet.data_port)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.bind((LOOPBACK, 0))
        self._socket.settimeout(LOOK_EVERY_S)
        self.port: int = self._socket.getsockname()[1]
        self.passed: list[tuple[bytes, int, int, int]] = []
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traced-hop")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_ending.set()
        self._thread.join()
        self._socket.close()
        self._core.close()

    def _run(self) -> None:
        space = socket.CMSG_SPACE(TIMESPEC.size)
        while not self._is_ending.is_set():
            try:
                datagram, remarks, _, _ = self._socket.recvmsg(DATAGRAM_BYTES_MAX, space)
            except TimeoutError:
                continue
            taken_ns = time.time_ns()
            self._core.inject(datagram, now_ns=taken_ns)
            for _, octets in self._core.take_output(OUT):
                sent_ns = time.time_ns()
                self._socket.sendto(octets, self._next)
                self.passed.append((octets, _kernel_ns(remarks), taken_ns, sent_ns))


def trace(events: int, tick_s: float) -> Traced:
    """So many events, one every tick."""
    period = fitting_period(tick_s)
    receiver = Receiver(keep="ring", ring_events=1 << (events + events // 4).bit_length())
    sender: Sender | None = None
    try:
        receiver.expect(VARIABLE, Period(*period))
        receiver.start()
        with TracedHop(Outlet(OUT, LOOPBACK, *receiver.ports), period) as hop:
            sender = Sender(IN, (LOOPBACK, hop.port, hop.port), mtu_bytes=MTU_BYTES)
            _publish(sender, events, tick_s)
            reached(lambda: receiver.counters()["delivered"], events)
        samples = receiver.read(events_max=2 * events, timeout_s=0)
    finally:
        if sender is not None:
            sender.close()
        receiver.close()
    stamps = [(_created_ns(octets), *rest) for octets, *rest in hop.passed]
    hops = np.array(stamps, np.int64).reshape(-1, 4)
    arrived_ns = samples["created_ns"].astype(np.int64)
    both, at_hop, at_end = np.intersect1d(hops[:, 0], arrived_ns, return_indices=True)
    return Traced(
        created_ns=both,
        hop_kernel_ns=hops[at_hop, 1],
        hop_taken_ns=hops[at_hop, 2],
        hop_sent_ns=hops[at_hop, 3],
        received_ns=samples["received_ns"].astype(np.int64)[at_end],
        lost=events - len(both),
    )


def _publish(sender: Sender, events: int, tick_s: float) -> None:
    variable = np.array([VARIABLE], np.uint32)
    for number in range(events):
        time.sleep(tick_s)
        value, created_ns = np.array([number]), np.array([time.time_ns()], np.uint64)
        sender.send_many(variable, value, created_ns)


def _kernel_ns(remarks: list[tuple[int, int, bytes]]) -> int:
    for level, kind, octets in remarks:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = TIMESPEC.unpack(octets)
            return int(seconds) * 1_000_000_000 + int(nanoseconds)
    return 0


def _created_ns(datagram: bytes) -> int:
    found = read_datagram(datagram, VERSIONS)
    assert not isinstance(found, str), "the core sends what it can read"
    (event,) = found.events
    return event.created_ns
