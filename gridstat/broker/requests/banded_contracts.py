"""Room for requests that do not fit: contracts are lowered within their bands, and raised again.

A request is allocated as it would be without bands. If it does not get what it desires, contracts
of its own and of lower priorities are lowered in place (`model/band_law.py` says which). They are
written in one commit with the grant, so the journal has both or neither. `PathMoves` waits for the
routers, the subscribers are notified, and the former rates end: make before break (ADR-0011).

If that is not enough, the policy allows it and an access rule lets the subscriber, contracts of
lower priorities are ended, as few as suffice (`_to_end`). Their subscribers are notified.

A segment of a contract between clouds is a request like any other, with one divisor. Segments that
are held are lowered by the owners of their contracts, which are asked to
(`requests/room_requests.py`); the request waits for them. Only contracts of this cloud are ended.

The allocator lists the contracts below their desired rate, whatever the reason. While there is one,
BANDS_TIMER splits anew what they use, if a contract has come or gone since. A contract that was
lowered is raised after a hold-down, which doubles each time that it is lowered soon after it was
raised.

Failed write: all contracts stay as they were, and the request is refused as any other. Restart: the
journal has the rates, and all hold-downs begin anew.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from gridstat.broker.capacity.allocation import Allocation, Refusal
from gridstat.broker.capacity.allocator import CONSIDERED_MAX
from gridstat.broker.capacity.band_planning import every_of, is_below, rates_of
from gridstat.broker.capacity.retiring_claims import UNASSIGNED
from gridstat.broker.effects.contract_effects import RETIRING_MAX
from gridstat.broker.leaf_capability import LeafCapability
from gridstat.broker.permissions import best_priority
from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import Moved, Unsubscribed
from gridstat.broker.requests.room_requests import WAIT_NS_MAX, cause_text
from gridstat.broker.requests.subscriptions import renewed
from gridstat.broker.routers.path_moves import routers_of
from gridstat.broker.tables.router_orders import TERMS_MAX, terms_of
from gridstat.broker.unit_of_work import ignore_failure, no_op
from gridstat.model.band_law import BandPolicy
from gridstat.model.errors import Preempted
from gridstat.net.command.endpoint_messages import Unpublished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gridstat.broker.capacity.allocation import AllocationRequest
    from gridstat.broker.capacity.band_planning import Adjusted, Room
    from gridstat.broker.capacity.resources import Claim
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.requests.contract_notices import ContractNotices
    from gridstat.broker.requests.notices import Notices
    from gridstat.broker.requests.room_requests import RoomRequests
    from gridstat.broker.routers.path_moves import PathMoves
    from gridstat.net.command.segment_messages import Reserve

BANDS_TIMER: Final = "bands"
PREEMPTED_MAX: Final = 256
"""Contracts that are examined for one request that may end others."""
CONSIDERED_MIN: Final = 16
"""Contracts that a split by the timer considers at least."""
FLAPS_WITHIN: Final = 4
"""Hold-downs within which a contract that is lowered again counts as flapping."""


class SegmentAnswer(NamedTuple):
    """Answer to a request for a segment; with `is_making_room` owners are to lower others."""

    answer: Allocation | Refusal
    is_making_room: bool = False


@dataclass(slots=True)
class _Hold:
    """Time before which a lowered contract is not raised."""

    lowered_ns: int
    hold_ns: int
    was_raised: bool = False


class BandedContracts:
    """Lowers, raises and ends contracts of one cloud by their bands."""

    def __init__(
        self,
        context: BrokerContext,
        moves: PathMoves,
        notices: Notices,
        contract_notices: ContractNotices,
        owners: RoomRequests,
    ) -> None:
        self._context = context
        self._owners = owners
        self._waiting: dict[tuple[str, int], int] = {}
        """When each segment that waits for room began to wait."""
        self._notices = notices
        self._moves = moves
        self._contract_notices = contract_notices
        self._holds: dict[int, _Hold] = {}
        self._seen: tuple[int, int] | None = None
        """Versions of contracts and topology that the last split has seen, if nobody was held."""
        self._is_timer_set = False
        self._considered_max = CONSIDERED_MAX
        """Contracts that the next split by the timer considers; fewer after one took too long."""
        self._raised_last = (0, 0)

    def capability(self) -> LeafCapability:
        """Register what raises lowered contracts when room has returned."""
        return LeafCapability(
            name="bands",
            resume=self._set_timer,
            timers={BANDS_TIMER: self.split_anew},
            turn_ended=self._set_timer,
        )

    # Requests.

    def allocate(
        self, request: AllocationRequest, applied: Applied, operations: list[Operation]
    ) -> Allocation | Refusal:
        """Reserve a contract, with room by bands; the lowered contracts go into `operations`."""
        answer = self._allocate_beside(request, applied, operations)
        if isinstance(answer, Refusal) and self._may_preempt(request):
            return self._allocate_instead(request, applied, operations) or answer
        return answer

    def _allocate_instead(
        self, request: AllocationRequest, applied: Applied, operations: list[Operation]
    ) -> Allocation | None:
        """Reserve a contract in place of others that are ended, or end none and return None."""
        ended = self._to_end(request)
        if not ended:
            return None
        mark, count = applied.mark(), len(operations)
        self._end(ended, request, applied, operations)
        answer = self._allocate_beside(request, applied, operations)
        if isinstance(answer, Refusal):
            # The searches before have used up the time of the last one.
            applied.roll_back_to(mark)
            del operations[count:]
            return None
        self._context.note("contracts_preempted", count=len(ended), room_for=answer.subscription_id)
        return answer

    def _allocate_beside(
        self, request: AllocationRequest, applied: Applied, operations: list[Operation]
    ) -> Allocation | Refusal:
        """Allocate beside contracts that may be lowered."""
        reservations = self._context.reservations
        answer = reservations.allocate(request)
        if not self._may_improve(request, answer):
            return answer
        if isinstance(answer, Allocation):
            reservations.release(request.subscription_id)
        room = reservations.make_room(request, self._may_change)
        if room is not None and not _is_better(room, answer):
            reservations.release(request.subscription_id)
            reservations.allocator.revert_adjusted(room.lowered)
            room = None
        if room is None:
            return reservations.allocate(request) if isinstance(answer, Allocation) else answer
        self._lower(room, applied, operations)
        return room.contract

    def change(
        self, request: AllocationRequest, applied: Applied, operations: list[Operation]
    ) -> Allocation | Refusal:
        """Change a live contract like `allocate`; a refusal leaves it as it was."""
        reservations = self._context.reservations
        before = reservations.allocator.contract(request.subscription_id)
        answer = reservations.change(request)
        if not self._may_improve(request, answer):
            return answer
        if isinstance(answer, Allocation):
            reservations.revert_change(before, UNASSIGNED)
        room = reservations.make_room(request, self._may_change)
        if room is not None and not _is_better(room, answer):
            reservations.revert_change(before, UNASSIGNED)
            reservations.allocator.revert_adjusted(room.lowered)
            room = None
        if room is None:
            return reservations.change(request) if isinstance(answer, Allocation) else answer
        self._lower(room, applied, operations)
        return room.contract

    def allocate_segment(
        self,
        message: Reserve,
        request: AllocationRequest,
        is_usable: Callable[[Allocation], bool],
        applied: Applied,
        operations: list[Operation],
    ) -> SegmentAnswer:
        """Reserve a segment; with `may_lower` others are lowered, or their owners asked to.

        `is_usable` judges paths that were found with room by bands; others are the caller's to
        judge.
        """
        reservations = self._context.reservations
        replaced = self._context.registry.tree.segment(message.contract, message.replaces)
        answer = reservations.allocate(request, replaces=replaced, is_kept=message.is_kept)
        is_first_come = self._context.settings.bands.policy is BandPolicy.FIRST_COME
        if isinstance(answer, Allocation) or not message.may_lower or is_first_come:
            return SegmentAnswer(answer)
        if rates_of(request) is None:
            return SegmentAnswer(answer)
        if self._may_wait((message.contract, message.generation)) and self._ask_owners(
            request, message.contract, replaced
        ):
            return SegmentAnswer(answer, is_making_room=True)
        room = reservations.make_room(request, self._may_change, replaces=replaced)
        if room is None:
            return SegmentAnswer(answer)
        if not is_usable(room.contract):
            reservations.release(request.subscription_id)
            reservations.allocator.revert_adjusted(room.lowered)
            return SegmentAnswer(answer)
        self._lower(room, applied, operations, contract=message.contract)
        return SegmentAnswer(room.contract)

    def _may_wait(self, key: tuple[str, int]) -> bool:
        """Return whether a segment that its parent requests again and again may still wait."""
        now_ns = self._context.now_ns
        self._waiting = {
            known: began_ns
            for known, began_ns in self._waiting.items()
            if now_ns < began_ns + 2 * WAIT_NS_MAX
        }
        return now_ns < self._waiting.setdefault(key, now_ns) + WAIT_NS_MAX

    def wants_room(self, request: AllocationRequest) -> bool:
        """Return whether a request should wait for owners, which have been asked to lower others.

        Nothing is reserved.
        """
        if self._context.settings.bands.policy is BandPolicy.FIRST_COME:
            return False
        if not self._context.registry.tree.segments or rates_of(request) is None:
            return False
        allocator = self._context.reservations.allocator
        version = allocator.version
        answer = self._context.reservations.allocate(request)
        if isinstance(answer, Allocation):
            self._context.reservations.release(request.subscription_id)
        is_asked = False
        if self._may_improve(request, answer):
            cloud, variable = self._context.registry.cloud, request.variable
            cause = cause_text(cloud, request.subscriber, variable.name)
            is_asked = self._ask_owners(request, cause, 0)
        allocator.version = version  # A trial is no change that others might wait for.
        return is_asked

    def _ask_owners(self, request: AllocationRequest, cause: str, replaced: int) -> bool:
        """Ask owners to lower the segments that a split lowers; return whether it lowers any."""
        if not self._owners.has_any():
            return False
        reservations = self._context.reservations
        room = reservations.make_room(request, self._may_change_or_ask, replaces=replaced)
        if room is None:
            return False
        reservations.release(request.subscription_id)
        reservations.allocator.revert_adjusted(room.lowered)
        segments = [each for each in room.lowered if each.before.request.is_segment]
        return bool(segments) and self._owners.ask(segments, cause, best_priority(request.qos))

    def _may_change_or_ask(self, number: int) -> bool:
        return self._may_change(number) or self._owners.may_ask(number)

    def _may_improve(self, request: AllocationRequest, answer: Allocation | Refusal) -> bool:
        """Return whether bands might give a request more than it has got."""
        if self._context.settings.bands.policy is BandPolicy.FIRST_COME:
            return False
        rates = rates_of(request)
        if rates is None:
            return False
        return isinstance(answer, Refusal) or every_of(answer.granted) > rates.best

    def _may_change(self, number: int) -> bool:
        """Return whether the rate of a contract may be changed now.

        Not while a router of its paths is away, which would carry the former rate on.
        """
        registry, tables = self._context.registry, self._context.tables
        found = registry.subscriptions.get(number)
        if found is None or found.record.contract or found.record.name in registry.changing:
            return False
        if len(found.retiring) >= RETIRING_MAX // 2:
            return False
        return all(tables[name].is_connected for name in routers_of((found.record,)))

    def _lower(
        self, room: Room, applied: Applied, operations: list[Operation], *, contract: str = ""
    ) -> None:
        """Lower contracts for one of this cloud, or for a segment of `contract`."""
        number = room.contract.subscription_id
        cause = (0, contract) if contract else (number, "")
        self._adjust(room.lowered, applied, operations, cause=cause)
        if room.lowered:
            self._context.note("contracts_lowered", count=len(room.lowered), room_for=number)

    # Pre-emption.

    def _may_preempt(self, request: AllocationRequest) -> bool:
        if self._context.settings.bands.policy is not BandPolicy.PREEMPT:
            return False
        return self._context.permissions.may_preempt(
            request.subscriber, request.variable, request.qos
        )

    def _to_end(self, request: AllocationRequest) -> list[int]:
        """Return the contracts of lower priorities without which the request would be granted.

        Those of the lowest priority come first, and of these the youngest. Whoever is not needed in
        the end is left out. Nothing is changed.
        """
        reservations = self._context.reservations
        released: dict[int, tuple[Allocation, dict[int, tuple[Claim, ...]]]] = {}

        def release(number: int) -> None:
            retiring = reservations.retiring_claims(number)
            released[number] = reservations.allocator.release(number), retiring

        fits = False
        allocator = reservations.allocator
        began_ns = allocator.split_ns
        for number in self._below_priority(request):
            release(number)
            fits = self._would_fit(request)
            if fits or not allocator.has_time_for_trials(began_ns):
                break
        for number in [*reversed(released)][1:] if fits else ():
            if not allocator.has_time_for_trials(began_ns):
                break
            reservations.restore_released(*released.pop(number))
            if not self._would_fit(request):
                release(number)
        for contract, retiring in released.values():
            reservations.restore_released(contract, retiring)
        return sorted(released) if fits else []

    def _below_priority(self, request: AllocationRequest) -> list[int]:
        """Return the contracts of lower priorities that share a channel or router with a path."""
        allocator = self._context.reservations.allocator
        elements = allocator.elements_wanted(request)
        own = best_priority(request.qos)
        lower = [
            (-min(qos.priority for qos in allocator.contract(number).granted.values()), -number)
            for number in allocator.over(elements)
            if self._may_change(number)
        ]
        return [-number for priority, number in sorted(lower) if -priority > own][:PREEMPTED_MAX]

    def _would_fit(self, request: AllocationRequest) -> bool:
        """Return whether a request would be granted now; nothing is kept."""
        reservations = self._context.reservations
        answer = reservations.allocate(request)
        if isinstance(answer, Allocation):
            reservations.release(request.subscription_id)
            # Bands have one quality, so this limit is only about what needs no room by bands.
            return len(terms_of(answer.granted, 0)) <= TERMS_MAX
        room = reservations.make_room(request, self._may_change)
        if room is None:
            return False
        reservations.release(request.subscription_id)
        reservations.allocator.revert_adjusted(room.lowered)
        return True

    def _end(
        self,
        numbers: Iterable[int],
        request: AllocationRequest,
        applied: Applied,
        operations: list[Operation],
    ) -> None:
        """End contracts, and tell their subscribers once that is durable."""
        for number in numbers:
            record = self._context.registry.subscriptions[number].record
            operations.append(Unsubscribed(subscription_id=number))
            self._context.effects.apply(operations[-1], applied)
            notice = Unpublished(
                subscription_id=number,
                name=record.name,
                code=Preempted.code,
                reason=f"subscription {request.subscription_id} with priority "
                f"{best_priority(request.qos)} needed its room",
            )
            applied.tables.append(partial(self._notices.push, record.subscriber, notice))

    # Changes in place.

    def _adjust(
        self,
        adjusted: Iterable[Adjusted],
        applied: Applied,
        operations: list[Operation],
        *,
        cause: tuple[int, str] | None = None,
    ) -> None:
        """Apply rates that the allocator holds already, and follow them once they are durable.

        `cause` is the contract of this cloud, or else the one between clouds, for which they are
        lowered.
        """
        for each in adjusted:
            number = each.after.subscription_id
            old = self._context.registry.subscriptions[number].record
            number_for, contract_for = cause or (old.lowered_for, old.lowered_for_contract)
            is_lowered = is_below(each.after)
            new = structs.replace(
                renewed(old, each.after),
                lowered_for=number_for if is_lowered else 0,
                lowered_for_contract=contract_for if is_lowered else "",
            )
            operations.append(Moved(subscription=new, until_retired=True, in_place=True))
            self._context.effects.apply(operations[-1], applied)
            applied.tables.append(partial(self._follow, old, new))
            self._hold(number, is_lower=each.is_lower)

    def _follow(self, old: Subscribed, new: Subscribed) -> None:
        self._moves.follow(old, new, partial(self._confirmed, new))

    def _confirmed(self, new: Subscribed, silent: list[str]) -> None:
        found = self._context.registry.subscriptions.get(new.subscription_id)
        if found is not None and found.record is new:
            self._contract_notices.push_present(found, silent)

    # Raising.

    def split_anew(self) -> None:
        """Raise what may be raised, and let equals share what there is."""
        self._is_timer_set = False
        self._forget_ended()
        allocator = self._context.reservations.allocator
        seen = allocator.version, allocator.resources.topology_version
        below = [number for number in sorted(allocator.below) if self._may_change(number)]
        if not below or seen == self._seen:
            return
        some = self._next_of(below)
        is_whole = len(some) == len(allocator.below)
        adjusted = allocator.rebalance(
            some,
            may_change=self._may_change,
            may_rise=self._may_rise,
            considered_max=self._considered_max,
        )
        is_too_much = adjusted is None
        if adjusted:
            applied = Applied()
            operations: list[Operation] = []
            self._adjust(adjusted, applied, operations)
            raised = sum(not each.is_lower for each in adjusted)
            self._context.note("contracts_raised", count=raised, of=len(adjusted))
            self._context.commit_applied(applied, operations, no_op, ignore_failure)
        more = self._considered_max // 2 if is_too_much else 2 * self._considered_max
        self._considered_max = min(max(more, CONSIDERED_MIN), CONSIDERED_MAX)
        is_held = any(not self._may_rise(number) for number in allocator.below)
        seen = allocator.version, allocator.resources.topology_version
        self._seen = seen if is_whole and not is_held and not is_too_much else None

    def _next_of(self, below: list[int]) -> list[int]:
        """Return the contracts that are raised next, in turn by priority if there are many."""
        most = self._considered_max // 2
        if len(below) <= most:
            return below
        contracts = self._context.reservations.allocator.contracts
        some = sorted((best_priority(contracts[number].request.qos), number) for number in below)
        begin = bisect_right(some, self._raised_last)
        some = [*some[begin:], *some[:begin]][:most]
        self._raised_last = some[-1]
        return [number for _, number in some]

    def _forget_ended(self) -> None:
        contracts = self._context.reservations.allocator.contracts
        now_ns = self._context.now_ns
        self._holds = {
            number: held
            for number, held in self._holds.items()
            if number in contracts and now_ns < held.lowered_ns + FLAPS_WITHIN * held.hold_ns
        }

    def _may_rise(self, number: int) -> bool:
        held = self._holds.get(number)
        return held is None or self._context.now_ns >= held.lowered_ns + held.hold_ns

    def _hold(self, number: int, *, is_lower: bool) -> None:
        """Begin the hold-down of a lowered contract, or mark a raised one."""
        settings, now_ns = self._context.settings.bands, self._context.now_ns
        held = self._holds.get(number)
        if not is_lower:
            if held is not None:
                held.was_raised = True
            return
        hold_ns = settings.raise_after_ns if held is None else held.hold_ns
        if held is not None and held.was_raised:
            hold_ns = min(2 * hold_ns, settings.raise_after_ns_max)
        self._holds[number] = _Hold(now_ns, hold_ns)

    def _set_timer(self) -> None:
        """Look again later while a contract has less than it desires."""
        if self._is_timer_set or not self._context.reservations.allocator.below:
            return
        if self._context.settings.bands.policy is not BandPolicy.FIRST_COME:
            self._is_timer_set = True
            self._context.set_timer(BANDS_TIMER, self._context.settings.bands.raise_after_ns)


def _is_better(room: Room, answer: Allocation | Refusal) -> bool:
    """Return whether room by bands gives a request more than it gets without."""
    if isinstance(answer, Refusal):
        return True
    return every_of(room.contract.granted) < every_of(answer.granted)
