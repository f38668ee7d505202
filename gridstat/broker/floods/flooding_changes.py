"""Changes of flooding: one at a time for each variable, decided after every child has reserved.

States of a change:

    NEW --capacity has to be reserved--> RESERVING --every child has reserved--> WRITING
    NEW --less than before, or reserved already--> WRITING
    WRITING --durable, and this broker or its parent has decided--> COMMITTING
    WRITING --durable, and only a reservation for the parent--> ENDED
    WRITING --the journal fails--> ENDED
    COMMITTING --every child has committed, or the timer fires--> ENDED
    NEW, RESERVING --a refusal, or the timer fires--> ENDED

Messages. This broker sends `ReserveFlooding`, `CommitFlooding` and `ReleaseFlooding` to all
children. A child answers with `FloodingReserved`, `FloodingCommitted` or `FloodingRefused`, under
the generation of the change. A child sends `FloodingEnded` when nobody publishes the variable.
In WRITING neither an answer nor the timer stops the change.

Timeout. In RESERVING the change is refused and released; in COMMITTING it ends, and its owner
learns which children have not confirmed.

Restart. Only what is written is durable. A child that joins gets every flood that counts in one
`CommitFlooding`, followed by a `ReserveFlooding` for each reservation that is still undecided. The
child releases every reservation that neither message names (presumed abort).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from msgspec import structs

from gridstat.broker.floods.flooding_reservations import flooded_variable, flooded_variables
from gridstat.broker.requests.outcomes import refused
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
    from collections.abc import Iterator, Mapping

    from gridstat.broker.floods.flooding_operations import FloodingHeld
    from gridstat.broker.floods.flooding_reservations import FloodingReservations
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.model.flooding import FloodTerm
    from gridstat.model.status import StatusVariable
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
"""Messages about flooding from a parent to a child."""
FloodingMessage: TypeAlias = FloodingReserved | FloodingRefused | FloodingCommitted | FloodingEnded
"""Messages about flooding from a child to its parent."""


# Purposes of a change: the request to answer when the change ends.


@dataclass(frozen=True, slots=True)
class OperatorRequest:
    """Change that an operator has requested, with the number of the request."""

    peer: str
    request_id: int


@dataclass(frozen=True, slots=True)
class VariableEnded:
    """End of this broker's own flooding, because nobody publishes the variable."""

    message: FloodingEnded


@dataclass(frozen=True, slots=True)
class ParentReservation:
    """Reservation that the parent has requested, and will commit or release."""

    generation: int


@dataclass(frozen=True, slots=True)
class ParentCommit:
    """Change that the parent has decided; `before` counts if there is no capacity for it."""

    before: FloodingHeld
    reply: FloodingCommitted


@dataclass(frozen=True, slots=True)
class ReducedCommit:
    """Part of a refused `ParentCommit` that needs no capacity; the refusal follows it."""

    generation: int
    refusal: RefusedOutcome


Purpose: TypeAlias = (
    OperatorRequest | VariableEnded | ParentReservation | ParentCommit | ReducedCommit
)


# Steps that wait while a change of the same variable is open.


@dataclass(frozen=True, slots=True)
class ReserveStep:
    """Order of the parent to reserve a flood."""

    flooded: FloodedVariable


@dataclass(frozen=True, slots=True)
class CommitStep:
    """Order of the parent to commit a flood."""

    flooded: FloodedVariable


@dataclass(frozen=True, slots=True)
class ReleaseStep:
    """Order of the parent to release a reservation."""

    name: str
    generation: int


@dataclass(frozen=True, slots=True)
class ReleaseUnnamedStep:
    """Release of a reservation unless `committed`, all that the parent has committed, names it."""

    name: str
    committed: Mapping[StatusVariable, int]


@dataclass(frozen=True, slots=True)
class EndStep:
    """Report of a child that nobody publishes the variable any more."""

    message: FloodingEnded


Step: TypeAlias = ReserveStep | CommitStep | ReleaseStep | ReleaseUnnamedStep | EndStep


class ChangeState(Enum):
    """State of a change; the module's docstring draws the transitions."""

    NEW = auto()
    RESERVING = auto()
    WRITING = auto()
    COMMITTING = auto()
    ENDED = auto()


