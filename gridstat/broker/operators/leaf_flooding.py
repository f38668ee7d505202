"""Limited flooding in one cloud: asked by operators or by the parent, admitted, durable, ordered.

A flooded variable takes every channel of the cloud at its full rate, or at its divisor's, and every
router carries it. Each router begins and ends on its own; one that floods sends at least what it
would route, so existing subscribers miss nothing meanwhile (S0 A12).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from msgspec import structs

from gridstat.broker.capacity.admission import back_pressure, obstacles
from gridstat.broker.capacity.flooding_admission import slow_refusal
from gridstat.broker.flooding_pages import page_of
from gridstat.broker.records.operations import FloodingSet
from gridstat.broker.requests.outcomes import refused
from gridstat.broker.requests.request_checks import check_identifier
from gridstat.model.errors import (
    GridStatError,
    NoSuchVariable,
    QuotaReached,
    Refused,
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
from gridstat.net.command.operator_messages import (
    ListFlooding,
    OperatorAnswer,
    RemoveFlooding,
    SetFlooding,
)
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
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.segments.parent_session import ParentSession
    from gridstat.broker.tables.confirmation import Confirmation
    from gridstat.model.cloud import EventChannel
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import RefusedOutcome
    from gridstat.net.command.tree_messages import TreeMessageBase

Facts = dict[str, Any]
FloodingOrder: TypeAlias = ReserveFlooding | CommitFlooding | ReleaseFlooding
"""What a parent says about flooding."""
FloodingMessage: TypeAlias = FloodingReserved | FloodingRefused | FloodingCommitted | FloodingEnded
"""What it is told."""


class LeafFlooding:
    """A repeated command is answered as the first: what it asks is then the case already."""

    def __init__(self, context: BrokerContext, parent: ParentSession) -> None:
        self._context = context
        self.parent = parent

    def parent_handlers(self) -> dict[type[TreeMessageBase], Callable[[Any], None]]:
        """Return the handlers of the parent's flooding messages, by message type."""
        return dict.fromkeys(get_args(FloodingOrder), self.obey)

    # Operators.

    def take(self, peer: str, command: SetFlooding | RemoveFlooding | ListFlooding) -> None:
        match command:
            case SetFlooding():
                self._set(peer, command)
            case RemoveFlooding():
                self._remove(peer, command)
            case ListFlooding():
                self._answer(peer, command.request_id, self._listed(command.after))

    def _listed(self, after: str) -> Facts:
        """What floods this cloud, and who asked for it."""
        floods = self._context.registry.floods
        return page_of(floods, after, lambda name: self._facts(floods[name]))

    def orphaned(self) -> list[FloodingSet]:
        """At a start: without a parent nothing counts that one had said, and nobody will end it."""
        if self._context.settings.parent:
            return []
        return [
            FloodingSet(variable=found.variable, own=found.own)
            for found in self._context.registry.floods.values()
            if found.above or found.reserved
        ]

    def refusal_of(self, channel: EventChannel) -> Refusal | None:
        """What stands in the way of a new channel; leaves no trace.

        From its first moment on it would carry all that floods, and so load its routers.
        """
        slow = slow_refusal((channel,))
        if slow is not None and self._context.registry.floods:
            return slow
        reservations = self._context.reservations
        reservations.add_channel(channel)
        claims = self._context.effects.flooding.claims_on(channel.channel_id)
        found = obstacles(reservations.resources, reservations.take(claims))
        reservations.give_back(claims)
        reservations.remove_channel(channel.channel_id)
        return found[0].refusal() if found else None

    def _set(self, peer: str, command: SetFlooding) -> None:
        modes, every = checked_modes(command.modes), checked_every(command.every)
        check_modes_defined(modes, self._context.settings.modes_defined)
        before = self._known(command.name)
        terms = dict.fromkeys(modes, FloodTerm(0, every))
        after = structs.replace(before, own={**before.own, **terms})
        no = self._refusal(after)
        if no is not None:
            self._refuse(peer, command.request_id, refused(no))
            return
        self._commit(peer, command.request_id, after)

    def _remove(self, peer: str, command: RemoveFlooding) -> None:
        modes = checked_modes(command.modes) if command.modes else ()
        before = self._known(command.name)
        after = structs.replace(before, own=without(before.own, modes))
        self._commit(peer, command.request_id, after)

    def _known(self, name: str) -> FloodingSet:
        """How the variable floods now; raises unless it is one of this cloud's, and steady."""
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
        return registry.floods.get(name) or FloodingSet(variable=publication.variable)

    def _commit(self, peer: str, request_id: int, after: FloodingSet) -> None:
        def durable(_: Applied) -> None:
            self._await_routers(partial(self._done, peer, request_id, after))

        def failed(reason: str) -> None:
            error = Refused(f"nothing was changed: {reason}")
            self._refuse(peer, request_id, refused(error))

        self._context.commit([after], durable, failed)

    def _done(self, peer: str, request_id: int, after: FloodingSet, seen: Confirmation) -> None:
        facts = self._facts(after)
        facts["unconfirmed"] = seen.silent
        facts["floodless"] = sorted(self._context.tables.floodless)
        self._answer(peer, request_id, facts)

    def _facts(self, found: FloodingSet) -> Facts:
        depth = self._context.registry.tree.depth or 0
        return flooding_facts(found, depth, self._context.settings.modes_defined)

    # The parent.

    def obey(self, order: FloodingOrder) -> None:
        """Do what the parent says; whatever it says twice is answered twice alike."""
        match order:
            case ReserveFlooding(flooded=flooded):
                self._reserve(flooded)
            case CommitFlooding(flooded=many):
                if order.is_whole:
                    told = {each.variable: each.generation for each in many}
                    self._forget_others(told, order.in_doubt)
                for flooded in many:
                    self._commit_above(flooded)
            case ReleaseFlooding(name=name, generation=generation):
                self._release(name, generation)

    def _reserve(self, flooded: FloodedVariable) -> None:
        name, generation = flooded.variable.name, flooded.generation
        before = self._held(flooded)
        told = partial(self._tell, FloodingReserved(term=0, name=name, generation=generation))
        if self._is_gone(flooded):
            gone = refused(NoSuchVariable(f"nobody publishes {name} any more"))
            self._tell(FloodingRefused(term=0, name=name, generation=generation, refused=gone))
            return
        has_room = before.has_reserved(generation, flooded.terms)
        if has_room or before.has_committed(generation, flooded.terms):
            told()
            return
        after = structs.replace(before, reserved=flooded.terms, reserved_generation=generation)
        no = self._judged(after)
        if no is not None:
            self._tell(FloodingRefused(term=0, name=name, generation=generation, refused=no))
        elif self._counts_for_another(flooded):
            told()  # What counts stays until the parent has decided; that finds room again, or not.
        else:
            self._write(after, told)

    def _commit_above(self, flooded: FloodedVariable) -> None:
        """What was reserved counts; what never was is judged now, and a refusal is told."""
        name, generation = flooded.variable.name, flooded.generation
        before = self._held(flooded)
        told = partial(self._tell, FloodingCommitted(term=0, name=name, generation=generation))
        is_held = before.has_reserved(generation, flooded.terms)
        after = structs.replace(before, above=flooded.terms, generation=generation)
        if before.reserved_generation == generation:
            after = after.released()
        is_gone = self._is_gone(flooded) if flooded.terms else self._is_another(flooded)
        if is_gone or after == before:
            told()  # Of what is gone there is nothing left to do; the parent hears that too.
            return
        no = None if is_held else self._judged(after)
        if no is not None:
            self._tell(FloodingRefused(term=0, name=name, generation=generation, refused=no))
            self._keep_common(before, flooded)
            return
        self._write(after, lambda: self._await_routers(lambda _: told()))

    def _keep_common(self, before: FloodingSet, flooded: FloodedVariable) -> None:
        """There is no room for all that the parent wants; what it wants no more ends even so."""
        common = dict(before.above.items() & flooded.terms.items())
        if common != before.above:
            self._write(structs.replace(before, above=common), _nothing)

    def _release(self, name: str, generation: int) -> None:
        found = self._context.registry.floods.get(name)
        if found is not None and found.reserved_generation == generation:
            self._write(found.released(), _nothing)

    def _forget_others(self, told: Mapping[StatusVariable, int], in_doubt: Collection[str]) -> None:
        """Of what the parent did not name nothing counts, and nothing will.

        What is reserved stays only if it is just that which counts now, or may yet.
        """
        for name, found in sorted(self._context.registry.floods.items()):
            after = found
            if found.variable not in told:
                after = structs.replace(after, above={}, generation=NO_GENERATION)
            if name not in in_doubt and found.reserved_generation != told.get(found.variable):
                after = after.released()
            if after != found:
                self._write(after, _nothing)

    def _held(self, flooded: FloodedVariable) -> FloodingSet:
        """What is held of the variable; one that was published anew begins anew."""
        found = self._context.registry.floods.get(flooded.variable.name)
        if found is None or self._is_another(flooded):
            return FloodingSet(variable=flooded.variable)
        return found

    def _is_another(self, flooded: FloodedVariable) -> bool:
        """Whether what is held under its name is of another publication.

        The parent may be speaking of one that is over. Such a word ends nothing and replaces
        nothing, unless it says that its own is what floods from now on.
        """
        found = self._context.registry.floods.get(flooded.variable.name)
        return found is not None and found.variable != flooded.variable

    def _counts_for_another(self, flooded: FloodedVariable) -> bool:
        found = self._context.registry.floods.get(flooded.variable.name)
        return self._is_another(flooded) and found is not None and bool(found.own or found.above)

    def _is_gone(self, flooded: FloodedVariable) -> bool:
        """Whether a variable of this cloud is no longer published, or is another; said if so."""
        registry, variable = self._context.registry, flooded.variable
        if variable.name.partition("/")[0] != registry.cloud:
            return False
        publication = registry.publications.get(variable.name)
        if publication is not None and publication.variable == variable:
            return False
        self.ended(variable)
        return True

    def ended(self, variable: StatusVariable) -> None:
        """Tell the parent that a variable of this cloud is no longer published."""
        word = FloodingEnded(term=0, name=variable.name, variable_id=variable.variable_id)
        self._tell(word)

    def _tell(self, word: FloodingMessage) -> None:
        self.parent.tell(structs.replace(word, term=self._context.registry.term))

    def _write(self, after: FloodingSet, then: Callable[[], None]) -> None:
        """What cannot be written the parent has to say again: it does so at the next joining."""

        def failed(reason: str) -> None:
            error = StorageFailed(f"flooding could not be changed: {reason}")
            self._context.close(f"broker/{self._context.settings.parent}", error)

        self._context.commit([after], lambda _: then(), failed)

    # Admission.

    def _judged(self, after: FloodingSet) -> RefusedOutcome | None:
        try:
            no = self._refusal(after)
        except GridStatError as error:
            return refused(error)
        return None if no is None else refused(no)

    def _refusal(self, after: FloodingSet) -> Refusal | None:
        """What stands in the way of it, on any channel of the cloud; leaves no trace."""
        registry, reservations = self._context.registry, self._context.reservations
        variable = after.variable
        self._check(after)
        before = registry.floods.get(variable.name) or FloodingSet(variable=variable)
        slow = slow_refusal(registry.channels.values())
        if slow is not None and not after.is_within(before):
            return slow
        claims = self._context.effects.flooding.claims
        new, old = claims(after), claims(before)
        touched = reservations.take(new)
        reservations.give_back(old)
        resources = reservations.resources
        found = obstacles(resources, touched)
        reservations.take(old)
        reservations.give_back(new)
        pressed = sorted(
            number
            for number in resources.unusable_channels() - resources.down_channels()
            if number in touched.elements
        )
        found += [back_pressure(resources, number) for number in pressed]
        return found[0].refusal() if found else None

    def _check(self, after: FloodingSet) -> None:
        registry, variable = self._context.registry, after.variable
        if variable.name not in registry.floods and len(registry.floods) >= MANY_MAX:
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
        """Refuse undefined modes that are new; those of an older release's journal may stay."""
        before = self._context.registry.floods.get(after.variable.name)
        known = set() if before is None else before.modes
        check_modes_defined(after.modes - known, self._context.settings.modes_defined)

    def _await_routers(self, then: Callable[[Confirmation], None]) -> None:
        context = self._context
        deadline_ns = context.now_ns + context.settings.confirm_within_ns
        context.tables.await_confirmations(context.registry.routers, then, deadline_ns=deadline_ns)

    def _answer(self, peer: str, request_id: int, facts: Facts) -> None:
        self._context.send(peer, OperatorAnswer(request_id=request_id, facts=facts))

    def _refuse(self, peer: str, request_id: int, no: RefusedOutcome) -> None:
        self._context.send(peer, OperatorAnswer(request_id=request_id, refused=no))


def flooding_facts(found: FloodingSet, depth: int, defined: Collection[int]) -> Facts:
    """How a variable floods, mode by mode, and whose request that is."""
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


def _nothing() -> None:
    """Nobody waits for it."""
