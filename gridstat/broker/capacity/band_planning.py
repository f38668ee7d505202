"""Planning by bands: which contracts to lower for a request that does not fit, or to raise again.

`split_of` puts contracts and resources into the form of the law (`model/band_law.py`). It only
proposes: the allocator applies the split and checks every limit with its exact accounts.

Only simple contracts take part: one quality for all modes, not replayed. The others are charged as
they are. The segment of a contract between clouds takes part too: as a request it has one divisor,
which its owner has chosen; as a held contract it has the band that its subscriber has agreed to,
and its owner lowers it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, structs

from gridstat.broker.capacity.admission import Limit
from gridstat.broker.capacity.allocation import AllocatedPath, AllocationRequest, everys
from gridstat.broker.capacity.negotiation import Quality, band_of, differences
from gridstat.broker.interning import same_quality
from gridstat.model.band_law import BandedContract, Carriage, split
from gridstat.model.errors import IntervalNotSatisfiable
from gridstat.model.qos import BASELINE_MODE
from gridstat.model.sparse_law import carried_every

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from fractions import Fraction

    from gridstat.broker.capacity.accounts import HopAccount
    from gridstat.broker.capacity.admission import Obstacle
    from gridstat.broker.capacity.allocation import Allocation
    from gridstat.broker.capacity.latency_promises import Element
    from gridstat.broker.capacity.resources import Resources
    from gridstat.model.band_law import Steps


class Adjusted(NamedTuple):
    """A contract before and after it was lowered or raised in place."""

    before: Allocation
    after: Allocation

    @property
    def is_lower(self) -> bool:
        return every_of(self.after.granted) > every_of(self.before.granted)


class Room(NamedTuple):
    """A granted request, and the contracts that were lowered for it."""

    contract: Allocation
    lowered: tuple[Adjusted, ...]


class Rates(NamedTuple):
    """Divisors of a contract's band: what it wants, and what it has agreed to."""

    best: int
    worst: int


class Member(Struct, frozen=True):
    """Contract that takes part in a split; a newcomer has no claims yet."""

    request: AllocationRequest
    quality: Quality
    paths: tuple[AllocatedPath, ...]
    rates: Rates
    is_new: bool = False

    @property
    def number(self) -> int:
        return self.request.subscription_id


def every_of(quality: Quality) -> int:
    """Return the divisor of a contract with one quality."""
    return quality[BASELINE_MODE].every


def rates_of(request: AllocationRequest) -> Rates | None:
    """Return the band of divisors of a simple request; None if it does not take part in splits."""
    if set(request.qos.modes) != {BASELINE_MODE} or request.variable.is_replay:
        return None
    if request.is_segment:
        every = request.qos.modes[BASELINE_MODE].every
        return Rates(every, max(every, request.every_worst))
    period = request.variable.period
    try:
        band = band_of(request.qos, period)
    except IntervalNotSatisfiable:
        return None
    best = every_of(band.desired)
    return Rates(best, max(best, carried_every(every_of(band.worst), period)))


def is_below(contract: Allocation) -> bool:
    """Return whether a contract has less than the rate that it desires."""
    request = contract.request
    if set(request.qos.modes) != {BASELINE_MODE} or every_of(contract.granted) == 1:
        return False
    rates = rates_of(request)
    return rates is not None and every_of(contract.granted) > rates.best


def cap_of_equal(member: Member, events_per_s: Fraction, every: int, rate: Fraction) -> Rates:
    """Return the band of a contract that gives way to an equal: to the rate of that one at most."""
    own = every_of(member.quality)
    worst = min(member.rates.worst, int(events_per_s * every / rate))
    return Rates(own, max(own, worst))


def short_elements(broken: Iterable[Obstacle]) -> set[Element] | None:
    """Return the elements that need room; None if something is broken that no room would mend."""
    found: set[Element] = set()
    for each in broken:
        is_room = each.limit in {Limit.CHANNEL, Limit.ROUTER} and each.unit != "µs"
        if not is_room or each.element is None:
            return None
        found.add(each.element)
    return found


def limited_elements(resources: Resources, paths: Iterable[AllocatedPath]) -> set[Element]:
    """Return the routers of some paths, and their channels with a declared bandwidth."""
    found: set[Element] = set()
    for path in paths:
        found.update(path.routers)
        for number in path.channel_ids:
            channel = resources.channel(number).channel
            if channel is not None and channel.bandwidth_bytes_per_s:
                found.add(number)
    return found


class LimitsBefore:
    """What is over its limits on some paths before contracts on them are changed."""

    def __init__(self, resources: Resources, contracts: Iterable[Allocation]) -> None:
        self._resources = resources
        self._elements = {each for found in contracts for each in elements_of(found)}
        self._full = self._full_now()
        self._late = set(resources.promises.late())

    def broken(self) -> set[Element]:
        """Return the elements of the contracts that are further over a limit than before.

        All elements of a path are returned that has become late, whosever it is.
        """
        found = {key[0] for key, over in self._full_now().items() if over > self._full.get(key, 0)}
        promises = self._resources.promises
        for key in set(promises.late()) - self._late:
            found.update(promises.elements(key))
        return found

    def _full_now(self) -> dict[tuple[Element, str], Fraction | int]:
        """Return by how much the elements are over their limits."""
        found: dict[tuple[Element, str], Fraction | int] = {}
        for element in self._elements:
            if isinstance(element, str):
                account = self._resources.router(element)
                if account.is_overloaded:
                    found[element, "events"] = account.shortfall()
                continue
            hop = self._resources.channel(element)
            if hop.is_overloaded:
                found[element, "bytes"] = hop.shortfall()
            if hop.overflows_queue:
                found[element, "queue"] = hop.burst.events
        return found


