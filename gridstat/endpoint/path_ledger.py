"""Ledgers of the paths of a contract: the path that loses events is named while the others mask it.

A slot that no path brought is lost on all of them, as the subscription's own count says. A slot
that some path brought was missed by the paths that did not bring it: the receiver counts these
where the paths end at several edges, and an edge where several paths end at it. A path counts from
a moment after its grant on, when all copies in transit use the new routes; its counts stay when the
contract leaves the path, and continue should the path come back.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from gridstat.model.copy_window import COPY_PATHS
from gridstat.model.identifiers import path_name
from gridstat.model.short_text import counted, short_repr
from gridstat.net.command.endpoint_messages import LEDGER_PATHS_MAX, LEDGER_ROUTERS_MAX, PathEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gridstat.core.samples import VariableCounters
    from gridstat.net.command.endpoint_messages import EdgeCopies, GrantedPath

SETTLE_NS: Final = 2_000_000_000
"""Time after its grant at which a path begins to count."""
UNREAD_NS_MAX: Final = 20_000_000_000
"""Largest age of an edge's report; the edge is asked every few seconds."""
EARLIER: Final = "earlier paths"
"""Name of the sum of paths that the contract left long ago."""


@dataclass(frozen=True, slots=True)
class PathLedger:
    """Counts of one path since it became one of the contract's: expected = delivered + lost.

    `first` were here before all others. `late` copies, first or not, took longer than the latency
    of the grant; None where unknown. Without `is_counted` the paths cannot be distinguished now,
    and the counts mean nothing; without `is_open` the contract has left the path. At times only
    one in `one_in` due slots was looked at, and stands for so many.
    """

    name: str
    routers: tuple[str, ...] = ()
    expected: int = 0
    delivered: int = 0
    lost: int = 0
    first: int = 0
    late: int | None = None
    is_open: bool = True
    is_counted: bool = True
    one_in: int = 1
    channel_names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        counts = f"expected {self.expected} = delivered {self.delivered} + lost {self.lost}"
        return short_repr(
            self,
            self.name,
            counts if self.is_counted else "not counted",
            "" if self.is_open else "left",
            counted(len(self.routers), "router"),
        )

    def entry(self) -> PathEntry:
        """Return the ledger as it is reported to the broker, which reads no longer path than it
        grants."""
        facts = {name: getattr(self, name) for name in PathEntry.__struct_fields__}
        for name in ("routers", "channel_names"):
            facts[name] = facts[name][:LEDGER_ROUTERS_MAX]
        return PathEntry(**facts)


