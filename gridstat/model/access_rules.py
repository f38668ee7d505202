"""Who may what: rules, and the one law that allows or refuses by them.

Law. Nothing is allowed without a rule. A rule allows an action of an end-point on a variable if
`who` matches the end-point's certificate name, `may` holds the action, `what` matches the
variable's name, and the wish stays within the rule's bounds (priority, reserved bytes/s). Rules
only add up: any one is enough, and none takes away what another allows. Two limits stand beside
them:

- A name has one owner, the end-point whose own name is the longest beginning of it. A rule that
  lets one named end-point publish reserves the names below that end-point's own, and so does a rule
  with `is_owner` for each end-point that its pattern matches. Nobody else publishes them, whether
  the owner is present or not.
- An end-point of another cloud is covered only by a rule that names its cloud in `who`, or that has
  `is_exported`. So `**` of this cloud never means the whole world by accident.

Patterns are those of `model/cloud.py`: `*` is one part, `**` at the end all below; a name without
stars is that name alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from gridstat.model.cloud import check_pattern, check_stored_name, is_legal, is_pattern
from gridstat.model.errors import LayoutError
from gridstat.model.qos import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

RULES_MAX: Final = 100_000
"""Rules of one cloud."""
IDENTIFIER_CHARS_MAX: Final = 100
RESERVED_MAX: Final = 10**12
COUNT_MAX: Final = 10**7
SESSIONS_MAX: Final = 2
"""Edge routers to which an end-point attaches at a time."""
DELAY_MS_DEFAULT: Final = 100
DELAY_MS_MAX: Final = 10_000
UNKNOWN: Final = ""
"""Name of an end-point that a broker of an earlier release did not tell."""
ANYONE: Final = "**"
_DIGEST_CHARS: Final = 8
"""Letters at the end of a suggested rule's name that stand for what it is about."""
ANYTHING: Final = "**"
LOOKED_MAX: Final = 128
"""Rules, and parts of rules, at which one question about a pattern looks. If that is not enough,
the pattern is judged name by name."""
_INDEXES_MAX: Final = 10_000
"""End-points whose rules are remembered; all are forgotten beyond that number."""


