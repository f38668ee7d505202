"""Access rules of simulated clouds, which operators revoke and grant again at run time.

At rest the broker holds nothing that no rule allows, and refuses nothing that a rule does.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from gridstat.broker.permissions import best_priority
from gridstat.broker.settings import AccessSettings
from gridstat.model.access_rules import ACTIONS, AccessRule, Action, Wish
from gridstat.net.command.operator_messages import GrantAccess, RevokeAccess
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from gridstat.broker.leaf_broker import LeafBroker
    from gridstat.broker.settings import BrokerSettings
    from gridstat.net.command.operator_messages import OperatorAnswer, OperatorCommand
    from lab.simulation.operator_node import OperatorNode
    from lab.simulation.world import World

RULE: Final = "nothing flows without a rule"
ZONES: Final = ("z0", "z1")


def zone_rules(cloud: str) -> tuple[AccessRule, ...]:
    """Return the rules of each zone of a cloud, and for those outside."""
    of_zones = [
        rule
        for zone in ZONES
        for rule in (
            AccessRule(f"{zone}-out", f"{cloud}/{zone}/*", ("publish",), f"{cloud}/**"),
            AccessRule(
                f"{zone}-in",
                f"{cloud}/{zone}/*",
                ("subscribe", "find"),
                "**",
                priority_best=1,
            ),
            AccessRule(
                f"{zone}-abroad",
                "**",
                ("subscribe",),
                f"{cloud}/{zone}/**",
                priority_best=1,
                is_exported=True,
            ),
        )
    ]
    return tuple(of_zones)


def rules_of(cloud: str) -> tuple[AccessRule, ...]:
    """Return all rules of a cloud, with those of end-points outside of the zones."""
    found = list(zone_rules(cloud))
    for name, who in (("desks", f"{cloud}/*"), ("hill", f"{cloud}/hill/*")):
        found.append(AccessRule(name, who, ACTIONS, "**", priority_best=1))
        what = f"{who}/*"
        abroad = AccessRule(
            f"{name}-abroad", "**", ("subscribe",), what, priority_best=1, is_exported=True
        )
        found.append(abroad)
    return tuple(found)


def with_rules(settings: BrokerSettings) -> BrokerSettings:
    """Return the settings of a simulated cloud with its rules."""
    access = AccessSettings(rules_of(settings.cloud), is_enforced=True)
    return replace(settings, access=access)


class Operators(Protocol):
    """Operators of simulated brokers, by cloud."""

    def operator_of(self, cloud: str) -> OperatorNode | None: ...


class RuleChanges:
    """Revokes rules or puts narrower ones in their place, and grants most of them again."""

    def __init__(self, world: World, clouds: tuple[str, ...], operators: Operators) -> None:
        self._world = world
        self._clouds = clouds
        self._operators = operators
        self._revoked: list[tuple[str, AccessRule]] = []
        self.done = 0

    def plan(self, start_ns: int, times_ns: tuple[int, ...]) -> None:
        """Schedule the changes of a swarm, counted from `start_ns`."""
        for at_ns in times_ns:
            self._world.at(start_ns + at_ns, self.change)

    def change(self) -> None:
        """Revoke or replace a rule, or grant the first one again, if the operator is free."""
        world = self._world
        if self._revoked and world.chance(0.6):
            cloud, rule = self._revoked[world.between(0, len(self._revoked) - 1)]
            operator = self._operators.operator_of(cloud)
            if operator is not None and operator.is_idle:
                self._revoked.remove((cloud, rule))
                again = GrantAccess(request_id=operator.next_id(), rule=rule)
                operator.ask(again, self._answered)
            return
        cloud = self._clouds[world.between(0, len(self._clouds) - 1)]
        rules = zone_rules(cloud)
        rule = rules[world.between(0, len(rules) - 1)]
        operator = self._operators.operator_of(cloud)
        if operator is None or not operator.is_idle or (cloud, rule) in self._revoked:
            return
        command: OperatorCommand
        if world.chance(0.5):
            command = RevokeAccess(request_id=operator.next_id(), identifier=rule.identifier)
        else:
            other = self._other(cloud, rule)
            command = GrantAccess(request_id=operator.next_id(), rule=other)
        operator.ask(command, partial(self._revoke_answered, cloud, rule))

    def _other(self, cloud: str, rule: AccessRule) -> AccessRule:
        """Return a rule of the same name for others, or about other variables."""
        zone = ZONES[self._world.between(0, len(ZONES) - 1)]
        if self._world.chance(0.5):
            return replace(rule, who=f"{cloud}/{zone}/*", is_exported=False)
        return replace(rule, what=f"{cloud}/{zone}/**")

    def _revoke_answered(self, cloud: str, rule: AccessRule, answer: OperatorAnswer) -> None:
        self._revoked.append((cloud, rule))
        self._answered(answer)

    def _answered(self, answer: OperatorAnswer) -> None:
        self.done += answer.refused is None


def check_rules(broker: LeafBroker) -> None:
    """Check that a rule allows everything that a broker holds."""
    registry = broker.registry
    for name, publication in registry.publications.items():
        _check(broker, Wish(publication.publisher, Action.PUBLISH, name))
    for found in registry.subscriptions.values():
        record = found.record
        if record.entries and record.exits:
            continue  # The clouds of the ends decide.
        who = record.subscriber or record.reader
        _check(broker, Wish(who, Action.SUBSCRIBE, record.name, best_priority(record.qos)))
    for asked in registry.tree.asked.values():
        if not asked.is_ending:
            record_asked = asked.record
            wish = Wish(
                record_asked.subscriber,
                Action.SUBSCRIBE,
                record_asked.name,
                best_priority(record_asked.qos),
            )
            _check(broker, wish)
    for held in registry.patterns.values():
        if not broker.permissions.rules.may_any(held.subscriber, Action.SUBSCRIBE, held.pattern):
            raise PropertyBroken(RULE, f"pattern {held.pattern} of {held.subscriber}")


def _check(broker: LeafBroker, wish: Wish) -> None:
    decision = broker.permissions.rules.decide(wish)
    if not decision.is_allowed:
        raise PropertyBroken(RULE, f"{broker.registry.cloud}: {decision.reason}")
