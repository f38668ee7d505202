"""Plan of a seed of a tree, drawn before the run: tree, faults, and work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from random import Random
from typing import TYPE_CHECKING, Final

from gridstat.broker.settings import BandSettings, BrokerSettings
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.qos import REDUNDANCY_MAX
from lab.simulation.compaction import draw_compactions
from lab.simulation.lost_journal import draw_losses
from lab.simulation.model_keys import SIMULATED_KEYS
from lab.simulation.modes import MODES_DEFINED
from lab.simulation.swarm import (
    EndPointPlan,
    Work,
    at_once_of,
    draw_quotas,
    draw_rule_changes,
)
from lab.simulation.tree.shapes import BRAID, DRAWN_VARIANTS, VARIANTS, Outline, tree_plan
from lab.simulation.tree.slow_faults import draw_times
from lab.simulation.world import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from gridstat.broker.settings import Quotas
    from lab.tree_plan import TreePlan

TREE_WEIGHTS: Final = {
    "alone": 1,
    "pair": 3,
    "star": 3,
    "deep": 6,
    "unbalanced": 4,
    "leaning": 4,
}
"""Weights of the trees: most have four clouds or more, and three levels or more."""
COLD_SHARE: Final = 1 / 12
TIGHT_SHARE: Final = 0.15
QUIET_SHARE: Final = 0.15
ALL_ENCODED_SHARE: Final = 1 / 16


class FaultKind(Enum):
    """Kind of fault in a seed."""

    SESSION_LOSS = auto()
    BROKER_SESSION_LOSS = auto()
    ROUTER_CRASH = auto()
    BROKER_CRASH = auto()
    END_POINT_CRASH = auto()
    PAUSE = auto()
    PARTITION = auto()
    DISK_FULL = auto()
    CHANNEL_CUT = auto()
    BORDER_CUT = auto()
    CORE_FULL = auto()
    STALE_BROKER = auto()
    PATHS_CUT = auto()
    JOURNAL_LOSS = auto()
    SLOW_PEER = auto()
    BACK_PRESSURE = auto()


FAULTS_A_SEED: Final = {
    FaultKind.SESSION_LOSS: 4,
    FaultKind.BROKER_SESSION_LOSS: 4,
    FaultKind.ROUTER_CRASH: 2,
    FaultKind.BROKER_CRASH: 3,
    FaultKind.END_POINT_CRASH: 1,
    FaultKind.PAUSE: 2,
    FaultKind.PARTITION: 2,
    FaultKind.DISK_FULL: 1,
    FaultKind.CHANNEL_CUT: 2,
    FaultKind.BORDER_CUT: 3,
    FaultKind.CORE_FULL: 1,
    FaultKind.STALE_BROKER: 1,
}
"""Most faults of each kind, over the whole of the first phase."""

WEIGHTS: Final = {
    Work.PUBLISH: 4,
    Work.UNPUBLISH: 2,
    Work.SUBSCRIBE: 12,
    Work.SUBSCRIBE_PATTERN: 2,
    Work.CHANGE_QUALITY: 5,
    Work.UNSUBSCRIBE: 4,
    Work.LEAVE: 1,
}
FLOODED_SEEDS: Final = 5
"""Operators flood in one of so many seeds; the other seeds run as they did before floods."""
WIDE_SEEDS: Final = 5
WIDE_REST: Final = 1
DRAWN_SEEDS: Final = 6
DRAWN_REST: Final = 2
"""Remainder of the seeds, one in six, whose tree is drawn."""
VAST_SEEDS: Final = 300
VAST_REST: Final = 152
"""One in so many of all seeds has a tree of more than thirty clouds; they take long."""
BRAID_SEEDS: Final = 12
BRAID_REST: Final = 10
"""Remainder of the seeds, one in twelve, whose tree is a braid."""
CROWD_SEEDS: Final = 5
CROWD_REST: Final = 4
"""Remainder of the seeds, one in five, in which some ask for all that another publishes."""
CROWDS: Final = (2, 4)
CROWDS_NS: Final = (1_000 * NS_PER_MS, 2_500 * NS_PER_MS)
PATHS_CUT_SEEDS: Final = 4
PATHS_CUT_REST: Final = 3
"""Remainder of the seeds, one in four, that cut all paths of a contract at once, a few times."""
PATHS_CUT_MAX: Final = 4
PATHS_CUT_NS_MIN: Final = 1_200 * NS_PER_MS
"""Time by which the first contracts exist."""
CROWDED_SEEDS: Final = 9
CROWDED_REST: Final = 4
"""Remainder of the seeds, one in nine, in which many ask for narrow channels, with bands."""
CROWD: Final = 60
CROWDED_RAISE_NS: Final = NS_PER_S
LEFT_CUT_SEEDS: Final = 7
LEFT_CUT_REST: Final = 5
"""Remainder of the seeds, one in seven, that cut a wire between clouds at the end for good."""
FLOODS_MIN: Final = 4
FLOODS_MANY: Final = 16
END_SHARE: Final = 0.35
ANEW_SHARE: Final = 0.15


class FloodWork(Enum):
    """Kind of work of operators."""

    BEGIN = auto()
    END = auto()
    ANEW = auto()
    """Publish a flooding variable again, and ask some broker above it to flood it."""


UP_WITHIN_NS: Final = (300 * NS_PER_MS, NS_PER_S, 5 * NS_PER_S)
"""Times within which a commit is to be confirmed; the short ones pass while routers are away."""
WORK_MIN: Final = 3
WORK_MANY: Final = 30
END_POINTS: Final = (2, 3, 3, 4)


@dataclass(frozen=True, slots=True)
class Paces:
    """Delays of a seed, and time-outs of its brokers."""

    delay_ns_max: int = NS_PER_MS
    commit_ns_max: int = NS_PER_MS
    grace_ns: int = 10 * NS_PER_S
    confirm_within_ns: int = 5 * NS_PER_S
    retire_after_ns: int = 2 * NS_PER_S
    snapshot_after: int = 100_000
    replan_at_once: int = 64
    up_within_ns: int = 5 * NS_PER_S


@dataclass(frozen=True, slots=True)
class TreeSwarm:
    """All values that a seed fixes beforehand; the rest is drawn during the run."""

    seed: int
    outline: Outline
    plan: TreePlan
    endpoints: tuple[EndPointPlan, ...]
    paces: Paces
    faults: tuple[tuple[int, FaultKind], ...] = ()
    work: tuple[tuple[int, Work, int], ...] = ()
    floods: tuple[tuple[int, FloodWork], ...] = ()
    rule_changes: tuple[int, ...] = ()
    compactions: tuple[int, ...] = ()
    chaos_ns: int = 0
    is_all_encoded: bool = False
    is_cold: bool = False

    @property
    def paths_max(self) -> int:
        """Most paths that are asked for."""
        return REDUNDANCY_MAX if _is_wide(self.seed) else 2

    @property
    def is_quiet(self) -> bool:
        return not self.faults

    @property
    def is_crowded(self) -> bool:
        """Whether all ask for one path within a band, over narrow channels."""
        return is_crowded(self.seed)

    @property
    def is_left_cut(self) -> bool:
        return self.seed % LEFT_CUT_SEEDS == LEFT_CUT_REST

    def settings(self, broker: str) -> BrokerSettings | TreeSettings:
        """Return the settings in the file of a broker, without routers and channels."""
        paces, parent = self.paces, self.plan.brokers[broker].parent
        if broker not in self.plan.clouds:
            return TreeSettings(
                broker,
                parent=parent,
                snapshot_after=paces.snapshot_after,
                replan_at_once=paces.replan_at_once,
                up_within_ns=paces.up_within_ns,
                modes_defined=MODES_DEFINED,
                keys=SIMULATED_KEYS,
                raise_after_ns=CROWDED_RAISE_NS if self.is_crowded else 10 * NS_PER_S,
            )
        return BrokerSettings(
            broker,
            parent=parent,
            grace_ns=paces.grace_ns,
            confirm_within_ns=paces.confirm_within_ns,
            retire_after_ns=paces.retire_after_ns,
            snapshot_after=paces.snapshot_after,
            replan_at_once=paces.replan_at_once,
            publish_at_once=at_once_of(self.seed),
            end_at_once=at_once_of(self.seed),
            revoke_at_once=at_once_of(self.seed),
            modes_defined=MODES_DEFINED,
            keys=SIMULATED_KEYS,
            quotas=self.quotas(),
            bands=BandSettings(raise_after_ns=CROWDED_RAISE_NS)
            if self.is_crowded
            else BandSettings(),
        )

    def quotas(self) -> Quotas:
        """Return the quotas of identities; in half of all seeds no share bounds a contract.

        Small shares refuse most contracts between clouds, and then little is left to be lowered.
        """
        drawn = draw_quotas(self.seed)
        has_shares = self.seed % 2 and not self.is_crowded
        return drawn if has_shares else replace(drawn, capacity_share=1.0)


def draw(seed: int) -> TreeSwarm:
    """Draw the plan of a seed."""
    random = Random(f"tree swarm {seed}")
    tree = random.choices(list(TREE_WEIGHTS), list(TREE_WEIGHTS.values()))[0]
    room = "tight" if random.random() < TIGHT_SHARE else "ample"
    outline = _drawn_outline(seed, room) or Outline(tree, room, random.randrange(VARIANTS))
    if is_crowded(seed):
        outline = replace(outline, room="scarce")
    elif seed % BRAID_SEEDS == BRAID_REST:
        outline = replace(outline, tree=BRAID)
    plan = tree_plan(outline)
    endpoints = _draw_endpoints(random, plan)
    chaos_ns = random.randint(3, 6) * NS_PER_S
    return TreeSwarm(
        seed=seed,
        outline=outline,
        plan=plan,
        endpoints=endpoints,
        paces=Paces(
            delay_ns_max=random.choice((1, 5, 40)) * NS_PER_MS,
            commit_ns_max=random.choice((1, 8, 60)) * NS_PER_MS,
            grace_ns=random.choice((3, 10)) * NS_PER_S,
            confirm_within_ns=random.choice((1, 5)) * NS_PER_S,
            retire_after_ns=random.choice((500, 2_000)) * NS_PER_MS,
            snapshot_after=random.choice((40, 100_000)),
            replan_at_once=random.choice((2, 64)),
            up_within_ns=Random(f"tree commits {seed}").choice(UP_WITHIN_NS)
            if _is_wide(seed)
            else UP_WITHIN_NS[-1],
        ),
        faults=_with_more(
            seed, _with_paths_cut(seed, _draw_faults(random, chaos_ns), chaos_ns), chaos_ns
        ),
        work=_with_crowd(
            seed,
            _with_patterns(seed, _draw_work(random, chaos_ns, len(endpoints)), len(endpoints)),
            chaos_ns,
            endpoints,
        ),
        floods=_draw_floods(seed, chaos_ns),
        rule_changes=draw_rule_changes(seed, chaos_ns),
        compactions=draw_compactions(Random(f"tree compactions {seed}"), chaos_ns)
        if _is_wide(seed)
        else (),
        chaos_ns=chaos_ns,
        is_all_encoded=random.random() < ALL_ENCODED_SHARE,
        is_cold=random.random() < COLD_SHARE,
    )


def _is_wide(seed: int) -> bool:
    """Return whether a seed compacts journals, asks for many paths, and repeats commits soon."""
    return seed % WIDE_SEEDS == WIDE_REST


def _drawn_outline(seed: int, room: str) -> Outline | None:
    """Return the outline of a drawn tree, in some of the seeds; the others stay as they were."""
    if seed % DRAWN_SEEDS != DRAWN_REST:
        return None
    kind = "vast" if seed % VAST_SEEDS == VAST_REST else "uneven"
    return Outline(kind, room, Random(f"tree shape {seed}").randrange(DRAWN_VARIANTS[kind]))


def _draw_endpoints(random: Random, plan: TreePlan) -> tuple[EndPointPlan, ...]:
    """Draw end-points in different clouds if possible, most of them on both edges."""
    clouds = sorted(plan.clouds)
    random.shuffle(clouds)
    found: list[EndPointPlan] = []
    for number in range(random.choice(END_POINTS)):
        cloud = plan.clouds[clouds[number % len(clouds)]]
        edges = random.sample(cloud.edges, random.choice((1, 2, 2)))
        found.append(EndPointPlan(f"{cloud.name}/z{number % 2}/p{number}", tuple(edges)))
    return tuple(found)


def _draw_faults(random: Random, chaos_ns: int) -> tuple[tuple[int, FaultKind], ...]:
    if random.random() < QUIET_SHARE:
        return ()
    share = random.choice((0.15, 0.4))
    found = [
        (random.randint(0, chaos_ns), kind)
        for kind, most in FAULTS_A_SEED.items()
        if random.random() < share
        for _ in range(random.randint(1, most))
    ]
    return tuple(sorted(found, key=lambda fault: fault[0]))


def _with_paths_cut(
    seed: int, faults: tuple[tuple[int, FaultKind], ...], chaos_ns: int
) -> tuple[tuple[int, FaultKind], ...]:
    """Add cuts of paths from a separate random source; seeds without faults stay so."""
    if seed % PATHS_CUT_SEEDS != PATHS_CUT_REST or not faults:
        return faults
    random = Random(f"tree paths cut {seed}")
    more = [
        (random.randint(PATHS_CUT_NS_MIN, chaos_ns), FaultKind.PATHS_CUT)
        for _ in range(random.randint(1, PATHS_CUT_MAX))
    ]
    return tuple(sorted((*faults, *more), key=lambda fault: fault[0]))


def _with_more(
    seed: int, faults: tuple[tuple[int, FaultKind], ...], chaos_ns: int
) -> tuple[tuple[int, FaultKind], ...]:
    """Add lost journals, slow peers and congestion, from separate random sources."""
    if not faults:
        return faults
    losses = draw_losses(Random(f"tree lost journals {seed}"), seed, chaos_ns)
    more = [(at_ns, FaultKind.JOURNAL_LOSS) for at_ns in losses]
    random = Random(f"tree slow faults {seed}")
    for kind in (FaultKind.SLOW_PEER, FaultKind.BACK_PRESSURE):
        more += [(at_ns, kind) for at_ns in draw_times(random, seed, chaos_ns)]
    return tuple(sorted((*faults, *more), key=lambda fault: fault[0]))


def _draw_work(random: Random, chaos_ns: int, endpoints: int) -> tuple[tuple[int, Work, int], ...]:
    weights = [weight * random.choice((0, 1, 1, 2)) for weight in WEIGHTS.values()]
    if not any(weights):
        weights = list(WEIGHTS.values())
    count = WORK_MIN + int(random.random() ** 4 * (WORK_MANY - WORK_MIN + 1))
    kinds = random.choices(list(WEIGHTS), weights, k=count)
    times = sorted(random.randint(0, chaos_ns) for _ in range(count))
    return tuple(
        (at_ns, kind, random.randrange(endpoints)) for at_ns, kind in zip(times, kinds, strict=True)
    )


def is_crowded(seed: int) -> bool:
    return seed % CROWDED_SEEDS == CROWDED_REST


def _with_crowd(
    seed: int,
    work: tuple[tuple[int, Work, int], ...],
    chaos_ns: int,
    endpoints: tuple[EndPointPlan, ...],
) -> tuple[tuple[int, Work, int], ...]:
    """Add subscriptions, and a few ends, from a separate random source."""
    if not is_crowded(seed):
        return work
    random = Random(f"tree crowd {seed}")
    kinds = random.choices((Work.SUBSCRIBE, Work.UNSUBSCRIBE), (4, 1), k=CROWD)
    more = [(random.randint(0, chaos_ns), kind, random.randrange(len(endpoints))) for kind in kinds]
    return tuple(sorted((*work, *more), key=lambda each: each[0]))


def _draw_floods(seed: int, chaos_ns: int) -> tuple[tuple[int, FloodWork], ...]:
    """Draw floods from a separate random source, so that all other draws stay the same."""
    if seed % FLOODED_SEEDS:
        return ()
    random = Random(f"tree floods {seed}")
    count = random.randint(FLOODS_MIN, FLOODS_MANY)
    times = sorted(random.randint(0, chaos_ns) for _ in range(count))
    shares = (1 - END_SHARE - ANEW_SHARE, END_SHARE, ANEW_SHARE)
    kinds = random.choices(tuple(FloodWork), shares, k=count)
    return tuple(zip(times, kinds, strict=True))


def _with_patterns(
    seed: int, work: tuple[tuple[int, Work, int], ...], endpoints: int
) -> tuple[tuple[int, Work, int], ...]:
    """Add requests for all that another publishes, from a separate random source."""
    if seed % CROWD_SEEDS != CROWD_REST:
        return work
    random = Random(f"tree crowds {seed}")
    more = [
        (random.randint(*CROWDS_NS), Work.SUBSCRIBE_ALL, random.randrange(endpoints))
        for _ in range(random.randint(*CROWDS))
    ]
    return tuple(sorted([*work, *more], key=lambda piece: piece[0]))