class EdgeReading(NamedTuple):
    """Copies counted by an edge, and when the report came."""

    copies: EdgeCopies
    at_ns: int


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of a subscription and of the copies of its variable at one instant.

    `every` is the divisor of the slots due to it, `receiver_every` that of the slots the receiver
    counts; a new `receiver_count` starts from zero. `source_indices` is the receiver's source index
    of each edge. Without `is_own_deadline` the receiver judges by the deadline of another contract.
    """

    now_ns: int
    delivered: int
    lost: int
    late: int = 0
    every: int = 0
    variable_id: int = 0
    receiver: VariableCounters | None = None
    receiver_every: int = 0
    receiver_count: int = 0
    is_own_deadline: bool = True
    source_indices: Mapping[str, int] = field(default_factory=dict)
    edges: Mapping[tuple[str, int], EdgeReading] = field(default_factory=dict)


@dataclass(slots=True)
class _Copies:
    """Slots that passed a point where paths meet, and those that one path missed there.

    Counted from the first reading on. The sums never fall: anything less than before, or of
    something else, is the beginning of another count.
    """

    passed: int = 0
    missed: int = 0
    first: int = 0
    late: int = 0
    is_read: bool = False
    _of: object = None
    _last: tuple[int, int, int, int] = (0, 0, 0, 0)

    def read(self, of: object, counts: tuple[int, int, int, int], one_in: int = 1) -> None:
        """Add a reading: slots that passed, brought, brought first and brought late; each stands
        for `one_in`."""
        passed, came, first, late = (one_in * count for count in counts)
        before, self._last = self._last, (passed, came, first, late)
        is_same = self.is_read and of == self._of
        self._of, self.is_read = of, True
        if not is_same or passed < before[0] or came < before[1]:
            return
        self.passed += passed - before[0]
        self.missed += (passed - before[0]) - (came - before[1])
        self.first += max(0, first - before[2])
        self.late += max(0, late - before[3])


@dataclass(slots=True)
class _PathCounts:
    """Counts of one path, while the contract has it and after."""

    path: GrantedPath
    name: str
    since_ns: int
    is_open: bool = True
    is_begun: bool = False
    is_counted: bool = False
    knows_late: bool = False
    one_in: int = 1
    is_alone: bool = False
    meets: bool = False
    """True if another path of the contract ends at the same edge."""
    is_apart: bool = False
    """True if some path of the contract ends at another edge."""
    delivered: int = 0
    lost: int = 0
    first: int = 0
    late: int = 0
    _base: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Sums at the start of the count, less what was counted before."""
    _receiver: _Copies = field(default_factory=_Copies)
    _edge: _Copies = field(default_factory=_Copies)

    @property
    def edge(self) -> str:
        return self.path.routers[-1]

    def take(self, path: GrantedPath, ends: Counter[str], now_ns: int) -> None:
        """Note that the contract has the path, among paths that end at these edges; the count may
        start again."""
        kind = ends.total() == 1, ends[path.routers[-1]] > 1, len(ends) > 1
        before = self.is_alone, self.meets, self.is_apart
        if not self.is_open or kind != before or path.channel_ids != self.path.channel_ids:
            self.is_begun, self.since_ns = False, now_ns
        self.path, self.is_open = path, True
        self.is_alone, self.meets, self.is_apart = kind

    def read(self, now: Counted) -> None:
        """Read the counts; those that are not available are marked as not counted until they are
        again."""
        if not self.is_open or (not self.is_alone and now.now_ns < self.since_ns + SETTLE_NS):
            return
        if not self._read_meetings(now):
            is_awaited = not self.is_begun and now.now_ns <= self.since_ns + UNREAD_NS_MAX
            self.is_counted = self.is_counted and is_awaited
            return
        self.is_counted = True
        if not self.is_begun:
            self._begin(now)
        delivered, lost, first, late = (
            there - before for there, before in zip(self._sums(now), self._base, strict=True)
        )
        self.delivered = max(self.delivered, delivered)
        self.lost = max(self.lost, lost)
        self.first = max(self.first, min(first, self.delivered))
        self.late = max(self.late, late)

    def _sums(self, now: Counted) -> tuple[int, int, int, int]:
        """Return delivered, lost, first and late, as totals from an arbitrary start."""
        if self.is_alone:
            return now.delivered, now.lost, now.delivered, now.late
        meeting = self._receiver if self.is_apart else self._edge
        missed = self._receiver.missed + self._edge.missed
        first = self._edge.first if self.meets else self._receiver.first
        return meeting.passed - missed, now.lost + missed, first, self._receiver.late

    def ledger(self) -> PathLedger:
        return PathLedger(
            name=self.name,
            routers=self.path.routers,
            channel_names=self.path.channel_names,
            expected=self.delivered + self.lost,
            delivered=self.delivered,
            lost=self.lost,
            first=self.first,
            late=min(self.late, self.delivered) if self.is_counted and self.knows_late else None,
            is_open=self.is_open,
            is_counted=self.is_counted,
            one_in=self.one_in,
        )

    def _begin(self, now: Counted) -> None:
        """Start counting: all sources have been read since the grant."""
        self.is_begun = True
        delivered, lost, first, late = self._sums(now)
        self._base = (
            delivered - self.delivered,
            lost - self.lost,
            first - self.first,
            late - self.late,
        )

    def _read_meetings(self, now: Counted) -> bool:
        """Read all points where the path meets others; return whether all had counts."""
        self.knows_late = not self.meets and (self.is_alone or now.is_own_deadline)
        if self.is_alone:
            return True
        is_known = not self.is_apart or self._read_receiver(now)
        return (not self.meets or self._read_edge(now)) and is_known

    def _read_receiver(self, now: Counted) -> bool:
        source_index, counted = now.source_indices.get(self.edge), now.receiver
        one_in = _one_in(now.receiver_every, now.every)
        if (
            not one_in
            or counted is None
            or source_index is None
            or source_index >= len(counted["came"])
        ):
            self._receiver.is_read = False
            return False
        by_source = (
            counted["came"][source_index],
            counted["first"][source_index],
            counted["late_by"][source_index],
        )
        of = now.variable_id, now.every, now.receiver_count, source_index
        self._receiver.read(of, (counted["passed"], *by_source), one_in)
        self.one_in = max(self.one_in, one_in)
        return True

    def _read_edge(self, now: Counted) -> bool:
        reading = now.edges.get((self.edge, now.variable_id))
        if reading is None or reading.at_ns < self.since_ns + SETTLE_NS:
            return False
        if now.now_ns > reading.at_ns + UNREAD_NS_MAX:
            return False
        copies = reading.copies
        one_in = _one_in(copies.every, now.every)
        ingress = self.path.channel_ids[-1] if self.path.channel_ids else 0
        is_left_out = ingress not in copies.ways and len(copies.ways) >= COPY_PATHS
        if not one_in or is_left_out:
            self._edge.is_read = False
            return False
        came, first = copies.ways.get(ingress, (0, 0))
        of = now.variable_id, now.every, copies.every
        self._edge.read(of, (copies.passed, came, first, 0), one_in)
        self.one_in = max(self.one_in, one_in)
        return True


