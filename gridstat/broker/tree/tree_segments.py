"""Segments that this broker holds for its parent: reserved, committed and released on request.

States of a segment, by contract and generation:

    absent --Reserve--> looked up --variable found--> being reserved --holding durable--> RESERVED
    RESERVED --Commit--> COMMITTED --every child has confirmed; send SegmentUp--> COMMITTED
    RESERVED, COMMITTED --Release, or a different Reserve--> LEAVING --children released--> absent

The stages in capitals are durable, and part of the holding; the other states are not. A `Reserve`
with entries from the parent's borders needs no look-up.

Messages. `Reserve` is answered by `Reserved` or `NotReserved`, `Commit` by `SegmentUp` or
`SegmentBroken`, `Release` by `Released`. Answers carry the round of the newest request. A repeated
request gets the same answer again.

Timeout. Look-ups and transactions have deadlines of their own, and end in `NotReserved`.

Restart. After each join of the parent this broker sends `SegmentsHeld` with everything that it
holds for the parent. The parent then commits or releases each segment; segments in the stage
LEAVING continue to be released.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import structs

from gridstat.broker.capacity.admission import Limit
from gridstat.broker.requests.outcomes import refused
from gridstat.broker.tree.path_planner import Ends
from gridstat.broker.tree.transaction import Purpose, Transaction, evened
from gridstat.broker.tree.tree_operations import (
    Holding,
    HoldingBody,
    HoldingTaken,
    Stage,
    body_of,
    holding_with,
)
from gridstat.broker.unit_of_work import ignore_failure
from gridstat.model.errors import DeadlinePassed, NoSuchVariable, StorageFailed
from gridstat.net.command.segment_messages import (
    HeldSegment,
    NotReserved,
    Released,
    Reserved,
    SegmentBroken,
    SegmentRestored,
    SegmentsHeld,
    SegmentUp,
)
from gridstat.net.command.session_messages import MANY_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.tree.coordinator import Coordinator
    from gridstat.broker.tree.publication_lookups import PublicationLookups
    from gridstat.broker.tree.segment_commits import SegmentCommits
    from gridstat.broker.tree.segment_releases import HoldingRelease, Key
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.net.command.endpoint_messages import RefusedOutcome
    from gridstat.net.command.segment_messages import Commit, LookedUp, Release, Reserve

_LIMIT_OF_CODE: Final = {limit.value.code: limit.name for limit in Limit}


class TreeSegmentListener(Protocol):
    """Notified when a segment counts from now on."""

    def segment_committed(self, holding: Holding) -> None: ...


class TreeSegments:
    """Requests of the parent that are being worked on; the segments themselves are holdings."""

    def __init__(
        self,
        context: TreeContext,
        lookups: PublicationLookups,
        coordinator: Coordinator,
        commits: SegmentCommits,
        holding_release: HoldingRelease,
        listener: TreeSegmentListener,
    ) -> None:
        self._context = context
        self._lookups = lookups
        self._coordinator = coordinator
        self._commits = commits
        self._holding_release = holding_release
        self._listener = listener
        self._looking_up: dict[Key, Reserve] = {}
        self._reserving: dict[Key, Reserve] = {}
        self._rounds: dict[Key, int] = {}
        """Round of the newest Reserve for each key that is looked up or being reserved."""
        self._releasing: dict[Key, int] = {}
        """Round of the newest Release for each key that children still have to release."""
        self._waiting_for_release: dict[Key, Reserve] = {}
        """Reserve that waits until an earlier holding of the same key is released."""

    # Reserving.

    def reserve(self, message: Reserve) -> None:
        key = (message.contract, message.generation)
        holding = self._context.state.holdings.find(*key)
        if holding is not None:
            self._reserve_again(holding, message)
            return
        known = self._looking_up.get(key) or self._reserving.get(key)
        if known is not None:
            same = structs.replace(
                known, term=message.term, round=message.round, search_us=message.search_us
            )
            if same == message:
                # The same request with a newer round: one answer follows, with that round.
                self._rounds[key] = message.round
                return
            self._cancel(key)
        self._rounds[key] = message.round
        if not message.exits and self._context.state.families.child_at(message.subscriber) is None:
            self._refuse(key, self._rounds.pop(key), self._unknown_cloud(message.subscriber))
            return
        if message.entries:
            self._begin(message, Ends(gates=message.entries))
            return
        self._looking_up[key] = message
        self._lookups.look_up(message.variable.name, self, message, reader=message.reader)

    def _unknown_cloud(self, subscriber: str) -> RefusedOutcome:
        """Return the refusal for a cloud that this broker does not know.

        It has lost its journal, and the cloud has not joined it since; the parent asks again.
        """
        error = DeadlinePassed(
            f"the cloud of {subscriber} has not joined {self._context.settings.name} yet",
            hint="is the broker of that cloud running, and does it reach its parent?",
        )
        return refused(error)

    def _reserve_again(self, holding: Holding, message: Reserve) -> None:
        """Answer a repeated Reserve; release first if the parent now requests something else.

        A parent that has lost its journal may use the same key for another segment.
        """
        holdings, key = self._context.state.holdings, holding.key
        is_leaving = holdings.stage(holding) is Stage.LEAVING
        if not is_leaving and _is_same(body_of(holding), message):
            self._when_durable(partial(self.send_reserved, holding, message.round))
            return
        is_waiting = key in self._waiting_for_release
        self._waiting_for_release[key] = message
        if is_waiting:
            return
        if is_leaving:
            self._holding_release.release(holding, partial(self._reserve_next, key))
            return
        self._commits.forget(key)
        self._release_durably(holding, partial(self._reserve_next, key))

    def _reserve_next(self, key: Key) -> None:
        message = self._waiting_for_release.pop(key, None)
        if message is not None:
            self.reserve(message)

    def _release_durably(self, holding: Holding, then: Callable[[], None]) -> None:
        self._context.insist(
            partial(self._context.state.holdings.moves, [holding], Stage.LEAVING),
            partial(self._holding_release.release, holding, then),
        )

    def _cancel(self, key: Key) -> None:
        self._looking_up.pop(key, None)
        self._reserving.pop(key, None)
        self._rounds.pop(key, None)
        self._coordinator.cancel(key)

    def _when_durable(self, send: Callable[[], None]) -> None:
        """Send after all pending writes; if one fails, the parent repeats its request."""
        self._context.decide((), send, ignore_failure)

    def looked_up(self, request: Reserve, found: LookedUp) -> None:
        key = (request.contract, request.generation)
        if self._looking_up.get(key) is not request:
            return
        del self._looking_up[key]
        if found.variable is None:
            missing = NoSuchVariable(f"{request.variable.name} is not published")
            self._refuse(key, self._rounds.pop(key), found.refused or refused(missing))
            return
        starts = self._holding_release.subscribers.starts(request.variable.name, found.starts)
        self._begin(request, starts)

    def _begin(self, message: Reserve, starts: Ends) -> None:
        key = (message.contract, message.generation)
        transaction = Transaction(
            key,
            message.variable,
            [evened(message.granted)],
            message,
            self,
            Purpose.SEGMENT,
        )
        transaction.starts = starts
        transaction.ends = Ends(gates=message.exits)
        if not message.exits:
            child = self._context.state.families.child_at(message.subscriber) or ""
            transaction.ends = self._holding_release.subscribers.ends(message.subscriber, child)
        transaction.subscriber = message.subscriber
        transaction.reader = message.reader
        transaction.replaces = message.replaces
        transaction.pairs = message.pairs
        transaction.is_sealed = message.is_sealed
        transaction.payers = message.charged_to
        if message.search_us:
            transaction.search.limit(message.search_us)
        transaction.is_kept = message.is_kept
        transaction.room.may_ask = message.may_lower
        transaction.room.every_worst = message.every_worst
        transaction.room.lowered_for = message.lowered_for
        self._reserving[key] = message
        self._coordinator.begin(transaction)

    def transaction_ended(self, transaction: Transaction, refusal: RefusedOutcome | None) -> None:
        key = transaction.key
        self._reserving.pop(key, None)
        round_ = self._rounds.pop(key)
        if refusal is not None:
            if transaction.replaces >= 0:
                self._holding_release.subscribers.forget(transaction.subscriber)
            is_making_room = transaction.room.is_being_made
            self._refuse(
                key,
                round_,
                refusal,
                is_making_room=is_making_room,
                search_us=transaction.search.used_us,
            )
            return
        assert transaction.result is not None
        paths, ways = transaction.result
        body = HoldingBody(
            variable=transaction.variable,
            granted=transaction.quality,
            scope_paths=ways,
            paths=paths,
            is_node_disjoint=transaction.is_node_disjoint,
            subscriber=transaction.request.subscriber,
            is_sealed=transaction.is_sealed,
            charged_to=transaction.payers,
            lowered_for=transaction.room.lowered_for,
            every_worst=transaction.room.every_worst,
            is_paired=bool(transaction.pairs),
        )
        holding = holding_with(key, transaction.children(), body)
        self._coordinator.hand_over(transaction)
        self._context.decide(
            [HoldingTaken(holding=holding, stage=Stage.RESERVED)],
            partial(self.send_reserved, holding, round_, search_us=transaction.search.used_us),
            partial(self._not_written, holding, round_),
        )

    def _not_written(self, holding: Holding, round_: int, reason: str) -> None:
        self._holding_release.release_reserved(holding.key, holding.children)
        failure = StorageFailed(f"nothing is reserved: {reason}")
        self._refuse(holding.key, round_, refused(failure))

    def send_reserved(
        self, holding: Holding, round_: int = 0, *, is_moved: bool = False, search_us: int = 0
    ) -> None:
        body = self._context.state.holdings.body(holding)
        self._context.send_parent(
            Reserved(
                term=self._context.term,
                contract=holding.contract,
                generation=holding.generation,
                paths=body.paths,
                is_node_disjoint=body.is_node_disjoint,
                round=round_,
                is_moved=is_moved,
                is_sealed=body.is_sealed,
                search_us=search_us,
            )
        )

    def _refuse(
        self,
        key: Key,
        round_: int,
        why: RefusedOutcome,
        *,
        is_making_room: bool = False,
        search_us: int = 0,
    ) -> None:
        self._context.send_parent(
            NotReserved(
                term=self._context.term,
                contract=key[0],
                generation=key[1],
                refused=why,
                limit=_LIMIT_OF_CODE.get(why.code, ""),
                round=round_,
                is_making_room=is_making_room,
                search_us=search_us,
            )
        )

    # Deciding.

    def commit(self, message: Commit) -> None:
        key = (message.contract, message.generation)
        holdings = self._context.state.holdings
        holding = holdings.find(*key)
        if holding is None or holdings.stage(holding) is Stage.LEAVING:
            self.send_broken(key, "it is not held here any more", ())
            return
        if holdings.stage(holding) is Stage.COMMITTED:
            self._context.when_durable(partial(self._commit_children, holding))
            return
        self._context.insist(
            partial(holdings.moves, [holding], Stage.COMMITTED),
            partial(self._commit_children, holding),
        )

    def _commit_children(self, holding: Holding) -> None:
        holdings = self._context.state.holdings
        if holdings.find(*holding.key) != holding or holdings.stage(holding) is not Stage.COMMITTED:
            return  # The segment was released while its commit was being written.
        if not self._commits.is_waiting(holding.key):
            self._commits.start(holding, self)
        self._listener.segment_committed(holding)

    def commit_late(self, holding: Holding, texts: tuple[str, ...]) -> None:
        """Wait on: the parent has a deadline of its own for the commit."""

    def commit_complete(self, holding: Holding, texts: tuple[str, ...]) -> None:
        self._context.send_parent(
            SegmentUp(
                term=self._context.term,
                contract=holding.contract,
                generation=holding.generation,
                degraded=texts,
            )
        )

    def release(self, message: Release) -> None:
        key = (message.contract, message.generation)
        self._waiting_for_release.pop(key, None)
        self._cancel(key)
        self._commits.forget(key)
        is_repeated = key in self._releasing
        self._releasing[key] = message.round
        if is_repeated:
            return  # One answer, with the newest round, follows when the children have released.
        holdings = self._context.state.holdings
        holding = holdings.find(*key)
        released = partial(self._send_released, key)
        if holding is None:
            self._holding_release.when_released(key, released)
        elif holdings.stage(holding) is Stage.LEAVING:
            self._holding_release.release(holding, released)
        else:
            self._release_durably(holding, released)

    def _send_released(self, key: Key) -> None:
        self._context.send_parent(
            Released(
                term=self._context.term,
                contract=key[0],
                generation=key[1],
                round=self._releasing.pop(key),
            )
        )

    # Reports to the parent.

    def parent_joined(self) -> None:
        """Send everything that is held for the parent, in pages."""
        held = [
            HeldSegment(
                contract=holding.contract,
                generation=holding.generation,
                is_committed=stage is Stage.COMMITTED,
            )
            for holding, stage in self._context.state.holdings.all()
            if not holding.is_owned
        ]
        pages = [held[at : at + MANY_MAX] for at in range(0, len(held), MANY_MAX)] or [[]]
        for at, page in enumerate(pages, start=1):
            self._context.send_parent(
                SegmentsHeld(term=self._context.term, held=tuple(page), is_last=at == len(pages))
            )

    def send_broken(
        self,
        key: Key,
        reason: str,
        broken: tuple[int, ...],
        *,
        is_over: bool = False,
        code: int = 0,
    ) -> None:
        self._context.send_parent(
            SegmentBroken(
                term=self._context.term,
                contract=key[0],
                generation=key[1],
                reason=reason,
                broken=broken,
                is_over=is_over,
                code=code,
            )
        )

    def send_restored(self, key: Key) -> None:
        self._context.send_parent(
            SegmentRestored(term=self._context.term, contract=key[0], generation=key[1])
        )


def _is_same(body: HoldingBody, message: Reserve) -> bool:
    """Return whether a holding is what a Reserve requests."""
    ways = body.scope_paths
    return (
        body.variable == message.variable
        and body.granted == evened(message.granted)
        and body.subscriber == message.subscriber
        and body.is_sealed == message.is_sealed
        and body.charged_to == message.charged_to
        and {way.entry for way in ways} == ({gate.channel_id for gate in message.entries} or {0})
        and {way.exit for way in ways} == ({gate.channel_id for gate in message.exits} or {0})
        and body.pairs == message.pairs
    )
