"""Flooding of a broker's scope, as its operators and its parent request it (S0 A12).

The scope level is this broker's depth, or the level that the parent has sent, which is passed down
unchanged. Either every child reserves capacity for a flood, or no child floods.

`flooding_changes.py` carries out each change in two phases and draws its states. This module
decides which change a request needs, and answers the request when the change has ended.
`flooding_reservations.py` keeps what floods, durably.

The parent sends `ReserveFlooding`, `CommitFlooding` and `ReleaseFlooding`; every order that is
repeated gets the same reply again. The parent has decided before it sends `CommitFlooding`, so a
commit is refused only if a child has no capacity: a child that is away gets the commit when it
joins. A parent that does not get a reply repeats its orders when this broker joins again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import structs

from gridstat.broker.floods.flooding_admission import flooding_refusal
from gridstat.broker.floods.flooding_changes import (
    FLOOD_TIMER,
    CommitStep,
    EndStep,
    FloodingChange,
    FloodingChanges,
    OperatorRequest,
    ParentCommit,
    ParentReservation,
    ReducedCommit,
    ReleaseStep,
    ReleaseUnnamedStep,
    ReserveStep,
    VariableEnded,
)
from gridstat.broker.floods.flooding_operations import FloodingHeld
from gridstat.broker.floods.flooding_pages import page_of, refusing_facts
from gridstat.broker.floods.flooding_reservations import FloodingReservations, flooded_variable
from gridstat.broker.requests.outcomes import refused
from gridstat.broker.tree.tree_capability import FromChild, TreeCapability
from gridstat.model.errors import (
    DeadlinePassed,
    GridStatError,
    LinkDown,
    ModeNotDefined,
    Refused,
    StillInUse,
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
    AddChannel,
    ListFlooding,
    OperatorAnswer,
    RemoveChannel,
    RemoveChild,
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
    from collections.abc import Collection, Mapping

    from gridstat.broker.floods.flooding_changes import FloodingMessage, FloodingOrder, Step
    from gridstat.broker.tree.publication_lookups import PublicationLookups
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import RefusedOutcome
    from gridstat.net.command.segment_messages import LookedUp


FloodingCommand: TypeAlias = SetFlooding | RemoveFlooding | ListFlooding
SILENCES: Final = frozenset({LinkDown.code, DeadlinePassed.code})
"""Codes of refusals that say that a child is away, not that it has no capacity."""


class TreeFlooding:
    """Flooding of this broker's scope, as its operators and its parent request it."""

    def __init__(self, context: TreeContext, lookups: PublicationLookups) -> None:
        self._context = context
        self._lookups = lookups
        self.reservations = FloodingReservations(context.state.channels)
        self._changes = FloodingChanges(context, self.reservations, self)
        self._unconfirmed = UnconfirmedChildren(self.reservations)

    @property
    def floods(self) -> dict[str, FloodingHeld]:
        """Everything that floods the scope, by variable."""
        return self.reservations.floods

    def capability(self) -> TreeCapability:
        """Return the registration of flooding."""
        receive = FromChild(self.receive)
        return TreeCapability(
            name="floods",
            child_messages={
                FloodingReserved: receive,
                FloodingRefused: receive,
                FloodingCommitted: receive,
                FloodingEnded: FromChild(self.receive, self._is_published_below),
            },
            parent_messages={
                ReserveFlooding: self.obey,
                CommitFlooding: self.obey,
                ReleaseFlooding: self.obey,
            },
            operator_commands={
                SetFlooding: self.take,
                RemoveFlooding: self.take,
                ListFlooding: self.take,
            },
            objections={
                AddChannel: self._object_to_channel,
                RemoveChannel: self._object_to_channel_removal,
                RemoveChild: self._object_to_child_removal,
            },
            operations={FloodingHeld: self.reservations.apply},
            snapshot=self.reservations.operations,
            orphaned=self._orphaned,
            is_holding=self._is_flooding,
            channel_added=self.reservations.channel_added,
            channel_removed=self.reservations.channel_removed,
            named_timers={FLOOD_TIMER: self._changes.expire},
            resume=self._warn_of_undefined_modes,
            child_joined=self.child_joined,
            child_left=self._changes.child_left,
            place_changed=self.place_changed,
        )

    def _is_published_below(self, child: str, message: FloodingEnded) -> bool:
        return self._context.state.families.child_at(message.name) == child

    def _is_flooding(self) -> bool:
        return bool(self.floods)

    def child_joined(self, child: str) -> None:
        """Send a child that has joined every flood that counts."""
        self._unconfirmed.child_joined(child)
        self._changes.child_joined(child)

    def place_changed(self) -> None:
        """Send every flood again, because the scope level of own floods is the new depth."""
        for child in sorted(self._context.joined):
            self._changes.child_joined(child)

    def names(self) -> set[str]:
        """Return the variables that flood, or whose flooding is being changed."""
        return {*self.floods, *self._changes}

    def _orphaned(self, term: int) -> list[FloodingHeld]:
        """Return operations that end floods of a former parent, at a start without a parent."""
        return [
            FloodingHeld(
                variable=held.variable, number=self.reservations.next_number(term), own=held.own
            )
            for held in self.floods.values()
            if held.above or held.reserved
        ]

    def _warn_of_undefined_modes(self) -> None:
        """Warn of floods in undefined modes, which a journal of an older release may contain."""
        defined = self._context.settings.modes_defined
        unknown = {
            name: found
            for name, held in self.floods.items()
            if (found := undefined_modes(held.modes, defined))
        }
        if unknown:
            modes = ",".join(map(str, sorted(set().union(*unknown.values()))))
            self._context.warn("modes_not_defined", modes=modes, floods=len(unknown))

    def refusing(self, name: str) -> dict[str, str]:
        """Return the reasons of the children that do not flood what counts."""
        return self._changes.refusing(name)

    # Operators.

    def take(self, peer: str, command: FloodingCommand) -> None:
        request = OperatorRequest(peer, command.request_id)
        try:
            match command:
                case ListFlooding():
                    floods = self.floods
                    self._answer(request, page_of(floods, command.after, self._facts))
                case RemoveFlooding():
                    self._remove(command, request)
                case SetFlooding():
                    modes = checked_modes(command.modes)
                    check_modes_defined(modes, self._context.settings.modes_defined)
                    checked_every(command.every)
                    check_placed(self._context)
                    self._check_free(command.name)
                    check_present(self._context)
                    self._lookups.look_up_for_operator(command.name, self, (command, request))
        except GridStatError as error:
            self._refuse(request, refused(error))

    def looked_up(self, request: tuple[SetFlooding, OperatorRequest], found: LookedUp) -> None:
        """Continue the command of an operator with the answer to its look-up."""
        self._set(*request, found)

    def _set(self, command: SetFlooding, request: OperatorRequest, found: LookedUp) -> None:
        if found.variable is None:
            missing = Refused(f"{command.name} was not found")
            self._refuse(request, found.refused or refused(missing))
            return
        try:
            self._check_free(command.name)
            check_kind(found.variable, command.every)
        except GridStatError as error:
            self._refuse(request, refused(error))
            return
        self._release_absent(command.name)
        before = self._held(found.variable)
        terms = dict.fromkeys(checked_modes(command.modes), FloodTerm(0, command.every))
        self._change_own(structs.replace(before, own={**before.own, **terms}), request)

    def _remove(self, command: RemoveFlooding, request: OperatorRequest) -> None:
        """Remove modes at once: less needs no capacity, whatever the parent has reserved."""
        self._check_unchanging(command.name)
        modes = checked_modes(command.modes) if command.modes else ()
        before = self.floods.get(command.name)
        if before is None:
            self._answer(request, self._facts(command.name))
            return
        self._change_own(structs.replace(before, own=without(before.own, modes)), request)

    def _change_own(self, after: FloodingHeld, purpose: OperatorRequest | VariableEnded) -> None:
        after = structs.replace(after, number=self._next_number())
        self._changes.begin(FloodingChange(after, purpose))

    def _answer(self, request: OperatorRequest, facts: Facts) -> None:
        answer = OperatorAnswer(request_id=request.request_id, facts=facts)
        self._context.send(request.peer, answer)

    def _refuse(self, request: OperatorRequest, refusal: RefusedOutcome) -> None:
        answer = OperatorAnswer(request_id=request.request_id, refused=refusal)
        self._context.send(request.peer, answer)

    def _check_unchanging(self, name: str) -> None:
        if name in self._changes:
            raise Refused(
                f"the flooding of {name[:80]} is being changed",
                hint="try again in a few seconds",
            )

    def _check_free(self, name: str) -> None:
        held = self.floods.get(name)
        self._check_unchanging(name)
        if held is not None and held.reserved_generation and self._context.is_parent_joined:
            parent = self._context.settings.parent
            raise Refused(
                f"broker {parent} is changing the flooding of {name[:80]}, and has not decided yet",
                hint=f"try again in a few seconds; if that does not help, is all well at {parent}?",
            )

    def _release_absent(self, name: str) -> None:
        """Release a reservation of an absent parent, which reserves again once it is back."""
        held = self.floods.get(name)
        if held is not None and held.reserved_generation:
            self._release(name, held.reserved_generation)

    # Objections to other commands of operators.

    def _object_to_channel(self, command: AddChannel) -> RefusedOutcome | None:
        """Refuse a channel that cannot carry all floods from its start."""
        channel, channels = command.channel, self._context.state.channels
        refusal = flooding_refusal(
            channel,
            self.reservations.taken(),
            is_ipv6=channels.is_ipv6(channel),
        )
        return None if refusal is None else refused(refusal)

    def _object_to_channel_removal(self, command: RemoveChannel) -> RefusedOutcome | None:
        del command
        flooded = self.floods
        if not flooded:
            return None
        in_use = StillInUse(
            f"{len(flooded)} variables flood every channel of this broker",
            hint="stop the flooding first: `gridstat flood --list`",
        )
        return refused(in_use)

    def _object_to_child_removal(self, command: RemoveChild) -> RefusedOutcome | None:
        flooding = self.names()
        if not flooding:
            return None
        in_use = StillInUse(
            f"{len(flooding)} variables flood the scope of this broker, and {command.name} would "
            "not be notified when they end",
            hint="stop the flooding first: `gridstat flood --list`",
        )
        return refused(in_use)

    # The parent.

    def obey(self, order: FloodingOrder) -> None:
        """Carry out an order of the parent, after the open change of the variable if any."""
        match order:
            case ReserveFlooding(flooded=flooded):
                self._changes.run_when_free(flooded.variable.name, ReserveStep(flooded))
            case CommitFlooding(flooded=many):
                if order.is_whole:
                    committed = {each.variable: each.generation for each in many}
                    self._release_unnamed(committed, order.in_doubt)
                for flooded in many:
                    self._changes.run_when_free(flooded.variable.name, CommitStep(flooded))
            case ReleaseFlooding(name=name, generation=generation):
                self._changes.run_when_free(name, ReleaseStep(name, generation))

    def run_step(self, step: Step) -> None:
        match step:
            case ReserveStep(flooded):
                self._reserve(flooded)
            case CommitStep(flooded):
                self._commit(flooded)
            case ReleaseStep(name, generation):
                self._release(name, generation)
            case ReleaseUnnamedStep(name, committed):
                self._release_if_unnamed(name, committed)
            case EndStep(message):
                self._end(message)

    def change_done(self, change: FloodingChange, silent: set[str]) -> None:
        name = change.name
        match change.purpose:
            case OperatorRequest() as request:
                self._unconfirmed.set(name, silent)
                self._answer(request, {**self._facts(name), "unconfirmed": sorted(silent)})
            case VariableEnded():
                self._unconfirmed.set(name, silent)
            case ParentReservation(generation):
                self._send_reserved(name, generation)
            case ParentCommit(reply=reply):
                self._unconfirmed.set(name, silent)
                self._send_parent(reply)
            case ReducedCommit(generation, refusal):
                self._refuse_parent(name, generation, refusal)

    def change_refused(self, change: FloodingChange, refusal: RefusedOutcome) -> None:
        match change.purpose:
            case OperatorRequest() as request:
                self._refuse(request, refusal)
            case VariableEnded(message):
                # Nobody waits for an answer, but the flood has to end: try again later.
                again = partial(self._changes.run_when_free, message.name, EndStep(message))
                self._context.later(again)
            case ParentReservation(generation):
                self._refuse_parent(change.name, generation, refusal)
            case ParentCommit() as commit:
                self._commit_refused(change.after, commit, refusal)
            case ReducedCommit(generation, first_refusal):
                self._refuse_parent(change.name, generation, first_refusal)

    def change_not_written(self, change: FloodingChange, reason: str) -> None:
        del change
        self._leave_parent(reason)

    def _reserve(self, flooded: FloodedVariable) -> None:
        name, generation = flooded.variable.name, flooded.generation
        before = self._held(flooded.variable)
        is_reserved = before.has_reserved(generation, flooded.terms)
        if is_reserved or before.has_committed(generation, flooded.terms):
            self._send_reserved(name, generation)
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
        self._changes.begin(FloodingChange(after, ParentReservation(generation)))

    def _commit(self, flooded: FloodedVariable) -> None:
        """Commit what is reserved; reserve first if nothing is, as after the loss of a journal."""
        name, generation = flooded.variable.name, flooded.generation
        before = self._held(flooded.variable)
        reply = FloodingCommitted(term=0, name=name, generation=generation)
        if not flooded.terms and self.reservations.is_of_another(flooded.variable):
            # The parent ends a flood that has ended here; another variable has its name.
            self._send_parent(reply)
            return
        if before.has_committed(generation, flooded.terms):
            self._send_parent(reply)
            self._commit_again_below(before)
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
        self._begin_commit(after, reply, is_reserved=is_reserved)

    def _check_modes(self, flooded: FloodedVariable) -> None:
        """Refuse new modes that are not defined; modes in an older release's journal may stay."""
        held = self.floods.get(flooded.variable.name)
        known = set() if held is None else held.modes
        check_modes_defined(flooded.terms.keys() - known, self._context.settings.modes_defined)

    def _commit_again_below(self, held: FloodingHeld) -> None:
        """Send a commit to the publisher's child, which sends `FloodingEnded` again if it is due.

        The parent may have lost the first one.
        """
        child = self._context.state.families.child_at(held.variable.name)
        terms = held.terms(self._context.state.depth)
        if child is not None and terms:
            flooded = flooded_variable(held, held.number, terms)
            self._context.send_child(
                child, CommitFlooding(term=self._context.term, flooded=(flooded,))
            )

    def _begin_commit(
        self, after: FloodingHeld, reply: FloodingCommitted, *, is_reserved: bool = False
    ) -> None:
        purpose = ParentCommit(self._held(after.variable), reply)
        self._changes.begin(FloodingChange(after, purpose), is_reserved=is_reserved)

    def _commit_refused(
        self, after: FloodingHeld, commit: ParentCommit, refusal: RefusedOutcome
    ) -> None:
        before, reply = commit.before, commit.reply
        own = beside(after.own, before.above)
        again = structs.replace(after, number=self._next_number())
        counts_for_another = self.reservations.counts_for_another(after.variable)
        if refusal.code in SILENCES and not counts_for_another:
            # The parent has decided. An absent child gets the commit when it joins, and refuses
            # it then if it has no capacity.
            self._begin_commit(again, reply, is_reserved=True)
        elif after.above.items() <= before.above.items() and own != after.own:
            # The parent withdraws its request, and there is no capacity for the own one behind it.
            self._context.note("flooding_given_up", name=reply.name)
            self._begin_commit(structs.replace(again, own=own), reply)
        else:
            self._commit_reduced(before, after, ReducedCommit(reply.generation, refusal))

    def _commit_reduced(
        self, before: FloodingHeld, after: FloodingHeld, purpose: ReducedCommit
    ) -> None:
        """End what the parent no longer requests, although there is no capacity for the rest."""
        common = dict(before.above.items() & after.above.items())
        if common == before.above:
            self._refuse_parent(after.variable.name, purpose.generation, purpose.refusal)
            return
        reduced = structs.replace(before, above=common, number=self._next_number())
        self._changes.begin(FloodingChange(reduced, purpose), is_reserved=True)

    def _release(self, name: str, generation: int) -> None:
        held = self.floods.get(name)
        if held is None or held.reserved_generation != generation:
            return
        after = held.released()
        released = partial(self._changes.release, name, held.reserved_number)
        self._context.decide([after], released, self._leave_parent)

    def _release_unnamed(
        self, committed: Mapping[StatusVariable, int], in_doubt: Collection[str]
    ) -> None:
        """End what the parent's whole list does not name, and release what it no longer intends.

        Reservations that are only now being made are included.
        """
        for name in sorted(self.names()):
            if name not in in_doubt:
                self._changes.run_when_free(name, ReleaseUnnamedStep(name, committed))
            held = self.floods.get(name)
            if held is not None and held.above and held.variable not in committed:
                ended = FloodedVariable(variable=held.variable, generation=NO_GENERATION)
                self._changes.run_when_free(name, CommitStep(ended))

    def _release_if_unnamed(self, name: str, committed: Mapping[StatusVariable, int]) -> None:
        """Release a reservation unless it is the generation that the parent has committed."""
        held = self.floods.get(name)
        if held is not None and held.reserved_generation not in {0, committed.get(held.variable)}:
            self._release(name, held.reserved_generation)

    # Messages of children.

    def receive(self, child: str, message: FloodingMessage) -> None:
        if isinstance(message, FloodingEnded):
            self._variable_ended(child, message)
            return
        if isinstance(message, FloodingCommitted):
            self._unconfirmed.confirm(message.name, child)
        self._changes.receive(child, message)

    def _variable_ended(self, child: str, message: FloodingEnded) -> None:
        """End the flood of a variable when its open change has ended, and notify the parent.

        Another variable of the same name may have ended in the meantime, so the ends of each wait.
        """
        held, number = self.floods.get(message.name), message.variable_id
        some = (None if held is None else held.variable, self._changes.changing(message.name))
        if number and number not in {found.variable_id for found in some if found is not None}:
            self._send_parent(message)  # This broker has no flood of that variable.
            return
        self._changes.run_when_free(message.name, EndStep(message), f"{child} {number}")

    def _end(self, message: FloodingEnded) -> None:
        """End the own flood of a variable that nobody publishes, and notify the parent."""
        held = self.floods.get(message.name)
        self._send_parent(message)
        if held is None or message.variable_id not in {0, held.variable.variable_id}:
            return  # Another variable has the name by now.
        if held.own:
            self._change_own(structs.replace(held, own={}), VariableEnded(message))

    # Messages to the parent, and helpers.

    def _next_number(self) -> int:
        return self.reservations.next_number(self._context.term)

    def _held(self, variable: StatusVariable) -> FloodingHeld:
        found = self.floods.get(variable.name)
        if found is None or found.variable != variable:
            return FloodingHeld(variable=variable, number=0)
        return found

    def _refuse_parent(self, name: str, generation: int, why: RefusedOutcome) -> None:
        self._send_parent(FloodingRefused(term=0, name=name, generation=generation, refused=why))

    def _send_reserved(self, name: str, generation: int) -> None:
        self._send_parent(FloodingReserved(term=0, name=name, generation=generation))

    def _leave_parent(self, reason: str) -> None:
        """End the session: the parent repeats what could not be written when we join again."""
        error = StorageFailed(f"flooding could not be changed: {reason}")
        self._context.close(f"broker/{self._context.settings.parent}", error)

    def _send_parent(self, message: FloodingMessage) -> None:
        self._context.send_parent(structs.replace(message, term=self._context.term))

    def _facts(self, name: str) -> Facts:
        defined = self._context.settings.modes_defined
        facts = facts_of(name, self.floods.get(name), self._context.state.depth, defined)
        if facts["modes"]:
            facts["refusing"] = refusing_facts(self.refusing(name))
            facts["unconfirmed"] = self._unconfirmed.of(name)
        return facts