class Action(Enum):
    """What a rule may allow."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    FIND = "find"
    FLOOD = "flood"


ACTIONS: Final = tuple(action.value for action in Action)
ROLES: Final = ("endpoint", "any")
"""Roles that rules in journals may name; all mean the same, and a new rule names none."""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """One rule; `priority_best` is the lowest priority number that it allows.

    `reserved_bytes_per_s` bounds all that one end-point has reserved by the action; None leaves it
    to the quotas. The fields from `capacity_share` on raise a quota of the end-points, None leaves
    the default. `delay_ms_max` is how old an event may be at the first router (`publish`). With
    `may_preempt` a subscription that does not fit may end others of lower priorities, in a cloud
    whose policy says so.
    """

    identifier: str
    who: str
    may: tuple[str, ...]
    what: str
    role: str = "endpoint"
    priority_best: int = PRIORITY_DEFAULT
    reserved_bytes_per_s: int | None = None
    is_owner: bool = False
    is_exported: bool = False
    delay_ms_max: int = DELAY_MS_DEFAULT
    capacity_share: float | None = None
    commands_per_s: int | None = None
    variables: int | None = None
    subscriptions: int | None = None
    sessions: int | None = None
    may_preempt: bool = False

    def __post_init__(self) -> None:
        _check_identifier(self.identifier)
        for key in ("who", "what"):
            _check_names(self.identifier, key, getattr(self, key))
        if not self.may or len(set(self.may)) != len(self.may) or not set(self.may) <= {*ACTIONS}:
            raise self._wrong("may", f"is one or more of {', '.join(ACTIONS)}, each once")
        if self.role not in ROLES:
            raise self._wrong(
                "role",
                f"is one of {', '.join(ROLES)}: operators, routers and brokers need no rule",
            )
        bounds: tuple[tuple[str, float, float], ...] = (
            ("priority_best", PRIORITY_MIN, PRIORITY_MAX),
            ("reserved_bytes_per_s", 0, RESERVED_MAX),
            ("delay_ms_max", 1, DELAY_MS_MAX),
            ("capacity_share", 0.0, 1.0),
            ("commands_per_s", 0, COUNT_MAX),
            ("variables", 0, COUNT_MAX),
            ("subscriptions", 0, COUNT_MAX),
            ("sessions", 0, COUNT_MAX),
        )
        for key, least, most in bounds:
            value = getattr(self, key)
            if value is not None and not least <= value <= most:
                raise self._wrong(key, f"is from {least} to {most}")
        if self.may_preempt and Action.SUBSCRIBE.value not in self.may:
            raise self._wrong("preempt", "is for end-points that may subscribe")
        if self.is_owner and Action.PUBLISH.value not in self.may:
            raise self._wrong("owner", "is for end-points that may publish")

    def _wrong(self, key: str, what: str) -> LayoutError:
        return LayoutError(f"access rule {self.identifier}: {key} {what}")

    def covers_cloud(self, cloud: str, home: str) -> bool:
        """Return whether the rule is for end-points of a cloud, as a rule of cloud `home`."""
        return cloud == home or self.is_exported or self.who.partition("/")[0] == cloud


def without_effect(rule: AccessRule) -> str:
    """Return what of a rule has no effect, and what to write; empty if all of it has.

    Journals and files of earlier releases may have such rules, and are read; none is granted.
    """
    if Action.FLOOD.value in rule.may and rule.what != ANYTHING:
        return (
            f"access rule {rule.identifier}: flood of {rule.what} allows nothing, since all that "
            'floods reaches whoever listens: write a rule of its own with what = "**"'
        )
    if rule.role != ROLES[0]:
        return f"access rule {rule.identifier}: role means nothing; leave it out"
    if (rule.sessions or 0) > SESSIONS_MAX:
        return (
            f"access rule {rule.identifier}: sessions is at most {SESSIONS_MAX}, the edge "
            "routers to which an end-point attaches"
        )
    return ""


def _check_identifier(identifier: str) -> None:
    if len(identifier) > IDENTIFIER_CHARS_MAX or "/" in identifier:
        raise LayoutError(
            f"access rule {identifier[:80]!r}: the name has at most {IDENTIFIER_CHARS_MAX} letters "
            "and no slash"
        )
    check_stored_name(identifier)


def _check_names(identifier: str, key: str, pattern: str) -> None:
    try:
        check_pattern(pattern)
    except LayoutError as error:
        raise LayoutError(
            f"access rule {identifier}: {key}: {error.args[0]}", hint=error.hint
        ) from None


# Decisions.


@dataclass(frozen=True, slots=True)
class Wish:
    """What an end-point of a role wants to do with a variable.

    `priority` is the best of all modes, None if the action has none. `reserved_bytes_per_s` is all
    that the end-point would have reserved by this action, this wish included.
    """

    who: str
    action: Action
    what: str
    priority: int | None = None
    reserved_bytes_per_s: int = 0
    role: str = "endpoint"


@dataclass(frozen=True, slots=True)
class Decision:
    """`rule` allows the wish; if it is None the wish is refused, with what would be needed.

    `advice` is the hint of a refusal to which no rule is the answer.
    """

    rule: AccessRule | None
    reason: str = ""
    advice: str = ""
    wish: Wish | None = None
    cloud: str = ""

    @property
    def hint(self) -> str:
        """What to do about a refusal; made when it is read, as most refusals are not shown."""
        return self.advice if self.wish is None else needed(self.wish, self.cloud)

    @property
    def is_allowed(self) -> bool:
        return self.rule is not None


class AccessRules:
    """All rules of one cloud, indexed so that a decision costs the depth of two names.

    `who` patterns are found once for each end-point; its rules are then found by the parts of a
    variable's name. A change of a rule forgets the indexes of whom it is for, which are built again
    when needed.
    """

    def __init__(self, cloud: str, rules: Iterable[AccessRule] = ()) -> None:
        self._cloud = cloud
        self._rules: dict[str, AccessRule] = {}
        self._who: _PatternTree = _PatternTree()
        self._owners: _PatternTree = _PatternTree()
        self._reserved: dict[str, int] = {}
        """Exact `who` names that may publish, with the number of their rules."""
        self._indexes: dict[tuple[str, str], _OwnRules] = {}
        self._shared: dict[tuple[str, ...], _OwnRules] = {}
        self.looked = 0
        """Parts of rules, and rules, at which questions about patterns have looked in all."""
        for rule in rules:
            self.add(rule)

    def __len__(self) -> int:
        return len(self._rules)

    def __iter__(self) -> Iterator[AccessRule]:
        """Yield all rules, ordered by identifier."""
        return iter([self._rules[name] for name in sorted(self._rules)])

    def get(self, identifier: str) -> AccessRule | None:
        return self._rules.get(identifier)

    def add(self, rule: AccessRule) -> None:
        """Add a rule, or replace the one with its identifier."""
        self.discard(rule.identifier)
        self._rules[rule.identifier] = rule
        self._who.add(rule.who, rule)
        if rule.is_owner:
            self._owners.add(rule.who, rule)
        if reserves_own_name(rule):
            self._reserved[rule.who] = self._reserved.get(rule.who, 0) + 1
        self._forget_those_of(rule.who)

    def discard(self, identifier: str) -> None:
        rule = self._rules.pop(identifier, None)
        if rule is None:
            return
        self._who.discard(rule.who, rule)
        if rule.is_owner:
            self._owners.discard(rule.who, rule)
        if reserves_own_name(rule):
            left = self._reserved[rule.who] - 1
            if left:
                self._reserved[rule.who] = left
            else:
                del self._reserved[rule.who]
        self._forget_those_of(rule.who)

    def decide(self, wish: Wish) -> Decision:
        """Return by which rule a wish is allowed, or why it is refused and what to write."""
        own = self._own(wish.who, wish.role)
        if wish.action is Action.PUBLISH:
            owner = self.owner_of(wish.what)
            is_own = wish.what.startswith(f"{wish.who}/") and len(owner) <= len(wish.who)
            if owner and not is_own:
                return Decision(
                    None,
                    f"{wish.what} belongs to {owner}, and {wish.who} may not publish it",
                    "publish other names, or have the rule changed that reserves this one: "
                    "gridstat access list",
                )
        best: AccessRule | None = None
        for rule in own.matching(wish.action, wish.what):
            lack = _lack(rule, wish)
            if not lack:
                return Decision(rule)
            if best is None or _room(rule) > _room(best):
                best = rule
        if best is not None:
            return Decision(None, _lack(best, wish), wish=wish, cloud=self._cloud)
        return Decision(
            None,
            f"no rule lets {shown(wish.who)} {wish.action.value} {wish.what}",
            wish=wish,
            cloud=self._cloud,
        )

    def may_any(
        self, who: str, action: Action, pattern: str, *, priority: int | None = None
    ) -> bool:
        """Return whether any name that matches a pattern may be allowed, at a priority.

        It is true as well if that is not known after `LOOKED_MAX` steps: each name is judged.
        """
        own = self._own(who, "endpoint")
        best = own.priority_best(action)
        if best is None or (priority is not None and best > priority):
            return False
        look = _Look()
        found = any(
            priority is None or rule.priority_best <= priority
            for rule in own.overlapping(action, pattern, look)
        )
        self.looked += look.steps
        return found or look.is_cut

    def about(self, who: str, action: Action, name: str) -> list[AccessRule]:
        """Return the rules that let an end-point do something with a name, within their bounds."""
        return self._own(who, "endpoint").matching(action, name)

    def allowing(self, wish: Wish) -> list[AccessRule]:
        """Return the rules of which each alone allows a wish, its bounds included."""
        own = self._own(wish.who, wish.role)
        return [rule for rule in own.matching(wish.action, wish.what) if not _lack(rule, wish)]

    def is_about(self, rule: AccessRule, wish: Wish) -> bool:
        """Return whether a rule, in force or not, allows a wish but for its bounds."""
        return (
            wish.action.value in rule.may
            and overlap(rule.what, wish.what)
            and overlap(rule.who, wish.who or ANYONE)
            and rule.covers_cloud(wish.who.partition("/")[0], self._cloud)
        )

    def is_metered(self, who: str) -> bool:
        """Return whether a rule bounds the bytes/s that an end-point reserves."""
        return self._own(who, "endpoint").is_metered

    def allowed_within(self, who: str, action: Action, pattern: str) -> Sequence[str]:
        """Return the patterns of what rules allow of a pattern, without regard to bounds.

        It is the pattern itself if that is not known after `LOOKED_MAX` steps.
        """
        look = _Look()
        some = {
            common_pattern(each.what, pattern)
            for each in self._own(who, "endpoint").overlapping(action, pattern, look)
        }
        self.looked += look.steps
        return (pattern,) if look.is_cut or pattern in some else tuple(sorted(some))

    def may_all(self, who: str, action: Action, *, role: str = "endpoint") -> AccessRule | None:
        """Return the rule that allows an action on everything, of all clouds."""
        return next(iter(self._own(who, role).matching(action, ANYTHING)), None)

    def rules_of(self, who: str, *, role: str = "endpoint") -> tuple[AccessRule, ...]:
        """Return all rules for an end-point, ordered by identifier."""
        return self._own(who, role).rules

    def owner_of(self, name: str) -> str:
        """Return the end-point for which rules reserve a name; empty if there is none.

        It does not own what a longer name than its own begins.
        """
        if name in self._reserved:
            return name
        name = name.rpartition("/")[0]  # Patterns mean end-points, and this is a variable.
        while name and name not in self._reserved and not self._owners.matching(name):
            name = name.rpartition("/")[0]
        return name

    def _own(self, who: str, role: str) -> _OwnRules:
        found = self._indexes.get((who, role))
        if found is not None:
            return found
        cloud = who.partition("/")[0]
        matching = self._who.matching(who) if who != UNKNOWN else self._for_anyone()
        rules = sorted(
            (
                rule
                for rule in matching
                if rule.role in {"any", role} and rule.covers_cloud(cloud, self._cloud)
            ),
            key=_identifier,
        )
        key = tuple(rule.identifier for rule in rules)
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = _OwnRules(rules)
        if len(self._indexes) >= _INDEXES_MAX:
            self._forget()
        self._indexes[who, role] = found
        return found

    def _for_anyone(self) -> list[AccessRule]:
        return [rule for rule in self._rules.values() if rule.who == ANYONE and rule.is_exported]

    def _forget_those_of(self, who: str) -> None:
        """Forget the indexes of the end-points that a rule is for."""
        if is_pattern(who):
            self._forget()
            return
        self._shared.clear()
        for role in ROLES:
            self._indexes.pop((who, role), None)

    def _forget(self) -> None:
        self._indexes.clear()
        self._shared.clear()


def reserves_own_name(rule: AccessRule) -> bool:
    """Return whether the names below `who` are kept for it: one end-point that may publish."""
    return not is_pattern(rule.who) and Action.PUBLISH.value in rule.may


def is_tighter(rule: AccessRule, before: AccessRule) -> bool:
    """Return whether a rule bounds reserved bytes or delays more closely than the one before."""
    most = RESERVED_MAX + 1
    bound, bound_before = (
        most if each.reserved_bytes_per_s is None else each.reserved_bytes_per_s
        for each in (rule, before)
    )
    return bound < bound_before or rule.delay_ms_max < before.delay_ms_max


def _identifier(rule: AccessRule) -> str:
    return rule.identifier


def _room(rule: AccessRule) -> tuple[int, int]:
    """Order of rules that match a wish and are too narrow: the widest is named."""
    bytes_per_s = rule.reserved_bytes_per_s
    return -rule.priority_best, RESERVED_MAX + 1 if bytes_per_s is None else bytes_per_s


def _lack(rule: AccessRule, wish: Wish) -> str:
    if wish.priority is not None and wish.priority < rule.priority_best:
        return (
            f"rule {rule.identifier} lets {shown(wish.who)} {wish.action.value} {wish.what} at "
            f"priority {rule.priority_best} or below, not at {wish.priority}"
        )
    bound = rule.reserved_bytes_per_s
    if bound is not None and wish.reserved_bytes_per_s > bound:
        return (
            f"rule {rule.identifier} lets {shown(wish.who)} reserve {bound} bytes/s to "
            f"{wish.action.value}, and this would be {wish.reserved_bytes_per_s}"
        )
    return ""


def shown(who: str) -> str:
    """Return the name of an end-point, for people."""
    return who or "an end-point of unknown name"


def needed(wish: Wish, cloud: str) -> str:
    """Return the rule of a cloud that would allow a wish, as it is granted or written in a file."""
    rule = rule_for(wish)
    return (
        f"an operator of cloud {cloud} allows it with `{grant_command(rule, cloud)}`, or writes "
        f"into its broker's file, each on a line: {toml_of(rule)}".replace("\n", "  ")
    )


def rule_for(wish: Wish) -> AccessRule:
    """Return the narrowest rule that would allow a wish.

    Its name is another for each end-point, action, variable and priority, so that no suggested rule
    replaces one that allows more.
    """
    priority_best = min(wish.priority or PRIORITY_DEFAULT, PRIORITY_DEFAULT)
    who = _legal(wish.who) or ANYONE
    word = f"{who}-{wish.action.value}".replace("/", "-").replace("*", "any")
    word = word[-(IDENTIFIER_CHARS_MAX - _DIGEST_CHARS - 1) :].lstrip("-.")
    whole = f"{who} {wish.action.value} {wish.what}"
    if priority_best != PRIORITY_DEFAULT:
        whole += f" {priority_best}"
    return AccessRule(
        identifier=f"{word}-{sha256(whole.encode()).hexdigest()[:_DIGEST_CHARS]}",
        who=who,
        may=(wish.action.value,),
        what=_legal(wish.what),
        priority_best=priority_best,
        is_exported=not wish.who,
    )


def _legal(pattern: str) -> str:
    """Return a pattern with a star for each part of an earlier release that is no legal name."""
    parts = pattern.split("/") if pattern else []
    return "/".join(part if part in {"*", "**"} or is_legal(part) else "*" for part in parts)


# Rules as text.

TOML_KEYS: Final = {
    "identifier": "name",
    "is_owner": "owner",
    "is_exported": "exported",
    "may_preempt": "preempt",
}
"""Keys of a file that differ from the names of the fields."""
_DEFAULTS: Final = {each.name: each.default for each in fields(AccessRule)}


def settings_of(rule: AccessRule) -> dict[str, object]:
    """Return the keys of a rule in a file, without those that have their default."""
    found: dict[str, object] = {}
    for name, default in _DEFAULTS.items():
        value = getattr(rule, name)
        if value != default:
            found[TOML_KEYS.get(name, name)] = list(value) if isinstance(value, tuple) else value
    return found


def toml_of(rule: AccessRule) -> str:
    """Return a rule as a table of a broker's file."""
    lines = [f"{key} = {_toml_value(value)}" for key, value in settings_of(rule).items()]
    return "\n".join(["[[access_rule]]", *lines])


