"""Contracts, publications and listeners that rest on access rules, found by deciding anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from msgspec import structs

from gridstat.broker.permissions import best_priority
from gridstat.broker.records.end_operations import Ending
from gridstat.broker.records.operations import MatchingLeft, Unsubscribed
from gridstat.model.access_rules import ANYONE, ANYTHING, Action, Wish, overlap
from gridstat.model.cloud import matches
from gridstat.model.errors import NotAuthorised
from gridstat.net.command.endpoint_messages import Unpublished

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.records.registry import EndPoint
    from gridstat.broker.requests.pattern_matching import PatternMatching
    from gridstat.model.access_rules import AccessRule


class WatchedNames(Protocol):
    """Patterns across clouds, and segments of readers elsewhere (`segments`)."""

    def watch(self, pattern_id: int) -> None: ...

    def offer_again(self) -> None: ...

    def withdraw(self, contract: str, generation: int, reason: str) -> None: ...


class ListenerEnds(Protocol):
    """End-points that listen to all floods (`floods`)."""

    def listening(self) -> list[str]: ...

    def ends_of(self, endpoint: str) -> list[Operation]: ...


@dataclass(slots=True)
class Ended:
    """Operations that end what is no longer allowed, and what to tell once they are durable."""

    at_most: int
    """Operations after which the others are left to further turns."""
    operations: list[Operation] = field(default_factory=list)
    notices: list[tuple[str, Unpublished]] = field(default_factory=list)
    segments: list[tuple[str, int, str]] = field(default_factory=list)
    """Contract, generation and reason of segments that readers of other clouds had."""
    gone: set[int] = field(default_factory=set)
    """Contracts that the operations end."""
    count: int = 0
    reached: str = ""
    """End-point with which the next turn goes on, if there is more."""

    @property
    def is_unfinished(self) -> bool:
        return len(self.operations) >= self.at_most

    def add(self, ending: Ending) -> None:
        """Add the operations of an ending."""
        self.operations += ending.operations
        self.gone |= {
            one.subscription_id for one in ending.operations if isinstance(one, Unsubscribed)
        }


class RestingContracts:
    """Finds what the rules in force do not allow; in observe mode only notes it."""

    def __init__(
        self,
        context: BrokerContext,
        matching: PatternMatching,
        watches: WatchedNames,
        listeners: ListenerEnds,
    ) -> None:
        self._context = context
        self._matching = matching
        self._watches = watches
        self._listeners = listeners

    def find(self, *rules: AccessRule, begin: str = "") -> Ended:
        """Return what may have rested on rules and is not allowed any more; of all without any.

        A replaced rule is given with the one in its place: either may have carried something. The
        end-points whose names come before `begin` are left out.
        """
        found = Ended(self._context.settings.end_at_once)
        registry = self._context.registry
        cause = f"rule {rules[0].identifier} was revoked or changed; " if rules else ""
        for name in self._endpoints(rules):
            if name < begin:
                continue
            found.reached = name
            self._end_of(registry.endpoints[name], cause, found)
            if found.is_unfinished:
                return found
        for record in list(registry.segments()):
            if found.is_unfinished:
                return found
            self._end_segment(record, cause, found)
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
            self._context.commit(left, self._matching.begin_again, self._matching.begin_later)
        self._watches.offer_again()

    def _endpoints(self, rules: Iterable[AccessRule]) -> Iterator[str]:
        """Yield the end-points to which a rule applies, or which owned what it reserves."""
        some = tuple(rules)
        for name in sorted(self._context.registry.endpoints):
            if not some or any(
                rule.is_owner or matches_who(rule, name) or _is_below(rule, name) for rule in some
            ):
                yield name

    def _end_of(self, endpoint: EndPoint, cause: str, found: Ended) -> None:
        """End what one end-point may not have, as far as there is room in this turn."""
        who = endpoint.name
        for name in sorted(endpoint.publications):
            if found.is_unfinished:
                return
            if self._lack(Wish(who, Action.PUBLISH, name)):
                self._withdraw(who, (name,), cause, found)
        self._end_contracts(endpoint, cause, found)
        if not found.is_unfinished and who in self._listeners.listening():
            why = self._lack(Wish(who, Action.FLOOD, ANYTHING))
            if why:
                found.operations += self._listeners.ends_of(who)
                found.notices.append((who, _notice(0, ANYTHING, cause + why)))
                found.count += 1

    def _end_contracts(self, endpoint: EndPoint, cause: str, found: Ended) -> None:
        registry, who = self._context.registry, endpoint.name
        contracts: dict[int, tuple[str, str]] = {}
        for number, name, priority in self._contracts(endpoint):
            if len(found.operations) + len(contracts) >= found.at_most:
                break
            if number in found.gone:
                continue
            why = self._lack(Wish(who, Action.SUBSCRIBE, name, priority))
            if why:
                contracts[number] = name, why
        else:
            contracts |= self._lacking_patterns(endpoint)
        ending = Ending()
        ending.unsubscribe(registry, contracts)
        found.add(ending)
        found.count += len(contracts)
        for number, (name, why) in sorted(contracts.items()):
            found.notices.append((who, _notice(number, name, cause + why)))

    def _lacking_patterns(self, endpoint: EndPoint) -> dict[int, tuple[str, str]]:
        """Return the patterns of which an end-point may have nothing any more, with the reasons."""
        found: dict[int, tuple[str, str]] = {}
        rules, who = self._context.permissions.rules, endpoint.name
        for pattern_id in sorted(endpoint.patterns):
            pattern = self._context.registry.patterns[pattern_id].pattern
            if not rules.may_any(who, Action.SUBSCRIBE, pattern):
                why = self._lack(Wish(who, Action.SUBSCRIBE, pattern))
                if why:
                    found[pattern_id] = pattern, why
        return found

    def _withdraw(self, who: str, names: Iterable[str], cause: str, found: Ended) -> None:
        ending = Ending()
        ending.withdraw(self._context.registry, names)
        found.add(ending)
        reasons = {
            name: cause
            + self._context.permissions.rules.decide(Wish(who, Action.PUBLISH, name)).reason
            for name in names
        }
        found.count += len(reasons)
        for subscriber, notice in ending.notices:
            told = _notice(notice.subscription_id, notice.name, reasons[notice.name])
            found.notices.append((subscriber, told))
        for name, why in reasons.items():
            found.notices += [(who, each) for each in self._to_publisher(name, why)]

    def _to_publisher(self, name: str, why: str) -> Iterator[Unpublished]:
        """Yield a notice for each identifier by which the publisher may know its variable."""
        publication = self._context.registry.publications[name]
        known = [publication.variable]
        if publication.change is not None:
            known.append(publication.change.old)
        for variable in known:
            yield structs.replace(_notice(0, name, why), variable_id=variable.variable_id)

    def _contracts(self, endpoint: EndPoint) -> Iterator[tuple[int, str, int]]:
        """Yield number, name and best priority of each contract of an end-point."""
        registry = self._context.registry
        for number in sorted(registry.contracts_of(endpoint)):
            asked = registry.tree.asked.get(number)
            if asked is not None:
                if not asked.is_ending:
                    yield number, asked.record.name, best_priority(asked.record.qos)
                continue
            record = registry.contract(number)
            if record is not None:
                yield number, record.name, _priority(record)

    def _end_segment(self, record: Subscribed, cause: str, found: Ended) -> None:
        """End a segment by which an end-point of another cloud reads a variable of this one."""
        if record.entries or not record.exits:
            return
        number = record.subscription_id
        if number in found.gone:
            return
        why = self._lack(Wish(record.reader, Action.SUBSCRIBE, record.name, _priority(record)))
        if why:
            found.operations.append(Unsubscribed(subscription_id=number))
            found.segments.append((record.contract, record.segment_generation, cause + why))
            found.count += 1

    def _lack(self, wish: Wish) -> str:
        """Return why a wish is refused; empty if it is allowed, or only observed."""
        permissions = self._context.permissions
        if permissions.allows(wish):
            return ""
        return permissions.rules.decide(wish).reason


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