@dataclass(slots=True)
class FloodingChange:
    """One change of what floods; `missing` are children that have not answered in this state."""

    after: FloodingHeld
    purpose: Purpose
    state: ChangeState = ChangeState.NEW
    missing: set[str] = field(default_factory=set)
    was_requested: bool = False
    """True once children were requested to reserve the change."""
    before: FloodingHeld | None = None
    """Flooding that counts while the change is being written, and if the journal fails."""

    @property
    def name(self) -> str:
        return self.after.variable.name

    @property
    def is_reservation(self) -> bool:
        """True if the parent decides later whether the change counts."""
        return isinstance(self.purpose, ParentReservation)

    @property
    def is_decided_above(self) -> bool:
        """True if the parent has to repeat a change that could not be written."""
        return isinstance(self.purpose, ParentCommit | ReducedCommit)

    @property
    def number(self) -> int:
        """Generation under which children know the change."""
        return self.after.reserved_number if self.is_reservation else self.after.number

    def terms(self, depth: int) -> dict[int, FloodTerm]:
        """Return the terms by mode, for a broker at this depth."""
        if self.is_reservation:
            return self.after.reserved_terms(depth)
        return self.after.terms(depth)

    def flooded(self, depth: int) -> FloodedVariable:
        """Return the part of a message that describes the change to children."""
        return flooded_variable(self.after, self.number, self.terms(depth))


class ChangeOwner(Protocol):
    """Component that begins changes, and acts when one has ended."""

    def change_done(self, change: FloodingChange, silent: set[str]) -> None:
        """Handle the end of a change that `silent` children have not confirmed."""

    def change_refused(self, change: FloodingChange, refusal: RefusedOutcome) -> None: ...

    def change_not_written(self, change: FloodingChange, reason: str) -> None: ...

    def run_step(self, step: Step) -> None: ...