def grant_command(rule: AccessRule, cloud: str) -> str:
    """Return the command that grants a rule in a cloud."""
    words = [f"gridstat access grant {rule.identifier} --at {cloud}"]
    words += [f"--who '{rule.who}' --what '{rule.what}'"]
    words += [f"--may {action}" for action in rule.may]
    if rule.priority_best != PRIORITY_DEFAULT:
        words.append(f"--priority {rule.priority_best}")
    if rule.is_exported:
        words.append("--exported")
    if rule.may_preempt:
        words.append("--preempt")
    if rule.delay_ms_max != DELAY_MS_DEFAULT:
        words.append(f"--delay-ms {rule.delay_ms_max}")
    for figure in ("capacity_share", "commands_per_s", "variables", "subscriptions", "sessions"):
        if (value := getattr(rule, figure)) is not None:
            words.append(f"--{figure.replace('_', '-')} {value}")
    return " ".join(words)


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(_toml_value(each) for each in value)}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


# Patterns.


def overlap(pattern: str, other: str) -> bool:
    """Return whether some name may match both patterns (or names)."""
    return _overlap(pattern.split("/"), other.split("/"))


def _overlap(one: list[str], two: list[str]) -> bool:
    for at, (part, other) in enumerate(zip(one, two, strict=False)):
        if "**" in (part, other):
            return True
        if part != other and "*" not in (part, other):
            return False
        if at + 1 in (len(one), len(two)) and len(one) != len(two):
            return False  # `**` needs one part more than the other has.
    return len(one) == len(two)


