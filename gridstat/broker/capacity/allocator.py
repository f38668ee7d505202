"""Allocator: turns a subscription request into reserved paths, and changes or releases them.

An allocation negotiates a quality, searches paths, and reserves them. Every call either succeeds
completely or changes nothing. A change reserves the new paths before the old ones are released:
both are charged until `release_retired`, because the routers hold both until then. Only this
overlap may exceed a limit; to refuse it would refuse changes that end with less load than before.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import structs

from gridstat.broker.capacity.admission import Limit, Obstacle, label_of, obstacles
from gridstat.broker.capacity.allocation import (
    AllocatedPath,
    Allocation,
    AllocationRequest,
    Refusal,
    is_node_disjoint,
    shares_edge,
)
from gridstat.broker.capacity.avoided_routers import AvoidedRouters
from gridstat.broker.capacity.band_planning import (
    Adjusted,
    LimitsBefore,
    Member,
    Rates,
    Room,
    at_every,
    cap_of_equal,
    elements_of,
    every_of,
    is_below,
    limited_elements,
    rates_of,
    short_elements,
    split_of,
)
from gridstat.broker.capacity.charges import check_rate
from gridstat.broker.capacity.identity_shares import IdentityShares, Replaced
from gridstat.broker.capacity.latency_promises import PathKey
from gridstat.broker.capacity.negotiation import band_of, differences, replay_band, with_headroom_us
from gridstat.broker.capacity.path_cache import ALL_S, SEARCH_BUDGET_S, SPLITS_S
from gridstat.broker.capacity.path_skew import promised_us
from gridstat.broker.capacity.planning import Plan, Planner, Trial, claim_of, claims_of
from gridstat.broker.capacity.retiring_claims import UNASSIGNED, RetiringClaims
from gridstat.broker.interning import same, same_quality
from gridstat.model.errors import (
    IntervalNotSatisfiable,
    NoSuchRouter,
    NoSuchSubscription,
    SecurityNotSatisfiable,
)
from gridstat.model.qos import BASELINE_MODE, demands_sealing
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from fractions import Fraction

    from gridstat.broker.capacity.latency_promises import Element
    from gridstat.broker.capacity.negotiation import Band, Quality
    from gridstat.broker.capacity.resources import Claim, LoadChange, Resources

SPLIT_ANEW: Final = "it shares with others that have as much right"
"""Reason of a rate below the desired one after a split, for people."""
CONSIDERED_MAX: Final = 1_024
"""Contracts that may give way in one split; the others stay as they are."""
LOOKED_AT_MAX: Final = 8_192
"""Contracts on one channel or router among which those are chosen."""
STEPS_PER_LOOK: Final = 4
"""Steps of a path search that take as long as a look at one contract."""
STEPS_PER_TRIAL: Final = 100
"""Steps of a path search that take as long as the rest of a request for room."""


def zero_clock() -> float:
    """Return 0: the clock of callers without one; their searches end by the bound on steps."""
    return 0.0


class Allocator:
    """Holder of all contracts; the resources are charged for them and for retiring claims.

    `change` and `replace_path` keep the old paths charged until `release_retired`.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        clock: Callable[[], float] = zero_clock,
        budget_s: float = SEARCH_BUDGET_S,
    ) -> None:
        self.resources = resources
        self.shares = IdentityShares(resources)
        self._planner = Planner(resources, self.shares, clock, budget_s)
        self._contracts: dict[int, Allocation] = {}
        self.below: set[int] = set()
        """Contracts that have less than the rate that they desire."""
        self.retiring = RetiringClaims(resources)
        self.version = 0
        """Grows with every contract that is held or given up, and with all load that ends."""
        self.avoided_routers = AvoidedRouters()

    def begin_turn(self, left_s: float = ALL_S) -> None:
        """Bound the time of all path searches until `end_turn`, of however many contracts."""
        self._planner.begin_turn(left_s)

    def end_turn(self) -> int:
        """Return the nanoseconds of searches and splits since `begin_turn`, by their steps."""
        return self._planner.end_turn()

    def charged_elsewhere(self, took_ns: int) -> None:
        """Leave out of the present turn's time what was charged to somebody else."""
        self._planner.charged_elsewhere(took_ns)

    @property
    def contracts(self) -> Mapping[int, Allocation]:
        """Return every contract by its subscription."""
        return MappingProxyType(self._contracts)

    def contract(self, subscription_id: int) -> Allocation:
        try:
            return self._contracts[subscription_id]
        except KeyError:
            raise NoSuchSubscription(f"there is no subscription {subscription_id}") from None

    def allocate(
        self, request: AllocationRequest, *, replaces: int = 0, is_kept: bool = False
    ) -> Allocation | Refusal:
        """Reserve paths at the best quality that fits between desired and worst, or refuse.

        `replaces` is a held contract that the new one supersedes: its use of shares is not counted
        beside. With `is_kept` the contract was granted before, and no share is checked.
        """
        assert request.subscription_id not in self._contracts, "subscriptions are allocated once"
        trial = self._trial(request)
        if (superseded := self._contracts.get(replaces)) is not None:
            trial = structs.replace(trial, replaced=Replaced(superseded, is_held=True))
        return self._negotiate_avoiding_refusals(_checked(trial, is_kept=is_kept))

    def release(self, subscription_id: int) -> Allocation:
        """Release all claims of a subscription, also those of earlier paths that still retire."""
        contract = self.contract(subscription_id)
        self.release_retired(subscription_id)
        self._withdraw(contract)
        return contract

    def change(self, request: AllocationRequest, *, is_kept: bool = False) -> Allocation | Refusal:
        """Change the quality, the edges or the variable of a live subscription.

        A refusal leaves the old contract; otherwise the old paths stay charged until
        `release_retired`. With `is_kept` the subscriber did not ask for it: no share is checked.
        """
        old = self.contract(request.subscription_id)
        trial = structs.replace(self._trial(request, old), replaced=Replaced(old, is_held=False))
        trial = _checked(trial, is_kept=is_kept)
        self._withdraw(old)
        answer = self._negotiate_avoiding_refusals(trial)
        if isinstance(answer, Refusal):
            self._hold(old)
        else:
            self.retiring.charge(old.subscription_id, _claims(old))
        return answer

    def release_retired(self, subscription_id: int, *generations: int) -> None:
        """Release the claims of old paths that the routers have torn down.

        With generations only the claims that those retire are released; the routers may still hold
        the others.
        """
        if self.retiring.release(subscription_id, *generations):
            self.version += 1

    def revert_change(self, contract: Allocation, generation: int) -> None:
        """Revert a change to this generation that failed: hold the contract from before again."""
        self.release_retired(contract.subscription_id, generation, UNASSIGNED)
        if contract.subscription_id in self._contracts:
            self._withdraw(self._contracts[contract.subscription_id])
        self._hold(contract)

    def restore(self, contract: Allocation) -> None:
        """Hold a contract from the journal; it was granted once, so no limit is checked."""
        assert contract.subscription_id not in self._contracts, "a contract is restored once"
        self._hold(contract)

    def supersede(self, contract: Allocation, *, is_in_place: bool = False) -> None:
        """Hold a changed contract from the journal; the old paths stay charged for now.

        They do not if the rate was changed in place (`make_room`).
        """
        old = self._contracts.get(contract.subscription_id)
        if old is not None:
            self._withdraw(old)
            if not is_in_place:
                self.retiring.charge(contract.subscription_id, _claims(old))
        self._hold(contract)

    def replace_path(
        self,
        subscription_id: int,
        index: int,
        *,
        avoiding_channels: Iterable[int] = (),
        avoiding_routers: Iterable[str] = (),
        ends: tuple[tuple[str, ...], tuple[str, ...]] | None = None,
    ) -> Allocation | Refusal:
        """Replace one failed path by another that is disjoint from the remaining ones.

        If the remaining paths prevent that, all paths are chosen anew. The quality stays. `ends`
        are new sources and targets, if they have changed. Routers that refuse the variable's row
        are avoided like failed ones. Shares are not checked: the contract was granted.
        """
        old = self.contract(subscription_id)
        request = old.request
        if ends is not None:
            request = structs.replace(request, sources=ends[0], targets=ends[1])
        trial = self._trial(request, old)
        trial = structs.replace(
            trial,
            excluded_channels=trial.excluded_channels | frozenset(avoiding_channels),
            ignoring=trial.ignoring | {Limit.SHARE},
            excluded_routers=trial.excluded_routers.union(
                avoiding_routers, self.avoided_routers.of(request.variable.variable_id)
            ),
        )
        self._planner.begin()
        self._withdraw(old)
        answer = self._replace(trial, old, index)
        if isinstance(answer, Obstacle):
            self._hold(old)
            return answer.refusal()
        self.retiring.charge(
            subscription_id,
            tuple(
                claim
                for claim, path in zip(_claims(old), old.paths, strict=True)
                if path not in answer.paths
            ),
        )
        return answer

    # Bands.

    def make_room(
        self, request: AllocationRequest, may_lower: Callable[[int], bool], *, replaces: int = 0
    ) -> Room | None:
        """Grant a request beside contracts of its own or a lower priority that are lowered for it.

        A segment, whose rate is given, lowers those of its own priority to this rate at most.

        They are lowered in place, within their bands, and their former claims are not charged
        beside: only so is there room. Return None, and change nothing, if that is not enough, or if
        it is not a lack of room that prevents the desired quality. The same holds if the turn has
        no time left for splits.
        """
        self._planner.begin()
        if self._planner.splits.is_spent(STEPS_PER_TRIAL):
            return None
        old = self._contracts.get(request.subscription_id)
        trial = self._trial(request, old)
        if (superseded := self._contracts.get(replaces)) is not None:
            trial = structs.replace(trial, replaced=Replaced(superseded, is_held=True))
        if old is not None:
            trial = structs.replace(trial, replaced=Replaced(old, is_held=False))
            self._withdraw(old)
        room = self._make_room(trial, may_lower)
        if old is not None and room is None:
            self._hold(old)
        elif old is not None:
            self.retiring.charge(old.subscription_id, _claims(old))
        return room

    def rebalance(
        self,
        below: Iterable[int],
        *,
        may_change: Callable[[int], bool],
        may_rise: Callable[[int], bool],
        considered_max: int = CONSIDERED_MAX,
    ) -> tuple[Adjusted, ...] | None:
        """Split anew what the contracts `below` their desired rate use, and return what changed.

        Return None, and change nothing, if that takes too long: try fewer contracts then.

        The split looks at their own channels and routers alone. A contract that cannot be raised
        after all, as a limit elsewhere or its identity's share is used up, is not raised; one that
        would load a hop elsewhere more when lowered stays as it is.
        """
        resources = self.resources
        rising = frozenset(below)
        paths = [path for number in rising for path in self._contracts[number].paths]
        elements = limited_elements(resources, paths)
        self._planner.begin()
        steps = self._planner.splits
        among = self._members(elements, may_change, rising, considered_max)
        not_raised: set[int] = set()
        unchanged: set[int] = set()
        while True:
            members = [
                each
                if each.number not in not_raised and may_rise(each.number)
                else structs.replace(each, rates=_below_present(each))
                for each in among
                if each.number not in unchanged
            ]
            found = split_of(resources, members, elements, steps)
            if found is None:
                return None if steps.was_spent else ()
            changed = self._adjust_all(found, not_raised, unchanged)
            if changed is not None:
                return changed

    def elements_wanted(self, request: AllocationRequest) -> set[Element]:
        """Return the routers and channels of the best paths for a request, however full."""
        trial = _checked(self._trial(request), is_kept=True)
        try:
            band = band_of(request.qos, request.variable.period)
        except IntervalNotSatisfiable:
            return set()
        self._planner.begin()
        ideal = self._planner.ideal(trial, band.levels_of(0))
        return set() if ideal is None else limited_elements(self.resources, ideal[0].paths)

    def revert_adjusted(self, adjusted: Iterable[Adjusted]) -> None:
        """Hold contracts again as they were before `make_room` or `rebalance`."""
        for each in reversed(tuple(adjusted)):
            self._exchange(each.after, each.before)

    def _make_room(self, trial: Trial, may_lower: Callable[[int], bool]) -> Room | None:
        request = trial.request
        rates = rates_of(request)
        if rates is None:
            return None
        refusing = self.avoided_routers.of(request.variable.variable_id)
        trial = structs.replace(trial, excluded_routers=trial.excluded_routers | refusing)
        band = band_of(request.qos, request.variable.period)
        ideal = self._planner.ideal(trial, band.levels_of(0))
        if ideal is None:
            return None
        plan, broken = ideal
        elements = short_elements(broken)
        if not elements:
            return None
        priority = _priority(plan.quality)
        members = [
            structs.replace(each, rates=self._below_present(each, request, priority))
            for each in self._members(elements, may_lower, priority=priority)
        ]
        if request.is_segment:
            rates = Rates(rates.best, rates.best)
        newcomer = Member(request, plan.quality, plan.paths, rates, is_new=True)
        steps = self._planner.splits
        found = split_of(self.resources, [*members, newcomer], elements, steps)
        if found is None:
            return None
        every = found.pop(request.subscription_id)
        quality = {mode: replace(qos, every=every) for mode, qos in plan.quality.items()}
        return self._grant_beside(trial, band, quality, found, broken[0].reason)

    def _below_present(self, member: Member, request: AllocationRequest, priority: int) -> Rates:
        if not request.is_segment or _priority(member.quality) > priority:
            return _below_present(member)
        rate = self.resources.stream_cost(request.variable).price.event_rate
        own = self.resources.stream_cost(member.request.variable).price.event_rate
        return cap_of_equal(member, own, request.qos.modes[BASELINE_MODE].every, rate)

    def _grant_beside(
        self, trial: Trial, band: Band, quality: Quality, found: Mapping[int, int], why: str
    ) -> Room | None:
        """Lower contracts to these divisors, and grant the request at this quality, or neither."""
        number = trial.request.subscription_id
        text = f"room for subscription {number} with priority {_priority(quality)}"
        lowered, broken = self._lower(
            [
                (self._contracts[each], every)
                for each, every in sorted(found.items())
                if every > every_of(self._contracts[each].granted)
            ],
            text,
        )
        plan = None if broken else self._planner.plan(trial, quality)
        if isinstance(plan, Plan):
            return Room(self._grant(trial.request, band, plan, why), lowered)
        self.revert_adjusted(lowered)
        return None

    def over(self, elements: Iterable[Element]) -> set[int]:
        """Return contracts over some elements, of each element `LOOKED_AT_MAX` at most."""
        found = {
            key.subscription_id
            for element in elements
            for key in self.resources.promises.some_over(element, LOOKED_AT_MAX)
        }
        self._planner.splits.is_spent(STEPS_PER_LOOK * len(found))
        return found

    @property
    def split_ns(self) -> int:
        """Nanoseconds of all splits since the start, by their steps."""
        return self._planner.split_ns

    def has_time_for_trials(self, began_ns: int) -> bool:
        """Return whether trials that began at this `split_ns` may go on.

        They use half of the time for splits in a turn at most; the last one needs the rest.
        """
        used_s = (self.split_ns - began_ns) / NS_PER_S
        return max(used_s, SPLITS_S - self._planner.splits.left_s()) < SPLITS_S / 2

    def _members(
        self,
        elements: Iterable[Element],
        may_change: Callable[[int], bool],
        rising: Collection[int] = frozenset(),
        most: int = CONSIDERED_MAX,
        *,
        priority: int = 0,
    ) -> list[Member]:
        """Return contracts over some elements that have a band and may be changed.

        Their priority is this one or a lower one. If there are too many, those that are to rise
        come first, and then those of the lowest priorities that have most.
        """
        found = []
        for number in sorted(self.over(elements)):
            contract = self._contracts.get(number)
            if contract is None or set(contract.granted) != {BASELINE_MODE}:
                continue
            if _priority(contract.granted) < priority:
                continue
            rates = rates_of(contract.request)
            if rates is not None and rates.best < rates.worst and may_change(number):
                found.append(Member(contract.request, contract.granted, contract.paths, rates))
        if len(found) > most:
            found.sort(key=lambda each: self._order(each, rising))
            found = sorted(found[:most], key=lambda each: each.number)
        return found

    def _order(self, member: Member, rising: Collection[int]) -> tuple[bool, int, Fraction, int]:
        """Return the order in which contracts take part in a split of too many."""
        priority = _priority(member.quality)
        cost = self.resources.stream_cost(member.request.variable)
        rate = cost.price.event_rate / every_of(member.quality)
        if member.number in rising:
            return False, priority, rate, member.number
        return True, -priority, -rate, member.number

    def _lower(
        self, changes: Iterable[tuple[Allocation, int]], why: str
    ) -> tuple[tuple[Adjusted, ...], set[int]]:
        """Lower contracts to these divisors; return also those by which a limit is broken.

        Divisors of one variable may load a hop more together when one of them is lowered.
        """
        changes = tuple(changes)
        limits = LimitsBefore(self.resources, (before for before, _ in changes))
        lowered = []
        overfull: set[str] = set()
        for before, every in changes:
            after = at_every(before, every, why)
            overfull.update(self._exchange(before, after).overfull_rows)
            lowered.append(Adjusted(before, after))
        broken = limits.broken()
        blamed = {
            before.subscription_id
            for before, _ in changes
            if before.request.variable.name in overfull
            or not broken.isdisjoint(elements_of(before))
        }
        return tuple(lowered), blamed

    def _adjust_all(
        self, everys: Mapping[int, int], not_raised: set[int], unchanged: set[int]
    ) -> tuple[Adjusted, ...] | None:
        """Lower and raise contracts to these divisors.

        Or change none, and add those that break a limit to `not_raised` or `unchanged`.
        """
        changes = [
            (self._contracts[number], every)
            for number, every in sorted(everys.items())
            if every != every_of(self._contracts[number].granted)
        ]
        lower = [each for each in changes if each[1] > every_of(each[0].granted)]
        lowered, broken = self._lower(lower, SPLIT_ANEW)
        done = [*lowered]
        for before, every in () if broken else changes:
            if every > every_of(before.granted):
                continue
            after = at_every(before, every, SPLIT_ANEW)
            done.append(Adjusted(before, after))
            if not self._raise(before, after):
                not_raised.add(before.subscription_id)
                break
        else:
            if not broken:
                return tuple(done)
        unchanged.update(broken)
        self.revert_adjusted(done)
        return None

    def _raise(self, before: Allocation, after: Allocation) -> bool:
        """Exchange a contract for one with a better rate; return whether that breaks no limit."""
        resources = self.resources
        congested = {
            number: resources.channel(number).bytes.value
            for path in before.paths
            for number in path.channel_ids
            if resources.channel(number).is_back_pressured
        }
        late = set(resources.promises.late())
        self._withdraw(before)
        broken = [
            *self.shares.obstacles(
                after.request, after.granted, after.paths, Replaced(before, is_held=False)
            )
        ]
        broken += obstacles(resources, self._hold(after), back_pressured=congested)
        return not broken and late.issuperset(resources.promises.late())

    def _exchange(self, held: Allocation, other: Allocation) -> LoadChange:
        self._withdraw(held)
        return self._hold(other)

    # Negotiation.

    def _negotiate_avoiding_refusals(self, trial: Trial) -> Allocation | Refusal:
        """Negotiate without routers that refuse the variable's row; if that fails, with them."""
        refusing = self.avoided_routers.of(trial.request.variable.variable_id)
        if refusing:
            answer = self._negotiate(
                structs.replace(trial, excluded_routers=trial.excluded_routers | refusing)
            )
            if isinstance(answer, Allocation):
                return answer
        return self._negotiate(trial)

    def _negotiate(self, trial: Trial) -> Allocation | Refusal:
        request = trial.request
        try:
            band = band_of(request.qos, request.variable.period)
            if request.variable.is_replay:
                band = replay_band(band)
            check_rate(request.variable)
            for name in (*request.sources, *request.targets):
                self.resources.router(name)
        except (IntervalNotSatisfiable, NoSuchRouter) as refused:
            return Refusal(refused.code, str(refused.args[0]), refused.hint)
        self._planner.begin()
        plan = self._planner.plan(trial, band.level(0, 0, is_slow=False))
        why = ""
        if isinstance(plan, Obstacle):
            why = plan.reason
            plan = self._plan_below(trial, band, plan)
        if isinstance(plan, Obstacle):
            return self._unsealed(trial, band) or plan.refusal()
        return self._grant(request, band, plan, why)

    def _unsealed(self, trial: Trial, band: Band) -> Refusal | None:
        """Return the refusal of a request that only a channel without sealing could carry."""
        if not demands_sealing(trial.request.qos):
            return None
        excluded = trial.excluded_channels - self.resources.plain_channels()
        found = self._planner.plan(structs.replace(trial, excluded_channels=excluded), band.last(0))
        if isinstance(found, Obstacle):
            return None
        self._planner.undo(found)
        used = {number for path in found.paths for number in path.channel_ids}
        number = min(used & self.resources.plain_channels())
        label = label_of(self.resources, number)
        error = SecurityNotSatisfiable(
            f"{label} is not sealed, and no sealed path leads around it",
            hint='mark the channel security = "hop", or ask without security',
        )
        return Refusal(error.code, str(error.args[0]), error.hint, bottleneck=label)

    def _plan_below(self, trial: Trial, band: Band, met: Obstacle) -> Plan | Obstacle:
        """Return a plan for the best level that fits, or the obstacle of the worst level."""
        if not band.is_wide:
            return self._planner.diagnose(trial, band.last(0), met)
        every_steps = self._every_steps_needed(trial, band)
        if isinstance(every_steps, Obstacle):
            return every_steps
        for quality in band.levels_of(every_steps):
            plan = self._planner.plan(trial, quality)
            if isinstance(plan, Plan):
                return plan
        return met

    def _every_steps_needed(self, trial: Trial, band: Band) -> int | Obstacle:
        """Return how often the divisors must be doubled before an acceptable level fits."""
        met = self._planner.obstacle(trial, band.last(0))
        if met is None:
            return 0
        low, high = 0, band.every_steps
        if high and not met.is_topological:
            met = self._planner.obstacle(trial, band.last(high))
        if met is not None:
            return self._planner.diagnose(trial, band.last(high), met)
        while high - low > 1:
            middle = (low + high) // 2
            if self._planner.obstacle(trial, band.last(middle)) is None:
                high = middle
            else:
                low = middle
        return high

    def _grant(self, request: AllocationRequest, band: Band, plan: Plan, why: str) -> Allocation:
        granted = same_quality(
            {
                mode: qos
                if qos.latency_us == band.desired[mode].latency_us
                else replace(qos, latency_us=with_headroom_us(qos, plan.slowest_us(qos)))
                for mode, qos in plan.quality.items()
            }
        )
        contract = Allocation(
            request=request,
            granted=granted,
            paths=plan.paths,
            is_node_disjoint=plan.is_node_disjoint,
            shares_edge=plan.shares_edge,
            degraded=(*band.notes, *differences(band.desired, granted, why)),
        )
        self._register(contract)
        return contract

    # Replacement.

    def _replace(self, trial: Trial, old: Allocation, index: int) -> Allocation | Obstacle:
        """Try, in this order: one path without shared inner routers, all paths anew, and one path
        that shares no channel.

        To move a working path is harmless, since that is done make-before-break; paths that share
        a router would fail together.
        """
        staying = [path for at, path in enumerate(old.paths) if at != index]
        every = frozenset(name for path in staying for name in path.routers)
        inner = frozenset(name for path in staying for name in path.routers[1:-1])
        answer = self._replace_one(trial, old, index, every)
        if isinstance(answer, Obstacle) and inner != every:
            answer = self._replace_one(trial, old, index, inner)
        if isinstance(answer, Obstacle) and staying:
            answer = self._replace_all(trial, old, is_disjoint=True)
        if isinstance(answer, Obstacle) and inner:
            answer = self._replace_one(trial, old, index, frozenset())
        if isinstance(answer, Obstacle) and staying:
            answer = self._replace_all(trial, old, is_disjoint=False)
        if isinstance(answer, Obstacle):
            return self._planner.diagnose(trial, old.granted, answer)
        return answer

    def _replace_one(
        self, trial: Trial, old: Allocation, index: int, routers: frozenset[str]
    ) -> Allocation | Obstacle:
        """Replace the path of this index by one that crosses none of these routers."""
        staying = [(at, path) for at, path in enumerate(old.paths) if at != index]
        held = [claim_of(old.request, old.granted, at, path) for at, path in staying]
        channels = self.resources.with_shared_risks(
            number for _, path in staying for number in path.channel_ids
        )
        alone = structs.replace(
            trial,
            request=_between_gates_of(trial.request, old.paths[index]),
            excluded_channels=trial.excluded_channels | channels,
            excluded_routers=trial.excluded_routers | routers,
            staying=len(staying),
        )
        quality = {
            mode: replace(qos, redundancy=1)
            for mode, qos in old.granted.items()
            if qos.redundancy > index
        }
        self.resources.take(held)
        plan = self._planner.plan(alone, quality)
        if not isinstance(plan, Obstacle) and any(path in plan.paths for _, path in staying):
            # A path of one router has no channel to exclude, so the search may find it twice.
            self._planner.undo(plan)
            plan = Obstacle(Limit.REDUNDANCY, None, "", 0, "", "the only path left is used already")
        if isinstance(plan, Obstacle):
            self.resources.give_back(held)
            return plan
        paths = (*old.paths[:index], *plan.paths, *old.paths[index + 1 :])
        return self._register_with_paths(trial.request, old, paths)

    def _replace_all(
        self, trial: Trial, old: Allocation, *, is_disjoint: bool
    ) -> Allocation | Obstacle:
        """Choose all paths anew; with `is_disjoint` only if no two share an inner router."""
        plan = self._planner.plan(trial, old.granted)
        if isinstance(plan, Obstacle):
            return plan
        if is_disjoint and not plan.is_node_disjoint:
            self._planner.undo(plan)
            return Obstacle(Limit.REDUNDANCY, None, "", 0, "", "all paths together share routers")
        return self._register_with_paths(trial.request, old, plan.paths)

    def _register_with_paths(
        self, request: AllocationRequest, old: Allocation, paths: tuple[AllocatedPath, ...]
    ) -> Allocation:
        contract = structs.replace(
            old,
            request=request,
            paths=paths,
            is_node_disjoint=is_node_disjoint(paths),
            shares_edge=shares_edge(paths),
        )
        self._register(contract)
        return contract

    # Contracts and their claims.

    def _trial(self, request: AllocationRequest, old: Allocation | None = None) -> Trial:
        unusable = self.resources.unusable_channels()
        plain = self.resources.plain_channels() if demands_sealing(request.qos) else frozenset()
        if old is None:
            return Trial(request, unusable | plain, self.resources.down_routers())
        own = frozenset(number for path in old.paths for number in path.channel_ids)
        down = self.resources.down_channels() if unusable & own else frozenset()
        tolerated = (unusable & own) - down
        is_same = old.request.variable == request.variable
        return Trial(
            request=request,
            excluded_channels=(unusable - tolerated) | plain,
            excluded_routers=self.resources.down_routers(),
            favoured_channels=own if is_same else frozenset(),
            back_pressured={
                number: self.resources.channel(number).bytes.value for number in tolerated
            },
        )

    def _register(self, contract: Allocation) -> None:
        """Register a contract whose claims are taken, and the latency promised for each path."""
        subscription_id = contract.request.subscription_id
        self.version += 1
        self._contracts[subscription_id] = contract
        if is_below(contract):
            self.below.add(subscription_id)
        self.shares.add(contract)
        for index, path in enumerate(contract.paths):
            self.resources.promises.make(
                PathKey(subscription_id, index),
                same((*path.routers, *path.channel_ids)),
                self.resources.path_us(path.routers, path.channel_ids) + contract.request.delay_us,
                promised_us(contract.request.variable, contract.granted, index),
            )

    def _hold(self, contract: Allocation) -> LoadChange:
        touched = self.resources.take(_claims(contract))
        self._register(contract)
        return touched

    def _withdraw(self, contract: Allocation) -> None:
        self.version += 1
        self.below.discard(contract.subscription_id)
        for index in range(len(contract.paths)):
            self.resources.promises.end(PathKey(contract.subscription_id, index))
        self.shares.remove(contract)
        self.resources.give_back(_claims(contract))
        del self._contracts[contract.subscription_id]


def _priority(quality: Quality) -> int:
    return min(qos.priority for qos in quality.values())


def _below_present(member: Member) -> Rates:
    """Return the band of a contract that may be lowered, and not raised."""
    return Rates(every_of(member.quality), member.rates.worst)


def _checked(trial: Trial, *, is_kept: bool) -> Trial:
    """Return a trial that checks shares, unless the contract is kept."""
    return structs.replace(trial, ignoring=trial.ignoring | {Limit.SHARE}) if is_kept else trial


def _between_gates_of(request: AllocationRequest, path: AllocatedPath) -> AllocationRequest:
    """Return the request for a path that takes the place of this one: by the same gates, as all
    others are in use."""
    return structs.replace(
        request,
        sources=path.routers[:1] if request.entries else request.sources,
        targets=path.routers[-1:] if request.exits else request.targets,
    )


def _claims(contract: Allocation) -> tuple[Claim, ...]:
    return claims_of(contract.request, contract.granted, contract.paths)
