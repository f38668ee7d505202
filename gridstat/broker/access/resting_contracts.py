"""Contracts, publications and listeners that rest on access rules, found by deciding anew."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol, assert_never

from msgspec import structs

from gridstat.broker.access.access_effects import reserved_by
from gridstat.broker.permissions import best_priority, bytes_per_s
from gridstat.broker.records.end_operations import Ending
from gridstat.broker.records.operations import MatchingLeft, Unsubscribed
from gridstat.broker.records.parent_state import contract_name
from gridstat.model.access_rules import (
    ANYONE,
    ANYTHING,
    Action,
    Wish,
    overlap,
    reserves_own_name,
)
from gridstat.model.cloud import matches
from gridstat.model.errors import NotAuthorised
from gridstat.net.command.endpoint_messages import Unpublished

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.requests.pattern_matching import PatternMatching
    from gridstat.broker.settings import BrokerSettings
    from gridstat.model.access_rules import AccessRule


class WatchedNames(Protocol):
    """Patterns across clouds, and segments of readers elsewhere (`segments`)."""

    def watch(self, pattern_id: int) -> None: ...

    def offer_again(self) -> None: ...

    def withdraw(self, contract: str, generation: int, reason: str) -> None: ...

    def explain_ends(self, reasons: Mapping[int, str]) -> None: ...


class ListenerEnds(Protocol):
    """End-points that listen to all floods (`floods`)."""

    def listening(self) -> list[str]: ...

    def ends_of(self, endpoint: str) -> list[Operation]: ...


class EndedGrants(Protocol):
    """Grants that are not answered yet (`requests/pending_grants.py`)."""

    def note_ended(self, reasons: Mapping[int, str]) -> None: ...


@dataclass(slots=True)
class Ended:
    """Operations that end what is no longer allowed, and what to tell once they are durable."""

    operations: list[Operation] = field(default_factory=list)
    notices: list[tuple[str, Unpublished]] = field(default_factory=list)
    segments: list[tuple[str, int, str]] = field(default_factory=list)
    """Contract, generation and reason of segments that readers of other clouds had."""
    gone: set[int] = field(default_factory=set)
    """Contracts that the operations end."""
    count: int = 0

    def has_room(self, settings: BrokerSettings) -> bool:
        """Return whether more may end in this turn."""
        return len(self.operations) < settings.end_at_once

    def add(self, ending: Ending) -> None:
        """Add the operations of an ending."""
        self.operations += ending.operations
        self.gone |= {
            one.subscription_id for one in ending.operations if isinstance(one, Unsubscribed)
        }


class JudgedPart(Enum):
    """What of an end-point is judged."""

    ENDPOINT = "endpoint"
    """All of it; its parts are then listed one by one."""
    PUBLICATION = "publication"
    CONTRACT = "contract"
    PATTERN = "pattern"
    LISTENER = "listener"
    SEGMENT = "segment"
    """A segment by which an end-point of another cloud reads."""


@dataclass(slots=True)
class RuleSweep:
    """What a change of rules leaves to be judged; each contract is judged once.

    `taken` are rules that were revoked or replaced. What they allowed is judged with the bounds of
    the other rules: `kept` counts the bytes/s of each end-point that rest on those.
    """

    cause: str
    actions: frozenset[Action]
    taken: tuple[AccessRule, ...]
    waiting: deque[tuple[JudgedPart, str, int | str]]
    """JudgedPart, end-point, and the number or name of what is judged."""
    kept: dict[tuple[str, Action], int] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return not self.waiting


class RestingContracts:
    """Finds what the rules in force do not allow; in observe mode only notes it."""

    def __init__(
        self,
        context: BrokerContext,
        matching: PatternMatching,
        watches: WatchedNames,
        listeners: ListenerEnds,
        grants: EndedGrants,
    ) -> None:
        self._context = context
        self._grants = grants
        self._matching = matching
        self._watches = watches
        self._listeners = listeners

    def everything(self, taken: Iterable[AccessRule] = ()) -> RuleSweep:
        """Return a sweep over all that the cloud has granted."""
        rules = tuple(taken)
        waiting = deque(self._whole(sorted(self._context.registry.endpoints)))
        waiting += self._segments()
        return RuleSweep(_cause(rules), frozenset(Action), rules, waiting)

    def after(self, taken: AccessRule | None, given: AccessRule | None) -> RuleSweep:
        """Return a sweep over what may end when a rule is taken away, or one is given.

        A rule that is given takes nothing away but the names that it keeps for its end-points.
        """
        names = sorted(self._context.registry.endpoints)
        actions = set[Action]()
        chosen: list[str] = []
        if taken is not None:
            actions = {Action(each) for each in taken.may}
            chosen = [name for name in names if matches_who(taken, name)]
        if given is not None and (given.is_owner or reserves_own_name(given)):
            actions.add(Action.PUBLISH)
            above = [name for name in names if given.is_owner or _is_below(given, name)]
            chosen = sorted({*chosen, *above})
        waiting = deque(self._whole(chosen))
        if taken is not None and Action.SUBSCRIBE in actions:
            waiting += [each for each in self._segments() if matches_who(taken, each[1])]
        changed = taken or given
        cause = _cause(() if changed is None else (changed,))
        return RuleSweep(cause, frozenset(actions), () if taken is None else (taken,), waiting)

    def find(self, sweep: RuleSweep) -> Ended:
        """Judge the next contracts of a sweep; return what is not allowed any more."""
        found = Ended()
        settings = self._context.settings
        judged = 0
        while sweep.waiting and judged < settings.revoke_at_once and found.has_room(settings):
            judged += 1
            part, who, key = sweep.waiting.popleft()
            match part:
                case JudgedPart.ENDPOINT:
                    sweep.waiting.extendleft(reversed(self._parts_of(sweep, who)))
                case JudgedPart.PUBLICATION:
                    self._end_publication(sweep, who, str(key), found)
                case JudgedPart.CONTRACT:
                    self._end_contract(sweep, who, int(key), found)
                case JudgedPart.PATTERN:
                    self._end_pattern(sweep, who, int(key), found)
                case JudgedPart.LISTENER:
                    self._end_listener(sweep, who, found)
                case JudgedPart.SEGMENT:
                    record = self._context.registry.contract(int(key))
                    if record is not None:
                        self._end_segment(record, sweep, found)
                case _:
                    assert_never(part)
        reasons = {
            notice.subscription_id: notice.reason
            for _, notice in found.notices
            if notice.subscription_id
        }
        if reasons:
            self._grants.note_ended(reasons)
            self._watches.explain_ends(reasons)
        return found

    def report(self, found: Ended) -> None:
        """Tell the parent of segments that have ended, once that is durable."""
        for contract, generation, reason in found.segments:
            self._watches.withdraw(contract, generation, reason)

    def offer_names(self, rule: AccessRule | None) -> None:
        """Match the patterns again that a new rule may let have more."""
        registry = self._context.registry
        if rule is not None and Action.SUBSCRIBE.value not in rule.may:
            return
        left: list[Operation] = []
        for pattern_id, held in sorted(registry.patterns.items()):
            if rule is None or (
                matches_who(rule, held.subscriber) and overlap(rule.what, held.pattern)
            ):
                left.append(MatchingLeft(pattern_id=pattern_id))
                self._watches.watch(pattern_id)
        if left:
            self._context.commit(left, self._matching.go_on, self._matching.begin_later)
            self._matching.begin_again()  # At once: a slice under way would take it for finished.
        self._watches.offer_again()

    def _whole(self, names: Iterable[str]) -> Iterator[tuple[JudgedPart, str, int | str]]:
        return ((JudgedPart.ENDPOINT, name, 0) for name in names)

    def _segments(self) -> Iterator[tuple[JudgedPart, str, int | str]]:
        """Yield the segments by which end-points of other clouds read variables of this one."""
        for record in self._context.registry.segments():
            if record.exits and not record.entries:
                yield JudgedPart.SEGMENT, record.reader, record.subscription_id

    def _parts_of(self, sweep: RuleSweep, who: str) -> list[tuple[JudgedPart, str, int | str]]:
        """Return what an end-point has of the actions that a sweep is about, oldest first."""
        registry = self._context.registry
        endpoint = registry.endpoints.get(who)
        if endpoint is None:
            return []
        found: list[tuple[JudgedPart, str, int | str]] = []
        if Action.PUBLISH in sweep.actions:
            found += [(JudgedPart.PUBLICATION, who, name) for name in sorted(endpoint.publications)]
        if Action.SUBSCRIBE in sweep.actions:
            numbers = sorted(registry.contracts_of(endpoint))
            found += [(JudgedPart.CONTRACT, who, number) for number in numbers]
            found += [(JudgedPart.PATTERN, who, number) for number in sorted(endpoint.patterns)]
        if Action.FLOOD in sweep.actions and who in self._listeners.listening():
            found.append((JudgedPart.LISTENER, who, 0))
        return found

    # Parts of an end-point.

    def _end_publication(self, sweep: RuleSweep, who: str, name: str, found: Ended) -> None:
        publication = self._context.registry.publications.get(name)
        if publication is None or publication.publisher != who:
            return
        wish = Wish(who, Action.PUBLISH, name)
        size = bytes_per_s(publication.variable) if self._is_metered(sweep, who) else 0
        why = self._lack(sweep, wish, size)
        if not why and self._has_rested(sweep, wish):
            why = self._context.permissions.delay_lack(who, publication.variable)
        if why:
            self._withdraw(who, name, sweep.cause, why, found)

    def _end_contract(self, sweep: RuleSweep, who: str, number: int, found: Ended) -> None:
        registry = self._context.registry
        asked = registry.tree.asked.get(number)
        record = registry.contract(number)
        contract = ""
        if asked is not None:
            if asked.is_ending:
                return
            name, priority = asked.record.name, best_priority(asked.record.qos)
            contract = contract_name(registry.cloud, number)
        elif record is not None and number not in found.gone:
            name, priority = record.name, _priority(record)
        else:
            return
        size = reserved_by(registry, number, contract)[1] if self._is_metered(sweep, who) else 0
        why = self._lack(sweep, Wish(who, Action.SUBSCRIBE, name, priority), size)
        if why:
            self._unsubscribe(sweep, who, number, name, why, found)

    def _end_pattern(self, sweep: RuleSweep, who: str, number: int, found: Ended) -> None:
        """End a pattern of which an end-point may have nothing any more."""
        held = self._context.registry.patterns.get(number)
        if held is None:
            return
        priority = best_priority(held.qos)
        rules = self._context.permissions.rules
        if rules.may_any(who, Action.SUBSCRIBE, held.pattern, priority=priority):
            return
        why = self._lack(sweep, Wish(who, Action.SUBSCRIBE, held.pattern, priority))
        if why:
            self._unsubscribe(sweep, who, number, held.pattern, why, found)

    def _unsubscribe(
        self, sweep: RuleSweep, who: str, number: int, name: str, why: str, found: Ended
    ) -> None:
        ending = Ending()
        ending.unsubscribe(self._context.registry, (number,))
        found.add(ending)
        found.count += 1
        found.notices.append((who, _notice(number, name, sweep.cause + why)))

    def _end_listener(self, sweep: RuleSweep, who: str, found: Ended) -> None:
        why = self._lack(sweep, Wish(who, Action.FLOOD, ANYTHING))
        if why and who in self._listeners.listening():
            found.operations += self._listeners.ends_of(who)
            found.notices.append((who, _notice(0, ANYTHING, sweep.cause + why)))
            found.count += 1

    def _withdraw(self, who: str, name: str, cause: str, why: str, found: Ended) -> None:
        ending = Ending()
        ending.withdraw(self._context.registry, (name,))
        found.add(ending)
        found.count += 1
        for subscriber, notice in ending.notices:
            told = _notice(notice.subscription_id, notice.name, cause + why)
            found.notices.append((subscriber, told))
        found.notices += [(who, each) for each in self._to_publisher(name, cause + why)]

    def _to_publisher(self, name: str, why: str) -> Iterator[Unpublished]:
        """Yield a notice for each identifier by which the publisher may know its variable."""
        publication = self._context.registry.publications[name]
        known = [publication.variable]
        if publication.change is not None:
            known.append(publication.change.old)
        for variable in known:
            yield structs.replace(_notice(0, name, why), variable_id=variable.variable_id)

    def _end_segment(self, record: Subscribed, sweep: RuleSweep, found: Ended) -> None:
        """End a segment by which an end-point of another cloud reads a variable of this one."""
        number, registry = record.subscription_id, self._context.registry
        if record.entries or not record.exits or number in found.gone:
            return
        who = record.reader
        size = 0
        if self._is_metered(sweep, who):
            newest = registry.newest_segment(record.contract)
            if newest is None or newest.record.subscription_id == number:
                size = reserved_by(registry, number, record.contract)[1]
        wish = Wish(who, Action.SUBSCRIBE, record.name, _priority(record))
        why = self._lack(sweep, wish, size)
        if why:
            found.operations.append(Unsubscribed(subscription_id=number))
            reason = sweep.cause + why
            found.segments.append((record.contract, record.segment_generation, reason))
            found.count += 1

    # Judging.

    def _is_metered(self, sweep: RuleSweep, who: str) -> bool:
        return bool(sweep.taken) and self._context.permissions.rules.is_metered(who)

    def _has_rested(self, sweep: RuleSweep, wish: Wish) -> bool:
        """Return whether a rule that was taken away allowed a wish, and none replaces it.

        Closer bounds of a rule in the place of another end nothing.
        """
        rules = self._context.permissions.rules
        return any(
            rules.is_about(rule, wish)
            and not ((now := rules.get(rule.identifier)) and rules.is_about(now, wish))
            for rule in sweep.taken
        )

    def _lack(self, sweep: RuleSweep, wish: Wish, size_bytes_per_s: int = 0) -> str:
        """Return why a wish is refused; empty if it is allowed, or only observed.

        What rested on a rule that was taken away has to keep to the bounds of the others.
        """
        permissions, key = self._context.permissions, (wish.who, wish.action)
        kept = sweep.kept.get(key, 0) + size_bytes_per_s
        if size_bytes_per_s and self._has_rested(sweep, wish):
            wish = replace(wish, reserved_bytes_per_s=kept)
        if not permissions.allows(wish):
            return permissions.rules.decide(wish).reason
        if size_bytes_per_s:
            sweep.kept[key] = kept
        return ""


def _cause(rules: Sequence[AccessRule]) -> str:
    names = ", ".join(rule.identifier for rule in rules)
    if not names:
        return ""
    return (
        f"rules {names} were revoked or changed; "
        if rules[1:]
        else (f"rule {names} was revoked or changed; ")
    )


def matches_who(rule: AccessRule, name: str) -> bool:
    """Return whether a rule is for an end-point, of whatever cloud."""
    return rule.who == ANYONE or matches(rule.who, name)


def _is_below(rule: AccessRule, name: str) -> bool:
    """Return whether an end-point's own name reserves names for which another was asked."""
    return rule.who.startswith(f"{name}/")


def _priority(record: Subscribed) -> int:
    return best_priority(record.qos)


def _notice(number: int, name: str, reason: str) -> Unpublished:
    return Unpublished(
        subscription_id=number, name=name, code=NotAuthorised.code, reason=f"rule access: {reason}"
    )
