"""Flooding asked of a broker above clouds, by its operators or its parent (S0 A12).

A scope is this broker's depth or what its parent said, passed down unchanged. Every child reserves
room for it, or none floods; `flooding_changes.py` sees to that, `flooding_book.py` keeps it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import structs

from gridstat.broker.flooding_pages import page_of, refusing_facts
from gridstat.broker.requests.outcomes import refused
from gridstat.broker.tree.flooding_changes import FloodingChange, FloodingChanges
from gridstat.broker.tree.flooding_operations import FloodingHeld
from gridstat.broker.tree.flooding_reservations import flooded_of
from gridstat.model.errors import (
    DeadlinePassed,
    GridStatError,
    LinkDown,
    ModeNotDefined,
    Refused,
    StorageFailed,
)
from gridstat.model.flooding import (
    NO_GENERATION,
    FloodTerm,
    beside,
    checked_every,
    checked_modes,
    overrides,
    without,
)
from gridstat.model.qos import check_modes_defined, undefined_modes
from gridstat.net.command.operator_messages import (
    ListFlooding,
    OperatorAnswer,
    RemoveFlooding,
    SetFlooding,
)
from gridstat.net.command.tree_messages import (
    CommitFlooding,
    FloodedVariable,
    FloodingCommitted,
    FloodingEnded,
    FloodingRefused,
    FloodingReserved,
    ReleaseFlooding,
    ReserveFlooding,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from gridstat.broker.tree.flooding_changes import FloodingMessage, FloodingOrder
    from gridstat.broker.tree.flooding_reservations import FloodingReservations
    from gridstat.broker.tree.publication_lookups import PublicationLookups
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import RefusedOutcome
    from gridstat.net.command.segment_messages import LookedUp


FloodingCommand: TypeAlias = SetFlooding | RemoveFlooding | ListFlooding
SILENCES: Final = frozenset({LinkDown.code, DeadlinePassed.code})
"""Refusals by which nobody says that there is no room."""


class TreeFlooding:
    """Flooding of this broker's scope, as its operators and its parent request it."""

    def __init__(
        self, context: TreeContext, book: FloodingReservations, lookups: PublicationLookups
    ) -> None:
        self._context = context
        self._book = book
        self._lookups = lookups
        self._changes = FloodingChanges(context, book)
        self._unconfirmed = Unconfirmed(book)

    def child_joined(self, child: str) -> None:
        """A child is there: it hears all that counts."""
        self._unconfirmed.joined(child)
        self._changes.joined(child)

    def child_left(self, child: str) -> None:
        """A child is gone, for now or for good."""
        self._changes.left(child)

    def place_changed(self) -> None:
        """This broker stands elsewhere now, and with it every scope that is its own."""
        for child in sorted(self._context.joined):
            self._changes.joined(child)

    def names(self) -> set[str]:
        """The variables that flood, and those whose flooding is just beginning or ending."""
        return {*self._book.floods, *self._changes}

    def orphaned(self, term: int) -> list[FloodingHeld]:
        """At a start: without a parent nothing counts that one had said, and nobody will end it."""
        if self._context.has_parent:
            return []
        return [
            FloodingHeld(variable=held.variable, number=self._book.next_number(term), own=held.own)
            for held in self._book.floods.values()
            if held.above or held.reserved
        ]

    def fire(self, name: str) -> None:
        """The timer of a change has run out."""
        self._changes.fire(name)

    # Operators.

    def take(self, peer: str, command: FloodingCommand) -> None:
        asker = Asker(self._context, peer, command.request_id)
        try:
            match command:
                case ListFlooding():
                    asker.answer(page_of(self._book.floods, command.after, self._facts))
                case RemoveFlooding():
                    self._remove(command, asker)
                case SetFlooding():
                    modes = checked_modes(command.modes)
                    check_modes_defined(modes, self._context.settings.modes_defined)
                    checked_every(command.every)
                    check_placed(self._context)
                    self._check_free(command.name)
                    check_present(self._context)
                    self._lookups.find(command.name, partial(self._set, command, asker))
        except GridStatError as error:
            asker.refuse(refused(error))

    def _set(self, command: SetFlooding, asker: Asker, found: LookedUp) -> None:
        if found.variable is None:
            asker.refuse(found.refused or refused(Refused(f"{command.name} was not found")))
            return
        try:
            self._check_free(command.name)
            check_kind(found.variable, command.every)
        except GridStatError as error:
            asker.refuse(refused(error))
            return
        self._release_absent(command.name)
        before = self._held(found.variable)
        terms = dict.fromkeys(checked_modes(command.modes), FloodTerm(0, command.every))
        self._change_own(structs.replace(before, own={**before.own, **terms}), asker)

    def _remove(self, command: RemoveFlooding, asker: Asker) -> None:
        """Less needs no room, so it need not wait for what the parent has only reserved."""
        self._check_unchanging(command.name)
        modes = checked_modes(command.modes) if command.modes else ()
        before = self._book.floods.get(command.name)
        if before is None:
            asker.answer(self._facts(command.name))
            return
        self._change_own(structs.replace(before, own=without(before.own, modes)), asker)

    def _change_own(self, after: FloodingHeld, asker: Asker | Insistence) -> None:
        """Decided here, once all children have reserved."""
        name = after.variable.name
        after = structs.replace(after, number=self._next_number())

        def done(silent: set[str]) -> None:
            self._unconfirmed.put(name, silent)
            asker.answer({**self._facts(name), "unconfirmed": sorted(silent)})

        self._changes.begin(FloodingChange(after, done, asker.refuse))

    def _check_unchanging(self, name: str) -> None:
        if name in self._changes:
            raise Refused(
                f"the flooding of {name[:80]} is being changed", hint="ask again in a few seconds"
            )

    def _check_free(self, name: str) -> None:
        held = self._book.floods.get(name)
        self._check_unchanging(name)
        if held is not None and held.reserved_generation and self._context.is_parent_joined:
            parent = self._context.settings.parent
            raise Refused(
                f"broker {parent} is changing the flooding of {name[:80]}, and has not decided yet",
                hint=f"ask again in a few seconds; if that does not help, is all well at {parent}?",
            )

    def _release_absent(self, name: str) -> None:
        """A parent that is away blocks nobody: once back it finds room again, or is refused."""
        held = self._book.floods.get(name)
        if held is not None and held.reserved_generation:
            self._release(name, held.reserved_generation)

    # The parent.

    def obey(self, order: FloodingOrder) -> None:
        """Whatever the parent says twice is answered twice alike."""
        match order:
            case ReserveFlooding(flooded=flooded):
                self._when_free(flooded.variable.name, partial(self._reserve, flooded))
            case CommitFlooding(flooded=many):
                if order.is_whole:
                    told = {each.variable: each.generation for each in many}
                    self._forget_others(told, order.in_doubt)
                for flooded in many:
                    self._when_free(flooded.variable.name, partial(self._commit_above, flooded))
            case ReleaseFlooding(name=name, generation=generation):
                self._when_free(name, partial(self._release, name, generation))

    def _when_free(self, name: str, do: Callable[[], None]) -> None:
        self._changes.when_free(name, do)

    def _reserve(self, flooded: FloodedVariable) -> None:
        name, generation = flooded.variable.name, flooded.generation
        before = self._held(flooded.variable)
        told = FloodingReserved(term=0, name=name, generation=generation)
        has_room = before.has_reserved(generation, flooded.terms)
        if has_room or before.has_committed(generation, flooded.terms):
            self._tell_parent(told)
            return
        try:
            self._check_modes(flooded)
            check_present(self._context)
        except GridStatError as error:
            self._refuse_parent(name, generation, refused(error))
            return
        after = structs.replace(
            before,
            reserved=flooded.terms,
            reserved_generation=generation,
            reserved_number=self._next_number(),
        )
        change = FloodingChange(
            after,
            lambda _: self._tell_parent(told),
            partial(self._refuse_parent, name, generation),
            is_held=True,
        )
        self._changes.begin(change)

    def _commit_above(self, flooded: FloodedVariable) -> None:
        """What was reserved counts. What never was, as after a loss, is reserved first."""
        name, generation = flooded.variable.name, flooded.generation
        before = self._held(flooded.variable)
        told = FloodingCommitted(term=0, name=name, generation=generation)
        if not flooded.terms and self._book.is_of_another(flooded.variable):
            self._tell_parent(told)  # The parent ends what is over here; another has its name.
            return
        if before.has_committed(generation, flooded.terms):
            self._tell_parent(told)
            self._ask_below(before)
            return
        is_reserved = before.has_reserved(generation, flooded.terms)
        try:
            self._check_modes(flooded)
        except ModeNotDefined as error:
            self._refuse_parent(name, generation, refused(error))
            return
        after = structs.replace(
            before,
            number=before.reserved_number if is_reserved else self._next_number(),
            above=flooded.terms,
            generation=generation,
        )
        if is_reserved or not self._changes.is_less(after):
            after = after.released()
        self._commit_with(after, told, is_reserved=is_reserved)

    def _check_modes(self, flooded: FloodedVariable) -> None:
        """Refuse undefined modes that are new; those of an older release's journal may stay."""
        held = self._book.floods.get(flooded.variable.name)
        known = set() if held is None else held.modes
        check_modes_defined(flooded.terms.keys() - known, self._context.settings.modes_defined)

    def _ask_below(self, held: FloodingHeld) -> None:
        """That the variable is gone may have been said, and lost above: its cloud says it again."""
        child = self._context.state.families.child_at(held.variable.name)
        terms = held.terms(self._context.state.depth)
        if child is not None and terms:
            flooded = flooded_of(held, held.number, terms)
            self._context.send_child(
                child, CommitFlooding(term=self._context.term, flooded=(flooded,))
            )

    def _commit_with(
        self, after: FloodingHeld, told: FloodingCommitted, *, is_reserved: bool = False
    ) -> None:
        before = self._held(after.variable)

        def no(why: RefusedOutcome) -> None:
            own = beside(after.own, before.above)
            again = structs.replace(after, number=self._next_number())
            if why.code in SILENCES and not self._book.counts_for_another(after.variable):
                # It is decided above. Whoever is away hears of it when it is back, and refuses it
                # then if it has no room.
                self._commit_with(again, told, is_reserved=True)
            elif after.above.items() <= before.above.items() and own != after.own:
                # The parent takes its request back, and there is no room for ours behind it.
                self._context.note("flooding_given_up", name=told.name)
                self._commit_with(structs.replace(again, own=own), told)
            else:
                refuse = partial(self._refuse_parent, told.name, told.generation, why)
                self._keep_common(before, after, refuse)

        def done(silent: set[str]) -> None:
            self._unconfirmed.put(told.name, silent)
            self._tell_parent(told)

        change = FloodingChange(after, done, no, self._leave_parent)
        self._changes.begin(change, is_reserved=is_reserved)

    def _keep_common(
        self, before: FloodingHeld, after: FloodingHeld, then: Callable[[], None]
    ) -> None:
        """There is no room for all that the parent wants; what it wants no more ends even so."""
        common = dict(before.above.items() & after.above.items())
        if common == before.above:
            then()
            return
        kept = structs.replace(before, above=common, number=self._next_number())
        change = FloodingChange(kept, lambda _: then(), lambda _: then(), self._leave_parent)
        self._changes.begin(change, is_reserved=True)

    def _release(self, name: str, generation: int) -> None:
        held = self._book.floods.get(name)
        if held is None or held.reserved_generation != generation:
            return
        after = held.released()
        released = partial(self._changes.released, name, held.reserved_number)
        self._context.decide([after], released, self._leave_parent)

    def _forget_others(self, told: Mapping[StatusVariable, int], in_doubt: Collection[str]) -> None:
        """Of what the parent did not name nothing counts, nor what it no longer has in mind.

        That goes for what is only now being reserved, too.
        """
        for name in sorted(self.names()):
            if name not in in_doubt:
                self._when_free(name, partial(self._release_other, name, told))
            held = self._book.floods.get(name)
            if held is not None and held.above and held.variable not in told:
                gone = FloodedVariable(variable=held.variable, generation=NO_GENERATION)
                self._when_free(name, partial(self._commit_above, gone))

    def _release_other(self, name: str, told: Mapping[StatusVariable, int]) -> None:
        """What is reserved stays only if it is just that which counts now."""
        held = self._book.floods.get(name)
        if held is not None and held.reserved_generation not in {0, told.get(held.variable)}:
            self._release(name, held.reserved_generation)

    # The children.

    def hear(self, child: str, word: FloodingMessage) -> None:
        if isinstance(word, FloodingEnded):
            self._changes.when_free(word.name, partial(self._ended, word), child)
            return
        if isinstance(word, FloodingCommitted):
            self._unconfirmed.confirmed(word.name, child)
        self._changes.hear(child, word)

    def _ended(self, word: FloodingEnded) -> None:
        """Nobody publishes it any more: this broker's own request is over, and the parent hears."""
        held = self._book.floods.get(word.name)
        self._tell_parent(word)
        if held is None or word.variable_id not in {0, held.variable.variable_id}:
            return  # Another variable has its name by now.
        if held.own:
            again = partial(self._when_free, word.name, partial(self._ended, word))
            insistence = Insistence(partial(self._context.later, again))
            self._change_own(structs.replace(held, own={}), insistence)

    # Words.

    def _next_number(self) -> int:
        return self._book.next_number(self._context.term)

    def _held(self, variable: StatusVariable) -> FloodingHeld:
        found = self._book.floods.get(variable.name)
        if found is None or found.variable != variable:
            return FloodingHeld(variable=variable, number=0)
        return found

    def _refuse_parent(self, name: str, generation: int, why: RefusedOutcome) -> None:
        word = FloodingRefused(term=0, name=name, generation=generation, refused=why)
        self._tell_parent(word)

    def _leave_parent(self, reason: str) -> None:
        """What could not be written the parent has to say again: it does so at the next joining."""
        error = StorageFailed(f"flooding could not be changed: {reason}")
        self._context.close(f"broker/{self._context.settings.parent}", error)

    def _tell_parent(self, word: FloodingMessage) -> None:
        self._context.send_parent(structs.replace(word, term=self._context.term))

    def _facts(self, name: str) -> Facts:
        defined = self._context.settings.modes_defined
        facts = facts_of(name, self._book.floods.get(name), self._context.state.depth, defined)
        if facts["modes"]:
            facts["refusing"] = refusing_facts(self._changes.refusing(name))
            facts["unconfirmed"] = self._unconfirmed.by(name)
        return facts


