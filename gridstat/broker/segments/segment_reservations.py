"""Segments of contracts across clouds that this leaf broker holds for its parent.

States of a segment, which is one generation of a contract:

  none       --Reserve, paths found-->       reserved    sends Reserved
  none       --Reserve, no paths-->          none        sends NotReserved
  reserved   --Commit-->                     committed   sends SegmentUp when routers confirm
  committed  --paths fail, cannot reroute->  broken      sends SegmentBroken
  broken     --paths return-->               committed   sends SegmentRestored
  committed  --rerouted-->                   committed   sends Reserved with is_moved
  reserved   --Release-->                    none        sends Released
  committed  --Release-->                    releasing   sends Released after release_after_ns

Each segment is stored as a subscription of its own, so that moves, recovery and accounts treat it
as any other; only its ends are channels to other clouds, or one end-point.

Timeout: a segment whose routers do not confirm within `confirm_within_ns` is reported up if one
path works without them, and otherwise waits on. There is no timeout for the parent: a reservation
is held until the parent commits or releases it.

Restart and lost session: reserved and committed segments are in the journal. After each join the
broker sends all of them (SegmentsHeld) and their failures; the parent repeats what it has not seen
answered. A repeated message gets the same answer. A full journal disk leaves a message unanswered,
and the parent repeats it. A release under way is forgotten by a restart and repeated likewise.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from gridstat.broker.capacity.admission import Limit
from gridstat.broker.capacity.allocation import AllocationRequest, Refusal, routers_at
from gridstat.broker.capacity.path_cache import ALL_S
from gridstat.broker.effects.contract_effects import uses_its_gates
from gridstat.broker.interning import same, same_qos
from gridstat.broker.permissions import held_bytes_per_s
from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import Unsubscribed
from gridstat.broker.records.parent_operations import SegmentCommitted
from gridstat.broker.records.parent_state import contract_number
from gridstat.broker.requests.outcomes import few_words, refused
from gridstat.broker.requests.request_checks import check_identifier
from gridstat.broker.requests.subscriptions import record_of, sources_of, targets_of
from gridstat.broker.routers.path_moves import has_confirmed_path, routers_of
from gridstat.broker.segments.segment_paths import gate_channels, is_disjoint, segmented_paths
from gridstat.broker.tables.router_orders import TERMS_MAX, terms_of
from gridstat.model.channel_security import HOP, NONE
from gridstat.model.errors import (
    GridStatError,
    LayoutError,
    NoSuchChannel,
    NoSuchSubscription,
    NoSuchVariable,
    NotAttached,
    NotAuthorised,
    RedundancyNotSatisfiable,
    SecurityNotSatisfiable,
    StorageFailed,
)
from gridstat.model.qos import (
    LATENCY_US_MAX,
    PRIORITY_MAX,
    REDUNDANCY_MAX,
    ModalQos,
    QosRequest,
    check_modes_defined,
    demands_sealing,
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

    from gridstat.broker.capacity.allocation import Allocation
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.records.registry import Subscription
    from gridstat.broker.requests.banded_contracts import BandedContracts
    from gridstat.broker.routers.router_health import RouterHealth
    from gridstat.broker.segments.parent_session import ParentSession
    from gridstat.broker.tables.confirmation import Confirmation
    from gridstat.net.command.segment_messages import Commit, Release, Reserve

RELEASE_TIMER: Final = "release"
US_PER_S: Final = 1_000_000
ROUTERS_GONE: Final = "its routers are gone"


class _DelayedRelease(NamedTuple):
    """Release of a committed segment: when it is due, and the round of the last Release."""

    due_ns: int
    round: int


class _Allocated(NamedTuple):
    """Segment to be held, or the reason why not; room may come if it is being made."""

    answer: Subscribed | Refusal
    is_making_room: bool = False
    search_us: int = 0


class SegmentReservations:
    """Answers the parent's messages about segments; a repeated message is answered alike, done
    once."""

    def __init__(
        self,
        context: BrokerContext,
        session: ParentSession,
        health: RouterHealth,
        bands: BandedContracts,
    ) -> None:
        self._context = context
        self._session = session
        self._health = health
        self._bands = bands
        self._requests = SegmentRequests(context)
        self._releasing: set[tuple[str, int]] = set()
        self._delayed_releases: dict[tuple[str, int], _DelayedRelease] = {}
        """Released segments that are still carried, in the order of their due times."""
        self._broken: set[tuple[str, int]] = set()
        self._withdrawn: dict[tuple[str, int], str] = {}
        """Reasons of segments whose reader no rule lets have the variable any more."""
        self._awaiting_routers: set[int] = set()
        """Identifiers of committed segments that wait for confirmations of their routers."""

    # Messages of the parent.

    def reserve(self, message: Reserve) -> None:
        held = self._held(message.contract, message.generation)
        applied = Applied()
        operations: list[Operation] = []
        try:
            if held is not None:
                self._repeat_reserve(held, message)
                return
            self._answer_due_release((message.contract, message.generation))
            found = self._allocate_in_time(message, applied, operations)
        except GridStatError as error:
            self._refuse(message, error)
            return
        answer = found.answer
        if isinstance(answer, Refusal):
            self._refuse(
                message,
                answer,
                is_making_room=found.is_making_room,
                search_us=found.search_us,
            )
            return
        operations.append(answer)
        self._context.effects.apply(answer, applied)
        # The parent counts on what is Reserved, so the answer waits until the record is durable.
        self._context.commit_applied(
            applied,
            operations,
            lambda _: self._send_reserved(answer, message.round, search_us=found.search_us),
            lambda why: self._refuse(message, StorageFailed(f"nothing was changed: {why}")),
        )

    def _repeat_reserve(self, held: Subscribed, message: Reserve) -> None:
        delayed = self._delayed_releases.pop((message.contract, message.generation), None)
        is_placed = held.subscription_id in self._context.registry.subscriptions
        if delayed is None and is_placed and self._requests.matches(held, message):
            self._send_when_durable(partial(self._send_reserved, held, message.round))
        else:
            self._replace_held(held, message, delayed)

    def _replace_held(
        self, held: Subscribed, message: Reserve, delayed: _DelayedRelease | None
    ) -> None:
        """Replace a held segment that is being released, has no paths, or was reserved for another
        request.

        A restarted parent may request something else under a generation that it used before.
        """
        key = message.contract, message.generation
        if not held.is_reserved:
            self._releasing.add(key)  # The parent must not receive this end as a failure.

        def released(_: Applied) -> None:
            if delayed is not None:
                self._send_released(key, delayed.round)
            self.reserve(message)

        def failed(why: str) -> None:
            self._releasing.discard(key)
            if delayed is not None:
                self._release_later(key, delayed.round)
            self._refuse(message, StorageFailed(f"nothing was changed: {why}"))

        operations = [Unsubscribed(subscription_id=held.subscription_id)]
        self._context.commit(operations, released, failed)

    def commit(self, message: Commit) -> None:
        held = self._held(message.contract, message.generation)
        if held is None:
            self._send_broken(message.contract, message.generation, "the segment is not held here")
            return
        if not held.is_reserved:
            # A repeated Commit: SegmentUp may be lost, or the routers have not confirmed yet.
            self._send_when_durable(partial(self._await_routers, held.subscription_id))
            return
        self._context.commit(
            [SegmentCommitted(subscription_id=held.subscription_id)],
            lambda _: self._await_routers(held.subscription_id),
            self._await_repeat,
        )

    def release(self, message: Release) -> None:
        """Release a segment: a reserved one now, a committed one later, since events may be under
        way."""
        key = message.contract, message.generation
        held = self._held(*key)
        if held is None:
            self._send_when_durable(partial(self._send_released, key, message.round))
        elif held.is_reserved:
            self._release_now({key: message.round})
        else:
            self._release_later(key, message.round)

    def release_due(self) -> None:
        """Release the segments whose time has come."""
        now_ns = self._context.now_ns
        due = [key for key, delayed in self._delayed_releases.items() if delayed.due_ns <= now_ns]
        self._release_now({key: self._delayed_releases.pop(key).round for key in due})
        self._set_timer()

    def _answer_due_release(self, key: tuple[str, int]) -> None:
        """Answer a delayed release of a segment that has ended meanwhile.

        The due release must not end a newer segment of the same key.
        """
        delayed = self._delayed_releases.pop(key, None)
        if delayed is not None:
            self._send_when_durable(partial(self._send_released, key, delayed.round))

    def _release_later(self, key: tuple[str, int], round_: int) -> None:
        """Schedule a release; the answer carries the round of the last Release received."""
        known = self._delayed_releases.get(key)
        if known is not None:  # A repeated Release changes the round, and never the due time.
            self._delayed_releases[key] = known._replace(round=round_)
            return
        due_ns = self._context.now_ns + self._context.settings.release_after_ns
        self._delayed_releases[key] = _DelayedRelease(due_ns, round_)
        self._set_timer()

    def _release_now(self, keys: Mapping[tuple[str, int], int]) -> None:
        """Release segments, given the round to answer for each key."""
        numbers = [self._context.registry.tree.segment(*key) for key in keys]
        operations = [Unsubscribed(subscription_id=number) for number in numbers if number]
        self._releasing.update(key for key in keys if self._is_committed(*key))

        def done(_: Applied) -> None:
            for key, round_ in keys.items():
                self._send_released(key, round_)

        if keys:
            self._context.commit(operations, done, partial(self._release_failed, keys))

    def _set_timer(self) -> None:
        if self._delayed_releases:
            first = next(iter(self._delayed_releases.values()))
            self._context.set_timer(RELEASE_TIMER, first.due_ns - self._context.now_ns)

    def send_held(self) -> None:
        """Send all held segments after a join, in pages, and the failures among them."""
        held = sorted(
            self._context.registry.segments(),
            key=lambda record: (record.contract, record.segment_generation),
        )
        for page in pages_of_held(self._session.term, held):
            self._session.send(page)
        for record in held:
            found = self._context.registry.subscriptions.get(record.subscription_id)
            if found is None:
                self._send_unplaced_broken(record)
            elif found.troubles:
                self.segment_changed(found)
            else:
                self._send_if_moved(record)

    def orphaned(self) -> list[Unsubscribed]:
        """Return the ends of all segments of a parent that the cloud, at a start, no longer has."""
        numbers = sorted(record.subscription_id for record in self._context.registry.segments())
        return [Unsubscribed(subscription_id=number) for number in numbers]

    # Changes of held segments, reported by recovery and by the registry.

    def segment_changed(self, found: Subscription) -> None:
        """Report a segment that was rerouted, lost paths that cannot be rerouted here, or is
        restored."""
        record = found.record
        key = record.contract, record.segment_generation
        if record.is_reserved:
            return
        self._send_if_moved(record)
        if not found.troubles:
            if key in self._broken:
                self._broken.discard(key)
                self._session.send(
                    SegmentRestored(term=self._session.term, contract=key[0], generation=key[1])
                )
            return
        self._broken.add(key)
        entries, exits = gate_channels(record)
        failed = self._health.failed_paths(record)
        gates = {gates[index] for index in failed for gates in (entries, exits)}
        self._session.send(
            SegmentBroken(
                term=self._session.term,
                contract=key[0],
                generation=key[1],
                reason="; ".join(few_words(found.troubles))[:REASON_LENGTH_MAX],
                broken=tuple(sorted(gates - {0})),
            )
        )

    def failed_paths(self, record: Subscribed) -> list[int]:
        """Return the indices of a segment's paths that do not work at the moment."""
        return sorted({*self._health.failed_paths(record), *self._health.refused_paths(record)})

    def segment_ended(self, contract: str, generation: int, name: str) -> None:
        """Report the end of a segment that the parent did not release.

        `name` is its variable, if the variable is published in this cloud.
        """
        key = contract, generation
        self._broken.discard(key)
        # Only an end that the parent did not order concerns the parent.
        if key in self._releasing:
            self._releasing.discard(key)
            return
        registry = self._context.registry
        withdrawn = self._withdrawn.pop(key, "")
        if withdrawn:
            self._send_broken(*key, withdrawn, is_over=True, code=NotAuthorised.code)
            return
        if contract_number(registry.cloud, contract):
            return  # Its subscriber ended the contract, and EndContract reports that.
        is_over = bool(name) and name not in registry.publications
        reason = f"nobody publishes {name} any more" if is_over else ROUTERS_GONE
        self._send_broken(contract, generation, reason, is_over=is_over)

    def note_withdrawn(self, contract: str, generation: int, reason: str) -> None:
        """Note why a segment that ends now was ended; `segment_ended` reports it."""
        self._withdrawn[contract, generation] = reason[:REASON_LENGTH_MAX]

    # Records.

    def _held(self, contract: str, generation: int) -> Subscribed | None:
        registry = self._context.registry
        return registry.contract(registry.tree.segment(contract, generation))

    def _is_committed(self, contract: str, generation: int) -> bool:
        """Return whether the segment is committed; only then does its end concern the parent."""
        held = self._held(contract, generation)
        return held is not None and not held.is_reserved

    def _allocate_in_time(
        self, message: Reserve, applied: Applied, operations: list[Operation]
    ) -> _Allocated:
        """Reserve a segment in the search time that its contract has left, and note what it took.

        A parent of an earlier release does not tell how much that is.
        """
        reservations = self._context.reservations
        reservations.begin_turn(message.search_us / US_PER_S if message.search_us else ALL_S)
        try:
            found = self._allocate(message, applied, operations)
        finally:
            took_ns = reservations.end_turn()
        return found._replace(search_us=took_ns // 1_000)

    def _allocate(
        self, message: Reserve, applied: Applied, operations: list[Operation]
    ) -> _Allocated:
        """Reserve a segment; the contracts that are lowered for it go into `operations`."""
        request = self._requests.request(message)
        record_for = partial(_record_of_segment, message)
        found = self._bands.allocate_segment(
            message,
            request,
            lambda answer: segment_refusal(record_for(answer)) is None,
            applied,
            operations,
        )
        if isinstance(found.answer, Refusal):
            return _Allocated(found.answer, found.is_making_room)
        self._context.registry.next_subscription_id()  # The request used the next tentatively.
        record = record_for(found.answer)
        refusal = segment_refusal(record)
        if refusal is not None:
            self._context.reservations.release(record.subscription_id)
        return _Allocated(refusal or record)

    # Committing.

    def _await_routers(self, number: int) -> None:
        found = self._context.registry.subscriptions.get(number)
        if found is None and (unplaced := self._context.registry.unplaced.get(number)) is not None:
            self._send_unplaced_broken(unplaced)
        if found is None or number in self._awaiting_routers:
            return
        self._awaiting_routers.add(number)
        record = found.record
        self._context.tables.await_confirmations(
            routers_of((record,)),
            partial(self._confirmed, record),
            deadline_ns=self._context.now_ns + self._context.settings.confirm_within_ns,
            judge=partial(has_confirmed_path, record),
        )

    def _confirmed(self, record: Subscribed, waiting: Confirmation) -> None:
        """Report the segment as up if one of its paths works without the silent and refusing
        routers.

        The parent then releases the previous generation. If only silent routers are in the way, the
        broker waits on. Recovery reroutes around refusing routers, or reports the segment as
        broken; if the segment has ended, the parent's next Commit is answered with that.
        """
        self._awaiting_routers.discard(record.subscription_id)
        found = self._context.registry.subscriptions.get(record.subscription_id)
        if found is None:
            return
        refusing = self._context.tables.refusing(record.variable_id, routers_of((record,)))
        silent = refusing.union(waiting.silent)
        is_moved = found.record is not record  # Recovery rerouted it while the routers confirmed.
        # Silent routers may confirm yet; refusing ones never do, and recovery avoids them.
        if is_moved or (
            has_confirmed_path(record, refusing) and not has_confirmed_path(record, silent)
        ):
            self._await_routers(record.subscription_id)
        elif has_confirmed_path(record, silent):
            self._send_up(found, silent)
        if found.troubles:
            self.segment_changed(found)

    def _send_up(self, found: Subscription, silent: Set[str]) -> None:
        self._send_if_moved(found.record)
        late = [f"router {name} has not confirmed its part yet" for name in sorted(silent)]
        self._session.send(
            SegmentUp(
                term=self._session.term,
                contract=found.record.contract,
                generation=found.record.segment_generation,
                degraded=few_words((*found.troubles, *late)),
            )
        )

    # Answers.

    def _send_when_durable(self, send: Callable[[], None]) -> None:
        """Send once all pending operations are durable, since the message may depend on them."""
        if self._context.pending_count:
            self._context.commit((), lambda _: send(), self._await_repeat)
        else:
            send()

    def _send_reserved(
        self, record: Subscribed, round_: int = 0, *, is_moved: bool = False, search_us: int = 0
    ) -> None:
        key = record.contract, record.segment_generation
        if self._context.registry.tree.segment(*key) != record.subscription_id:
            return  # Released while it was written; a segment held instead has its own answer.
        ends_us = self._context.reservations.resources.ends_us
        self._session.send(
            Reserved(
                term=self._session.term,
                contract=record.contract,
                generation=record.segment_generation,
                paths=segmented_paths(
                    self._context.registry.cloud, record, ends_us, self._context.detection
                ),
                is_node_disjoint=is_disjoint(record),
                round=round_,
                is_moved=is_moved,
                is_sealed=demands_sealing(record.qos),
                search_us=search_us,
            )
        )

    def _send_if_moved(self, record: Subscribed) -> None:
        """Send the paths of a committed segment that has moved: the parent's plan may promise less
        now.

        They are sent even if a pending write fails, since the parent does not ask for them.
        """
        if record.generation and not record.is_reserved:
            self._context.when_settled(partial(self._send_moved, record.subscription_id))

    def _send_moved(self, number: int) -> None:
        """Send the present paths of a segment; a failed write may have undone its last move."""
        found = self._context.registry.subscriptions.get(number)
        if found is not None and found.record.generation and not found.record.is_reserved:
            self._send_reserved(found.record, is_moved=True)

    def _refuse(
        self,
        message: Reserve,
        error: GridStatError | Refusal,
        *,
        is_making_room: bool = False,
        search_us: int = 0,
    ) -> None:
        refusal = not_reserved(self._session.term, message, error)
        self._session.send(
            structs.replace(refusal, is_making_room=is_making_room, search_us=search_us)
        )

    def _send_released(self, key: tuple[str, int], round_: int) -> None:
        self._session.send(
            Released(term=self._session.term, contract=key[0], generation=key[1], round=round_)
        )

    def _send_broken(
        self, contract: str, generation: int, reason: str, *, is_over: bool = False, code: int = 0
    ) -> None:
        self._session.send(
            SegmentBroken(
                term=self._session.term,
                contract=contract,
                generation=generation,
                reason=reason,
                is_over=is_over,
                code=code,
            )
        )

    def _send_unplaced_broken(self, record: Subscribed) -> None:
        """Report a committed segment without paths as broken; it is held until paths are found
        again."""
        if not record.is_reserved:
            key = record.contract, record.segment_generation
            self._broken.add(key)
            self._send_broken(*key, ROUTERS_GONE)

    def _release_failed(self, keys: Iterable[tuple[str, int]], _: str) -> None:
        """Handle a full disk: the parent repeats the Release."""
        self._releasing.difference_update(keys)

    def _await_repeat(self, _: str) -> None:
        """Leave a message unanswered because the disk is full; the parent repeats it."""


# Conversion of a Reserve message into a request to this cloud's own allocation.


class SegmentRequests:
    """Checks Reserve messages against this cloud and converts them; changes nothing."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def request(self, message: Reserve) -> AllocationRequest:
        """Return the allocation request; raise the refusal."""
        registry = self._context.registry
        self._check_modes(message)
        counts = {len(gates) for gates in (message.entries, message.exits) if gates}
        if len(counts) != 1 or not 1 <= max(counts) <= REDUNDANCY_MAX:
            raise LayoutError("a segment has 1 to 4 gates, and as many entries as exits")
        self._check_rules(message)
        entries = self._gates(message, is_entry=True)
        exits = self._gates(message, is_entry=False)
        quality = self._quality(message, max(counts))
        if entries:
            check_identifier(registry, self._context.reservations.resources, message.variable)
            sources = routers_at(entries)
        else:
            publication = registry.publications.get(message.variable.name)
            if publication is None or publication.variable != message.variable:
                raise NoSuchVariable(f"{message.variable.name} is not published as requested")
            sources = sources_of(registry, publication, quality)
        targets = routers_at(exits) if exits else self._targets(message, quality)
        return AllocationRequest(
            subscription_id=registry.subscription_id_last + 1,
            variable=message.variable,
            sources=same(sources),
            targets=same(targets),
            qos=quality,
            subscriber="" if exits else message.subscriber,
            entries=entries,
            exits=exits,
            charged_to=self._payers(message),
            every_worst=message.every_worst,
            is_paired=bool(message.pairs),
        )

    def _payers(self, message: Reserve) -> tuple[str, ...]:
        """Return the identities that pay; empty for the subscriber of this cloud alone."""
        names = tuple(payer.name for payer in message.charged_to)
        if not names and message.exits and message.reader:
            names = (message.reader,)
        if not message.entries and not message.is_kept:
            for name in names[1:]:
                number = message.variable.variable_id
                self._context.quotas.check_caught(name, number, names[0])
        return () if not message.exits and names == (message.subscriber,) else names

    def _check_rules(self, message: Reserve) -> None:
        """Refuse what the rules of the publisher's or of the subscriber's cloud do not allow."""
        if message.entries and message.exits:
            return  # The clouds between carry it for both.
        who = message.reader if message.exits else message.subscriber
        quality = self._quality(message, 1)
        if message.is_kept:
            # Granted before: a bound that was made closer since ends nothing, nor keeps it from
            # other paths.
            self._context.permissions.check_name(who, message.variable.name, quality)
            return
        replaced = self._context.registry.newest_segment(message.contract)
        self._context.permissions.check_contract(
            who,
            message.variable,
            quality,
            held_bytes_per_s=0 if replaced is None else held_bytes_per_s(replaced),
        )

    def _check_modes(self, message: Reserve) -> None:
        """Refuse undefined modes, except those of the generation that this one replaces.

        An older release may have granted undefined modes. If this cloud does not hold the replaced
        generation, the owner is trusted.
        """
        modes = set(message.granted)
        if message.replaces >= 0:
            registry = self._context.registry
            number = registry.tree.segment(message.contract, message.replaces)
            held = registry.subscriptions.get(number)
            modes = set() if held is None else modes - held.record.granted.keys()
        check_modes_defined(modes, self._context.settings.modes_defined)

    def matches(self, record: Subscribed, message: Reserve) -> bool:
        """Return whether a held segment is the requested one; a restarted parent may request
        another."""
        counts = max(len(message.entries), len(message.exits))
        return (
            record.name == message.variable.name
            and record.foreign in {None, message.variable}
            and record.subscriber == ("" if message.exits else message.subscriber)
            and record.qos == self._quality(message, counts)
            and set(record.entries) == {(gate.router, gate.channel_id) for gate in message.entries}
            and set(record.exits) == {(gate.router, gate.channel_id) for gate in message.exits}
            and _pairs_of(record) == message.pairs
        )

    def _gates(self, message: Reserve, *, is_entry: bool) -> tuple[tuple[str, int], ...]:
        gates = message.entries if is_entry else message.exits
        if len({gate.channel_id for gate in gates}) < len(gates):
            raise LayoutError("a segment enters and leaves by each gate once")
        for gate in gates:
            border = self._context.registry.tree.borders.get(gate.channel_id)
            end = "" if border is None else border.channel.from_router
            if border is not None and is_entry:
                end = border.channel.to_router
            if end != gate.router or gate.router not in self._context.registry.routers:
                raise NoSuchChannel(f"no channel {gate.channel_id} is open at {gate.router}")
            if border is not None and message.is_sealed and not border.channel.is_sealed:
                raise SecurityNotSatisfiable(f"channel {border.channel.label} is not sealed")
        return same(tuple((gate.router, gate.channel_id) for gate in gates))

    def _targets(self, message: Reserve, quality: ModalQos) -> tuple[str, ...]:
        registry = self._context.registry
        number = contract_number(registry.cloud, message.contract)
        requested = registry.tree.asked.get(number)
        if (
            requested is None
            or requested.is_ending
            or requested.record.subscriber != message.subscriber
        ):
            raise NoSuchSubscription(f"{message.subscriber} has not requested {message.contract}")
        endpoint = registry.endpoints.get(message.subscriber)
        if endpoint is None:
            raise NotAttached(f"{message.subscriber} is not attached to cloud {registry.cloud}")
        return targets_of(endpoint, quality)

    def _quality(self, message: Reserve, paths: int) -> ModalQos:
        """Return the requested quality with the end-points' share added to its latency.

        All modes use all paths, since the order of the paths may differ between clouds.
        """
        ends_us = self._context.reservations.resources.ends_us
        requested = ModalQos(
            {
                mode: QosRequest(
                    every=qos.every,
                    latency_us=min(qos.latency_us + ends_us, LATENCY_US_MAX),
                    redundancy=paths,
                    priority=min(qos.priority, PRIORITY_MAX),
                    security=HOP if message.is_sealed else NONE,
                )
                for mode, qos in message.granted.items()
            }
        )
        return same_qos(requested)


def _record_of_segment(message: Reserve, answer: Allocation) -> Subscribed:
    request = answer.request
    return structs.replace(
        record_of(answer),
        contract=message.contract,
        segment_generation=message.generation,
        entries=request.entries,
        exits=request.exits,
        is_reserved=True,
        foreign=request.variable if message.entries else None,
        reader=message.reader,
        lowered_for_contract=message.lowered_for,
        is_paired=request.is_paired,
    )


def _pairs_of(record: Subscribed) -> frozenset[tuple[int, int]]:
    """Return the channels of each entry and of its exit; empty where the cloud has chosen."""
    pairs = zip(record.entries, record.exits, strict=True) if record.is_paired else ()
    return frozenset([(one, other) for (_, one), (_, other) in pairs])


def segment_refusal(record: Subscribed) -> Refusal | None:
    """Return the reason why allocated paths cannot be a segment, if there is one."""
    if not uses_its_gates(record):
        return Refusal.of(
            RedundancyNotSatisfiable,
            "no disjoint paths join each entry and each exit",
        )
    if len(terms_of(record.granted, 0)) > TERMS_MAX:
        late = f"over its modes a subscription has at most {TERMS_MAX} qualities"
        return Refusal(LayoutError.code, late)
    return None


# Messages to the parent.

PAGE_MAX: Final = 1_000
_LIMITS: Final = {limit.value.code: limit.name for limit in Limit}


def not_reserved(term: int, message: Reserve, error: GridStatError | Refusal) -> NotReserved:
    """Return the refusal with the kind of the limit that was reached."""
    return NotReserved(
        term=term,
        contract=message.contract,
        generation=message.generation,
        refused=refused(error),
        limit=_LIMITS.get(error.code, ""),
        round=message.round,
    )


def pages_of_held(term: int, records: Sequence[Subscribed]) -> list[SegmentsHeld]:
    """Return the list of held segments in pages; at least one, since an empty list matters too."""
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