def common_pattern(pattern: str, other: str) -> str:
    """Return the pattern (or name) of all names that match both; empty if none can."""
    if not overlap(pattern, other):
        return ""
    one, two = pattern.split("/"), other.split("/")
    found: list[str] = []
    for at, (part, that) in enumerate(zip(one, two, strict=False)):
        if "**" in (part, that):
            return "/".join(found + (two if part == "**" else one)[at:])
        found.append(that if part == "*" else part)
    return "/".join(found)


class _OwnRules:
    """Rules of one end-point, by action and by the parts of what they are about."""

    def __init__(self, rules: list[AccessRule]) -> None:
        self.rules = tuple(rules)
        self.is_metered = any(rule.reserved_bytes_per_s is not None for rule in rules)
        self._trees: dict[Action, _PatternTree] = {}
        self._best: dict[Action, int] = {}

    def matching(self, action: Action, name: str) -> list[AccessRule]:
        """Return the rules that are about a name, or about a whole pattern."""
        return self._tree(action).matching(name)

    def overlapping(self, action: Action, pattern: str, look: _Look) -> Iterator[AccessRule]:
        """Yield the rules that are about something of a pattern, until the look is over."""
        return self._tree(action).overlapping(pattern, look)

    def priority_best(self, action: Action) -> int | None:
        """Return the best priority of all rules for an action; None without any."""
        self._tree(action)
        return self._best.get(action)

    def _tree(self, action: Action) -> _PatternTree:
        tree = self._trees.get(action)
        if tree is None:
            tree = self._trees[action] = _PatternTree()
            for rule in self.rules:
                if action.value in rule.may:
                    tree.add(rule.what, rule)
                    best = self._best.get(action, rule.priority_best)
                    self._best[action] = min(best, rule.priority_best)
        return tree