class FloodingChanges:
    """Open changes by variable, and the children that refuse to flood what counts."""

    def __init__(
        self, context: TreeContext, reservations: FloodingReservations, owner: ChangeOwner
    ) -> None:
        self._context = context
        self._reservations = reservations
        self._owner = owner
        self._open: dict[str, FloodingChange] = {}
        self._waiting: dict[str, OrderedDict[str | int, Step]] = {}
        """Steps to run after the open change of a variable, by origin or by a serial number."""
        self._waiting_last = 0
        self._refusing: dict[str, dict[str, str]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._open

    def __iter__(self) -> Iterator[str]:
        return iter(self._open)

    def changing(self, name: str) -> StatusVariable | None:
        """Return the variable of the open change of a name, if there is one."""
        change = self._open.get(name)
        return None if change is None else change.after.variable

    def run_when_free(self, name: str, step: Step, only: str = "") -> None:
        """Run a step at once, or in its order after the open change of the variable.

        Of the steps with the same text in `only`, which come from a child, the last one waits, so
        that no child can exhaust the memory.
        """
        if name not in self._open:
            self._owner.run_step(step)
            return
        self._waiting_last += 1
        self._waiting.setdefault(name, OrderedDict())[only or self._waiting_last] = step

    def begin(self, change: FloodingChange, *, is_reserved: bool = False) -> None:
        """Open a change; skip the reservation if all have reserved it, or it needs no capacity."""
        name = change.name
        assert name not in self._open, f"{name} is being changed"
        if self._is_full(change.after):
            self._owner.change_refused(change, refused(_TOO_MANY))
            return
        self._open[name] = change
        if is_reserved or (not change.is_reservation and self.is_less(change.after)):
            self._write(change)
            return
        refusal = self._obstacle(change)
        if refusal is not None:
            self._refuse(change, refusal)
            return
        change.state = ChangeState.RESERVING
        change.missing = set(self._context.state.families.children)
        change.was_requested = True
        self._set_timer(name)
        self._send_children(ReserveFlooding(term=0, flooded=change.flooded(self._depth)))
        self._continue_if_complete(change)

    def _is_full(self, after: FloodingHeld) -> bool:
        """Return whether one more flood is too many: a child gets all of them in one message."""
        if after.has_ended or after.variable.name in self._reservations.floods:
            return False
        return len(self._reservations.floods.keys() | self._open.keys()) >= MANY_MAX

    def child_joined(self, child: str) -> None:
        """Send a child every flood that counts, and every reservation that may still count.

        The first message makes the child forget its reservations, so they are requested again.
        A change that is being written does not count yet: the journal may fail.
        """
        depth, counting = self._depth, self._counting()
        undecided = [held for held in counting if held.reserved_generation]
        whole = CommitFlooding(
            term=self._context.term,
            flooded=flooded_variables(counting, depth),
            is_whole=True,
            in_doubt=tuple(held.variable.name for held in undecided),
        )
        self._context.send_child(child, whole)
        reserving = [
            flooded_variable(held, held.reserved_number, held.reserved_terms(depth))
            for held in undecided
        ]
        committing = []
        for change in self._open.values():
            match change.state:
                case ChangeState.RESERVING:
                    change.missing.add(child)
                    reserving.append(change.flooded(depth))
                case ChangeState.WRITING if change.was_requested:
                    reserving.append(change.flooded(depth))
                case ChangeState.COMMITTING if child in change.missing:
                    # The whole of all floods lacks a flood that ends.
                    committing.append(change.flooded(depth))
                case _:
                    pass
        term = self._context.term
        for flooded in reserving:
            self._context.send_child(child, ReserveFlooding(term=term, flooded=flooded))
        for flooded in committing:
            self._context.send_child(child, CommitFlooding(term=term, flooded=(flooded,)))

    def _counting(self) -> list[FloodingHeld]:
        """Return the durable flooding of each variable, in the order of their names."""
        found: dict[str, FloodingHeld | None] = dict(self._reservations.floods)
        for name, change in self._open.items():
            if change.state is ChangeState.WRITING:
                found[name] = change.before
        return [held for _, held in sorted(found.items()) if held is not None]

    def receive(
        self, child: str, message: FloodingReserved | FloodingRefused | FloodingCommitted
    ) -> None:
        change = self._open.get(message.name)
        if change is not None and change.number != message.generation:
            change = None
        state = ChangeState.ENDED if change is None else change.state
        match message:
            case FloodingReserved():
                if change is not None and state is ChangeState.RESERVING:
                    self._mark_answered(change, child)
            case FloodingCommitted():
                self._refusing.get(message.name, {}).pop(child, None)
                if change is not None and state is ChangeState.COMMITTING:
                    self._mark_answered(change, child)
            case FloodingRefused():
                if change is not None and state is ChangeState.RESERVING:
                    self._release_and_refuse(change, message.refused)
                else:
                    self._record_refusal(child, message)

    def _record_refusal(self, child: str, message: FloodingRefused) -> None:
        """Keep the reason why a child does not flood what counts, for operators."""
        held = self._reservations.floods.get(message.name)
        if held is not None and held.number == message.generation:
            reason = message.refused.reason[:REASON_MAX]
            self._refusing.setdefault(message.name, {})[child] = reason
            self._context.note("flooding_refused", child=child, name=message.name)

    def refusing(self, name: str) -> dict[str, str]:
        """Return the reasons of the children that do not flood what counts."""
        return dict(self._refusing.get(name, {}))

    def child_left(self, child: str) -> None:
        """Forget the refusals of a child: it sends them again after it has joined again."""
        for found in self._refusing.values():
            found.pop(child, None)

    def release(self, name: str, number: int) -> None:
        """Make children release what they had reserved for the parent."""
        self._send_release(name, number)
        self._forget_if_ended(name)

    def expire(self, name: str) -> None:
        """Handle the timer of a change: some children have not answered in time."""
        change = self._open.get(name)
        if change is None:
            return
        silent = set(change.missing)
        match change.state:
            case ChangeState.NEW | ChangeState.RESERVING:
                late = DeadlinePassed(
                    f"{', '.join(sorted(silent))} did not answer",
                    hint="every broker in the scope has to be there when flooding begins",
                )
                self._release_and_refuse(change, refused(late))
            case ChangeState.COMMITTING:
                self._finish(change, silent)
            case ChangeState.WRITING | ChangeState.ENDED:
                pass

    def _send_dropped(self, change: FloodingChange) -> None:
        """Release a reservation for the parent that the change neither keeps nor commits."""
        number = change.before.reserved_number if change.before is not None else 0
        if number not in {0, change.after.number, change.after.reserved_number}:
            self._send_release(change.name, number)

    def _send_release(self, name: str, number: int) -> None:
        self._send_children(ReleaseFlooding(term=0, name=name, generation=number))

    def _send_children(self, message: FloodingOrder) -> None:
        sent = structs.replace(message, term=self._context.term)
        for child in sorted(self._context.state.families.children):
            self._context.send_child(child, sent)

    @property
    def _depth(self) -> int:
        return self._context.state.depth

    def is_less(self, after: FloodingHeld) -> bool:
        """Return whether children already flood everything in `after`."""
        before = self._reservations.floods.get(after.variable.name)
        if before is None or before.variable != after.variable:
            return False
        return after.terms(self._depth).items() <= before.terms(self._depth).items()

    def _is_charged(self, after: FloodingHeld) -> bool:
        """Return whether the own channels are charged for everything in `after` already.

        Requests of operators and of the parent are charged separately, even in a mode in which
        only the request of the parent counts.
        """
        before = self._reservations.floods.get(after.variable.name)
        if before is None or before.variable != after.variable:
            return False
        is_commit_of_reserved = (
            after.above.items() <= before.reserved.items() and not after.reserved
        )
        return after.own.items() <= before.own.items() and (
            is_commit_of_reserved
            or (
                after.above.items() <= before.above.items()
                and after.reserved.items() <= before.reserved.items()
            )
        )

    def _obstacle(self, change: FloodingChange) -> RefusedOutcome | None:
        """Return the refusal if the own channels cannot carry the change."""
        if self._is_charged(change.after):
            return None
        slow = self._reservations.slow()
        if slow is not None:
            return refused(slow)
        found = self._reservations.obstacles(change.after)
        return refused(found[0].refusal()) if found else None

    def _write(self, change: FloodingChange) -> None:
        refusal = self._obstacle(change)
        if refusal is not None:  # Another variable has taken the capacity meanwhile.
            self._release_and_refuse(change, refusal)
            return
        if change.is_reservation and self._reservations.counts_for_another(change.after.variable):
            # Another publication floods under that name, until the parent commits this one.
            self._send_release(change.name, change.number)
            self._finish(change, set())
            return
        # From here on only the journal can stop the change; a child that joins meanwhile gets
        # what counted before.
        change.before = self._reservations.floods.get(change.name)
        change.state = ChangeState.WRITING
        self._context.cancel_timer(FLOOD_TIMER + change.name)
        self._context.decide(
            [change.after], partial(self._written, change), partial(self._not_written, change)
        )

    def _written(self, change: FloodingChange) -> None:
        if change.is_reservation:
            self._finish(change, set())
            return
        change.state = ChangeState.COMMITTING
        change.missing = set(self._context.state.families.children)
        self._set_timer(change.name)
        self._send_dropped(change)
        self._send_children(CommitFlooding(term=0, flooded=(change.flooded(self._depth),)))
        self._continue_if_complete(change)

    def _not_written(self, change: FloodingChange, reason: str) -> None:
        if not change.is_decided_above:
            failure = Refused(f"nothing was changed: {reason}")
            self._release_and_refuse(change, refused(failure))
            return
        if change.was_requested:
            self._send_release(change.name, change.number)
        self._close(change)
        self._owner.change_not_written(change, reason)
        self._run_waiting(change.name)

    def _mark_answered(self, change: FloodingChange, child: str) -> None:
        change.missing.discard(child)
        self._continue_if_complete(change)

    def _continue_if_complete(self, change: FloodingChange) -> None:
        if change.missing:
            return
        if change.state is ChangeState.COMMITTING:
            self._finish(change, set())
        else:
            self._write(change)

    def _release_and_refuse(self, change: FloodingChange, refusal: RefusedOutcome) -> None:
        self._send_release(change.name, change.number)
        self._refuse(change, refusal)

    def _refuse(self, change: FloodingChange, refusal: RefusedOutcome) -> None:
        self._close(change)
        self._owner.change_refused(change, refusal)
        self._run_waiting(change.name)

    def _finish(self, change: FloodingChange, silent: set[str]) -> None:
        self._close(change)
        self._owner.change_done(change, silent)
        self._run_waiting(change.name)

    def _close(self, change: FloodingChange) -> None:
        change.state = ChangeState.ENDED
        del self._open[change.name]
        self._context.cancel_timer(FLOOD_TIMER + change.name)
        self._forget_if_ended(change.name)

    def _run_waiting(self, name: str) -> None:
        while name not in self._open and (waiting := self._waiting.get(name)):
            _, step = waiting.popitem(last=False)
            if not waiting:
                del self._waiting[name]
            self._owner.run_step(step)

    def _forget_if_ended(self, name: str) -> None:
        if name not in self._reservations.floods:
            self._refusing.pop(name, None)

    def _set_timer(self, name: str) -> None:
        levels = 1 + self._context.state.families.height
        self._context.set_timer(
            FLOOD_TIMER + name, levels * self._context.settings.reserve_within_ns
        )
