"""Planning of one subscription at one quality: search, claim, check, and search again.

The search knows only the topology. The paths that it finds are claimed and checked. If they break a
limit, the full elements are excluded and the search is repeated. A cloud with free capacity, which
is the usual case, is therefore searched once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field, structs

from gridstat.broker.capacity.admission import (
    CAPACITY_LIMITS,
    LATENCY_LIMITS,
    Limit,
    Obstacle,
    back_pressure,
    not_found,
    obstacles,
    replay_obstacles,
    too_slow,
)
from gridstat.broker.capacity.allocation import (
    AllocatedPath,
    AllocationRequest,
    Gates,
    everys,
    latency_us_max,
    paths_wanted,
)
from gridstat.broker.capacity.identity_shares import Replaced
from gridstat.broker.capacity.negotiation import Quality
from gridstat.broker.capacity.path_cache import ALL_S, PathCache, PathQuery
from gridstat.broker.capacity.path_skew import promised_us
from gridstat.broker.capacity.resources import Claim, LoadChange
from gridstat.broker.interning import same
from gridstat.model.paths import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from gridstat.broker.capacity.identity_shares import IdentityShares
    from gridstat.broker.capacity.resources import Resources
    from gridstat.model.paths import Found, FoundPath
    from gridstat.model.paths.budget import Budget
    from gridstat.model.qos import Qos

_BY_LATENCY: Final = frozenset({"latency", "budget"})
"""Reasons of a search that may differ with the present latencies."""
ATTEMPTS_MAX: Final = 10
"""Limit of attempts; each after the first excludes one more element, or wants a faster path."""
_TRIAL_MARGIN: Final = 0.999
"""Share of a limit below which a rounded estimate surely does not exceed the limit."""


class Trial(Struct, frozen=True):
    """Constraints of an attempt: excluded elements, favoured channels and ignored limits.

    `back_pressured` maps the back-pressured channels of the changed contract to what they carried.
    `replaced` is the contract whose place this one takes, for the shares of its identities.
    `staying` paths of the contract are kept beside the planned one.
    """

    request: AllocationRequest
    excluded_channels: frozenset[int] = frozenset()
    excluded_routers: frozenset[str] = frozenset()
    favoured_channels: frozenset[int] = frozenset()
    back_pressured: Mapping[int, Fraction] = field(default_factory=dict)
    replaced: Replaced | None = None
    ignoring: frozenset[Limit] = frozenset()
    staying: int = 0

    def bounds_us(self, quality: Quality) -> tuple[int, ...]:
        """Return the latency that each path may have at this quality."""
        variable = self.request.variable
        return tuple(
            [
                promised_us(variable, quality, index, beside=self.staying)
                for index in range(paths_wanted(quality))
            ]
        )


class Plan(Struct, frozen=True):
    """Paths whose claims are taken; the caller either keeps the plan or undoes it."""

    quality: Quality
    paths: tuple[AllocatedPath, ...]
    claims: tuple[Claim, ...]
    touched: LoadChange
    is_node_disjoint: bool
    shares_edge: bool

    def slowest_us(self, qos: Qos) -> int:
        """Return the latency predicted for the slowest path that such a mode uses."""
        return max(path.latency_us for path in self.paths[: qos.redundancy])


class Planner:
    """Planner whose calls either return a plan with its claims taken, or change nothing."""

    def __init__(
        self,
        resources: Resources,
        shares: IdentityShares,
        clock: Callable[[], float],
        budget_s: float,
    ) -> None:
        self._resources = resources
        self._shares = shares
        self._path_cache = PathCache(resources, clock, budget_s)

    def begin(self) -> None:
        """Start the time budget of one request: a few times that of one search."""
        self._path_cache.begin()

    def begin_turn(self, left_s: float = ALL_S) -> None:
        """Start a budget that several requests share, until `end_turn`: `left_s` at most."""
        self._path_cache.begin_turn(left_s)

    def end_turn(self) -> int:
        """Return the nanoseconds of searches and splits since `begin_turn`, by their steps."""
        return self._path_cache.end_turn()

    @property
    def splits(self) -> Budget:
        """Budget of the splits by bands in the present turn, or for the present request."""
        return self._path_cache.splits

    @property
    def split_ns(self) -> int:
        """Nanoseconds of all splits since the start, by their steps."""
        return self._path_cache.split_ns

    def charged_elsewhere(self, took_ns: int) -> None:
        """Leave out of the present turn's time what was charged to somebody else."""
        self._path_cache.charged_elsewhere(took_ns)

    def plan(self, trial: Trial, quality: Quality) -> Plan | Obstacle:
        """Return a plan at this quality, or the obstacle that prevents it."""
        entries, exits = _gates_of(trial.request, quality)
        query = PathQuery(
            sources=trial.request.sources,
            targets=trial.request.targets,
            bounds_us=path_bounds_us(
                trial.bounds_us(quality), self._resources.ends_us + trial.request.delay_us
            ),
            excluded_channels=trial.excluded_channels,
            excluded_routers=trial.excluded_routers,
            favoured_channels=trial.favoured_channels
            | self._resources.serving_channels(
                trial.request.variable.variable_id, everys(quality, 0)
            ),
            entries=entries,
            exits=exits,
            is_paired=trial.request.is_paired and bool(entries and exits),
        )
        met: list[Obstacle] = []
        is_fresh = False
        for _ in range(ATTEMPTS_MAX):
            found = self._path_cache.find(query, is_fresh=is_fresh)
            if isinstance(found, NotFound):
                if found.reason in _BY_LATENCY and not is_fresh and self._resources.is_graph_old:
                    is_fresh = True
                    continue
                return met[0] if met else self._not_found(trial, quality, found)
            plan = self._claim(trial, quality, found)
            broken = self._broken_limits(trial, plan)
            if not broken:
                return plan
            self.undo(plan)
            if not is_fresh and any(one.limit in LATENCY_LIMITS for one in broken):
                is_fresh = True  # The latencies of a cached result may be outdated.
                continue
            tried = query
            if not met:
                query = self._excluding_full(query, trial, quality)
                met = broken
            query = _excluding(query, broken, _crossed_often(plan) - tried.single_routers)
        return met[0]

    def _not_found(self, trial: Trial, quality: Quality, answer: NotFound) -> Obstacle:
        wanted_us = [latency_us_max(quality, index) for index in range(paths_wanted(quality))]
        ends_us = self._resources.ends_us + trial.request.delay_us
        return not_found(answer, trial.bounds_us(quality), ends_us, trial.request, wanted_us)

    def undo(self, plan: Plan) -> None:
        self._resources.give_back(plan.claims)

    def diagnose(self, trial: Trial, quality: Quality, met: Obstacle) -> Obstacle:
        """Return the binding constraint: the one without which the request would fit.

        `met` is the obstacle of a plan; it is returned if no single limit binds. So is the share of
        an identity: a diagnosis costs several searches, and those who ask for more than their share
        ask often.
        """
        if met.limit is Limit.SHARE:
            return met
        capacity = frozenset(CAPACITY_LIMITS)
        back_pressured = self._resources.unusable_channels() - self._resources.down_channels()
        bare = structs.replace(
            trial,
            excluded_channels=trial.excluded_channels - back_pressured,
            ignoring=capacity | {Limit.BACK_PRESSURE},
        )
        ideal = self.plan(bare, quality)
        if isinstance(ideal, Obstacle):
            return ideal
        used = {number for path in ideal.paths for number in path.channel_ids}
        self.undo(ideal)
        if used & back_pressured and self.obstacle(
            structs.replace(trial, ignoring=capacity), quality
        ):
            return back_pressure(self._resources, min(used & back_pressured))
        for limit in CAPACITY_LIMITS:
            if found := self._broken_without(trial, quality, limit):
                return max(found, key=lambda obstacle: obstacle.missing)
        return met

    def _broken_without(self, trial: Trial, quality: Quality, limit: Limit) -> list[Obstacle]:
        """Return where a plan that ignores this limit breaks it; empty if there is no such plan."""
        plan = self.plan(structs.replace(trial, ignoring=trial.ignoring | {limit}), quality)
        if isinstance(plan, Obstacle):
            return []
        broken = self._broken_limits(trial, plan)
        self.undo(plan)
        return [obstacle for obstacle in broken if obstacle.limit is limit]

    def ideal(
        self, trial: Trial, qualities: Iterable[Quality]
    ) -> tuple[Plan, list[Obstacle]] | None:
        """Return the best plan if all loads could be moved away, and what it breaks as they are.

        No claim is kept. Return None if no quality has a plan in this topology.
        """
        bare = structs.replace(trial, ignoring=trial.ignoring | {Limit.CHANNEL, Limit.ROUTER})
        for quality in qualities:
            plan = self.plan(bare, quality)
            if isinstance(plan, Plan):
                broken = self._broken_limits(trial, plan)
                self.undo(plan)
                return plan, broken
        return None

    def obstacle(self, trial: Trial, quality: Quality) -> Obstacle | None:
        """Return the obstacle that prevents this quality, if any; no claim is kept."""
        plan = self.plan(trial, quality)
        if isinstance(plan, Obstacle):
            return plan
        self.undo(plan)
        return None

    def _claim(self, trial: Trial, quality: Quality, found: Found) -> Plan:
        claims = claims_of(trial.request, quality, found.paths)
        touched = self._resources.take(claims)
        paths = tuple(
            [
                AllocatedPath(
                    path.routers,
                    path.channel_ids,
                    self._resources.path_us(path.routers, path.channel_ids)
                    + trial.request.delay_us,
                    self._resources.channel_names(path.channel_ids),
                )
                for path in found.paths
            ]
        )
        disjoint, shared = found.is_node_disjoint, found.shares_edge
        return Plan(quality, same(paths), claims, touched, disjoint, shared)

    def _broken_limits(self, trial: Trial, plan: Plan) -> list[Obstacle]:
        if trial.request.variable.is_replay:
            return replay_obstacles(self._resources, plan.touched, ignoring=trial.ignoring)
        broken = obstacles(
            self._resources,
            plan.touched,
            ignoring=trial.ignoring,
            back_pressured=trial.back_pressured,
        )
        for index, (path, bound_us) in enumerate(
            zip(plan.paths, trial.bounds_us(plan.quality), strict=True)
        ):
            missing_us = path.latency_us - bound_us
            if missing_us > 0:
                is_asked = path.latency_us > latency_us_max(plan.quality, index)
                skewed = None if is_asked else trial.request.variable
                broken.append(too_slow(self._resources, path, missing_us, skewed))
        if Limit.SHARE not in trial.ignoring:
            broken += self._shares.obstacles(
                trial.request, plan.quality, plan.paths, trial.replaced
            )
        return broken

    def _excluding_full(self, query: PathQuery, trial: Trial, quality: Quality) -> PathQuery:
        """Exclude the channels that are too full even for the path that serves fewest modes.

        Of routers that two such paths would overload, no more than one may be crossed.
        """
        wanted = everys(quality, paths_wanted(quality) - 1)
        full = {
            number
            for number in self._resources.channels
            if number not in query.excluded_channels and self._is_full(trial, number, wanted)
        }
        single = frozenset(
            name
            for name in self._resources.routers
            if paths_wanted(quality) > 1 and self._is_single(trial, name, wanted)
        )
        return structs.replace(
            query,
            excluded_channels=query.excluded_channels | full,
            single_routers=query.single_routers | single,
        )

    def _is_full(self, trial: Trial, number: int, wanted: Mapping[int, int]) -> bool:
        hop = self._resources.channel(number)
        stream_cost = self._resources.stream_cost(trial.request.variable)
        if stream_cost.is_replay:
            return False  # Replay is not charged to channels.
        if Limit.SHARE not in trial.ignoring and self._shares.is_exceeded(
            trial.request, number, wanted, trial.replaced
        ):
            return True
        if hop.surely_fits(stream_cost, len(wanted), _TRIAL_MARGIN):
            return False
        # Add the variable to this channel alone and remove it: exact, and no prediction changes.
        is_changed = hop.add(stream_cost, wanted)
        is_full = is_changed and (
            (hop.is_overloaded and Limit.CHANNEL not in trial.ignoring)
            or (hop.overflows_queue and Limit.BURST not in trial.ignoring)
            or (
                Limit.ROUTER not in trial.ignoring
                and any(account.is_overloaded for account in hop.routers)
            )
        )
        hop.remove(trial.request.variable.variable_id, wanted)
        return is_full

    def _is_single(self, trial: Trial, name: str, wanted: Mapping[int, int]) -> bool:
        """Return whether a router is surely overloaded if two of the paths cross it.

        A path of which it is an edge uses one of its channels, another one enters and leaves it.
        """
        account, request = self._resources.router(name), trial.request
        cost = self._resources.stream_cost(request.variable)
        most = 4 * len(wanted) * float(cost.price.event_rate)
        limit = _TRIAL_MARGIN * account.router.events_per_s_max
        if Limit.ROUTER in trial.ignoring or cost.is_replay:
            return False
        if account.events.upper_bound() + most <= limit:
            return False
        number = request.variable.variable_id
        # Channels that carry the variable already come first: they cost nothing more.
        hops = sorted(self._resources.channels_at(name), key=lambda hop: number not in hop.streams)
        into = [hop for hop in hops if hop.routers[-1] is account]
        onward = [hop for hop in hops if hop.routers[0] is account]
        used = into[:2] * (name not in request.sources) + onward[:2] * (name not in request.targets)
        added = [hop for hop in used if number not in hop.streams]
        for hop in added:
            hop.add(cost, wanted)
        is_single = account.is_overloaded
        for hop in added:
            hop.remove(number, wanted)
        return is_single


