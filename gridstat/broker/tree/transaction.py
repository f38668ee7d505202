"""One generation of a contract, or of a segment for the parent, on its way to being held.

It is planned, reserved with every child concerned, and either handed to whoever wanted it or given
back. What a child refuses is planned round: without the way that it refused, then at a lower
quality, in at most so many rounds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from gridstat.broker.capacity.negotiation import differences
from gridstat.broker.tree.current_paths import share_no_router

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gridstat.broker.capacity.negotiation import Band, Quality
    from gridstat.broker.tree.latency_shares import Division
    from gridstat.broker.tree.path_planner import Ends, Use
    from gridstat.broker.tree.segment_releases import Key
    from gridstat.broker.tree.tree_operations import ScopePath
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import RefusedOutcome
    from gridstat.net.command.segment_messages import Reserved, SegmentedPath


class Transaction:
    """`waiting` are the children that have not answered in the present round.

    `finished` is called once, with the refusal or with None if all is reserved; the charges of the
    own channels are then the caller's to give back or to turn into a holding.
    """

    __slots__ = (
        "answers",
        "asked",
        "avoiding",
        "charged",
        "deadline_ns",
        "division",
        "ends",
        "ends_us",
        "finished",
        "is_lost",
        "key",
        "level",
        "promised",
        "qualities",
        "refusal",
        "replaces",
        "result",
        "rounds",
        "shunned",
        "starts",
        "subscriber",
        "tried",
        "tries",
        "variable",
        "waiting",
    )

    def __init__(
        self,
        key: Key,
        variable: StatusVariable,
        qualities: list[Quality],
        finished: Callable[[Transaction, RefusedOutcome | None], None],
    ) -> None:
        self.key = key
        self.variable = variable
        self.qualities = qualities
        self.finished = finished
        self.starts: Ends | None = None
        self.ends: Ends | None = None
        self.subscriber = ""
        self.replaces = -1
        self.ends_us = 0
        self.avoiding: frozenset[Use] = frozenset()
        """What the present round leaves out because of what earlier ones have met."""
        self.shunned: frozenset[Use] = frozenset()
        """What is not to be used at all, as it is broken."""
        self.promised: Quality | None = None
        """What the contract was granted before anything failed, of one that is planned anew."""
        self.level = 0
        self.rounds = 0
        self.tries: deque[frozenset[Use]] = deque([frozenset()])
        self.tried: set[frozenset[Use]] = set()
        self.division: Division | None = None
        self.charged: Quality | None = None
        self.waiting: set[str] = set()
        self.asked: dict[str, int] = {}
        """By child the round of the question that it was asked last."""
        self.answers: dict[str, Reserved] = {}
        self.refusal: RefusedOutcome | None = None
        self.is_lost = False
        """Whether the first thing that it met was that there is no way at all."""
        self.result: tuple[tuple[SegmentedPath, ...], tuple[ScopePath, ...]] | None = None
        self.deadline_ns = 0

    @property
    def quality(self) -> Quality:
        return self.qualities[self.level]

    def bounded(self) -> Quality:
        """The quality with what this scope may take of its latencies."""
        return {
            mode: replace(qos, latency_us=max(1, qos.latency_us - self.ends_us))
            for mode, qos in self.quality.items()
        }

    @property
    def is_node_disjoint(self) -> bool:
        """As the children say, and as their borders are: two ways may meet where they change."""
        assert self.result is not None
        are_all = all(answer.is_node_disjoint for answer in self.answers.values())
        return are_all and share_no_router(self.result[0])

    def children(self) -> tuple[str, ...]:
        """Those that were asked in the present round."""
        return () if self.division is None else tuple(self.division.parts)

    def exclude(self, refused_uses: tuple[Use, ...], tried: frozenset[Use]) -> None:
        """Try without each of these in turn, in addition to what was left out already."""
        for use in refused_uses:
            more = tried | {use}
            if more not in self.tried:
                self.tries.append(more)

    def next_try(self, rounds_max: int) -> frozenset[Use] | None:
        """What to leave out next, at this quality or the next lower; None if all is tried."""
        while self.rounds < rounds_max:
            while self.tries:
                found = self.tries.popleft()
                if found not in self.tried:
                    self.tried.add(found)
                    return found
            if self.level + 1 >= len(self.qualities):
                return None
            self.level += 1
            self.tries = deque([frozenset()])
            self.tried = set()
        return None

    def begin_anew(self) -> None:
        """As if nothing had been tried."""
        self.level = 0
        self.rounds = 0
        self.tries = deque([frozenset()])
        self.tried = set()
        self.refusal = None
        self.is_lost = False

    def all_paths(self) -> dict[str, tuple[SegmentedPath, ...]]:
        return {child: answer.paths for child, answer in self.answers.items()}

    def owed(self) -> Quality | None:
        """What was promised, if that is better than what is had."""
        return self.promised if self.promised in self.qualities[: self.level] else None

    def lowered(self) -> tuple[str, ...]:
        """What is granted below the desired quality, in words."""
        why = "" if self.refusal is None else self.refusal.reason
        return differences(self.qualities[0], self.quality, why)


def levels(band: Band, levels_max: int) -> list[Quality]:
    """Qualities to try, from the desired to the worst; of many, some between.

    All modes have as many paths, because children choose which entry leads to which exit: no path
    is the first everywhere.
    """
    found: list[Quality] = []
    for quality in _all_levels(band):
        level = evened(quality)
        if not found or level != found[-1]:
            found.append(level)
    if len(found) <= levels_max:
        return found
    last = len(found) - 1
    return [found[round(at * last / (levels_max - 1))] for at in range(levels_max)]


def evened(quality: Quality) -> Quality:
    """As many paths in every mode as in the one with most."""
    most = max(qos.redundancy for qos in quality.values())
    return {
        mode: qos if qos.redundancy == most else replace(qos, redundancy=most)
        for mode, qos in quality.items()
    }


def _all_levels(band: Band) -> Iterator[Quality]:
    yield band.level(0, 0, is_slow=False)
    for every_steps in range(band.every_steps + 1):
        yield from band.levels_of(every_steps)
