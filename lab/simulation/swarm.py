"""Plan of a seed, drawn before the run: cloud, faults, and work, in every mixture.

Each kind of fault is in or out by the toss of a coin, and some seeds have none at all: a mixture of
all kinds would hide the bugs that need a quiet moment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from random import Random
from typing import Final

from gridstat.broker.settings import BrokerSettings, Quotas
from gridstat.model.qos import REDUNDANCY_MAX
from lab.simulation.compaction import draw_compactions
from lab.simulation.lost_journal import draw_losses
from lab.simulation.model_keys import SIMULATED_KEYS
from lab.simulation.modes import MODES_DEFINED
from lab.simulation.topology import CLOUD, SHAPES, VARIANTS, WAIST, Outline, Topology, topology
from lab.simulation.world import NS_PER_MS, NS_PER_S

ROUTERS_MIN: Final = 20
SIZES: Final = {ROUTERS_MIN: 24, 24: 3, 32: 2, 40: 1}
"""Numbers of routers, with their weights."""
COLD_SHARE: Final = 1 / 12
"""Share of seeds in which everything starts at once; in the others the routers are up already."""
TIGHT_SHARE: Final = 0.15
"""Share of seeds where capacity is short; they have most refusals and most searches."""
QUIET_SHARE: Final = 0.12
"""Share of seeds without any fault."""

ALL_ENCODED_SHARE: Final = 1 / 16
"""Share of seeds that encode every message; the others encode some of every kind."""


class FaultKind(Enum):
    """Kind of fault in a seed."""

    SESSION_LOSS = auto()
    ROUTER_CRASH = auto()
    BROKER_CRASH = auto()
    END_POINT_CRASH = auto()
    PAUSE = auto()
    PARTITION = auto()
    SLOW_PEER = auto()
    DISK_FULL = auto()
    CHANNEL_CUT = auto()
    CORE_FULL = auto()
    STALE_BROKER = auto()
    BACK_PRESSURE = auto()
    CLOCK_OFFSET = auto()
    ABSENCE = auto()
    JOURNAL_LOSS = auto()


FAULTS_A_SEED: Final = {
    FaultKind.SESSION_LOSS: 8,
    FaultKind.ROUTER_CRASH: 2,
    FaultKind.BROKER_CRASH: 2,
    FaultKind.END_POINT_CRASH: 2,
    FaultKind.PAUSE: 2,
    FaultKind.PARTITION: 1,
    FaultKind.SLOW_PEER: 2,
    FaultKind.DISK_FULL: 1,
    FaultKind.CHANNEL_CUT: 3,
    FaultKind.CORE_FULL: 1,
    FaultKind.STALE_BROKER: 1,
    FaultKind.BACK_PRESSURE: 2,
    FaultKind.CLOCK_OFFSET: 1,
}
"""Most faults of each kind, over the whole of the first phase."""


class Work(Enum):
    """Kind of work of applications and operators."""

    PUBLISH = auto()
    UNPUBLISH = auto()
    CHANGE_PERIOD = auto()
    SUBSCRIBE = auto()
    SUBSCRIBE_PATTERN = auto()
    SUBSCRIBE_ALL = auto()
    CHANGE_QUALITY = auto()
    UNSUBSCRIBE = auto()
    FIND = auto()
    LEAVE = auto()
    CHANGE_CLOUD = auto()


WEIGHTS: Final = {
    Work.PUBLISH: 6,
    Work.UNPUBLISH: 2,
    Work.CHANGE_PERIOD: 2,
    Work.SUBSCRIBE: 10,
    Work.SUBSCRIBE_PATTERN: 2,
    Work.CHANGE_QUALITY: 4,
    Work.UNSUBSCRIBE: 3,
    Work.FIND: 1,
    Work.LEAVE: 1,
    Work.CHANGE_CLOUD: 2,
}


RULED_SEEDS: Final = 3
RULED_REST: Final = 1
"""Operators change access rules in one of so many seeds, those with this remainder."""
RULE_CHANGES_MAX: Final = 6

WIDE_SEEDS: Final = 5
WIDE_RESTS: Final = (1, 4)
"""Remainders of the seeds, two of five, that compact journals and ask for up to four paths."""

WAIST_SEEDS: Final = 8
WAIST_REST: Final = 3
"""Remainder of the seeds, one in eight, whose cloud is two rings with one router in common."""
ABSENCE_SEEDS: Final = 4
ABSENCE_REST: Final = 2
"""Remainder of the seeds, one in four, in which an end-point is away a few times."""
ABSENCE_GRACE_NS: Final = 3 * NS_PER_S
ABSENCE_LATER_NS: Final = 1_500 * NS_PER_MS
PATTERN_SEEDS: Final = 5
PATTERN_REST: Final = 3
"""Remainder of the seeds, one in five, in which everybody begins with patterns."""
PATTERNS: Final = (2, 4)
PATTERNS_FROM_NS: Final = 600 * NS_PER_MS

END_POINTS: Final = (2, 3, 3, 4, 5)
WORK_MIN: Final = 3
WORK_MANY: Final = 36
"""Most work of a seed: most have little, some have much, and faults happen in both."""


@dataclass(frozen=True, slots=True)
class EndPointPlan:
    """An end-point and the one or two edges to which it attaches."""

    name: str
    edges: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Swarm:
    """All values that a seed fixes beforehand; the rest is drawn during the run."""

    seed: int
    topology: Topology
    endpoints: tuple[EndPointPlan, ...]
    settings: BrokerSettings
    faults: tuple[tuple[int, FaultKind], ...]
    """Time and kind of each fault."""
    work: tuple[tuple[int, Work, int], ...]
    """Time, kind and end-point of each piece of work."""
    chaos_ns: int
    delay_ns_max: int
    commit_ns_max: int
    clock_offset_ns_max: int
    is_all_encoded: bool
    is_cold: bool
    rule_changes: tuple[int, ...] = ()
    """Times at which operators revoke or grant an access rule."""
    compactions: tuple[int, ...] = ()
    """Times at which the broker compacts its journal."""

    @property
    def is_crowded(self) -> bool:
        """Whether all ask for one path within a band, over narrow channels."""
        return False

    @property
    def paths_max(self) -> int:
        """Most paths that are asked for."""
        return REDUNDANCY_MAX if is_wide(self.seed) else 2

    @property
    def is_quiet(self) -> bool:
        return not self.faults


def draw(seed: int) -> Swarm:
    """Draw the plan of a seed."""
    random = Random(f"swarm {seed}")
    cloud = _draw_topology(random, seed)
    endpoints = _draw_endpoints(random, cloud)
    chaos_ns = random.randint(3, 6) * NS_PER_S
    faults = _draw_faults(random, chaos_ns)
    kinds = {kind for _, kind in faults}
    found = Swarm(
        seed=seed,
        topology=cloud,
        endpoints=endpoints,
        settings=BrokerSettings(
            CLOUD,
            grace_ns=random.choice((3, 10)) * NS_PER_S,
            confirm_within_ns=random.choice((1, 5)) * NS_PER_S,
            retire_after_ns=random.choice((500, 2_000)) * NS_PER_MS,
            snapshot_after=random.choice((40, 100_000)),
            replan_at_once=random.choice((2, 64)),
            catch_at_once=at_once_of(seed),
            publish_at_once=at_once_of(seed),
            end_at_once=at_once_of(seed),
            revoke_at_once=at_once_of(seed),
            modes_defined=MODES_DEFINED,
            keys=SIMULATED_KEYS,
            quotas=draw_quotas(seed),
        ),
        faults=tuple(found for found in faults if found[1] is not FaultKind.CLOCK_OFFSET),
        work=_with_patterns(seed, _draw_work(random, chaos_ns, len(endpoints)), len(endpoints)),
        chaos_ns=chaos_ns,
        delay_ns_max=random.choice((1, 5, 40)) * NS_PER_MS,
        commit_ns_max=random.choice((1, 8, 60)) * NS_PER_MS,
        clock_offset_ns_max=50 * NS_PER_MS if FaultKind.CLOCK_OFFSET in kinds else 0,
        is_all_encoded=random.random() < ALL_ENCODED_SHARE,
        is_cold=random.random() < COLD_SHARE,
        rule_changes=draw_rule_changes(seed, chaos_ns),
        compactions=draw_compactions(Random(f"compactions {seed}"), chaos_ns)
        if is_wide(seed)
        else (),
    )
    return _with_losses(_with_absences(found))


def draw_rule_changes(seed: int, chaos_ns: int) -> tuple[int, ...]:
    """Draw from a separate random source, so that all other draws stay the same."""
    if seed % RULED_SEEDS != RULED_REST:
        return ()
    random = Random(f"rules {seed}")
    return tuple(
        sorted(random.randint(0, chaos_ns) for _ in range(random.randint(1, RULE_CHANGES_MAX)))
    )


def draw_quotas(seed: int) -> Quotas:
    """Draw the quotas of identities: some are too small for the work, so that much is refused."""
    random = Random(f"quotas {seed}")
    return Quotas(
        capacity_share=random.choice((1.0, 0.25, 0.02)),
        commands_per_s=random.choice((0, 500, 20)),
        subscriptions_max=random.choice((100_000, 100_000, 12)),
    )


def is_wide(seed: int) -> bool:
    """Return whether a seed compacts journals and asks for many paths; the others never do."""
    return seed % WIDE_SEEDS in WIDE_RESTS


def at_once_of(seed: int) -> int:
    """Return how much a broker decides of a long request in one turn: in odd seeds one each."""
    return 1 if seed % 2 else 16


def _draw_topology(random: Random, seed: int) -> Topology:
    size = random.choices(list(SIZES), list(SIZES.values()))[0]
    shape = random.choices(SHAPES, (1, 1, 6))[0]
    room = "tight" if random.random() < TIGHT_SHARE else "ample"
    found = Outline(shape, size, room, random.randrange(VARIANTS))
    return topology(replace(found, shape=WAIST) if seed % WAIST_SEEDS == WAIST_REST else found)


def _draw_endpoints(random: Random, cloud: Topology) -> tuple[EndPointPlan, ...]:
    return tuple(
        EndPointPlan(
            f"{CLOUD}/z{number % 2}/p{number}",
            tuple(random.sample(cloud.edges, random.choice((1, 2)))),
        )
        for number in range(random.choice(END_POINTS))
    )


def _draw_faults(random: Random, chaos_ns: int) -> list[tuple[int, FaultKind]]:
    if random.random() < QUIET_SHARE:
        return []
    share = random.choice((0.15, 0.4))
    found = [
        (random.randint(0, chaos_ns), kind)
        for kind, most in FAULTS_A_SEED.items()
        if random.random() < share
        for _ in range(random.randint(1, most))
    ]
    return sorted(found, key=lambda fault: fault[0])


def _with_absences(swarm: Swarm) -> Swarm:
    """Add absences, as far apart as the grace time, from a separate random source."""
    if swarm.seed % ABSENCE_SEEDS != ABSENCE_REST or swarm.is_quiet:
        return swarm
    random = Random(f"absences {swarm.seed}")
    first_ns = random.randint(0, NS_PER_S)
    apart_ns = ABSENCE_GRACE_NS + random.randint(0, ABSENCE_LATER_NS)
    times = first_ns, random.randint(first_ns, first_ns + apart_ns), first_ns + apart_ns
    more = [(at_ns, FaultKind.ABSENCE) for at_ns in times]
    return replace(
        swarm,
        faults=tuple(sorted([*swarm.faults, *more], key=lambda fault: fault[0])),
        settings=replace(swarm.settings, grace_ns=ABSENCE_GRACE_NS),
        chaos_ns=max(swarm.chaos_ns, times[-1] + 2 * NS_PER_S),
    )


def _with_losses(swarm: Swarm) -> Swarm:
    """Add losses of the journal from a separate random source; seeds without faults stay so."""
    if swarm.is_quiet:
        return swarm
    random = Random(f"lost journals {swarm.seed}")
    more = [
        (at_ns, FaultKind.JOURNAL_LOSS) for at_ns in draw_losses(random, swarm.seed, swarm.chaos_ns)
    ]
    return replace(swarm, faults=tuple(sorted([*swarm.faults, *more], key=lambda each: each[0])))


def _draw_work(random: Random, chaos_ns: int, endpoints: int) -> tuple[tuple[int, Work, int], ...]:
    weights = [weight * random.choice((0, 1, 1, 2)) for weight in WEIGHTS.values()]
    if not any(weights):
        weights = list(WEIGHTS.values())
    count = WORK_MIN + int(random.random() ** 6 * (WORK_MANY - WORK_MIN + 1))
    kinds = random.choices(list(WEIGHTS), weights, k=count)
    times = sorted(random.randint(0, chaos_ns) for _ in range(count))
    return tuple(
        (at_ns, kind, random.randrange(endpoints)) for at_ns, kind in zip(times, kinds, strict=True)
    )


def _with_patterns(
    seed: int, work: tuple[tuple[int, Work, int], ...], endpoints: int
) -> tuple[tuple[int, Work, int], ...]:
    """Add patterns from a separate random source, soon after the first publications."""
    if seed % PATTERN_SEEDS != PATTERN_REST:
        return work
    random = Random(f"patterns {seed}")
    more = [
        (PATTERNS_FROM_NS * (1 + number), Work.SUBSCRIBE_PATTERN, random.randrange(endpoints))
        for number in range(random.randint(*PATTERNS))
    ]
    return tuple(sorted([*work, *more], key=lambda piece: piece[0]))
