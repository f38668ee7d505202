"""One attempt to reserve a generation of a contract, or of a segment for the parent.

The coordinator plans paths, reserves them with every child concerned, and then reports the
outcome to the owner of the transaction, once.

States:

    PLANNING --plan found--> RESERVING --every child has reserved--> RESERVED
    PLANNING --no path is known, and the scope is still changing--> PARKED
    PLANNING --no room, and a child is making room--> PARKED
    PLANNING --no plan is left--> REFUSED
    RESERVING --a child refuses, or a channel of the plan fails--> PLANNING
    RESERVING, PARKED --own channels get other numbers--> PARKED
    PARKED --timer `parked`--> PLANNING
    any open state --deadline--> REFUSED
    any open state --the owner cancels--> CANCELLED

Messages. In RESERVING the broker sends `Reserve` to each child of the plan and waits for `Reserved`
or `NotReserved` with the same round. After a refusal for its latency the same plan is divided once
more, in even shares. After any other the next plan excludes what was refused, so no plan is tried
twice. At each quality node-disjoint paths are planned first, then paths that share
routers, each in at most `rounds_max` rounds. If room was lacking, both are planned once more, and
children may lower other contracts for them. When no plan is left, the next lower
quality is tried. While a child waits for owners to lower contracts, the
transaction is parked and planned again, for half of its time at most.
Where a request for several paths is refused for their number or their latency, paths are reserved
without any bound at last, only to count those that exist: as many as desired if latency was in the
way, then fewer. They are released, and the refusal says the number, or how much they are too slow.

Search. All searches of a transaction share one budget of steps, those of its children too. Once
it is spent, or a search has ended without a verdict, the refusal says just that: nothing is proved.

Timeout. At its deadline a transaction is refused, and every child of the plan gets a `Release`.

Restart. Nothing of a transaction is durable. A child that joins reports what it holds, and releases
what no transaction or holding of this broker names (presumed abort). A child that restarts gets
the `Reserve` again when it joins.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gridstat.broker.capacity.allocation import paths_wanted
from gridstat.broker.capacity.negotiation import differences
from gridstat.broker.capacity.path_skew import bounding_us
from gridstat.broker.tree.current_paths import share_no_router
from gridstat.broker.tree.search_budget import SearchBudget
from gridstat.model.qos import LATENCY_US_MAX, REDUNDANCY_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.broker.capacity.negotiation import Band, Quality
    from gridstat.broker.tree.latency_shares import Division
    from gridstat.broker.tree.path_planner import Ends, Use
    from gridstat.broker.tree.segment_releases import Key
    from gridstat.broker.tree.tree_operations import ScopePath
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import RefusedOutcome
    from gridstat.net.command.segment_messages import (
        AskContract,
        LowerContract,
        Payer,
        Reserve,
        Reserved,
        SegmentedPath,
    )


TRIED_MAX: Final = 24
"""Maximum number of exclusions that are tried at one quality, for each kind of disjointness."""


class TransactionState(Enum):
    """State of a transaction; the module's docstring draws the transitions."""

    PLANNING = auto()
    RESERVING = auto()
    PARKED = auto()
    RESERVED = auto()
    REFUSED = auto()
    CANCELLED = auto()


class Purpose(Enum):
    """Reason for which a transaction was begun."""

    CONTRACT = auto()
    """A contract that a child has requested."""
    REPLACEMENT = auto()
    """Another generation of a contract that is broken, or has less than it was promised."""
    SEGMENT = auto()
    """A segment that the parent has requested."""


class TransactionOwner(Protocol):
    """Component that has begun a transaction."""

    def transaction_ended(self, transaction: Transaction, refusal: RefusedOutcome | None) -> None:
        """Take over what is reserved and charged, or the reason why nothing is."""


class Fastest(NamedTuple):
    """Number of paths, and the latency of the slowest of them, by what children have reported."""

    paths: int
    latency_us: int