# What operators of a broker above clouds are answered about flooding.

Facts = dict[str, Any]


class Asker:
    """An operator and the number of its question; it is told once."""

    def __init__(self, context: TreeContext, peer: str, request_id: int) -> None:
        self._context = context
        self._peer = peer
        self._request_id = request_id

    def answer(self, facts: Facts) -> None:
        self._context.send(self._peer, OperatorAnswer(request_id=self._request_id, facts=facts))

    def refuse(self, no: RefusedOutcome) -> None:
        self._context.send(self._peer, OperatorAnswer(request_id=self._request_id, refused=no))


class Insistence:
    """Nobody asked, and it has to be: what could not be written is tried again."""

    def __init__(self, again: Callable[[], None]) -> None:
        self._again = again

    def answer(self, facts: Facts) -> None:
        """Nobody waits for it."""

    def refuse(self, no: RefusedOutcome) -> None:
        del no
        self._again()


class Unconfirmed:
    """Who has not confirmed how a variable floods since that last changed."""

    def __init__(self, book: FloodingReservations) -> None:
        self._book = book
        self._silent: dict[str, set[str]] = {}

    def by(self, name: str) -> list[str]:
        return sorted(self._silent.get(name, ()))

    def put(self, name: str, silent: set[str]) -> None:
        self._silent.pop(name, None)
        if silent and name in self._book.floods:
            self._silent[name] = silent

    def confirmed(self, name: str, child: str) -> None:
        self.put(name, self._silent.get(name, set()) - {child})

    def joined(self, child: str) -> None:
        """It is told all that counts, and floods or refuses it from now on."""
        for name in list(self._silent):
            self.confirmed(name, child)