class _Look:
    """One look at the rules that overlap with a pattern, which ends after `LOOKED_MAX` steps."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0

    @property
    def is_cut(self) -> bool:
        """The flag is true if the look ended before it was over."""
        return self.steps > LOOKED_MAX

    def is_over(self) -> bool:
        """Count a step, and return whether it is one too many."""
        self.steps += 1
        return self.steps > LOOKED_MAX


class _Node:
    __slots__ = ("below", "rules")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.rules: dict[str, AccessRule] = {}


class _PatternTree:
    """Rules by the parts of a pattern; finds those whose pattern matches a name."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, pattern: str, rule: AccessRule) -> None:
        node = self._root
        for part in pattern.split("/"):
            node = node.below.setdefault(part, _Node())
        node.rules[rule.identifier] = rule

    def discard(self, pattern: str, rule: AccessRule) -> None:
        path: list[tuple[_Node, str]] = []
        node = self._root
        for part in pattern.split("/"):
            path.append((node, part))
            node = node.below[part]
        del node.rules[rule.identifier]
        for parent, part in reversed(path):
            child = parent.below[part]
            if child.rules or child.below:
                break
            del parent.below[part]

    def matching(self, name: str) -> list[AccessRule]:
        found: list[AccessRule] = []
        _collect(self._root, name.split("/"), 0, found)
        return found

    def overlapping(self, pattern: str, look: _Look) -> Iterator[AccessRule]:
        """Yield the rules whose pattern has a name in common with a pattern."""
        return _overlapping(self._root, pattern.split("/"), 0, look)