class KnownPaths:
    """What plans and answers have shown of the disjoint paths that exist."""

    __slots__ = (
        "conflicts",
        "even",
        "fastest",
        "is_counting",
        "is_undecided",
        "late",
        "levels",
        "paths_max",
    )

    def __init__(self) -> None:
        self.conflicts: dict[bool, set[frozenset[Use]]] = {True: set(), False: set()}
        """Links that exclude each other, to node-disjoint paths (True) and to any."""
        self.even: set[frozenset[Use]] = set()
        """Exclusions whose plan is divided in even shares, since a child was too slow."""
        self.paths_max = REDUNDANCY_MAX
        """Upper bound of the disjoint paths that exist."""
        self.is_counting = False
        """True once the request is refused, and plans serve only to count the paths that exist."""
        self.levels = 0
        """Number of qualities that were asked for, once others serve only to count."""
        self.late: RefusedOutcome | None = None
        """Last reason for which a plan was too slow: without its bound there may be more paths."""
        self.fastest = Fastest(0, 0)
        """The fastest paths of which a search has shown that they are too slow."""
        self.is_undecided = False
        """True once a search has ended without a verdict: what was not found may exist."""


class RoomByBands:
    """What may be lowered for a contract, and for whom the contract itself is lowered."""

    __slots__ = (
        "every_worst",
        "is_being_made",
        "is_short",
        "lowered_for",
        "may_ask",
        "may_lower",
        "priority",
        "until_ns",
        "was_made",
        "wishes",
    )

    def __init__(self, *, may_ask: bool) -> None:
        self.may_ask = may_ask
        """True if other contracts may be lowered for this one."""
        self.may_lower = False
        """True while children may lower others, since there was no room without that."""
        self.is_short = False
        """True if room was lacking at the present quality."""
        self.is_being_made = False
        """True if a child waits for owners to lower contracts."""
        self.was_made = False
        """True once a child or this broker has had owners lower contracts."""
        self.until_ns = 0
        """Time until which the transaction waits for that."""
        self.every_worst = 0
        """Worst divisor of a contract that takes part in splits of rates; else 0."""
        self.lowered_for = ""
        """Contract for which this one is being lowered within its band, or still is lowered."""
        self.priority = 0
        """Priority of that contract, if this one is being lowered."""
        self.wishes: dict[str, LowerContract] = {}
        """Contracts to be lowered for the room on channels of this broker."""

    @property
    def is_wanted(self) -> bool:
        """Return whether plans are to be tried for which others are lowered."""
        return self.may_ask and self.is_short and not self.may_lower

    def begin_again(self) -> None:
        self.may_lower = self.is_short = self.is_being_made = False


