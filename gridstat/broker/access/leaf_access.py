"""Access rules of a cloud: granted and revoked at run time, and what rests on them ended.

A change of rules and the ends that follow from it are one write, so that a restart finds both or
neither. What a slice leaves over is judged in further turns. Until all of it is, the journal names
the rule that was taken away (`AccessEnding`), so that a start goes on with it.

A cloud whose file says nothing enforces its rules, but a journal from before there were rules has
none: such a cloud observes until an operator has it enforce them.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gridstat.broker.access.access_effects import AccessEffects, ReservedBytes
from gridstat.broker.access.access_operations import (
    AccessEnding,
    AccessGranted,
    AccessModeSet,
    AccessRecords,
    AccessRevoked,
)
from gridstat.broker.access.resting_contracts import RestingContracts
from gridstat.broker.leaf_capability import LeafCapability
from gridstat.broker.permissions import bytes_per_s
from gridstat.broker.records.operation import Applied
from gridstat.broker.requests.outcomes import refused
from gridstat.model.access_rules import (
    ACTIONS,
    ANYTHING,
    RULES_MAX,
    AccessRule,
    Action,
    Wish,
    grant_command,
    is_tighter,
    rule_for,
    settings_of,
    toml_of,
    without_effect,
)
from gridstat.model.cloud import check_stored_pattern
from gridstat.model.errors import (
    GridStatError,
    LayoutError,
    Misuse,
    QuotaReached,
    StorageFailed,
    UnknownName,
)
from gridstat.model.qos import PRIORITY_MAX
from gridstat.net.command.operator_messages import (
    GrantAccess,
    ListAccess,
    OperatorAnswer,
    RevokeAccess,
    SetAccessMode,
    WhyAccess,
)

if TYPE_CHECKING:
    from gridstat.broker.access.resting_contracts import (
        Ended,
        EndedGrants,
        ListenerEnds,
        RuleSweep,
        WatchedNames,
    )
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.leaf_capability import Facts
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.requests.notices import Notices
    from gridstat.broker.requests.pattern_matching import PatternMatching

SWEEP_TIMER: Final = "access"
SWEEPS_MAX: Final = 64
"""Changes of rules that are judged one by one; more are judged together, over everything."""
PAGE_MAX: Final = 500
ROLES_JUDGED: Final = ("endpoint", "operator")
BOUNDS_NOTE: Final = (
    "reserved_bytes_per_s and delay_ms_max bound new requests and changes; what was granted or "
    "published before keeps what it has until it ends or is changed"
)
RESERVING: Final = frozenset({Action.PUBLISH, Action.SUBSCRIBE})
MODES: Final = {True: "enforce", False: "observe"}


class LeafAccess:
    """Owns the rules of one cloud and their durable state `records`."""

    def __init__(
        self,
        context: BrokerContext,
        notices: Notices,
        matching: PatternMatching,
        watches: WatchedNames,
        listeners: ListenerEnds,
        grants: EndedGrants,
    ) -> None:
        self._context = context
        self._notices = notices
        self._permissions = context.permissions
        self.records = AccessRecords()
        settings = context.settings.access
        self._effects = AccessEffects(self.records, self._permissions, settings.rules)
        self._reserved = ReservedBytes(context.registry, self._permissions)
        self._sweeps: deque[RuleSweep] = deque()
        """What changes of rules leave to be judged, the oldest first."""
        self._is_writing = False
        self._resting = RestingContracts(context, matching, watches, listeners, grants)

    def capability(self) -> LeafCapability:
        return LeafCapability(
            name="access",
            operations=self._effects.operations(),
            around=self._reserved.around(),
            snapshot=self.records.snapshot,
            resume=self._resume,
            operator_commands={
                GrantAccess: self._grant,
                RevokeAccess: self._revoke,
                ListAccess: self._list,
                WhyAccess: self._why,
                SetAccessMode: self._set_mode,
            },
            timers={SWEEP_TIMER: self._sweep},
            survey=self._survey,
        )

    def first_operations(self) -> list[Operation]:
        """Return the operation of a start that fixes whether rules are enforced."""
        wanted = self._context.settings.access.is_enforced
        if wanted is None:
            wanted = self.records.is_enforced
        if wanted is None:
            # A journal from before there were rules goes on as before.
            wanted = bool(len(self._permissions.rules)) or not self._context.has_journal
        if wanted == self.records.is_enforced:
            return []
        return [AccessModeSet(is_enforced=wanted)]

    def _resume(self) -> None:
        self._warn()
        self._sweeps.append(self._resting.everything(self.records.ending))
        self._sweep()

    def _warn(self) -> None:
        self._warn_of_mode()
        idle = [text for rule in self._permissions.rules if (text := without_effect(rule))]
        if idle:
            self._context.warn("access_rules_without_effect", count=len(idle), first=idle[0])

    def _warn_of_mode(self) -> None:
        count = len(self._permissions.rules)
        if not self._permissions.is_enforced:
            self._context.warn(
                "access_not_enforced",
                rules=count,
                hint="gridstat access why --observed lists what rules would be needed",
            )
        elif not count:
            self._context.warn(
                "no_access_rules",
                hint="nobody may publish or subscribe; the broker's file needs rules, as "
                + toml_of(example_rule(self._context.registry.cloud)).replace("\n", " "),
            )

    # Commands.

    def _grant(self, peer: str, command: GrantAccess) -> None:
        rule, rules = command.rule, self._permissions.rules
        if rules.get(rule.identifier) == rule:
            self._answer(peer, command.request_id, {"rule": settings_of(rule), "ended": 0})
            return
        if idle := without_effect(rule):
            raise LayoutError(idle)
        if rules.get(rule.identifier) is None and len(rules) >= RULES_MAX:
            raise QuotaReached(
                f"the cloud has {len(rules)} access rules already",
                hint="revoke some, or write one rule with a pattern for several end-points",
            )
        before = rules.get(rule.identifier)
        self._change(peer, command.request_id, AccessGranted(rule=rule), rule, before)

    def _revoke(self, peer: str, command: RevokeAccess) -> None:
        rule = self._permissions.rules.get(command.identifier)
        if rule is None:
            raise UnknownName(
                f"the cloud has no access rule {command.identifier[:80]}",
                hint="gridstat access list shows all of them",
            )
        # The file's rule of that name, which the granted one hid, would be in force otherwise.
        in_file = self._effects.from_file.get(command.identifier)
        self._change(peer, command.request_id, AccessRevoked(rule=in_file or rule), None, rule)

    def _set_mode(self, peer: str, command: SetAccessMode) -> None:
        fixed = self._context.settings.access.is_enforced
        if fixed is not None and fixed != command.is_enforced:
            raise Misuse(
                f'the broker\'s file says access = "{MODES[fixed]}", which would hold again after '
                "the next start",
                hint="change the file and start the broker anew, or leave the key out of it",
            )
        operation = AccessModeSet(is_enforced=command.is_enforced)
        self._change(peer, command.request_id, operation)

    def _change(
        self,
        peer: str,
        request_id: int,
        operation: Operation,
        given: AccessRule | None = None,
        taken: AccessRule | None = None,
    ) -> None:
        """Write a change of rules together with the first ends that follow from it."""
        applied = Applied()
        self._context.effects.apply(operation, applied)
        rule = given or taken
        is_mode = rule is None
        sweep = self._resting.everything() if is_mode else self._resting.after(taken, given)
        found = self._resting.find(sweep)
        more: list[Operation] = []
        if not sweep.is_over:
            more = [AccessEnding(rule=each) for each in sweep.taken]
        operations = [operation, *found.operations, *more]
        for each in operations[1:]:
            self._context.effects.apply(each, applied)
        facts: Facts = {
            "ended": found.count,
            "is_ending_more": not sweep.is_over,
            "mode": MODES[self._permissions.is_enforced],
        }
        if rule is not None:
            facts["rule"] = settings_of(rule)
            in_force = self._permissions.rules.get(rule.identifier)
            if given and taken and is_tighter(given, taken):
                facts["note"] = BOUNDS_NOTE
            facts["in_force"] = None if in_force is None else settings_of(in_force)
        done = partial(self._changed, peer, request_id, facts, found, sweep, given, taken)
        self._context.commit_applied(
            applied, operations, done, partial(self._failed, peer, request_id)
        )

    def _changed(
        self,
        peer: str,
        request_id: int,
        facts: Facts,
        found: Ended,
        sweep: RuleSweep,
        given: AccessRule | None,
        taken: AccessRule | None,
        _: Applied,
    ) -> None:
        if given is None and taken is None:
            self._warn_of_mode()
        self._ended(found)
        self._go_on(sweep)
        if given is not None or taken is None:
            self._resting.offer_names(given)
        self._answer(peer, request_id, facts)

    def _go_on(self, sweep: RuleSweep) -> None:
        """Judge what a sweep has left in further turns."""
        if not sweep.is_over:
            self._sweeps.append(sweep)
        if len(self._sweeps) > SWEEPS_MAX:
            self._begin_anew()
        if self._sweeps and not self._is_writing:
            self._context.set_timer(SWEEP_TIMER, 0)

    def _begin_anew(self) -> None:
        """Judge everything, in place of all that is left of earlier sweeps."""
        self._sweeps.clear()
        self._sweeps.append(self._resting.everything(self.records.ending))

    def _sweep(self) -> None:
        """End what no rule allows any more, a slice at a time."""
        if self._is_writing or not self._sweeps:
            return
        sweep = self._sweeps[0]
        found = self._resting.find(sweep)
        operations = list(found.operations)
        if sweep.is_over:
            self._sweeps.popleft()
            operations += [AccessEnding(rule=each, is_over=True) for each in sweep.taken]
        if not operations:
            self._go_on_soon()
            return
        self._is_writing = True
        self._context.commit(operations, partial(self._swept, found), self._sweep_later)

    def _go_on_soon(self) -> None:
        if self._sweeps:
            self._context.set_timer(SWEEP_TIMER, 0)

    def _swept(self, found: Ended, _: Applied) -> None:
        self._is_writing = False
        self._ended(found)
        self._go_on_soon()

    def _ended(self, found: Ended) -> None:
        for name, notice in found.notices:
            self._notices.push(name, notice)
        self._resting.report(found)
        if found.count:
            self._context.note("access_ended", contracts=found.count)

    def _sweep_later(self, _: str) -> None:
        """Begin anew after a failed write, which has undone the ends of its slice."""
        self._is_writing = False
        self._begin_anew()
        self._context.set_timer(SWEEP_TIMER, self._context.settings.retry_after_ns)

    # Questions.

    def _list(self, peer: str, command: ListAccess) -> None:
        records, from_file = self.records, self._effects.from_file
        known = {**from_file, **records.granted}
        names = sorted(name for name in known if name > command.after)
        rows = [self._row(known[name]) for name in names[:PAGE_MAX]]
        facts: Facts = {
            "cloud": self._context.registry.cloud,
            "rules": rows,
            "next": names[PAGE_MAX - 1] if names[PAGE_MAX:] else "",
            **self._survey()["access"],
        }
        self._answer(peer, command.request_id, facts)

    def _row(self, rule: AccessRule) -> Facts:
        is_granted = self.records.granted.get(rule.identifier) == rule
        return {
            **settings_of(rule),
            "from": "run time" if is_granted else "file",
            "is_in_force": self._permissions.rules.get(rule.identifier) == rule,
        }

    def _why(self, peer: str, command: WhyAccess) -> None:
        facts: Facts = {"cloud": self._context.registry.cloud, **self._survey()["access"]}
        if command.is_observed:
            kept = self._permissions.observed_refusals()
            some = kept[command.skip : command.skip + PAGE_MAX]
            is_more = len(kept) > command.skip + PAGE_MAX
            facts["refusals_observed"] = [
                {
                    "who": each.wish.who,
                    "action": each.wish.action.value,
                    "what": each.wish.what,
                    "count": each.count,
                    "last_ns": each.last_ns,
                    "reason": each.reason,
                    "names": each.names,
                    "has_more_names": each.has_more_names,
                    "rule": {} if each.advice else settings_of(each.rule()),
                    "command": ""
                    if each.advice
                    else grant_command(each.rule(), self._context.registry.cloud),
                    "hint": each.advice,
                }
                for each in some
            ]
            facts["next"] = command.skip + PAGE_MAX if is_more else 0
        else:
            facts |= self._explained(command)
        self._answer(peer, command.request_id, facts)

    def _explained(self, command: WhyAccess) -> Facts:
        if command.action not in ACTIONS:
            raise LayoutError(
                f"{command.action[:80]!r} is no action", hint=f"one of {', '.join(ACTIONS)}"
            )
        if command.role not in ROLES_JUDGED:
            raise LayoutError(
                f"{command.role[:80]!r} is no role that rules are about",
                hint=f"one of {', '.join(ROLES_JUDGED)}; routers and brokers have their rights by "
                "their role",
            )
        if not 0 <= command.priority <= PRIORITY_MAX:
            raise LayoutError(f"priority {command.priority} is not 1 to {PRIORITY_MAX}")
        check_stored_pattern(command.what)
        if command.who:
            check_stored_pattern(command.who)
        facts: Facts = {"who": command.who, "action": command.action, "what": command.what}
        if command.role == "operator":
            reason = "operators see all of their cloud and flood what they choose, by their role"
            return facts | {
                "is_allowed": True,
                "rule": None,
                "reason": reason,
                "hint": "",
                "needed": "",
            }
        wish = self._wish_of(command)
        decision = self._permissions.rules.decide(wish)
        rule = decision.rule
        return facts | {
            "is_allowed": decision.is_allowed,
            "rule": None if rule is None else settings_of(rule),
            "reason": decision.reason,
            "hint": decision.hint,
            "needed": "" if decision.is_allowed else toml_of(rule_for(wish)),
            "bound": "" if rule is None else self._bound(wish, rule),
        }

    def _wish_of(self, command: WhyAccess) -> Wish:
        """Return the wish that the broker would decide: a flood reaches listeners of everything,
        and a contract at the full rate counts to what is reserved."""
        action, who = Action(command.action), command.who
        what = ANYTHING if action is Action.FLOOD else command.what
        registry = self._context.registry
        reserved = self._permissions.reserved.get((who, action), 0)
        found = registry.publications.get(what)
        endpoint = registry.endpoints.get(who)
        if found is not None and action is Action.SUBSCRIBE:
            own = () if endpoint is None else endpoint.subscriptions
            if not found.subscriptions.intersection(own):
                reserved += bytes_per_s(found.variable)
        return Wish(who, action, what, command.priority or None, reserved)

    def _bound(self, wish: Wish, rule: AccessRule) -> str:
        """Return how far an allowed wish may go by a rule, for people."""
        if wish.action is Action.FLOOD and wish.what == ANYTHING:
            return "all that floods at its edge routers is meant: single variables cannot be chosen"
        if rule.reserved_bytes_per_s is None or wish.action not in RESERVING:
            return ""
        held = self._permissions.reserved.get((wish.who, wish.action), 0)
        return (
            f"up to {rule.reserved_bytes_per_s} bytes/s in all, of which {wish.who} has reserved "
            f"{held}"
        )

    def _survey(self) -> Facts:
        permissions = self._permissions
        return {
            "access": {
                "mode": MODES[permissions.is_enforced],
                "rule_count": len(permissions.rules),
                "refused": permissions.refusals,
                "observed": permissions.observed.count,
                "not_kept": permissions.observed.not_kept_facts(),
            }
        }

    # Answers.

    def _answer(self, peer: str, request_id: int, facts: dict[str, Any]) -> None:
        self._context.send(peer, OperatorAnswer(request_id=request_id, facts=facts))

    def _failed(self, peer: str, request_id: int, reason: str) -> None:
        error: GridStatError = StorageFailed(f"nothing was changed: {reason}")
        self._context.send(peer, OperatorAnswer(request_id=request_id, refused=refused(error)))


def example_rule(cloud: str) -> AccessRule:
    """Return the rule that the log names in a cloud without any."""
    who = f"{cloud}/*/*"
    return AccessRule("pmus", who, ("publish",), f"{who}/**", is_owner=True)