def claims_of(
    request: AllocationRequest, quality: Quality, paths: Sequence[FoundPath | AllocatedPath]
) -> tuple[Claim, ...]:
    """Return the claims of some paths, in their order."""
    return tuple([claim_of(request, quality, index, path) for index, path in enumerate(paths)])


def claim_of(
    request: AllocationRequest, quality: Quality, index: int, path: FoundPath | AllocatedPath
) -> Claim:
    """Return the claim of the path of this index."""
    return Claim(
        variable=request.variable,
        routers=path.routers,
        channel_ids=path.channel_ids,
        everys=everys(quality, index),
        takers=request.taken_by(path),
        entries=request.entered_by(path),
    )


def _gates_of(request: AllocationRequest, quality: Quality) -> tuple[Gates, Gates]:
    """Return the gates of a segment; none where a single path of several is sought."""
    count = paths_wanted(quality)
    if any(gates and len(gates) != count for gates in (request.entries, request.exits)):
        return (), ()
    return request.entries, request.exits


def path_bounds_us(allowed_us: Sequence[int], ends_us: int) -> tuple[int, ...]:
    """Return the latency bound of each path without its ends; later paths serve fewer modes."""
    return tuple([max(0, bound_us - ends_us) for bound_us in allowed_us])


def _crossed_often(plan: Plan) -> frozenset[str]:
    """Return the routers that several of the paths cross."""
    crossed = Counter(name for path in plan.paths for name in path.routers)
    return frozenset(name for name, count in crossed.items() if count > 1)


def _excluding(
    query: PathQuery, broken: Sequence[Obstacle], divisible: AbstractSet[str]
) -> PathQuery:
    """Return the search without the elements that broke a limit, and with tighter latencies.

    Of the `divisible` routers, which several paths crossed, one path at most may cross each.
    """
    elements = {obstacle.element for obstacle in broken if obstacle.limit not in LATENCY_LIMITS}
    slow_us = max((one.missing for one in broken if one.limit in LATENCY_LIMITS), default=0)
    routers = {element for element in elements if isinstance(element, str)}
    single = routers & divisible
    return structs.replace(
        query,
        bounds_us=tuple(max(0, bound_us - slow_us) for bound_us in query.bounds_us),
        excluded_channels=query.excluded_channels
        | {element for element in elements if isinstance(element, int)},
        excluded_routers=query.excluded_routers | (routers - single),
        single_routers=query.single_routers | single,
    )
