"""Limited flooding in one cloud, requested by operators or by the parent (S0 A12).

A flooded variable uses every channel of the cloud, at its full rate or one slot in `every`, and
every router carries it. Routers begin and end flooding independently. A flooding router sends at
least what it would forward on paths, so subscribers miss nothing meanwhile.

Operator: `SetFlooding` is admitted, written and ordered. The answer is sent once all routers have
confirmed, or after the deadline with the silent ones. `RemoveFlooding` is written and ordered
likewise. A repeated command is answered as the first. A failed write refuses the command.

Parent, for each variable and generation:

- `ReserveFlooding`: capacity is reserved durably, then `FloodingReserved` is sent, or
  `FloodingRefused`.
- `CommitFlooding`: the reserved terms take effect; once routers have confirmed `FloodingCommitted`
  is sent. Terms that were never reserved are admitted now, or refused. A commit that is whole lists
  all floods of the parent, and ends the others.
- `ReleaseFlooding`: the reservation ends.
- `FloodingEnded` is sent when the variable is withdrawn in this cloud.

A repeated message gets the same reply. After a failed write the session with the parent is closed;
the parent repeats its messages after the next join, as it does after a restart of this broker.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import structs

from gridstat.broker.capacity.admission import back_pressure, obstacles
from gridstat.broker.floods.flooding_admission import slow_refusal
from gridstat.broker.floods.flooding_pages import page_of
from gridstat.broker.floods.leaf_flooding_operations import FloodingSet
from gridstat.broker.requests.outcomes import refused
from gridstat.broker.requests.request_checks import check_identifier
from gridstat.broker.unit_of_work import no_op
from gridstat.model.errors import (
    GridStatError,
    NoSuchVariable,
    QuotaReached,
    Refused,
    StillInUse,
    StorageFailed,
)
from gridstat.model.flooding import (
    NO_GENERATION,
    NS_PER_MS,
    FloodTerm,
    checked_every,
    checked_modes,
    flood_interval_ms_min,
    in_force,
    overrides,
    without,
)
from gridstat.model.qos import check_modes_defined, undefined_modes
from gridstat.net.command.operator_messages import OperatorAnswer
from gridstat.net.command.session_messages import MANY_MAX
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

    from gridstat.broker.capacity.allocation import Refusal
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.floods.flooding_effects import FloodingEffects
    from gridstat.broker.floods.leaf_flooding_operations import FloodRecords
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.segments.parent_session import ParentSession
    from gridstat.broker.tables.confirmation import Confirmation
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import ChangePublication, RefusedOutcome
    from gridstat.net.command.operator_messages import (
        AddChannel,
        ListFlooding,
        RemoveChannel,
        RemoveFlooding,
        SetFlooding,
    )

Facts = dict[str, Any]
FloodingOrder: TypeAlias = ReserveFlooding | CommitFlooding | ReleaseFlooding
"""Messages about flooding from the parent."""
FloodingMessage: TypeAlias = FloodingReserved | FloodingRefused | FloodingCommitted | FloodingEnded
"""Messages about flooding to the parent."""


class LeafFlooding:
    """Admits, writes and orders flooding; a repeated command gets the same answer."""

    def __init__(
        self,
        context: BrokerContext,
        records: FloodRecords,
        effects: FloodingEffects,
        parent: ParentSession,
    ) -> None:
        self._context = context
        self._floods = records.variables
        self._effects = effects
        self.parent = parent

    # Operators.

    def list_floods(self, peer: str, command: ListFlooding) -> None:
        """Answer with a page of the variables that flood this cloud, with their requesters."""
        page = page_of(self._floods, command.after, self._facts_of)
        self._answer(peer, command.request_id, page)

    def orphaned(self) -> list[FloodingSet]:
        """Return the ends of floods of a parent that the cloud, at a start, no longer has."""
        return [
            FloodingSet(variable=found.variable, own=found.own)
            for found in self._floods.values()
            if found.above or found.reserved
        ]

    def set_flooding(self, peer: str, command: SetFlooding) -> None:
        modes, every = checked_modes(command.modes), checked_every(command.every)
        check_modes_defined(modes, self._context.settings.modes_defined)
        before = self._known(command.name)
        terms = dict.fromkeys(modes, FloodTerm(0, every))
        after = structs.replace(before, own={**before.own, **terms})
        refusal = self._refusal(after)
        if refusal is not None:
            self._refuse(peer, command.request_id, refused(refusal))
            return
        self._commit(peer, command.request_id, after)

    def remove_flooding(self, peer: str, command: RemoveFlooding) -> None:
        modes = checked_modes(command.modes) if command.modes else ()
        before = self._known(command.name)
        after = structs.replace(before, own=without(before.own, modes))
        self._commit(peer, command.request_id, after)

    def _known(self, name: str) -> FloodingSet:
        """Return how a variable of this cloud floods; raise if it is unknown or being changed."""
        registry = self._context.registry
        publication = registry.publications.get(name)
        if publication is None:
            raise NoSuchVariable(
                f"nobody publishes {name[:80]} in cloud {registry.cloud}",
                hint="check the name; a broker above both floods what comes from another cloud",
            )
        if publication.change is not None:
            raise Refused(
                f"the period of {name} is being changed", hint="ask again in a few seconds"
            )
        return self._floods.get(name) or FloodingSet(variable=publication.variable)

    def _commit(self, peer: str, request_id: int, after: FloodingSet) -> None:
        self._context.commit(
            [after],
            partial(self._written, peer, request_id, after),
            partial(self._write_failed, peer, request_id),
        )

    def _written(self, peer: str, request_id: int, after: FloodingSet, _: Applied) -> None:
        self._await_routers(partial(self._confirmed, peer, request_id, after))

    def _write_failed(self, peer: str, request_id: int, reason: str) -> None:
        error = Refused(f"nothing was changed: {reason}")
        self._refuse(peer, request_id, refused(error))

    def _confirmed(
        self, peer: str, request_id: int, after: FloodingSet, seen: Confirmation
    ) -> None:
        facts = self._facts(after)
        facts["unconfirmed"] = seen.silent
        facts["floodless"] = sorted(self._context.tables.without_flooding)
        self._answer(peer, request_id, facts)

    def _facts_of(self, name: str) -> Facts:
        return self._facts(self._floods[name])

    def _facts(self, found: FloodingSet) -> Facts:
        depth = self._context.registry.tree.depth or 0
        return flooding_facts(found, depth, self._context.settings.modes_defined)

    # Checks of other capabilities' commands.

    def check_new_channel(self, command: AddChannel) -> Refusal | None:
        """Return why a new channel cannot be added, if so; changes nothing.

        The channel would carry all flooded variables from its first moment, and load its routers.
        """
        channel = command.channel
        slow = slow_refusal((channel,))
        if slow is not None and self._floods:
            return slow
        reservations = self._context.reservations
        reservations.add_channel(channel)
        claims = self._effects.claims_on(channel.channel_id)
        found = obstacles(reservations.resources, reservations.take(claims))
        reservations.give_back(claims)
        reservations.remove_channel(channel.channel_id)
        return found[0].refusal() if found else None

    def check_channel_end(self, _: RemoveChannel) -> None:
        if self._floods:
            raise StillInUse(
                f"{len(self._floods)} variables flood every channel of this cloud",
                hint="stop the flooding first: `gridstat flood --list`",
            )

    def check_period(self, command: ChangePublication) -> None:
        if command.name in self._floods:
            raise StillInUse(
                f"{command.name} floods the cloud, and its routers know it by its period",
                hint="let an operator stop the flooding first: `gridstat flood --stop`",
            )

    # The parent.

    def handle_order(self, order: FloodingOrder) -> None:
        """Carry out a message of the parent; a repeated message gets the same reply."""
        match order:
            case ReserveFlooding(flooded=flooded):
                self._reserve(flooded)
            case CommitFlooding(flooded=many):
                if order.is_whole:
                    named = {each.variable: each.generation for each in many}
                    self._end_unnamed(named, order.in_doubt)
                for flooded in many:
                    self._commit_above(flooded)
            case ReleaseFlooding(name=name, generation=generation):
                self._release(name, generation)

    def _reserve(self, flooded: FloodedVariable) -> None:
        name, generation = flooded.variable.name, flooded.generation
        before = self._current(flooded)
        reserved = FloodingReserved(term=0, name=name, generation=generation)
        if self._is_withdrawn(flooded):
            withdrawn = refused(NoSuchVariable(f"nobody publishes {name} any more"))
            self._send_parent(
                FloodingRefused(term=0, name=name, generation=generation, refused=withdrawn)
            )
            return
        has_room = before.has_reserved(generation, flooded.terms)
        if has_room or before.has_committed(generation, flooded.terms):
            self._send_parent(reserved)
            return
        after = structs.replace(before, reserved=flooded.terms, reserved_generation=generation)
        refusal = self._refused_outcome(after)
        if refusal is not None:
            self._send_parent(
                FloodingRefused(term=0, name=name, generation=generation, refused=refusal)
            )
        elif self._floods_other_publication(flooded):
            # The flood of the other publication stays until the parent commits, which is then
            # admitted anew.
            self._send_parent(reserved)
        else:
            self._write(after, partial(self._send_parent_then, reserved))

    def _commit_above(self, flooded: FloodedVariable) -> None:
        """Put the parent's terms into effect, after admission if they were not reserved."""
        name, generation = flooded.variable.name, flooded.generation
        before = self._current(flooded)
        committed = FloodingCommitted(term=0, name=name, generation=generation)
        is_held = before.has_reserved(generation, flooded.terms)
        after = structs.replace(before, above=flooded.terms, generation=generation)
        if before.reserved_generation == generation:
            after = after.released()
        is_withdrawn = (
            self._is_withdrawn(flooded) if flooded.terms else self._is_other_publication(flooded)
        )
        if is_withdrawn or after == before:
            self._send_parent(committed)  # For a withdrawn variable there is nothing left to do.
            return
        refusal = None if is_held else self._refused_outcome(after)
        if refusal is not None:
            self._send_parent(
                FloodingRefused(term=0, name=name, generation=generation, refused=refusal)
            )
            self._keep_wanted(before, flooded)
            return
        self._write(after, partial(self._send_parent_when_confirmed, committed))

    def _keep_wanted(self, before: FloodingSet, flooded: FloodedVariable) -> None:
        """End the terms that the parent no longer wants, though its new terms were refused."""
        common = dict(before.above.items() & flooded.terms.items())
        if common != before.above:
            self._write(structs.replace(before, above=common), no_op)

    def _release(self, name: str, generation: int) -> None:
        found = self._floods.get(name)
        if found is not None and found.reserved_generation == generation:
            self._write(found.released(), no_op)

    def _end_unnamed(self, named: Mapping[StatusVariable, int], in_doubt: Collection[str]) -> None:
        """End all floods of the parent that it did not name.

        A reservation stays only if the parent has committed its generation, or may still do so.
        """
        for name, found in sorted(self._floods.items()):
            after = found
            if found.variable not in named:
                after = structs.replace(after, above={}, generation=NO_GENERATION)
            if name not in in_doubt and found.reserved_generation != named.get(found.variable):
                after = after.released()
            if after != found:
                self._write(after, no_op)

    def _current(self, flooded: FloodedVariable) -> FloodingSet:
        """Return the flooding of a variable; a variable that was published anew has none."""
        found = self._floods.get(flooded.variable.name)
        if found is None or self._is_other_publication(flooded):
            return FloodingSet(variable=flooded.variable)
        return found

    def _is_other_publication(self, flooded: FloodedVariable) -> bool:
        """Return whether the flood under this name belongs to another publication.

        The parent's message may concern a publication that has ended. Such a message ends and
        replaces nothing, unless it commits terms for its own publication.
        """
        found = self._floods.get(flooded.variable.name)
        return found is not None and found.variable != flooded.variable

    def _floods_other_publication(self, flooded: FloodedVariable) -> bool:
        found = self._floods.get(flooded.variable.name)
        return (
            self._is_other_publication(flooded)
            and found is not None
            and bool(found.own or found.above)
        )

    def _is_withdrawn(self, flooded: FloodedVariable) -> bool:
        """Return whether a variable of this cloud was withdrawn; notify the parent if so."""
        registry, variable = self._context.registry, flooded.variable
        if variable.name.partition("/")[0] != registry.cloud:
            return False
        publication = registry.publications.get(variable.name)
        if publication is not None and publication.variable == variable:
            return False
        send_ended(self.parent, variable)
        return True

    def _send_parent(self, message: FloodingMessage) -> None:
        self.parent.send(structs.replace(message, term=self._context.registry.term))

    def _send_parent_then(self, message: FloodingMessage, _: Applied | Confirmation) -> None:
        self._send_parent(message)

    def _send_parent_when_confirmed(self, message: FloodingMessage, _: Applied) -> None:
        """Send a message to the parent once all routers have confirmed, or had their time."""
        self._await_routers(partial(self._send_parent_then, message))

    def _write(self, after: FloodingSet, then: Callable[[Applied], None]) -> None:
        self._context.commit([after], then, self._close_session)

    def _close_session(self, reason: str) -> None:
        """Close the session after a failed write: the parent repeats its messages at the next."""
        error = StorageFailed(f"flooding could not be changed: {reason}")
        self._context.close(f"broker/{self._context.settings.parent}", error)

    # Admission.

    def _refused_outcome(self, after: FloodingSet) -> RefusedOutcome | None:
        try:
            refusal = self._refusal(after)
        except GridStatError as error:
            return refused(error)
        return None if refusal is None else refused(refusal)

    def _refusal(self, after: FloodingSet) -> Refusal | None:
        """Return what prevents flooding on any channel of the cloud, if so; changes nothing."""
        registry, reservations = self._context.registry, self._context.reservations
        variable = after.variable
        self._check(after)
        before = self._floods.get(variable.name) or FloodingSet(variable=variable)
        slow = slow_refusal(registry.channels.values())
        if slow is not None and not after.is_within(before):
            return slow
        claims = self._effects.claims
        new, old = claims(after), claims(before)
        touched = reservations.take(new)
        reservations.give_back(old)
        resources = reservations.resources
        found = obstacles(resources, touched)
        reservations.take(old)
        reservations.give_back(new)
        back_pressured = sorted(
            number
            for number in resources.unusable_channels() - resources.down_channels()
            if number in touched.elements
        )
        found += [back_pressure(resources, number) for number in back_pressured]
        return found[0].refusal() if found else None

    def _check(self, after: FloodingSet) -> None:
        registry, variable = self._context.registry, after.variable
        if variable.name not in self._floods and len(self._floods) >= MANY_MAX:
            raise QuotaReached(
                f"{MANY_MAX} variables flood cloud {registry.cloud}",
                hint="stop flooding some of them: `gridstat flood --list`",
            )
        self._check_modes(after)
        check_identifier(registry, self._context.reservations.resources, variable)
        if variable.is_replay:
            raise Refused(f"{variable.name} is replayed: replay is never flooded")
        terms = (*after.own.values(), *after.above.values(), *after.reserved.values())
        if variable.period is None and any(term.every > 1 for term in terms):
            raise Refused(f"{variable.name} is aperiodic and has no slots to leave out")
        interval_ms_min = flood_interval_ms_min(is_belated=variable.is_belated)
        if variable.period is None and variable.interval_ns_min < interval_ms_min * NS_PER_MS:
            raise Refused(
                f"{variable.name} may come faster than routers remember what floods",
                hint=f"publish it with a minimum interval of {interval_ms_min} ms at least",
            )

    def _check_modes(self, after: FloodingSet) -> None:
        """Refuse undefined modes that are new; modes from an older release's journal may stay."""
        before = self._floods.get(after.variable.name)
        known = set() if before is None else before.modes
        check_modes_defined(after.modes - known, self._context.settings.modes_defined)

    def _await_routers(self, then: Callable[[Confirmation], None]) -> None:
        context = self._context
        deadline_ns = context.now_ns + context.settings.confirm_within_ns
        context.tables.await_confirmations(context.registry.routers, then, deadline_ns=deadline_ns)

    def _answer(self, peer: str, request_id: int, facts: Facts) -> None:
        self._context.send(peer, OperatorAnswer(request_id=request_id, facts=facts))

    def _refuse(self, peer: str, request_id: int, refusal: RefusedOutcome) -> None:
        self._context.send(peer, OperatorAnswer(request_id=request_id, refused=refusal))


def send_ended(parent: ParentSession, variable: StatusVariable) -> None:
    """Tell the parent that a variable of this cloud is no longer published."""
    parent.send(
        FloodingEnded(term=parent.term, name=variable.name, variable_id=variable.variable_id)
    )


def flooding_facts(found: FloodingSet, depth: int, defined: Collection[int]) -> Facts:
    """Return the terms of a flooded variable by mode, and who requested each."""
    own = {mode: FloodTerm(depth, term.every) for mode, term in found.own.items()}
    return {
        "name": found.variable.name,
        "variable_id": found.variable.variable_id,
        "modes": [
            {
                "mode": mode,
                "level": term.level,
                "every": term.every,
                "asked_by": "parent" if mode in found.above else "operator",
                "overrides_operator": overrides(mode, found.own, found.above),
                "is_defined": not undefined_modes((mode,), defined),
            }
            for mode, term in in_force(own, found.above).items()
        ],
    }