class Transaction:
    """Plans and answers of one transaction; `Coordinator` moves it from state to state."""

    __slots__ = (
        "answers",
        "charged",
        "deadline_ns",
        "division",
        "ends",
        "ends_us",
        "excluded",
        "has_no_path",
        "is_kept",
        "is_node_wanted",
        "is_sealed",
        "key",
        "known",
        "level",
        "owner",
        "pairs",
        "payers",
        "promised",
        "purpose",
        "qualities",
        "reader",
        "refusal",
        "replaces",
        "request",
        "result",
        "room",
        "rounds",
        "rounds_sent",
        "search",
        "starts",
        "state",
        "subscriber",
        "tried",
        "untried",
        "unusable",
        "variable",
        "waiting",
    )

    def __init__(
        self,
        key: Key,
        variable: StatusVariable,
        qualities: list[Quality],
        request: AskContract | Reserve,
        owner: TransactionOwner,
        purpose: Purpose,
    ) -> None:
        self.state = TransactionState.PLANNING
        self.key = key
        self.variable = variable
        self.qualities = qualities
        self.request = request
        self.owner = owner
        self.purpose = purpose
        self.starts: Ends | None = None
        self.ends: Ends | None = None
        self.subscriber = ""
        self.reader = ""
        """End-point that the contract is for, in every segment."""
        self.replaces = -1
        self.is_sealed = False
        """True if every channel must be sealed."""
        self.pairs: frozenset[tuple[int, int]] = frozenset()
        """Channels of each entry and of its exit, if the parent has said which lead to which."""
        self.payers: tuple[Payer, ...] = ()
        """Identities that the contract is charged to."""
        self.is_kept = purpose is Purpose.REPLACEMENT
        """True if the contract was granted before: then no share is checked."""
        self.ends_us = 0
        self.excluded: frozenset[Use] = frozenset()
        """Links that the present plan leaves out because earlier plans have failed with them."""
        self.unusable: frozenset[Use] = frozenset()
        """Links to broken paths of children, which a plan uses only if there is none without."""
        self.promised: Quality | None = None
        """Quality granted before anything failed, if this transaction is a replacement."""
        self.level = self.rounds = 0
        self.is_node_wanted = any(qos.redundancy > 1 for qos in qualities[0].values())
        """True while only node-disjoint paths are planned, before those that share routers."""
        self.known = KnownPaths()
        self.untried: deque[frozenset[Use]] = deque([frozenset()])
        """Exclusions to plan with next, at the present quality."""
        self.tried: set[frozenset[Use]] = set()
        self.division: Division | None = None
        self.charged: Quality | None = None
        self.waiting: set[str] = set()
        """Children that have not answered the present round."""
        self.rounds_sent: dict[str, int] = {}
        """Round of the last Reserve sent to each child."""
        self.answers: dict[str, Reserved] = {}
        self.refusal: RefusedOutcome | None = None
        """First reason why a plan was not carried out."""
        self.has_no_path = False
        """True if that first reason was that the scope has no path at all."""
        self.result: tuple[tuple[SegmentedPath, ...], tuple[ScopePath, ...]] | None = None
        self.deadline_ns = 0
        self.room = RoomByBands(may_ask=purpose is Purpose.CONTRACT)
        self.search = SearchBudget()

    def enter(self, state: TransactionState) -> None:
        """Change the state; any transition that the module's docstring does not draw is a bug."""
        match self.state:
            case TransactionState.PLANNING:
                is_allowed = state is not TransactionState.RESERVED
            case TransactionState.RESERVING:
                is_allowed = state is not TransactionState.RESERVING
            case TransactionState.PARKED:
                is_allowed = state not in {TransactionState.RESERVING, TransactionState.RESERVED}
            case TransactionState.RESERVED | TransactionState.REFUSED | TransactionState.CANCELLED:
                is_allowed = False
        assert is_allowed, f"{self.key}: from {self.state.name} to {state.name}"
        self.state = state

    @property
    def quality(self) -> Quality:
        return self.qualities[self.level]

    def bounded(self) -> Quality:
        """Return the quality, with each latency reduced to the share of this scope, and to what
        copies on several paths may take; what is only counted has no bound."""
        if self.known.is_counting:
            return self.quality
        bound_us = bounding_us(self.variable, paths_wanted(self.quality))
        bound_us = LATENCY_US_MAX if bound_us is None else bound_us
        return {
            mode: replace(qos, latency_us=max(1, min(qos.latency_us, bound_us) - self.ends_us))
            for mode, qos in self.quality.items()
        }

    @property
    def is_skewed(self) -> bool:
        """True if the paths are bounded by when copies are recognised, and not as requested."""
        bound_us = bounding_us(self.variable, paths_wanted(self.quality))
        return bound_us is not None and bound_us < min(
            qos.latency_us for qos in self.quality.values()
        )

    @property
    def is_node_disjoint(self) -> bool:
        """True if the paths share no router, inside the children and at their borders."""
        assert self.result is not None
        are_all = all(answer.is_node_disjoint for answer in self.answers.values())
        return are_all and share_no_router(self.result[0])

    def children(self) -> tuple[str, ...]:
        """Return the children of the present plan."""
        return () if self.division is None else tuple(self.division.parts)

    def exclude(self, refused_uses: tuple[Use, ...], excluded: frozenset[Use]) -> None:
        """Plan later without each of these links, in addition to those excluded already."""
        for use in refused_uses:
            more = excluded | {use}
            if more not in self.tried:
                self.untried.append(more)

    def divide_evenly(self) -> bool:
        """Plan again with the same exclusions and even shares; return whether that is new."""
        if self.excluded in self.known.even:
            return False
        self.known.even.add(self.excluded)
        self.tried.discard(self.excluded)
        self.untried.appendleft(self.excluded)
        return True

    def bar(self, uses: frozenset[Use], *, is_node_disjoint: bool) -> None:
        """Plan again with the same exclusions, and never with all of these links together.

        What no paths can do, node-disjoint ones cannot do either.
        """
        self.known.conflicts[True].add(uses)
        if not is_node_disjoint:
            self.known.conflicts[False].add(uses)
        self.tried.discard(self.excluded)
        self.untried.appendleft(self.excluded)

    def next_exclusion(self, rounds_max: int) -> frozenset[Use] | None:
        """Return the links to leave out next, or None when every quality has been tried.

        At each quality paths that share no router come first, then those that share no channel;
        each kind has `rounds_max` rounds.
        """
        while True:
            while self.untried and self.rounds < rounds_max and len(self.tried) < TRIED_MAX:
                found = self.untried.popleft()
                if found not in self.tried:
                    self.tried.add(found)
                    return found
            if self.is_node_wanted:
                self._try_kind(is_node_disjoint=False)
            elif self.room.is_wanted:
                self.room.may_lower = True
                self._try_kind(is_node_disjoint=self.count > 1)
            elif self.room.is_being_made:
                return None
            elif self.level + 1 < len(self.qualities):
                self.level += 1
                self.room.may_lower = self.room.is_short = False
                self._try_kind(is_node_disjoint=self.count > 1)
            else:
                return None

    def _try_kind(self, *, is_node_disjoint: bool) -> None:
        self.is_node_wanted = is_node_disjoint
        self.rounds = 0
        self.untried = deque([frozenset()])
        self.tried = set()
        self.known.even = set()

    def count_paths(self) -> bool:
        """Try to have paths of any latency, to count those that exist; return whether to plan so.

        The first attempt is for all that are desired if latency was in the way, each later one for
        a path less. Nothing is tried that the border graph alone excludes, or makes certain.
        """
        known = self.known
        is_first_late = known.late is not None and not known.is_counting
        most = min(known.paths_max, self.count_desired if is_first_late else self.count - 1)
        is_certain = not (known.conflicts[False] or self.has_guessed_ends())
        is_certain &= known.late is None or self.count_desired == 1
        if most < (2 if is_certain else 1):
            known.paths_max = most
            return False
        if not known.is_counting:
            known.is_counting, known.levels = True, len(self.qualities)
            known.is_undecided = False  # Of what was asked for; it is known to be too much.
        self.qualities = [
            *self.qualities,
            {
                mode: replace(qos, redundancy=most, latency_us=LATENCY_US_MAX)
                for mode, qos in self.quality.items()
            },
        ]
        self.level = len(self.qualities) - 1
        self._try_kind(is_node_disjoint=False)
        return True

    def has_guessed_ends(self) -> bool:
        return any(ends is not None and ends.is_guessed for ends in (self.starts, self.ends))

    @property
    def count_desired(self) -> int:
        """Number of paths at the desired quality."""
        return max(qos.redundancy for qos in self.qualities[0].values())

    @property
    def count_worst(self) -> int:
        """Number of paths at the worst quality that was asked for."""
        asked = self.qualities[: self.known.levels or None]
        return min(max(qos.redundancy for qos in quality.values()) for quality in asked)

    @property
    def wanted_us(self) -> int:
        """Latency that every path may have: the desired one, or less if copies are to be of use."""
        desired_us = min(qos.latency_us for qos in self.qualities[0].values())
        bound_us = bounding_us(self.variable, self.count_desired)
        return desired_us if bound_us is None else min(desired_us, bound_us)

    @property
    def count(self) -> int:
        """Number of paths at the present quality."""
        return max(qos.redundancy for qos in self.quality.values())

    def begin_again(self) -> None:
        """Forget every attempt so far."""
        if self.known.is_counting:
            self.qualities = self.qualities[: self.known.levels]
        self.level = 0
        self.room.begin_again()
        self._try_kind(is_node_disjoint=self.count > 1)
        self.known = KnownPaths()
        self.refusal = None
        self.has_no_path = False

    def all_paths(self) -> dict[str, tuple[SegmentedPath, ...]]:
        return {child: answer.paths for child, answer in self.answers.items()}

    def owed(self) -> Quality | None:
        """Return the promised quality if it is better than the reserved one."""
        if self.room.lowered_for and self.promised != self.quality:
            return self.promised
        return self.promised if self.promised in self.qualities[: self.level] else None

    def lowered(self) -> tuple[str, ...]:
        """Return texts that say where the reserved quality is below the desired one."""
        why = "" if self.refusal is None else self.refusal.reason
        return differences(self.qualities[0], self.quality, why)


def levels(band: Band, levels_max: int) -> list[Quality]:
    """Return the qualities to try, from the desired to the worst; at most `levels_max` of them.

    All modes get the same number of paths, because a child chooses which entry is joined to which
    exit: no path is the first one everywhere.
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
    """Return the quality with as many paths in every mode as in the mode with most."""
    most = max(qos.redundancy for qos in quality.values())
    return {
        mode: qos if qos.redundancy == most else replace(qos, redundancy=most)
        for mode, qos in quality.items()
    }


def _all_levels(band: Band) -> Iterator[Quality]:
    yield band.level(0, 0, is_slow=False)
    for every_steps in range(band.every_steps + 1):
        yield from band.levels_of(every_steps)