def _collect(node: _Node, parts: list[str], at: int, found: list[AccessRule]) -> None:
    if at == len(parts):
        found.extend(node.rules.values())
        return
    below = node.below
    if (rest := below.get("**")) is not None:
        found.extend(rest.rules.values())
    if parts[at] == "**":
        return  # A wish for all below, which one part less does not cover.
    for part in ("*", parts[at]):
        if (child := below.get(part)) is not None:
            _collect(child, parts, at + 1, found)


def _overlapping(node: _Node, parts: list[str], at: int, look: _Look) -> Iterator[AccessRule]:
    """Yield the rules below a node that overlap with the rest of a pattern."""
    if at == len(parts):
        yield from _rules(node, look)
        return
    below = node.below
    if parts[at] == "**":
        for child in below.values():
            yield from _all_below(child, look)
            if look.is_cut:
                return
        return
    for part in below if parts[at] == "*" else ("**", "*", parts[at]):
        if look.is_over():
            return
        if (found := below.get(part)) is None:
            continue
        if part == "**":
            yield from _rules(found, look)
        else:
            yield from _overlapping(found, parts, at + 1, look)


def _all_below(node: _Node, look: _Look) -> Iterator[AccessRule]:
    if look.is_over():
        return
    yield from _rules(node, look)
    for child in node.below.values():
        yield from _all_below(child, look)
        if look.is_cut:
            return


def _rules(node: _Node, look: _Look) -> Iterator[AccessRule]:
    for rule in node.rules.values():
        if look.is_over():
            return
        yield rule
