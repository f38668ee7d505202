"""What a parent asks of this cloud for a contract across clouds: reserve, commit, release.

Each generation of a contract is a contract of its own here, so that moves, recovery and accounts
are those of any other; only its ends are channels to other clouds, or one end-point.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import structs

from gridstat.broker.capacity.admission import Limit
from gridstat.broker.capacity.allocation import AllocationRequest, Refusal, routers_at
from gridstat.broker.effects.contract_effects import uses_its_gates
from gridstat.broker.interning import same, same_qos
from gridstat.broker.records.operations import Unsubscribed
from gridstat.broker.records.parent_operations import SegmentCommitted
from gridstat.broker.records.parent_state import contract_number
from gridstat.broker.requests.outcomes import few_words, refused
from gridstat.broker.requests.request_checks import check_identifier
from gridstat.broker.requests.subscriptions import record_of, sources_of, targets_of
from gridstat.broker.routers.path_moves import has_confirmed_path, routers_of
from gridstat.broker.segments.segment_paths import gate_channels, is_disjoint, pieced_paths
from gridstat.broker.tables.router_orders import TERMS_MAX, terms_of
from gridstat.model.errors import (
    GridStatError,
    LayoutError,
    NoSuchChannel,
    NoSuchSubscription,
    NoSuchVariable,
    NotAttached,
    RedundancyNotSatisfiable,
    StorageFailed,
)
from gridstat.model.qos import (
    LATENCY_US_MAX,
    PRIORITY_MAX,
    REDUNDANCY_MAX,
    ModalQos,
    Qos,
    QosRequest,
    check_modes_defined,
)
from gridstat.net.command.segment_messages import (
    REASON_LENGTH_MAX,
    HeldSegment,
    NotReserved,
    Released,
    Reserved,
    SegmentBroken,
    SegmentRestored,
    SegmentsHeld,
    SegmentUp,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.records.registry import Subscription
    from gridstat.broker.routers.router_health import RouterHealth
    from gridstat.broker.segments.parent_session import ParentSession
    from gridstat.broker.tables.confirmation import Confirmation
    from gridstat.net.command.segment_messages import Commit, Gate, Release, Reserve

RELEASE_TIMER: Final = "release"
ROUTERS_GONE: Final = "its routers are gone"


class SegmentReservations:
    """Whatever the parent says twice is answered twice alike, and once only done."""

    def __init__(self, context: BrokerContext, link: ParentSession, health: RouterHealth) -> None:
        self._context = context
        self._link = link
        self._health = health
        self._requesting = SegmentRequests(context)
        self._releasing: set[tuple[str, int]] = set()
        self._due: dict[tuple[str, int], int] = {}
        """Released segments that are still carried, by when they go, in that order."""
        self._due_rounds: dict[tuple[str, int], int] = {}
        """Of those the round that the parent has said last."""
        self._broken: set[tuple[str, int]] = set()
        self._awaited: set[int] = set()
        """Committed segments that wait for their routers."""

    # The parent's words.

    def reserve(self, word: Reserve) -> None:
        held = self._held(word.contract, word.generation)
        try:
            if held is not None:
                self._reserve_again(held, word)
                return
            self._answer_due((word.contract, word.generation))
            answer = self._allocate(word)
        except GridStatError as error:
            self._refuse(word, error)
            return
        if isinstance(answer, Refusal):
            self._refuse(word, answer)
            return
        self._context.commit(
            [answer],
            lambda _: self._tell_reserved(answer, word.round),
            lambda why: self._refuse(word, StorageFailed(f"nothing was changed: {why}")),
        )

    def _reserve_again(self, held: Subscribed, word: Reserve) -> None:
        is_leaving = self._due.pop((word.contract, word.generation), None) is not None
        is_here = held.subscription_id in self._context.registry.subscriptions
        if not is_leaving and is_here and self._requesting.is_met(held, word):
            self._when_durable(partial(self._tell_reserved, held, word.round))
        else:
            self._reserve_anew(held, word, is_released=is_leaving)

    def _reserve_anew(self, held: Subscribed, word: Reserve, *, is_released: bool) -> None:
        """What is held was released, or has no place, or an earlier life of the parent asked for
        something else."""
        key = word.contract, word.generation
        released_round = self._due_rounds.pop(key, 0)
        if not held.is_reserved:
            self._releasing.add(key)

        def gone(_: Applied) -> None:
            if is_released:
                self._tell_released(key, released_round)
            self.reserve(word)

        def failed(why: str) -> None:
            self._releasing.discard(key)
            if is_released:
                self._give_back_later(key, released_round)
            self._refuse(word, StorageFailed(f"nothing was changed: {why}"))

        leaving = [Unsubscribed(subscription_id=held.subscription_id)]
        self._context.commit(leaving, gone, failed)

    def commit(self, word: Commit) -> None:
        held = self._held(word.contract, word.generation)
        if held is None:
            self._tell_broken(word.contract, word.generation, "it is not held here any more")
            return
        if not held.is_reserved:
            self._when_durable(partial(self._await_routers, held.subscription_id))
            return
        self._context.commit(
            [SegmentCommitted(subscription_id=held.subscription_id)],
            lambda _: self._await_routers(held.subscription_id),
            self._later,
        )

    def release(self, word: Release) -> None:
        """Give it back; what was committed a little later, for events are on their way on it."""
        key = word.contract, word.generation
        held = self._held(*key)
        if held is None:
            self._when_durable(partial(self._tell_released, key, word.round))
        elif held.is_reserved:
            self._give_back({key: word.round})
        else:
            self._give_back_later(key, word.round)

    def release_due(self) -> None:
        """Give back what was released so long ago."""
        due = [key for key, due_ns in self._due.items() if due_ns <= self._context.now_ns]
        for key in due:
            del self._due[key]
        self._give_back({key: self._due_rounds.pop(key, 0) for key in due})
        self._set_timer()

    def _answer_due(self, key: tuple[str, int]) -> None:
        """What was to go later has ended before; it must not take a newer one of its name along."""
        if self._due.pop(key, None) is not None:
            round_ = self._due_rounds.pop(key, 0)
            self._when_durable(partial(self._tell_released, key, round_))

    def _give_back_later(self, key: tuple[str, int], round_: int) -> None:
        """The round that the parent has said last is the one that is answered."""
        self._due_rounds[key] = round_
        if key not in self._due:
            self._due[key] = self._context.now_ns + self._context.settings.release_after_ns
            self._set_timer()

    def _give_back(self, keys: Mapping[tuple[str, int], int]) -> None:
        """By key the round that is answered."""
        numbers = [self._context.registry.tree.segment(*key) for key in keys]
        operations = [Unsubscribed(subscription_id=number) for number in numbers if number]
        self._releasing.update(key for key in keys if self._is_committed(*key))

        def done(_: Applied) -> None:
            for key, round_ in keys.items():
                self._tell_released(key, round_)

        if keys:
            self._context.commit(operations, done, partial(self._not_released, keys))

    def _set_timer(self) -> None:
        if self._due:
            first_ns = next(iter(self._due.values()))
            self._context.set_timer(RELEASE_TIMER, first_ns - self._context.now_ns)

    def tell_held(self) -> None:
        """After a join: all that is held, by pages, and what of it does not work."""
        held = sorted(
            self._context.registry.segments(),
            key=lambda record: (record.contract, record.segment_generation),
        )
        for page in pages_of_held(self._link.term, held):
            self._link.tell(page)
        for record in held:
            found = self._context.registry.subscriptions.get(record.subscription_id)
            if found is None:
                self._tell_homeless(record)
            elif found.troubles:
                self.segment_changed(found)
            else:
                self._tell_if_moved(record)

    # What happens to a segment.

    def segment_changed(self, found: Subscription) -> None:
        """It is led another way, has lost paths that cannot be led round here, or has them back."""
        record = found.record
        key = record.contract, record.segment_generation
        if record.is_reserved:
            return
        self._tell_if_moved(record)
        if not found.troubles:
            if key in self._broken:
                self._broken.discard(key)
                self._link.tell(
                    SegmentRestored(term=self._link.term, contract=key[0], generation=key[1])
                )
            return
        self._broken.add(key)
        entries, exits = gate_channels(record)
        failed = self._health.failed_paths(record)
        gates = {gates[index] for index in failed for gates in (entries, exits)}
        self._link.tell(
            SegmentBroken(
                term=self._link.term,
                contract=key[0],
                generation=key[1],
                reason="; ".join(few_words(found.troubles))[:REASON_LENGTH_MAX],
                broken=tuple(sorted(gates - {0})),
            )
        )

    def failed_paths(self, record: Subscribed) -> list[int]:
        """The indices of a segment's paths that do not work at the moment."""
        return sorted({*self._health.failed_paths(record), *self._health.refused_paths(record)})

    def segment_ended(self, contract: str, generation: int, name: str) -> None:
        """A committed segment is gone; `name` is its variable, if that is published here."""
        key = contract, generation
        self._broken.discard(key)
        if key in self._releasing:
            self._releasing.discard(key)
            return
        registry = self._context.registry
        if contract_number(registry.cloud, contract):
            return  # Its subscriber has ended it, and the parent hears that of the contract.
        is_over = bool(name) and name not in registry.publications
        reason = f"nobody publishes {name} any more" if is_over else ROUTERS_GONE
        self._tell_broken(contract, generation, reason, is_over=is_over)

    # SegmentReservations.

    def _held(self, contract: str, generation: int) -> Subscribed | None:
        registry = self._context.registry
        return registry.contract(registry.tree.segment(contract, generation))

    def _is_committed(self, contract: str, generation: int) -> bool:
        """Of one that is, and of no other, the end is news."""
        held = self._held(contract, generation)
        return held is not None and not held.is_reserved

    def _allocate(self, word: Reserve) -> Subscribed | Refusal:
        request = self._requesting.request(word)
        answer = self._context.reservations.allocate(request)
        if isinstance(answer, Refusal):
            return answer
        registry = self._context.registry
        registry.next_subscription_id()
        record = structs.replace(
            record_of(answer),
            contract=word.contract,
            segment_generation=word.generation,
            entries=request.entries,
            exits=request.exits,
            is_reserved=True,
            foreign=request.variable if word.entries else None,
        )
        refusal = unfit(record)
        if refusal is not None:
            self._context.reservations.release(record.subscription_id)
        return refusal or record

    # Committing.

    def _await_routers(self, number: int) -> None:
        found = self._context.registry.subscriptions.get(number)
        if found is None and (homeless := self._context.registry.homeless.get(number)) is not None:
            self._tell_homeless(homeless)
        if found is None or number in self._awaited:
            return
        self._awaited.add(number)
        record = found.record
        self._context.tables.await_confirmations(
            routers_of((record,)),
            partial(self._confirmed, record),
            deadline_ns=self._context.now_ns + self._context.settings.confirm_within_ns,
            judge=partial(has_confirmed_path, record),
        )

    def _confirmed(self, record: Subscribed, waiting: Confirmation) -> None:
        """It is up if one of its paths is: the parent then lets go of what came before it.

        Silence is waited out. A refusal is led round by recovery, or told as broken; once it is
        over, the parent's next word to commit finds that.
        """
        self._awaited.discard(record.subscription_id)
        found = self._context.registry.subscriptions.get(record.subscription_id)
        if found is None:
            return
        refusing = self._context.tables.refusing(record.variable_id, routers_of((record,)))
        silent = refusing.union(waiting.silent)
        is_moved = found.record is not record
        if is_moved or (
            has_confirmed_path(record, refusing) and not has_confirmed_path(record, silent)
        ):
            self._await_routers(record.subscription_id)
        elif has_confirmed_path(record, silent):
            self._tell_up(found, silent)
        if found.troubles:
            self.segment_changed(found)

    def _tell_up(self, found: Subscription, silent: Set[str]) -> None:
        self._tell_if_moved(found.record)
        words = [f"router {name} has not confirmed its part yet" for name in sorted(silent)]
        self._link.tell(
            SegmentUp(
                term=self._link.term,
                contract=found.record.contract,
                generation=found.record.segment_generation,
                degraded=few_words((*found.troubles, *words)),
            )
        )

    # Answers.

    def _when_durable(self, say: Callable[[], None]) -> None:
        """What is said may rest on operations that are still on their way to the disk."""
        if self._context.pending_count:
            self._context.commit((), lambda _: say(), self._later)
        else:
            say()

    def _tell_reserved(
        self, record: Subscribed, round_: int = 0, *, is_moved: bool = False
    ) -> None:
        key = record.contract, record.segment_generation
        if self._context.registry.tree.segment(*key) != record.subscription_id:
            return  # Given back while it was written; what is held instead has its own answer.
        ends_us = self._context.reservations.resources.ends_us
        self._link.tell(
            Reserved(
                term=self._link.term,
                contract=record.contract,
                generation=record.segment_generation,
                paths=pieced_paths(
                    self._context.registry.cloud, record, ends_us, self._context.detection
                ),
                is_node_disjoint=is_disjoint(record),
                round=round_,
                is_moved=is_moved,
            )
        )

    def _tell_if_moved(self, record: Subscribed) -> None:
        """It is not as it was when the parent decided: what that promises may be less now."""
        if record.generation and not record.is_reserved:
            self._when_durable(partial(self._tell_reserved, record, is_moved=True))

    def _refuse(self, word: Reserve, error: GridStatError | Refusal) -> None:
        self._link.tell(not_reserved(self._link.term, word, error))

    def _tell_released(self, key: tuple[str, int], round_: int) -> None:
        self._link.tell(
            Released(term=self._link.term, contract=key[0], generation=key[1], round=round_)
        )

    def _tell_broken(
        self, contract: str, generation: int, reason: str, *, is_over: bool = False
    ) -> None:
        self._link.tell(
            SegmentBroken(
                term=self._link.term,
                contract=contract,
                generation=generation,
                reason=reason,
                is_over=is_over,
            )
        )

    def _tell_homeless(self, record: Subscribed) -> None:
        """It is held, and leads nowhere until it has found a place."""
        if not record.is_reserved:
            key = record.contract, record.segment_generation
            self._broken.add(key)
            self._tell_broken(*key, ROUTERS_GONE)

    def _not_released(self, keys: Iterable[tuple[str, int]], _: str) -> None:
        """The disk is full: the parent says it again."""
        self._releasing.difference_update(keys)

    def _later(self, _: str) -> None:
        """The disk is full: the parent is not answered, and says it again."""