def elements_of(contract: Allocation) -> set[Element]:
    """Return the routers and channels of a contract."""
    found: set[Element] = set()
    for path in contract.paths:
        found.update(path.routers)
        found.update(path.channel_ids)
    return found


def at_every(before: Allocation, every: int, why: str) -> Allocation:
    """Return a contract of one quality at another divisor, with the text that explains it."""
    (qos,) = before.granted.values()
    granted: Quality = {BASELINE_MODE: replace(qos, every=every)}
    desired: Quality = {BASELINE_MODE: replace(qos, every=desired_every(before.request))}
    kept = tuple(text for text in before.degraded if not _is_about_rate(text))
    told = differences(desired, granted, why)
    return structs.replace(before, granted=same_quality(granted), degraded=(*kept, *told))


def desired_every(request: AllocationRequest) -> int:
    return every_of(band_of(request.qos, request.variable.period).desired)


def _is_about_rate(text: str) -> bool:
    return text.startswith("every ") and " lowered to every " in text


def split_of(
    resources: Resources, members: Sequence[Member], elements: Collection[Element], steps: Steps
) -> dict[int, int] | None:
    """Return the divisors of all members by which the elements suffice, or None.

    Return None also if the budget of steps does not suffice for the split.
    """
    form = _Form(resources, elements)
    contracts = [form.contract_of(each) for each in members]
    carriages = form.carriages()
    return split(contracts, carriages, form.free, steps)


class _Form:
    """Hops of some members over some elements, as the law counts them."""

    def __init__(self, resources: Resources, elements: Collection[Element]) -> None:
        self._resources = resources
        self._elements = elements
        self._index: dict[tuple[object, ...], int] = {}
        self._hops: list[tuple[HopAccount | None, AllocationRequest, int, tuple[str, ...]]] = []
        self._own: list[list[int]] = []
        self.free = {element: self._room(element) for element in elements}
        """What the elements have for these hops, once `carriages` has been called."""

    def contract_of(self, member: Member) -> BandedContract:
        used = [
            index
            for at, path in enumerate(member.paths)
            if everys(member.quality, at)
            for index in self._hops_of(member, path)
        ]
        every = every_of(member.quality)
        for index in () if member.is_new else used:
            self._own[index].append(every)
        return BandedContract(
            number=member.number,
            priority=member.quality[BASELINE_MODE].priority,
            events_per_s=self._resources.stream_cost(member.request.variable).price.event_rate,
            best=member.rates.best,
            worst=member.rates.worst,
            present=member.rates.worst if member.is_new else every,
            carriages=tuple(used),
        )

    def carriages(self) -> list[Carriage]:
        """Return all hops; what they carry at present is added to what their elements have free."""
        found = []
        for (hop, request, number, routers), own in zip(self._hops, self._own, strict=True):
            cost = self._resources.stream_cost(request.variable)
            charges: list[tuple[Element, int]] = [
                (name, 1) for name in routers if name in self._elements
            ]
            if hop is not None and number in self._elements:
                charges.append((number, hop.event_bytes(cost)))
            stream = None if hop is None else hop.streams.get(request.variable.variable_id)
            fixed = list(() if stream is None else stream.counts.every_one(BASELINE_MODE))
            for every in own:
                fixed.remove(every)
            carried = 0 if stream is None else stream.events_per_s.get(BASELINE_MODE, 0)
            for element, price in charges:
                self.free[element] += price * carried
            found.append(Carriage(cost.price.event_rate, tuple(charges), tuple(sorted(set(fixed)))))
        return found

    def _room(self, element: Element) -> Fraction:
        if isinstance(element, str):
            return -self._resources.router(element).shortfall()
        return -self._resources.channel(element).shortfall()

    def _hops_of(self, member: Member, path: AllocatedPath) -> list[int]:
        request, variable_id = member.request, member.request.variable.variable_id
        found = []
        for number in path.channel_ids:
            hop = self._resources.channel(number)
            names = tuple(account.router.name for account in hop.routers)
            found.append(self._add(("channel", number, variable_id), hop, request, number, names))
        last = path.routers[-1]
        for taker in request.taken_by(path):
            delivery = self._resources.delivery(last, taker)
            key = ("delivery", last, taker, variable_id)
            found.append(self._add(key, delivery, request, 0, (last,)))
        return found

    def _add(
        self,
        key: tuple[object, ...],
        hop: HopAccount | None,
        request: AllocationRequest,
        number: int,
        routers: tuple[str, ...],
    ) -> int:
        index = self._index.get(key)
        if index is None:
            index = self._index[key] = len(self._hops)
            self._hops.append((hop, request, number, routers))
            self._own.append([])
        return index