Facts = dict[str, Any]
"""Answer to an operator, as JSON shows it."""


class UnconfirmedChildren:
    """Children that have not confirmed a flood since it was last changed."""

    def __init__(self, reservations: FloodingReservations) -> None:
        self._reservations = reservations
        self._silent: dict[str, set[str]] = {}

    def of(self, name: str) -> list[str]:
        return sorted(self._silent.get(name, ()))

    def set(self, name: str, silent: set[str]) -> None:
        self._silent.pop(name, None)
        if silent and name in self._reservations.floods:
            self._silent[name] = silent

    def confirm(self, name: str, child: str) -> None:
        self.set(name, self._silent.get(name, set()) - {child})

    def child_joined(self, child: str) -> None:
        """Forget a child that has joined: it gets every flood, and commits or refuses each."""
        for name in list(self._silent):
            self.confirm(name, child)


def facts_of(name: str, held: FloodingHeld | None, depth: int, defined: Collection[int]) -> Facts:
    """Return how a variable floods in each mode, and who has requested it."""
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


# Conditions for a request of an operator.


def check_placed(context: TreeContext) -> None:
    """Refuse floods before the own channels have their numbers, which a flood then keeps."""
    if not context.is_placed:
        raise Refused(
            "this broker has not received its place in the tree from its parent yet",
            hint=f"is broker {context.settings.parent} running? Try again then",
        )


def check_present(context: TreeContext) -> None:
    """Refuse at once while a child is away, since the change would end by its deadline."""
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