def _one_in(counted_every: int, every: int) -> int:
    """Return how many due slots each counted one stands for; 0 if some counted slots are not
    due."""
    return counted_every // every if every and counted_every % every == 0 else 0


_Way: TypeAlias = "tuple[tuple[str, ...], tuple[str, ...]]"
"""Routers of a path and names of its channels: two channels between the same two routers are two
paths, and a channel that was taken out and opened again is the same."""


class PathLedgers:
    """Ledgers of one subscription's paths, in the order of its contract and then those it has
    left."""

    def __init__(self) -> None:
        self.granted: tuple[GrantedPath, ...] = ()
        self._paths: dict[_Way, _PathCounts] = {}
        self._earlier = PathLedger(EARLIER, is_open=False)
        self.has_news = False
        """True if paths were left since the last report to the cloud."""

    @property
    def has_several(self) -> bool:
        """True if the paths say more than the subscription as a whole."""
        return len(self._paths) > 1

    @property
    def asks_receiver(self) -> bool:
        """True if the receiver must count by path."""
        return any(
            path_counts.is_apart and path_counts.is_open for path_counts in self._paths.values()
        )

    @property
    def asks_edge(self) -> bool:
        """True if an edge must count by path."""
        return any(
            path_counts.meets and path_counts.is_open for path_counts in self._paths.values()
        )

    def follow(self, paths: tuple[GrantedPath, ...], now_ns: int) -> None:
        """Set the paths of the contract."""
        self.granted = paths
        ends = Counter(path.routers[-1] for path in paths)
        before, self._paths = self._paths, {}
        for index, path in enumerate(paths):
            way = path.routers, path.channel_names
            path_counts = before.pop(way, None) or _PathCounts(path, "", now_ns)
            path_counts.name = path.name or path_name(index)
            path_counts.take(path, ends, now_ns)
            self._paths[way] = path_counts
        for way, path_counts in before.items():
            self.has_news |= path_counts.is_open
            path_counts.is_open = False
            self._paths[way] = path_counts
        self._forget_oldest()

    def read(self, now: Counted) -> None:
        """Read the counts since the last time."""
        for path_counts in self._paths.values():
            path_counts.read(now)

    def ledgers(self) -> tuple[PathLedger, ...]:
        """Return the ledger of each path."""
        return tuple(self._all())

    def _all(self) -> Iterator[PathLedger]:
        for path_counts in self._paths.values():
            yield path_counts.ledger()
        if self._earlier.expected:
            yield self._earlier

    def _forget_oldest(self) -> None:
        """Sum up the oldest paths beyond the bound; the last in the dict is the oldest."""
        while len(self._paths) > LEDGER_PATHS_MAX - 1:
            _, oldest = self._paths.popitem()
            self._earlier = _sum((self._earlier, oldest.ledger()))


def _sum(ledgers: Iterable[PathLedger]) -> PathLedger:
    found = list(ledgers)
    return PathLedger(
        EARLIER,
        expected=sum(each.expected for each in found),
        delivered=sum(each.delivered for each in found),
        lost=sum(each.lost for each in found),
        first=sum(each.first for each in found),
        is_open=False,
        one_in=max(each.one_in for each in found),
    )
