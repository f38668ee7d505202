"""What a parent asks of this cloud for a contract across clouds: reserve, commit, release.

Each generation of a contract is a contract of its own here, so that moves, recovery and accounts
are those of any other; only its ends are channels to other clouds, or one end-point.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import structs

from gridstat.broker.capacity.contracts import Refusal
from gridstat.broker.records.operations import Unsubscribed
from gridstat.broker.records.tree_operations import StretchCommitted
from gridstat.broker.records.tree_state import contract_number
from gridstat.broker.requests.outcomes import few_words
from gridstat.broker.requests.subscriptions import record_of
from gridstat.broker.routers.moves import has_a_way, routers_of
from gridstat.broker.stretches.pieces import gate_channels, is_disjoint, pieced_paths
from gridstat.broker.stretches.requesting import Requesting, unfit
from gridstat.broker.stretches.stretch_words import not_reserved, pages_of_held
from gridstat.model.errors import (
    GridStatError,
    StorageFailed,
)
from gridstat.net.command.stretch_messages import (
    REASON_LENGTH_MAX,
    Released,
    Reserved,
    StretchBroken,
    StretchMended,
    StretchUp,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Set

    from gridstat.broker.desk import Desk
    from gridstat.broker.records.applied import Applied
    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.records.registry import Subscription
    from gridstat.broker.routers.router_health import RouterHealth
    from gridstat.broker.stretches.parent_link import ParentLink
    from gridstat.broker.tables.confirmation import Confirmation
    from gridstat.net.command.stretch_messages import Commit, Release, Reserve

RELEASE_TIMER: Final = "release"
ROUTERS_GONE: Final = "its routers are gone"


class Reserving:
    """Whatever the parent says twice is answered twice alike, and once only done."""

    def __init__(self, desk: Desk, link: ParentLink, health: RouterHealth) -> None:
        self._desk = desk
        self._link = link
        self._health = health
        self._requesting = Requesting(desk)
        self._releasing: set[tuple[str, int]] = set()
        self._due: dict[tuple[str, int], int] = {}
        """Released stretches that are still carried, by when they go, in that order."""
        self._due_rounds: dict[tuple[str, int], int] = {}
        """Of those the round that the parent has said last."""
        self._broken: set[tuple[str, int]] = set()
        self._awaited: set[int] = set()
        """Committed stretches that wait for their routers."""

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
        self._desk.commit(
            [answer],
            lambda _: self._tell_reserved(answer, word.round),
            lambda why: self._refuse(word, StorageFailed(f"nothing was changed: {why}")),
        )

    def _reserve_again(self, held: Subscribed, word: Reserve) -> None:
        is_leaving = self._due.pop((word.contract, word.generation), None) is not None
        is_here = held.subscription_id in self._desk.registry.subscriptions
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
        self._desk.commit(leaving, gone, failed)

    def commit(self, word: Commit) -> None:
        held = self._held(word.contract, word.generation)
        if held is None:
            self._tell_broken(word.contract, word.generation, "it is not held here any more")
            return
        if not held.is_reserved:
            self._when_durable(partial(self._await_routers, held.subscription_id))
            return
        self._desk.commit(
            [StretchCommitted(subscription_id=held.subscription_id)],
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
        due = [key for key, due_ns in self._due.items() if due_ns <= self._desk.now_ns]
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
            self._due[key] = self._desk.now_ns + self._desk.settings.release_after_ns
            self._set_timer()

    def _give_back(self, keys: Mapping[tuple[str, int], int]) -> None:
        """By key the round that is answered."""
        numbers = [self._desk.registry.tree.stretch(*key) for key in keys]
        operations = [Unsubscribed(subscription_id=number) for number in numbers if number]
        self._releasing.update(key for key in keys if self._is_committed(*key))

        def done(_: Applied) -> None:
            for key, round_ in keys.items():
                self._tell_released(key, round_)

        if keys:
            self._desk.commit(operations, done, partial(self._not_released, keys))

    def _set_timer(self) -> None:
        if self._due:
            first_ns = next(iter(self._due.values()))
            self._desk.set_timer(RELEASE_TIMER, first_ns - self._desk.now_ns)

    def tell_held(self) -> None:
        """After a join: all that is held, by pages, and what of it does not work."""
        held = sorted(
            self._desk.registry.stretches(),
            key=lambda record: (record.contract, record.stretch_generation),
        )
        for page in pages_of_held(self._link.term, held):
            self._link.tell(page)
        for record in held:
            found = self._desk.registry.subscriptions.get(record.subscription_id)
            if found is None:
                self._tell_homeless(record)
            elif found.troubles:
                self.stretch_changed(found)
            else:
                self._tell_if_moved(record)

    # What happens to a stretch.

    def stretch_changed(self, found: Subscription) -> None:
        """It is led another way, has lost paths that cannot be led round here, or has them back."""
        record = found.record
        key = record.contract, record.stretch_generation
        if record.is_reserved:
            return
        self._tell_if_moved(record)
        if not found.troubles:
            if key in self._broken:
                self._broken.discard(key)
                self._link.tell(
                    StretchMended(term=self._link.term, contract=key[0], generation=key[1])
                )
            return
        self._broken.add(key)
        entries, exits = gate_channels(record)
        failed = self._health.failed_paths(record)
        gates = {gates[index] for index in failed for gates in (entries, exits)}
        self._link.tell(
            StretchBroken(
                term=self._link.term,
                contract=key[0],
                generation=key[1],
                reason="; ".join(few_words(found.troubles))[:REASON_LENGTH_MAX],
                broken=tuple(sorted(gates - {0})),
            )
        )

    def failed_paths(self, record: Subscribed) -> list[int]:
        """The indices of a stretch's paths that do not work at the moment."""
        return sorted({*self._health.failed_paths(record), *self._health.refused_paths(record)})

    def stretch_ended(self, contract: str, generation: int, name: str) -> None:
        """A committed stretch is gone; `name` is its variable, if that is published here."""
        key = contract, generation
        self._broken.discard(key)
        if key in self._releasing:
            self._releasing.discard(key)
            return
        registry = self._desk.registry
        if contract_number(registry.cloud, contract):
            return  # Its subscriber has ended it, and the parent hears that of the contract.
        is_over = bool(name) and name not in registry.publications
        reason = f"nobody publishes {name} any more" if is_over else ROUTERS_GONE
        self._tell_broken(contract, generation, reason, is_over=is_over)

    # Reserving.

    def _held(self, contract: str, generation: int) -> Subscribed | None:
        registry = self._desk.registry
        return registry.contract(registry.tree.stretch(contract, generation))

    def _is_committed(self, contract: str, generation: int) -> bool:
        """Of one that is, and of no other, the end is news."""
        held = self._held(contract, generation)
        return held is not None and not held.is_reserved

    def _allocate(self, word: Reserve) -> Subscribed | Refusal:
        request = self._requesting.request(word)
        answer = self._desk.reservations.allocate(request)
        if isinstance(answer, Refusal):
            return answer
        registry = self._desk.registry
        registry.next_subscription_id()
        record = structs.replace(
            record_of(answer),
            contract=word.contract,
            stretch_generation=word.generation,
            entries=request.entries,
            exits=request.exits,
            is_reserved=True,
            foreign=request.variable if word.entries else None,
        )
        refusal = unfit(record)
        if refusal is not None:
            self._desk.reservations.release(record.subscription_id)
        return refusal or record

    # Committing.

    def _await_routers(self, number: int) -> None:
        found = self._desk.registry.subscriptions.get(number)
        if found is None and (homeless := self._desk.registry.homeless.get(number)) is not None:
            self._tell_homeless(homeless)
        if found is None or number in self._awaited:
            return
        self._awaited.add(number)
        record = found.record
        self._desk.tables.await_confirmations(
            routers_of((record,)),
            partial(self._confirmed, record),
            deadline_ns=self._desk.now_ns + self._desk.settings.confirm_within_ns,
            judge=partial(has_a_way, record),
        )

    def _confirmed(self, record: Subscribed, waiting: Confirmation) -> None:
        """It is up if one of its paths is: the parent then lets go of what came before it.

        Silence is waited out. A refusal is led round by recovery, or told as broken; once it is
        over, the parent's next word to commit finds that.
        """
        self._awaited.discard(record.subscription_id)
        found = self._desk.registry.subscriptions.get(record.subscription_id)
        if found is None:
            return
        refusing = self._desk.tables.refusing(record.variable_id, routers_of((record,)))
        silent = refusing.union(waiting.silent)
        is_moved = found.record is not record
        if is_moved or (has_a_way(record, refusing) and not has_a_way(record, silent)):
            self._await_routers(record.subscription_id)
        elif has_a_way(record, silent):
            self._tell_up(found, silent)
        if found.troubles:
            self.stretch_changed(found)

    def _tell_up(self, found: Subscription, silent: Set[str]) -> None:
        self._tell_if_moved(found.record)
        words = [f"router {name} has not confirmed its part yet" for name in sorted(silent)]
        self._link.tell(
            StretchUp(
                term=self._link.term,
                contract=found.record.contract,
                generation=found.record.stretch_generation,
                degraded=few_words((*found.troubles, *words)),
            )
        )

    # Answers.

    def _when_durable(self, say: Callable[[], None]) -> None:
        """What is said may rest on operations that are still on their way to the disk."""
        if self._desk.pending_count:
            self._desk.commit((), lambda _: say(), self._later)
        else:
            say()

    def _tell_reserved(
        self, record: Subscribed, round_: int = 0, *, is_moved: bool = False
    ) -> None:
        key = record.contract, record.stretch_generation
        if self._desk.registry.tree.stretch(*key) != record.subscription_id:
            return  # Given back while it was written; what is held instead has its own answer.
        ends_us = self._desk.reservations.resources.ends_us
        self._link.tell(
            Reserved(
                term=self._link.term,
                contract=record.contract,
                generation=record.stretch_generation,
                paths=pieced_paths(
                    self._desk.registry.cloud, record, ends_us, self._desk.detection
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
            StretchBroken(
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
            key = record.contract, record.stretch_generation
            self._broken.add(key)
            self._tell_broken(*key, ROUTERS_GONE)

    def _not_released(self, keys: Iterable[tuple[str, int]], _: str) -> None:
        """The disk is full: the parent says it again."""
        self._releasing.difference_update(keys)

    def _later(self, _: str) -> None:
        """The disk is full: the parent is not answered, and says it again."""