def facts_of(name: str, held: FloodingHeld | None, depth: int, defined: Collection[int]) -> Facts:
    """How a variable floods, mode by mode, and whose request that is."""
    if held is None:
        return {"name": name, "modes": []}
    return {
        "name": name,
        "variable_id": held.variable.variable_id,
        "modes": [
            {
                "mode": mode,
                "level": term.level,
                "every": term.every,
                "asked_by": "parent" if mode in held.above else "operator",
                "overrides_operator": overrides(mode, held.own, held.above),
                "is_defined": not undefined_modes((mode,), defined),
            }
            for mode, term in held.terms(depth).items()
        ],
    }


# What has to be the case before a broker above clouds asks its children to flood anything.


def check_placed(context: TreeContext) -> None:
    """Channels get their numbers with the broker's place, and what floods keeps those."""
    if not context.is_placed:
        raise Refused(
            "this broker has not heard from its parent yet where it stands in the tree",
            hint=f"is broker {context.settings.parent} running? Try again then",
        )


def check_present(context: TreeContext) -> None:
    """A child that is away cannot reserve: better told at once than when time has run out."""
    absent = context.state.families.children.keys() - context.joined
    if absent:
        raise LinkDown(
            f"{', '.join(sorted(absent))} below {context.settings.name} cannot be reached",
            hint="every broker in the scope has to be there when flooding begins",
        )


def check_kind(variable: StatusVariable, every: int) -> None:
    if variable.is_replay:
        raise Refused(f"{variable.name} is replayed: replay is never flooded")
    if variable.period is None and every > 1:
        raise Refused(f"{variable.name} is aperiodic and has no slots to leave out")
