"""One attempt to place a subscription at one quality: search, claim, judge, and search again.

The search knows the topology only. What it finds is claimed and judged; where that breaks a limit,
the elements without room are excluded and the search is repeated, so that a cloud with room, which
is the usual case, is searched once.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field, structs

from gridstat.broker.capacity.admission import (
    CAPACITY_LIMITS,
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
    everys,
    latency_us_max,
    paths_wanted,
)
from gridstat.broker.capacity.negotiation import Quality
from gridstat.broker.capacity.path_cache import PathCache, Question
from gridstat.broker.capacity.resources import Claim, Touched
from gridstat.broker.interning import same
from gridstat.model.paths import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gridstat.broker.capacity.resources import Resources
    from gridstat.model.paths import Found, FoundPath

ATTEMPTS_MAX: Final = 10
"""Each attempt after the first excludes at least one element more, or asks for a faster path."""
_TRIAL_MARGIN: Final = 0.999
"""Below this share of a limit, rounding cannot hide that it is reached."""


class Trial(Struct, frozen=True):
    """What an attempt may use: nothing that is excluded, and limits only where not ignored.

    `pressed` are back-pressured channels of the contract that is changed, with what they carried.
    """

    request: AllocationRequest
    excluded_channels: frozenset[int] = frozenset()
    excluded_routers: frozenset[str] = frozenset()
    favoured_channels: frozenset[int] = frozenset()
    pressed: Mapping[int, Fraction] = field(default_factory=dict)
    ignoring: frozenset[Limit] = frozenset()


class Plan(Struct, frozen=True):
    """Paths whose claims are taken; whoever holds it either keeps it or undoes it."""

    quality: Quality
    paths: tuple[AllocatedPath, ...]
    claims: tuple[Claim, ...]
    touched: Touched
    is_node_disjoint: bool
    shares_edge: bool


class Planner:
    """Leaves either a plan with its claims taken, or everything as it was."""

    def __init__(self, resources: Resources, clock: Callable[[], float], budget_s: float) -> None:
        self._resources = resources
        self._choices = PathCache(resources, clock, budget_s)

    def begin(self) -> None:
        """A request begins: all its searches together have a few times the budget of one."""
        self._choices.begin()

    def plan(self, trial: Trial, quality: Quality) -> Plan | Obstacle:
        """A plan at this quality, or what stands in the way of it."""
        question = Question(
            sources=trial.request.sources,
            targets=trial.request.targets,
            bounds_us=path_bounds_us(quality, self._resources.ends_us),
            excluded_channels=trial.excluded_channels,
            excluded_routers=trial.excluded_routers,
            favoured_channels=trial.favoured_channels
            | self._resources.serving_channels(
                trial.request.variable.variable_id, everys(quality, 0)
            ),
        )
        met: list[Obstacle] = []
        is_fresh = False
        for _ in range(ATTEMPTS_MAX):
            found = self._choices.find(question, is_fresh=is_fresh)
            if isinstance(found, NotFound):
                if found.reason == "latency" and not is_fresh and self._resources.is_graph_old:
                    is_fresh = True
                    continue
                return met[0] if met else self._not_found(trial.request, quality, found)
            plan = self._claim(trial, quality, found)
            broken = self._judge(trial, plan)
            if not broken:
                return plan
            self.undo(plan)
            if not is_fresh and any(one.limit is Limit.LATENCY for one in broken):
                is_fresh = True  # A remembered choice may only have become slow.
                continue
            if not met:
                question = self._excluding_full(question, trial, quality)
                met = broken
            question = _excluding(question, broken)
        return met[0]

    def _not_found(
        self, request: AllocationRequest, quality: Quality, answer: NotFound
    ) -> Obstacle:
        allowed_us = [latency_us_max(quality, index) for index in range(paths_wanted(quality))]
        return not_found(answer, allowed_us, self._resources.ends_us, request)

    def undo(self, plan: Plan) -> None:
        self._resources.give_back(plan.claims)

    def diagnose(self, trial: Trial, quality: Quality, met: Obstacle) -> Obstacle:
        """The constraint that really binds: the one without which it would fit.

        `met` is what stood in the way of a plan; it is the answer if no single limit binds.
        """
        capacity = frozenset(CAPACITY_LIMITS)
        pressed = self._resources.unusable_channels() - self._resources.down_channels()
        bare = structs.replace(
            trial,
            excluded_channels=trial.excluded_channels - pressed,
            ignoring=capacity | {Limit.BACK_PRESSURE},
        )
        ideal = self.plan(bare, quality)
        if isinstance(ideal, Obstacle):
            return ideal
        used = {number for path in ideal.paths for number in path.channel_ids}
        self.undo(ideal)
        if used & pressed and self.obstacle(structs.replace(trial, ignoring=capacity), quality):
            return back_pressure(self._resources, min(used & pressed))
        for limit in CAPACITY_LIMITS:
            if found := self._broken_without(trial, quality, limit):
                return max(found, key=lambda obstacle: obstacle.missing)
        return met

    def _broken_without(self, trial: Trial, quality: Quality, limit: Limit) -> list[Obstacle]:
        """Where this limit would be broken if nobody asked about it; empty if that is no help."""
        plan = self.plan(structs.replace(trial, ignoring=trial.ignoring | {limit}), quality)
        if isinstance(plan, Obstacle):
            return []
        broken = self._judge(trial, plan)
        self.undo(plan)
        return [obstacle for obstacle in broken if obstacle.limit is limit]

    def obstacle(self, trial: Trial, quality: Quality) -> Obstacle | None:
        """What stands in the way of this quality, if anything does; nothing is kept."""
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
                    self._resources.path_us(path.routers, path.channel_ids),
                )
                for path in found.paths
            ]
        )
        disjoint, shared = found.is_node_disjoint, found.shares_edge
        return Plan(quality, same(paths), claims, touched, disjoint, shared)

    def _judge(self, trial: Trial, plan: Plan) -> list[Obstacle]:
        if trial.request.variable.is_replay:
            return replay_obstacles(self._resources, plan.touched, ignoring=trial.ignoring)
        broken = obstacles(
            self._resources, plan.touched, ignoring=trial.ignoring, pressed=trial.pressed
        )
        for index, path in enumerate(plan.paths):
            missing_us = path.latency_us - latency_us_max(plan.quality, index)
            if missing_us > 0:
                broken.append(too_slow(self._resources, path, missing_us))
        return broken

    def _excluding_full(self, question: Question, trial: Trial, quality: Quality) -> Question:
        """Without the channels that have no room even for the least of the paths."""
        wanted = everys(quality, paths_wanted(quality) - 1)
        full = {
            number
            for number in self._resources.channels
            if number not in question.excluded_channels and self._is_full(trial, number, wanted)
        }
        return structs.replace(question, excluded_channels=question.excluded_channels | full)

    def _is_full(self, trial: Trial, number: int, wanted: Mapping[int, int]) -> bool:
        carriage = self._resources.channel(number)
        stream_cost = self._resources.stream_cost(trial.request.variable)
        if stream_cost.is_replay:
            return False  # A channel has no room for replay, and needs none.
        if carriage.has_ample_room(stream_cost, len(wanted), _TRIAL_MARGIN):
            return False
        # Claimed alone and given back: exact, and the predictions of others stay as they are.
        is_changed = carriage.add(stream_cost, wanted)
        is_full = is_changed and (
            (carriage.is_over and Limit.CHANNEL not in trial.ignoring)
            or (carriage.is_burst_over and Limit.BURST not in trial.ignoring)
            or (
                Limit.ROUTER not in trial.ignoring
                and any(account.is_over for account in carriage.routers)
            )
        )
        carriage.remove(trial.request.variable.variable_id, wanted)
        return is_full


def claims_of(
    request: AllocationRequest, quality: Quality, paths: Sequence[FoundPath | AllocatedPath]
) -> tuple[Claim, ...]:
    """What the paths take, in their order."""
    return tuple([claim_of(request, quality, index, path) for index, path in enumerate(paths)])


def claim_of(
    request: AllocationRequest, quality: Quality, index: int, path: FoundPath | AllocatedPath
) -> Claim:
    """What the path of this index takes."""
    return Claim(
        variable=request.variable,
        routers=path.routers,
        channel_ids=path.channel_ids,
        everys=everys(quality, index),
        subscriber=request.taken_by(path),
        entry=request.entered_by(path),
    )


def path_bounds_us(quality: Quality, ends_us: int) -> tuple[int, ...]:
    """What the network may take of each path's latency; later paths serve fewer modes."""
    return tuple(
        [max(0, latency_us_max(quality, index) - ends_us) for index in range(paths_wanted(quality))]
    )


def _excluding(question: Question, broken: Sequence[Obstacle]) -> Question:
    """The same question without the elements that broke a limit, and faster where it was slow."""
    elements = {obstacle.element for obstacle in broken if obstacle.limit is not Limit.LATENCY}
    slow_us = max((one.missing for one in broken if one.limit is Limit.LATENCY), default=0)
    return structs.replace(
        question,
        bounds_us=tuple(max(0, bound_us - slow_us) for bound_us in question.bounds_us),
        excluded_channels=question.excluded_channels
        | {element for element in elements if isinstance(element, int)},
        excluded_routers=question.excluded_routers
        | {element for element in elements if isinstance(element, str)},
    )
