"""One change of what floods at a time for each variable: reserve in every child, decide, commit.

Nothing here is durable but what is decided. A refusal, or a silence, ends in a release, and
presumed abort does the rest: a child that joins is told all that counts, and what may yet.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import structs

from gridstat.broker.requests.outcomes import refused
from gridstat.broker.tree.flooding_reservations import flooded_of, told_of
from gridstat.model.errors import DeadlinePassed, QuotaReached, Refused
from gridstat.net.command.session_messages import MANY_MAX
from gridstat.net.command.tree_messages import (
    CommitFlooding,
    FloodingCommitted,
    FloodingEnded,
    FloodingRefused,
    FloodingReserved,
    ReleaseFlooding,
    ReserveFlooding,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gridstat.broker.tree.flooding_operations import FloodingHeld
    from gridstat.broker.tree.flooding_reservations import FloodingReservations
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.model.flooding import FloodTerm
    from gridstat.net.command.endpoint_messages import RefusedOutcome
    from gridstat.net.command.tree_messages import FloodedVariable

FLOOD_TIMER: Final = "flood/"
REASON_MAX: Final = 500
"""Characters that are kept of a child's reason."""
_TOO_MANY: Final = QuotaReached(
    f"{MANY_MAX} variables flood the scope of this broker",
    hint="stop flooding some of them: `gridstat flood --list`",
)
FloodingOrder: TypeAlias = ReserveFlooding | CommitFlooding | ReleaseFlooding
"""What a parent says to a child."""
FloodingMessage: TypeAlias = FloodingReserved | FloodingRefused | FloodingCommitted | FloodingEnded
"""What a child says to its parent."""


@dataclass(slots=True)
class FloodingChange:
    """First `missing` are the children that have not reserved, later those without a commit.

    A change that `is_held` is for the parent to decide, and ends when it is written. `done` hears
    who has been silent.
    """

    after: FloodingHeld
    done: Callable[[set[str]], None]
    refused: Callable[[RefusedOutcome], None]
    unwritten: Callable[[str], None] | None = None
    """Told instead of `refused` if it could not be written: it is for the parent to say again."""
    is_held: bool = False
    missing: set[str] = field(default_factory=set)
    is_asked: bool = False
    """Children were asked to reserve it."""
    before: FloodingHeld | None = None
    """What counts while it is being written, and if it cannot be."""
    is_deciding: bool = False
    """It is being written: from here on neither a word nor the clock can stop it."""
    is_decided: bool = False

    @property
    def is_asking(self) -> bool:
        """Whether children may still refuse it."""
        return not (self.is_deciding or self.is_decided)

    def terms(self, depth: int) -> dict[int, FloodTerm]:
        """How it floods, seen from where the broker stands now."""
        return self.after.reserved_terms(depth) if self.is_held else self.after.terms(depth)

    def flooded(self, depth: int) -> FloodedVariable:
        """What children are told."""
        return flooded_of(self.after, self.number, self.terms(depth))

    @property
    def number(self) -> int:
        """The generation that children know it by."""
        return self.after.reserved_number if self.is_held else self.after.number


