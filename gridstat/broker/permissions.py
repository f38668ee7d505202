"""Permissions of end-points in one cloud: the law of `model/access_rules.py` as requests meet it.

All parts of a leaf broker that serve end-points, here or of other clouds, ask this object. The
folder `access` keeps its rules durable and ends what rests on a rule that was revoked. A cloud that
only observes allows everything as before, and keeps what it would have refused.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from gridstat.broker.capacity.charges import event_bytes, event_rate
from gridstat.broker.capacity.negotiation import band_of
from gridstat.broker.observed_refusals import ObservedRefusal, ObservedRefusals
from gridstat.model.access_rules import AccessRules, Action, Wish
from gridstat.model.cloud import is_pattern
from gridstat.model.errors import NotAuthorised
from gridstat.model.stamp_law import DELAY_MS_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gridstat.broker.records.registry import Subscription
    from gridstat.model.errors import QuotaReached
    from gridstat.model.qos import ModalQos
    from gridstat.model.rate_law import Period
    from gridstat.model.status import StatusVariable

CHARGED_MTU_BYTES: Final = 1_232


class Permissions:
    """Decides wishes by the rules in force; `is_enforced` is false while the cloud observes.

    `reserved` holds the bytes/s that each end-point has reserved by publishing and subscribing.
    """

    def __init__(self, cloud: str, wall_clock_ns: Callable[[], int]) -> None:
        self._wall_clock_ns = wall_clock_ns
        self.rules = AccessRules(cloud)
        self.is_enforced = True
        self.observed = ObservedRefusals(cloud)
        self.refusals = 0
        self.reserved: dict[tuple[str, Action], int] = {}

    def check(self, wish: Wish) -> None:
        """Raise `NotAuthorised`, with the rule to write, unless the wish is allowed."""
        decision = self.rules.decide(wish)
        if decision.is_allowed:
            return
        if self.is_enforced:
            self.refusals += 1
            raise NotAuthorised(f"rule access: {decision.reason}", hint=decision.hint)
        self._note(ObservedRefusal(wish, decision.reason))

    def allows(self, wish: Wish) -> bool:
        """Return whether a wish is allowed, or only observed."""
        decision = self.rules.decide(wish)
        if decision.is_allowed:
            return True
        if not self.is_enforced:
            self._note(ObservedRefusal(wish, decision.reason))
        return not self.is_enforced

    def note_quota(self, wish: Wish, raised: Mapping[str, Any], refusal: QuotaReached) -> None:
        """Note the refusal of a quota that a cloud which observes does not carry out."""
        self._note(ObservedRefusal(wish, str(refusal.args[0]), raised=raised))

    def _note(self, refusal: ObservedRefusal) -> None:
        refusal.last_ns = self._wall_clock_ns()
        self.observed.note(refusal)

    def check_publication(
        self, who: str, variable: StatusVariable, before: StatusVariable | None = None
    ) -> None:
        """Check a variable to be published, in place of `before` if there is one."""
        reserved = 0
        if self.rules.is_metered(who):
            held = self.reserved.get((who, Action.PUBLISH), 0)
            reserved = held + bytes_per_s(variable) - (bytes_per_s(before) if before else 0)
        self.check(Wish(who, Action.PUBLISH, variable.name, reserved_bytes_per_s=reserved))

    def check_delay(self, who: str, variable: StatusVariable) -> None:
        """Check the declared delay of a variable; the default needs no rule of its own."""
        reason = self.delay_lack(who, variable)
        if reason:
            self.refusals += 1
            raise NotAuthorised(
                f"rule access: {reason}",
                hint="an operator of the cloud allows it with delay_ms_max = "
                f"{variable.delay_ms} in a rule",
            )

    def delay_lack(self, who: str, variable: StatusVariable) -> str:
        """Return why the declared delay is refused; empty if it is allowed, or only observed."""
        delay_ms = variable.delay_ms
        if delay_ms <= DELAY_MS_DEFAULT:
            return ""
        most_ms = self.delay_ms_max(who, variable.name)
        if delay_ms <= most_ms:
            return ""
        wish = Wish(who, Action.PUBLISH, variable.name)
        reason = f"rules let {who} publish {variable.name} up to {most_ms} ms late, not {delay_ms}"
        if self.is_enforced:
            return reason
        self._note(ObservedRefusal(wish, reason, delay_ms=delay_ms))
        return ""

    def delay_ms_max(self, who: str, name: str) -> int:
        """Return how old an event of a variable may be at its first router."""
        allowed = [rule.delay_ms_max for rule in self.rules.about(who, Action.PUBLISH, name)]
        return max(allowed, default=DELAY_MS_DEFAULT)

    def may_preempt(self, who: str, variable: StatusVariable, qos: ModalQos) -> bool:
        """Return whether an end-point may end others' contracts for one that it asks for.

        One rule has to allow that and the contract itself: its name, priority and bytes/s.
        """
        allowing = self.rules.allowing(self._contract_wish(who, variable, qos))
        return any(rule.may_preempt for rule in allowing)

    def observed_refusals(self) -> list[ObservedRefusal]:
        """Return what would be refused today of all that was observed, and forget the rest."""
        return self.observed.shown(self._is_allowed_now)

    def _is_allowed_now(self, found: ObservedRefusal) -> bool:
        """Return whether rules allow by now what was observed; else say why not as of now."""
        wish = found.wish
        if found.raised:
            return all(
                any((getattr(rule, figure) or 0) >= value for rule in self.rules.rules_of(wish.who))
                for figure, value in found.raised.items()
            )
        if found.delay_ms:
            return found.delay_ms <= self.delay_ms_max(wish.who, wish.what)
        is_one_wish = not found.has_more_names
        if is_one_wish and is_pattern(wish.what) and wish.action is not Action.FLOOD:
            return self.rules.may_any(wish.who, wish.action, wish.what, priority=wish.priority)
        decision = self.rules.decide(wish)
        found.reason, found.advice = decision.reason, decision.advice
        return decision.is_allowed

    def check_name(self, who: str, name: str, qos: ModalQos) -> None:
        """Check a subscription to a name, whose variable is not known yet or is elsewhere."""
        self.check(Wish(who, Action.SUBSCRIBE, name, priority=best_priority(qos)))

    def check_contract(
        self, who: str, variable: StatusVariable, qos: ModalQos, *, held_bytes_per_s: int = 0
    ) -> None:
        """Check a contract, in place of one with `held_bytes_per_s` if there is one."""
        self.check(self._contract_wish(who, variable, qos, held_bytes_per_s))

    def _contract_wish(
        self, who: str, variable: StatusVariable, qos: ModalQos, held_bytes_per_s: int = 0
    ) -> Wish:
        reserved = 0
        if self.rules.is_metered(who):
            held = self.reserved.get((who, Action.SUBSCRIBE), 0)
            reserved = held - held_bytes_per_s + wished_bytes_per_s(variable, qos)
        return Wish(who, Action.SUBSCRIBE, variable.name, best_priority(qos), reserved)

    def check_pattern(
        self, who: str, action: Action, pattern: str, priority: int | None = None
    ) -> None:
        """Check that something which matches a pattern may be allowed, at a priority."""
        if not self.rules.may_any(who, action, pattern, priority=priority):
            self.check(Wish(who, action, pattern, priority))

    def is_named(self, who: str, action: Action, name: str) -> bool:
        """Return whether a rule lets an end-point do something with a name, whatever its bounds.

        Who may have nothing of a name is not told whether it exists; else a refusal may say so. A
        cloud that observes hides nothing.
        """
        return not self.is_enforced or bool(self.rules.about(who, action, name))

    def patterns_within(
        self, who: str, action: Action, pattern: str, *, names: int
    ) -> Sequence[str]:
        """Return the patterns of the names within a pattern that are allowed, or only observed.

        If rules allow more patterns than there are names, it is the pattern itself: to look at each
        name is then cheaper.
        """
        if not self.is_enforced:
            return (pattern,)
        found = self.rules.allowed_within(who, action, pattern)
        return found if len(found) <= max(1, names) else (pattern,)

    def check_everything(self, who: str, action: Action) -> None:
        """Check an action that reaches all variables at once."""
        if self.rules.may_all(who, action) is None:
            self.check(Wish(who, action, "**"))

    def add_reserved(self, who: str, action: Action, more: int) -> None:
        """Count bytes/s that an end-point has reserved, or no longer has."""
        key = who, action
        total = self.reserved.get(key, 0) + more
        if total:
            self.reserved[key] = total
        else:
            self.reserved.pop(key, None)


def best_priority(qos: ModalQos) -> int:
    """Return the best priority that a subscription asks for in any mode."""
    return min(each.priority for each in qos.modes.values())


def bytes_per_s(variable: StatusVariable, every: int = 1) -> int:
    """Return the bytes/s of every n-th event of a variable, each alone in its datagram.

    An aperiodic variable of an earlier release may have no bound of its rate; it counts nothing.
    """
    if variable.period is None:
        if variable.interval_ns_min < 1:
            return 0
        return ceil(
            event_rate(variable) * event_bytes(variable, CHARGED_MTU_BYTES, is_sealed=True) / every
        )
    size = event_bytes(variable, CHARGED_MTU_BYTES, is_sealed=True)
    return _periodic(variable.period, variable.replay_speed or 1, size, every)


@lru_cache(maxsize=1_024)
def _periodic(period: Period, speed: int, size: int, every: int) -> int:
    return ceil(Fraction(period.per_seconds * speed * size, period.seconds * every))


def wished_bytes_per_s(variable: StatusVariable, qos: ModalQos) -> int:
    """Return the bytes/s of the mode of a wish that needs most."""
    desired = band_of(qos, variable.period).desired
    return max(bytes_per_s(variable, each.every) for each in desired.values())


def held_bytes_per_s(found: Subscription) -> int:
    """Return the bytes/s that a contract has reserved."""
    return granted_bytes_per_s(
        found.variable, (each.every for each in found.record.granted.values())
    )


def granted_bytes_per_s(variable: StatusVariable, everys: Iterable[int]) -> int:
    """Return the bytes/s of the mode of a grant that takes most."""
    return bytes_per_s(variable, min(everys, default=1))
