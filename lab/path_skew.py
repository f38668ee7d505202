"""Paths that differ in latency, at many rates: `python -m lab.path_skew [--relay]`.

Each cell asks the broker's allocator for a contract over two paths of which one is slower. Which
cells must be granted and which refused is found by arithmetic of its own: how long the slots of a
window last, less what is left for the unpredicted, against the difference. Where the paths are
granted, events go over both, the fast one loses some, and none may be missing behind the window in
which the copies meet: that of one edge router, or of a subscriber with two edges. Where they are
refused, the reason must be this one. With `--relay` a few cells run over real sockets and a relay.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.broker.capacity.allocation import AllocationRequest, Refusal
from gridstat.broker.capacity.allocator import Allocator
from gridstat.broker.capacity.resources import Resources
from gridstat.core._core import Core
from gridstat.core.rows import ChannelSpec, Limits, Route, Row, Term
from gridstat.model.cloud import EventChannel, Router
from gridstat.model.errors import SkewNotSatisfiable
from gridstat.model.identifiers import ChannelId, VariableId
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.model.status import BuiltinType, StatusEvent, StatusVariable
from gridstat.net.codec.datagram import decode_datagram, encode_datagram
from gridstat.net.codec.event import encode_event

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RATES: Final = (30, 60, 120, 240, 500, 1_000, 2_000, 4_000)
DIFFERENCES_MS: Final = (0, 20, 80, 150, 300, 500)
BEYOND: Final = ((1_000, 1_000), (4_000, 1_000), (20_000, 250), (100_000, 80))
"""Cells of which no path may be granted: a rate, and a difference in ms."""
RELAYED: Final = ((120, 300), (1_000, 300), (4_000, 80))
LOSS: Final = 0.05
JITTER_NS: Final = 20_000_000
LASTS_S: Final = 1.5
BEGIN_NS: Final = 1_700_000_000 * NS_PER_S
LIMITS: Final = Limits(variables_max=4, rings_max=1, channels_max=4, pool_small=16, pool_large=4)
VARIABLE, FAST, SLOW = 1, 11, 12
LATENCY_US: Final = 5_000_000
WINDOWS: Final = (256, 960, 4_032)
"""Slots that a core can remember; it takes the first that lasts `WINDOW_MS`, else the last."""
WINDOW_MS: Final = 800
LEFT_MS: Final = 50
"""Part of a window left for what no prediction covers; of a short window it is a tenth."""
EARLY_SLOTS: Final = 3
PATH_MS: Final = 10
"""More than both hops, three routers and the end-points take without the difference."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Combination of a rate, a difference of the paths, and the subscriber's number of edges."""

    rate: int
    difference_ms: int
    edges: int = 1

    @property
    def period(self) -> Period:
        return Period(1, self.rate)

    @property
    def latency_ms_max(self) -> float:
        """Return the latency of a copy that the window still recognises, by own arithmetic."""
        lengths_ms = [1_000 * slots / self.rate for slots in WINDOWS]
        at = next((at for at, ms in enumerate(lengths_ms) if ms >= WINDOW_MS), len(WINDOWS) - 1)
        lasts_ms = lengths_ms[at] - 1_000 * EARLY_SLOTS / self.rate
        return lasts_ms - min(LEFT_MS, lasts_ms / 10)

    @property
    def must_be_granted(self) -> bool:
        return self.difference_ms + PATH_MS <= self.latency_ms_max

    @property
    def must_be_refused(self) -> bool:
        return self.difference_ms > self.latency_ms_max

    @property
    def stamps_ns(self) -> list[int]:
        count = int(self.rate * LASTS_S)
        return [BEGIN_NS + number * NS_PER_S // self.rate for number in range(count)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a cell: refused for a reason, or granted, and so many events lost."""

    cell: Cell
    refusal: Refusal | None = None
    events: int = 0
    spared: int = 0
    lost: int = 0
    too_old: int = 0

    @property
    def holds(self) -> bool:
        if self.refusal is not None:
            is_right = self.refusal.code == SkewNotSatisfiable.code
            return is_right and not self.cell.must_be_granted
        if self.cell.must_be_refused:
            return False
        return self.lost == 0 and self.too_old == 0 and self.spared > 0

    def __str__(self) -> str:
        cell = self.cell
        head = f"{cell.rate:7}/s {cell.difference_ms:5} ms {cell.edges} edges"
        if self.refusal is not None:
            return f"{head}  refused {self.refusal.code}: {self.refusal.reason}"
        return (
            f"{head}  events {self.events} lost {self.lost}, of which the slow path spared "
            f"{self.spared}; too old {self.too_old}"
        )


def refusal_of(cell: Cell) -> Refusal | None:
    """Return the broker's refusal of two paths between which there is the cell's difference."""
    resources = Resources()
    edges = ("d",) if cell.edges == 1 else ("d", "e")
    for name in ("a", "b", "c", *edges):
        resources.add_router(Router(name, events_per_s_max=1_000_000))
    slow_us = cell.difference_ms * 1_000
    ends = (("a", "b", 0), ("b", edges[0], 0), ("a", "c", 0), ("c", edges[-1], slow_us))
    for number, (near, far, latency_us) in enumerate(ends, start=1):
        channel = EventChannel(ChannelId(number), near, far, latency_us=latency_us, security="none")
        resources.add_channel(channel)
    variable = StatusVariable(VariableId(VARIABLE), "c1/v", BuiltinType.FLOAT64, cell.period)
    qos = ModalQos({0: QosRequest(redundancy=2, latency_us=LATENCY_US)})
    answer = Allocator(resources).allocate(AllocationRequest(1, variable, ("a",), edges, qos))
    return answer if isinstance(answer, Refusal) else None


def run(cell: Cell, *, seed: int) -> Outcome:
    """Return the outcome of a cell, in virtual time, with compiled cores."""
    refusal = refusal_of(cell)
    if refusal is not None:
        return Outcome(cell, refusal)
    rng, meeting, stamps_ns = random.Random(seed), _Meeting(cell.period), cell.stamps_ns
    came: list[tuple[int, int, int]] = []
    spared = 0
    for stamp_ns in stamps_ns:
        is_lost = rng.random() < LOSS
        spared += is_lost
        if not is_lost:
            came.append((stamp_ns + rng.randrange(JITTER_NS), FAST, stamp_ns))
        slow_ns = stamp_ns + cell.difference_ms * 1_000_000 + rng.randrange(JITTER_NS)
        if cell.edges > 1:
            slow_ns += rng.randrange(JITTER_NS)  # The hop from the second edge.
        came.append((slow_ns, SLOW, stamp_ns))
    for now_ns, channel_id, stamp_ns in sorted(came):
        meeting.take(channel_id, stamp_ns, now_ns)
    return Outcome(
        cell,
        events=len(stamps_ns),
        spared=spared,
        lost=len(set(stamps_ns) - meeting.passed),
        too_old=meeting.core.counters()["too_old"],
    )


def event_datagram(channel_id: int, counter: int, stamp_ns: int) -> bytes:
    """Return a datagram with one event of the variable."""
    octets = encode_event(StatusEvent(stamp_ns, VariableId(VARIABLE), bytes(8)))
    return encode_datagram(channel_id, counter, events=(octets,))


class _Meeting:
    """The core in which the copies of both paths meet; a subscriber's window is the same."""

    def __init__(self, period: Period) -> None:
        self.core = Core(LIMITS)
        for channel_id in (FAST, SLOW):
            self.core.open_source(channel_id)
        self.core.open_channel(ChannelSpec(1))
        self.core.commit([Row(VARIABLE, period, routes=(Route(1, (Term(1),)),))])
        self.passed: set[int] = set()
        self._counters = {FAST: 0, SLOW: 0}

    def take(self, channel_id: int, stamp_ns: int, now_ns: int) -> None:
        self._counters[channel_id] += 1
        counter = self._counters[channel_id]
        self.core.inject(event_datagram(channel_id, counter, stamp_ns), now_ns=now_ns)
        for _, octets in self.core.take_output(1):
            self.passed.update(view.created_ns for view in decode_datagram(octets).events)


def cells() -> Iterator[Cell]:
    """Yield every cell of the grid, with one edge and with two, and those beyond it."""
    for edges in (1, 2):
        for rate in RATES:
            for difference_ms in DIFFERENCES_MS:
                yield Cell(rate, difference_ms, edges)
        for rate, difference_ms in BEYOND:
            yield Cell(rate, difference_ms, edges)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each cell; return 1 if one lost an event, or its answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--relay", action="store_true", help="over real sockets and a relay")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    failed = granted = refused = 0
    if options.relay:
        from lab.relayed_skew import run_relayed  # It needs namespaces.

        outcomes = (
            run_relayed(Cell(*cell, edges), seed=options.seed)
            for cell in RELAYED
            for edges in (1, 2)
        )
    else:
        outcomes = (run(cell, seed=options.seed) for cell in cells())
    for outcome in outcomes:
        sys.stdout.write(f"{'   ' if outcome.holds else 'BAD'} {outcome}\n")
        sys.stdout.flush()
        failed += not outcome.holds
        granted += outcome.refusal is None
        refused += outcome.refusal is not None
    sys.stdout.write(f"{granted} cells granted, {refused} refused; {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
