"""Cells of `path_skew.py` over real sockets: a relay loses on one path and delays on the other.

  publisher --wire--> fast end --loopback--> edge 1 --+
  publisher --wire--> slow end --loopback--> edge 1 or 2 --> receiver

The publisher, both far ends and the relay have a network namespace each. What comes out of the
wires goes to running cores, the subscriber's edge routers, and from there to a receiver.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from typing import TYPE_CHECKING, Final, Self

from gridstat.core._core import Core
from gridstat.core.rows import ChannelSpec, Route, Row, Term
from gridstat.endpoint import Receiver
from gridstat.model.rate_law import NS_PER_S
from lab.errors import LabError
from lab.netns import Network
from lab.path_skew import FAST, LIMITS, LOSS, SLOW, VARIABLE, Outcome, event_datagram, refusal_of
from lab.relay import Direction, LinkFaults, Relay
from lab.sockets import open_socket

if TYPE_CHECKING:
    from lab.path_skew import Cell

JITTER_MS: Final = 10.0
PATIENCE_S: Final = 60.0
HOST: Final = "127.0.0.1"
DATAGRAM_BYTES: Final = 2_048
BUFFER_BYTES: Final = 4 << 20


class _Paths:
    """Both wires, their ends, the edge routers and the receiver."""

    def __init__(self, cell: Cell, *, seed: int) -> None:
        self.cell = cell
        self._seed = seed
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            network = stack.enter_context(Network())
            names = ("publisher", "middle", "fast", "slow")
            publisher, middle, *far = [network.add(name) for name in names]
            gaps = [network.join(publisher, end, middle=middle) for end in far]
            self.relay = stack.enter_context(Relay(middle.prefix))
            slow_ms = float(self.cell.difference_ms)
            faults = (
                LinkFaults(loss=LOSS, jitter_ms=JITTER_MS, seed=self._seed),
                LinkFaults(delay_ms=slow_ms, jitter_ms=JITTER_MS, seed=self._seed),
            )
            for name, gap, fault in zip(("fast", "slow"), gaps, faults, strict=True):
                assert gap is not None
                self.relay.add_wire(name, *gap)
                self.relay.set_faults(name, fault)
            self.publisher = stack.enter_context(open_socket(publisher))
            self.ends = [stack.enter_context(open_socket(end)) for end in far]
            for end in self.ends:
                end.settimeout(0)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            self.receiver = stack.enter_context(Receiver(ring_events=1 << 16))
            self.receiver.expect(VARIABLE, self.cell.period)
            self.out = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            self.carried = 0
            self.edges = [self._edge(stack, number) for number in range(self.cell.edges)]
            self.receiver.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _edge(self, stack: contextlib.ExitStack, number: int) -> tuple[Core, tuple[str, int]]:
        core, channel_id = Core(LIMITS), 1 + number
        stack.callback(core.close)
        self.receiver.open_source(channel_id)
        ports = core.listen(HOST)
        core.open_channel(ChannelSpec(channel_id, address=(HOST, *self.receiver.ports)))
        for source in (FAST, SLOW):
            core.open_source(source)
        core.commit([Row(VARIABLE, self.cell.period, routes=(Route(channel_id, (Term(1),)),))])
        core.start()
        return core, (HOST, ports[0])

    def send(self, number: int, stamp_ns: int) -> None:
        for channel_id, end in zip((FAST, SLOW), self.ends, strict=True):
            octets = event_datagram(channel_id, number, stamp_ns)
            self.publisher.sendto(octets, end.getsockname())

    def carry(self, wait_s: float) -> None:
        """Pass on to the edges what the wires deliver, after waiting so long at most."""
        ready, _, _ = select.select(self.ends, (), (), wait_s)
        for index, end in enumerate(self.ends):
            if end in ready:
                _, address = self.edges[index % len(self.edges)]
                with contextlib.suppress(BlockingIOError):
                    while True:
                        self.out.sendto(end.recv(DATAGRAM_BYTES), address)
                        self.carried += 1

    def has_settled(self, sent: int) -> bool:
        """Return whether all that left the wires has met its end at the edges and receiver."""
        wires = [self.relay.counters(name)[Direction.FORWARD] for name in ("fast", "slow")]
        if any(wire.in_ < sent or wire.waiting for wire in wires):
            return False
        counters = [core.counters() for core, _ in self.edges]
        ended = sum(one["dispatched"] + one["duplicate"] + one["too_old"] for one in counters)
        passed = sum(one["dispatched"] for one in counters)
        is_carried = self.carried == sum(wire.out for wire in wires)
        return is_carried and ended == self.carried and self.receiver.counters()["in"] == passed


def run_relayed(cell: Cell, *, seed: int) -> Outcome:
    """Return the outcome of a cell in real time."""
    refusal = refusal_of(cell)
    if refusal is not None:
        return Outcome(cell, refusal)
    with _Paths(cell, seed=seed) as paths:
        begin_ns, count = time.time_ns(), len(cell.stamps_ns)
        stamps_ns = [begin_ns + number * NS_PER_S // cell.rate for number in range(count)]
        for number, stamp_ns in enumerate(stamps_ns, start=1):
            while (early_ns := stamp_ns - time.time_ns()) > 0:
                paths.carry(early_ns / NS_PER_S)
            paths.send(number, stamp_ns)
            paths.carry(0)
        deadline_s = time.monotonic() + PATIENCE_S
        while not paths.has_settled(count):
            paths.carry(0.01)
            if time.monotonic() > deadline_s:
                raise LabError(f"the events of {cell} did not all arrive")
        return _outcome(paths, stamps_ns)


def _outcome(paths: _Paths, stamps_ns: list[int]) -> Outcome:
    came = set(map(int, paths.receiver.read()["created_ns"]))
    counted = [paths.receiver.counters(), *(core.counters() for core, _ in paths.edges)]
    return Outcome(
        paths.cell,
        events=len(stamps_ns),
        spared=paths.relay.counters("fast")[Direction.FORWARD].lost,
        lost=len(set(stamps_ns) - came),
        too_old=sum(one["too_old"] for one in counted),
    )