class FloodingChanges:
    """Of a child that does not flood what counts it is known why, while both are there."""

    def __init__(self, context: TreeContext, book: FloodingReservations) -> None:
        self._context = context
        self._book = book
        self._open: dict[str, FloodingChange] = {}
        self._waiting: dict[str, OrderedDict[str | int, Callable[[], None]]] = {}
        """By variable what follows its change, in order: by a child's name, or a number."""
        self._waiting_last = 0
        self._refusing: dict[str, dict[str, str]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._open

    def __iter__(self) -> Iterator[str]:
        return iter(self._open)

    def when_free(self, name: str, do: Callable[[], None], child: str = "") -> None:
        """At once, or in its order after the change that is under way.

        Of what a child says only the last waits, so that none can fill the broker with words.
        """
        if name not in self._open:
            do()
            return
        self._waiting_last += 1
        self._waiting.setdefault(name, OrderedDict())[child or self._waiting_last] = do

    def begin(self, change: FloodingChange, *, is_reserved: bool = False) -> None:
        """Children have room for what is less than before, and for what all have reserved."""
        name = change.after.variable.name
        assert name not in self._open, f"{name} is being changed"
        if self._is_full(change.after):
            change.refused(refused(_TOO_MANY))
            return
        self._open[name] = change
        if is_reserved or (not change.is_held and self.is_less(change.after)):
            self._decide(name)
            return
        no = self._obstacle(change)
        if no is not None:
            self._end(name, partial(change.refused, no))
            return
        change.missing = set(self._context.state.families.children)
        change.is_asked = True
        self._set_timer(name)
        self._tell_children(ReserveFlooding(term=0, flooded=change.flooded(self._depth)))
        self._heard(name, change, "")

    def _is_full(self, after: FloodingHeld) -> bool:
        """Whether one more is one too many, whoever asks: a child is told all of them in a word."""
        if after.is_over or after.variable.name in self._book.floods:
            return False
        return len(self._book.floods.keys() | self._open.keys()) >= MANY_MAX

    def joined(self, child: str) -> None:
        """Notify a child all that counts, and what may yet; a change under way waits for it.

        By the first of these it forgets what it had reserved, so it is asked for that again. What
        is still being written counts for nobody yet: the disk may refuse it.
        """
        depth, counting = self._depth, self._counting()
        doubts = [held for held in counting if held.reserved_generation]
        whole = CommitFlooding(
            term=self._context.term,
            flooded=told_of(counting, depth),
            is_whole=True,
            in_doubt=tuple(held.variable.name for held in doubts),
        )
        self._context.send_child(child, whole)
        reserving = [
            flooded_of(held, held.reserved_number, held.reserved_terms(depth)) for held in doubts
        ]
        for change in self._open.values():
            if change.is_asking:
                change.missing.add(child)
            if change.is_asked and not change.is_decided:
                reserving.append(change.flooded(depth))
        for flooded in reserving:
            self._context.send_child(
                child, ReserveFlooding(term=self._context.term, flooded=flooded)
            )
        for change in self._open.values():
            if change.is_decided and child in change.missing:  # An end is in no whole.
                flooded = change.flooded(depth)
                said = CommitFlooding(term=self._context.term, flooded=(flooded,))
                self._context.send_child(child, said)

    def _counting(self) -> list[FloodingHeld]:
        """What the journal holds of each variable that floods, in the order of their names."""
        found: dict[str, FloodingHeld | None] = dict(self._book.floods)
        found |= {name: each.before for name, each in self._open.items() if each.is_deciding}
        return [held for _, held in sorted(found.items()) if held is not None]

    def hear(
        self, child: str, word: FloodingReserved | FloodingRefused | FloodingCommitted
    ) -> None:
        change = self._open.get(word.name)
        is_present = change is not None and change.number == word.generation
        match word:
            case FloodingReserved():
                if change is not None and is_present and change.is_asking:
                    self._heard(word.name, change, child)
            case FloodingCommitted():
                self._refusing.get(word.name, {}).pop(child, None)
                if change is not None and is_present and change.is_decided:
                    self._heard(word.name, change, child)
            case FloodingRefused():
                if change is not None and is_present and change.is_asking:
                    self._give_up(word.name, word.refused)
                    return
                held = self._book.floods.get(word.name)
                if held is not None and held.number == word.generation:
                    why = word.refused.reason[:REASON_MAX]
                    self._refusing.setdefault(word.name, {})[child] = why
                    self._context.note("flooding_refused", child=child, name=word.name)

    def refusing(self, name: str) -> dict[str, str]:
        """Why some children do not flood what counts."""
        return dict(self._refusing.get(name, {}))

    def left(self, child: str) -> None:
        """It says again what it refuses when it is back, for then it is told all that counts."""
        for found in self._refusing.values():
            found.pop(child, None)

    def released(self, name: str, number: int) -> None:
        """Nothing came of what was reserved for the parent, and children are to give it back."""
        self._tell_released(name, number)
        self._forget_if_over(name)

    def fire(self, name: str) -> None:
        """A child was silent for too long."""
        change = self._open.get(name)
        if change is None or change.is_deciding:
            return
        silent = set(change.missing)
        if change.is_decided:
            self._end(name, partial(change.done, silent))
            return
        error = DeadlinePassed(
            f"{', '.join(sorted(silent))} did not answer",
            hint="every broker in the scope has to be there when flooding begins",
        )
        self._give_up(name, refused(error))

    def _tell_dropped(self, name: str, change: FloodingChange) -> None:
        """What was reserved for the parent, and is neither kept nor taken up by a change."""
        number = change.before.reserved_number if change.before is not None else 0
        if number not in {0, change.after.number, change.after.reserved_number}:
            self._tell_released(name, number)

    def _tell_released(self, name: str, number: int) -> None:
        self._tell_children(ReleaseFlooding(term=0, name=name, generation=number))

    def _tell_children(self, word: FloodingOrder) -> None:
        said = structs.replace(word, term=self._context.term)
        for child in sorted(self._context.state.families.children):
            self._context.send_child(child, said)

    @property
    def _depth(self) -> int:
        return self._context.state.depth

    def is_less(self, after: FloodingHeld) -> bool:
        """Whether children would flood nothing by it that they do not flood now."""
        before = self._book.floods.get(after.variable.name)
        if before is None or before.variable != after.variable:
            return False
        return after.terms(self._depth).items() <= before.terms(self._depth).items()

    def _is_charged(self, after: FloodingHeld) -> bool:
        """Whether this broker's own channels are charged for all of it already.

        For what its operators want and what the parent wants they are charged each by itself, also
        where the parent's word is the one that counts.
        """
        before = self._book.floods.get(after.variable.name)
        if before is None or before.variable != after.variable:
            return False
        is_taken_up = after.above.items() <= before.reserved.items() and not after.reserved
        return after.own.items() <= before.own.items() and (
            is_taken_up
            or (
                after.above.items() <= before.above.items()
                and after.reserved.items() <= before.reserved.items()
            )
        )

    def _obstacle(self, change: FloodingChange) -> RefusedOutcome | None:
        """What stands in its way on this broker's own channels."""
        if self._is_charged(change.after):
            return None
        slow = self._book.slow()
        if slow is not None:
            return refused(slow)
        found = self._book.obstacles(change.after)
        return refused(found[0].refusal()) if found else None

    def _decide(self, name: str) -> None:
        change = self._open[name]
        no = self._obstacle(change)
        if no is not None:  # Another variable has had the room meanwhile.
            self._give_up(name, no)
            return
        if change.is_held and self._book.counts_for_another(change.after.variable):
            # What counts under that name stays until the parent has decided, and then gives way.
            self._tell_released(name, change.number)
            self._end(name, partial(change.done, set()))
            return

        change.before = self._book.floods.get(name)
        change.is_deciding = True
        self._context.cancel_timer(FLOOD_TIMER + name)

        def failed(reason: str) -> None:
            if change.unwritten is not None:
                if change.is_asked:
                    self._tell_released(name, change.number)
                self._end(name, partial(change.unwritten, reason))
                return
            self._give_up(name, refused(Refused(f"nothing was changed: {reason}")))

        self._context.decide([change.after], partial(self._decided, name), failed)

    def _decided(self, name: str) -> None:
        change = self._open[name]
        if change.is_held:
            self._end(name, partial(change.done, set()))
            return
        change.is_deciding, change.is_decided = False, True
        change.missing = set(self._context.state.families.children)
        self._set_timer(name)
        self._tell_dropped(name, change)
        self._tell_children(CommitFlooding(term=0, flooded=(change.flooded(self._depth),)))
        self._heard(name, change, "")

    def _heard(self, name: str, change: FloodingChange, child: str) -> None:
        change.missing.discard(child)
        if change.missing:
            return
        if change.is_decided:
            self._end(name, partial(change.done, set()))
        else:
            self._decide(name)

    def _give_up(self, name: str, why: RefusedOutcome) -> None:
        change = self._open[name]
        self._tell_released(name, change.number)
        self._end(name, partial(change.refused, why))

    def _end(self, name: str, then: Callable[[], None]) -> None:
        del self._open[name]
        self._context.cancel_timer(FLOOD_TIMER + name)
        self._forget_if_over(name)
        then()
        while name not in self._open and (waiting := self._waiting.get(name)):
            _, do = waiting.popitem(last=False)
            if not waiting:
                del self._waiting[name]
            do()

    def _forget_if_over(self, name: str) -> None:
        if name not in self._book.floods:
            self._refusing.pop(name, None)

    def _set_timer(self, name: str) -> None:
        levels = 1 + self._context.state.families.height
        self._context.set_timer(
            FLOOD_TIMER + name, levels * self._context.settings.reserve_within_ns
        )