# What a parent wants reserved, as a request to this cloud's own allocation.


class SegmentRequests:
    """Nothing is changed here; what is not as the parent believes is said."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def request(self, word: Reserve) -> AllocationRequest:
        """Raises what stands against it."""
        registry = self._context.registry
        self._check_modes(word)
        counts = {len(gates) for gates in (word.entries, word.exits) if gates}
        if len(counts) != 1 or not 1 <= max(counts) <= REDUNDANCY_MAX:
            raise LayoutError("a segment enters or leaves by 1 to 4 gates, by as many as it has")
        entries = self._gates(word.entries, is_entry=True)
        exits = self._gates(word.exits, is_entry=False)
        if entries:
            check_identifier(registry, self._context.reservations.resources, word.variable)
            sources = routers_at(entries)
        else:
            publication = registry.publications.get(word.variable.name)
            if publication is None or publication.variable != word.variable:
                raise NoSuchVariable(f"nobody publishes {word.variable.name} as it was")
            sources = sources_of(registry, publication)
        targets = routers_at(exits) if exits else self._targets(word)
        return AllocationRequest(
            subscription_id=registry.subscription_id_last + 1,
            variable=word.variable,
            sources=same(sources),
            targets=same(targets),
            qos=self._quality(word.granted, max(counts)),
            subscriber="" if exits else word.subscriber,
            entries=entries,
            exits=exits,
        )

    def _check_modes(self, word: Reserve) -> None:
        """Refuse undefined modes, but for a contract of an older release that is planned anew.

        The replaced generation tells its modes. Where this cloud holds nothing of it, its owner is
        believed.
        """
        modes = set(word.granted)
        if word.replaces >= 0:
            registry = self._context.registry
            number = registry.tree.segment(word.contract, word.replaces)
            held = registry.subscriptions.get(number)
            modes = set() if held is None else modes - held.record.granted.keys()
        check_modes_defined(modes, self._context.settings.modes_defined)

    def is_met(self, record: Subscribed, word: Reserve) -> bool:
        """Whether a segment that is held is what is asked; the parent may be in another life."""
        counts = max(len(word.entries), len(word.exits))
        return (
            record.name == word.variable.name
            and record.foreign in {None, word.variable}
            and record.subscriber == ("" if word.exits else word.subscriber)
            and record.qos == self._quality(word.granted, counts)
            and set(record.entries) == {(gate.router, gate.channel_id) for gate in word.entries}
            and set(record.exits) == {(gate.router, gate.channel_id) for gate in word.exits}
        )

    def _gates(self, gates: tuple[Gate, ...], *, is_entry: bool) -> tuple[tuple[str, int], ...]:
        if len({gate.channel_id for gate in gates}) < len(gates):
            raise LayoutError("a segment enters and leaves by each gate once")
        for gate in gates:
            border = self._context.registry.tree.borders.get(gate.channel_id)
            end = "" if border is None else border.channel.from_router
            if border is not None and is_entry:
                end = border.channel.to_router
            if end != gate.router or gate.router not in self._context.registry.routers:
                raise NoSuchChannel(f"no channel {gate.channel_id} is open at {gate.router}")
        return same(tuple((gate.router, gate.channel_id) for gate in gates))

    def _targets(self, word: Reserve) -> tuple[str, ...]:
        registry = self._context.registry
        number = contract_number(registry.cloud, word.contract)
        asked = registry.tree.asked.get(number)
        if asked is None or asked.is_ending or asked.record.subscriber != word.subscriber:
            raise NoSuchSubscription(f"{word.subscriber} does not wait for {word.contract}")
        endpoint = registry.endpoints.get(word.subscriber)
        if endpoint is None:
            raise NotAttached(f"{word.subscriber} is not attached to cloud {registry.cloud}")
        return targets_of(endpoint)

    def _quality(self, granted: dict[int, Qos], paths: int) -> ModalQos:
        """One definite quality, with what end-points take added to its latency.

        All modes use all paths: which of them is the first is not the same in every cloud.
        """
        ends_us = self._context.reservations.resources.ends_us
        asked = ModalQos(
            {
                mode: QosRequest(
                    every=qos.every,
                    latency_us=min(qos.latency_us + ends_us, LATENCY_US_MAX),
                    redundancy=paths,
                    priority=min(qos.priority, PRIORITY_MAX),
                )
                for mode, qos in granted.items()
            }
        )
        return same_qos(asked)


def unfit(record: Subscribed) -> Refusal | None:
    """Why paths that were found cannot be a segment."""
    if not uses_its_gates(record):
        return Refusal.of(
            RedundancyNotSatisfiable,
            "no disjoint ways lead from each of the entries and to each of the exits",
        )
    if len(terms_of(record.granted, 0)) > TERMS_MAX:
        words = f"over its modes a subscription has at most {TERMS_MAX} qualities"
        return Refusal(LayoutError.code, words)
    return None


# What a parent is told of segments, in its own words.

PAGE_MAX: Final = 1_000
_LIMITS: Final = {limit.value.code: limit.name for limit in Limit}


def not_reserved(term: int, word: Reserve, error: GridStatError | Refusal) -> NotReserved:
    """A refusal, with the limit that was met in the way."""
    return NotReserved(
        term=term,
        contract=word.contract,
        generation=word.generation,
        refused=refused(error),
        limit=_LIMITS.get(error.code, ""),
        round=word.round,
    )


def pages_of_held(term: int, records: Sequence[Subscribed]) -> list[SegmentsHeld]:
    """All that is held; one page at least, for also that nothing is has to be told."""
    held = [
        HeldSegment(
            contract=record.contract,
            generation=record.segment_generation,
            is_committed=not record.is_reserved,
        )
        for record in records
    ]
    pages = [held[at : at + PAGE_MAX] for at in range(0, len(held), PAGE_MAX)] or [[]]
    return [SegmentsHeld(term=term, held=tuple(page), is_last=page is pages[-1]) for page in pages]
