"""What a cloud that only observes its rules would have refused, kept so that rules can be written.

A row stands for all wishes of one end-point to do one thing with one variable, and the rule that it
suggests allows all of them: the best priority, the longest delay. Several names side by side are
one row with a pattern.

Each end-point has a share of the rows (all end-points of another cloud together, since that cloud
names them), so that nobody's wishes hide those of another. If all rows are taken, whoever has most
of them loses some to whoever has fewer. What is not kept is counted, with whose it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, Final

from gridstat.model.access_rules import IDENTIFIER_CHARS_MAX, rule_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from gridstat.model.access_rules import AccessRule, Wish

    Key: TypeAlias = tuple[str, ...]

ROWS_MAX: Final = 4_000
"""Rows of a cloud."""
SHARE_ROWS: Final = 50
"""Rows of one end-point."""
CLOUD_SHARE_ROWS: Final = 500
"""Rows of all end-points of one other cloud."""
FOLDED_MIN: Final = 3
"""Names side by side from which on one row with a pattern stands for them."""
NAMES_MAX: Final = 8
"""Names of such a row that are kept one by one, so that a rule for each of them is seen as well."""
ACCOUNTS_MAX: Final = 1_000
"""Identities of which it is known how many of their wishes are not kept."""
NAMED_MAX: Final = 20
"""Identities that are named as those of whom most wishes are not kept."""
OTHERS: Final = "others"
DELAY_WORD: Final = "delay"


@dataclass(slots=True)
class ObservedRefusal:
    """Wish that would be refused, how often it came, and the last time.

    `delay_ms` is the declared delay if that is what would be refused. `names` counts the variables
    of a row that stands for several, up to `NAMES_MAX`; with `has_more_names` there were more.
    `raised` are the figures of a quota that a rule would have to raise. `advice` says what to do if
    no rule is the answer.
    """

    wish: Wish
    reason: str
    count: int = 1
    last_ns: int = 0
    delay_ms: int = 0
    names: int = 1
    has_more_names: bool = False
    raised: Mapping[str, Any] = field(default_factory=dict)
    advice: str = ""

    def rule(self) -> AccessRule:
        """Return the rule that would allow the wish; no two rows suggest one of the same name."""
        rule = rule_for(self.wish)
        words = [*self.raised] + [DELAY_WORD] * (self.delay_ms > 0)
        if words:
            word = "-".join((rule.identifier, *words))[-IDENTIFIER_CHARS_MAX:].lstrip("-.")
            rule = replace(rule, identifier=word, **self.raised)
        return replace(rule, delay_ms_max=self.delay_ms) if self.delay_ms else rule

    def widen(self, other: ObservedRefusal) -> None:
        """Stand for another refusal too: for the best priority and the largest of all figures."""
        wish, more = self.wish, other.wish
        known = [each for each in (wish.priority, more.priority) if each is not None]
        self.wish = replace(
            wish,
            priority=min(known, default=None),
            reserved_bytes_per_s=max(wish.reserved_bytes_per_s, more.reserved_bytes_per_s),
        )
        self.delay_ms = max(self.delay_ms, other.delay_ms)
        self.raised = {
            figure: max(value, other.raised.get(figure, value))
            for figure, value in self.raised.items()
        }
        self.reason = other.reason
        self.count += other.count
        self.last_ns = max(self.last_ns, other.last_ns)


@dataclass(slots=True)
class _Group:
    """Refusals of names side by side; `rest` stands for all names beyond `NAMES_MAX`."""

    rows: dict[str, ObservedRefusal] = field(default_factory=dict)
    rest: ObservedRefusal | None = None

    @property
    def size(self) -> int:
        """Rows as which the group is shown."""
        return 1 if self.is_folded else len(self.rows)

    def shown(self) -> list[ObservedRefusal]:
        rows = [*self.rows.values(), *([self.rest] if self.rest else [])]
        return [_folded(self.rows, self.rest)] if rows and self.is_folded else rows

    @property
    def is_folded(self) -> bool:
        return self.rest is not None or len(self.rows) >= FOLDED_MIN

    def count(self) -> int:
        rest = self.rest.count if self.rest else 0
        return rest + sum(each.count for each in self.rows.values())


@dataclass(slots=True)
class _Account:
    """Refusals of one end-point, or of one other cloud, by what they have side by side."""

    groups: dict[Key, _Group] = field(default_factory=dict)
    size: int = 0


@dataclass(slots=True)
class NotKept:
    """Refusals of an identity that are counted only."""

    count: int = 0
    last_ns: int = 0


class ObservedRefusals:
    """Refusals that were not carried out, since the broker's start."""

    def __init__(self, cloud: str) -> None:
        self.count = 0
        self.not_kept: dict[str, NotKept] = {}
        """Refusals without a row, by end-point; by `CLOUD/**` for those of another cloud."""
        self._cloud = cloud
        self._accounts: dict[str, _Account] = {}
        self._by_size: dict[int, dict[str, None]] = {}
        self._row_count = 0

    def __len__(self) -> int:
        return self._row_count

    def note(self, refusal: ObservedRefusal) -> None:
        """Keep a refusal, or count it if there is no room for its row."""
        self.count += 1
        owner = self._owner_of(refusal.wish.who)
        account = self._accounts.get(owner) or _Account()
        key, name = _place(refusal)
        group = account.groups.get(key) or _Group()
        if (found := group.rows.get(name)) is not None:
            found.widen(refusal)
            return
        if len(group.rows) >= NAMES_MAX:
            self._add_to_rest(group, refusal)
            return
        grows = not group.is_folded and len(group.rows) + 1 < FOLDED_MIN
        if grows and not self._make_room(owner, account):
            self._note_lost(owner, 1, refusal.last_ns)
            return
        before = group.size
        group.rows[name] = refusal
        account.groups[key] = group
        self._accounts[owner] = account
        self._resize(owner, account, group.size - before)

    def shown(self, is_allowed: Callable[[ObservedRefusal], bool]) -> list[ObservedRefusal]:
        """Return what is kept and not allowed, and forget what is allowed by now."""
        found: list[ObservedRefusal] = []
        for owner, account in list(self._accounts.items()):
            for key, group in list(account.groups.items()):
                before = group.size
                for name, each in list(group.rows.items()):
                    if is_allowed(each):
                        del group.rows[name]
                if group.rest is not None and is_allowed(group.rest):
                    group.rest = None
                self._resize(owner, account, group.size - before)
                if not group.size:
                    del account.groups[key]
                found += group.shown()
        return found

    def not_kept_facts(self) -> dict[str, Any]:
        """Return how many refusals have no row, and of whom most of them are."""
        most = nsmallest(NAMED_MAX, self.not_kept.items(), key=lambda each: -each[1].count)
        return {
            "refusals": sum(each.count for each in self.not_kept.values()),
            "identities": len(self.not_kept),
            "most": [
                {"who": who, "count": each.count, "last_ns": each.last_ns} for who, each in most
            ],
        }

    def _add_to_rest(self, group: _Group, refusal: ObservedRefusal) -> None:
        if group.rest is None:
            wish = replace(refusal.wish, what=_beside(refusal.wish.what))
            group.rest = replace(refusal, wish=wish, has_more_names=True)
        else:
            group.rest.widen(refusal)

    def _owner_of(self, who: str) -> str:
        cloud = who.partition("/")[0]
        return who if cloud in {self._cloud, ""} else f"{cloud}/**"

    def _make_room(self, owner: str, account: _Account) -> bool:
        """Return whether an account may have one more row, for which another may lose some."""
        if account.size >= (CLOUD_SHARE_ROWS if owner.endswith("/**") else SHARE_ROWS):
            return False
        if self._row_count < ROWS_MAX:
            return True
        most = max(self._by_size)
        if most < account.size + 2:
            return False
        loser = next(iter(self._by_size[most]))
        poorer = self._accounts[loser]
        _, group = poorer.groups.popitem()
        last_ns = max(each.last_ns for each in group.shown())
        self._resize(loser, poorer, -group.size)
        self._note_lost(loser, group.count(), last_ns)
        return True

    def _resize(self, owner: str, account: _Account, more: int) -> None:
        if not more:
            return
        if same := self._by_size.get(account.size):
            same.pop(owner, None)
            if not same:
                del self._by_size[account.size]
        account.size += more
        self._row_count += more
        if account.size:
            self._by_size.setdefault(account.size, {})[owner] = None
        else:
            del self._accounts[owner]

    def _note_lost(self, owner: str, count: int, last_ns: int) -> None:
        if owner not in self.not_kept and len(self.not_kept) >= ACCOUNTS_MAX:
            owner = OTHERS
        found = self.not_kept.setdefault(owner, NotKept())
        found.count += count
        found.last_ns = last_ns


def _place(refusal: ObservedRefusal) -> tuple[Key, str]:
    """Return the group of a refusal, and its name within it; quotas have a row for each figure."""
    wish = refusal.wish
    if refusal.raised:
        figure = next(iter(refusal.raised))
        return (wish.who, "quota", figure), figure
    above, _, last = wish.what.rpartition("/")
    kind = DELAY_WORD if refusal.delay_ms else ""
    return (wish.who, wish.action.value, above, kind, last if "*" in last else ""), wish.what


def _beside(what: str) -> str:
    """Return the pattern of all names side by side with one."""
    above = what.rpartition("/")[0]
    return f"{above}/*" if above else "*"


def _folded(rows: Mapping[str, ObservedRefusal], rest: ObservedRefusal | None) -> ObservedRefusal:
    """Return one row for names side by side."""
    some = [*rows.values(), *([rest] if rest else [])]
    what = _beside(next(iter(rows), "")) if rows else some[0].wish.what
    found = replace(some[0], wish=replace(some[0].wish, what=what))
    for each in some[1:]:
        found.widen(each)
    found.names, found.has_more_names = max(1, len(rows)), rest is not None
    more = "more than " if rest else ""
    found.reason = f"{more}{found.names} variables of {what}, as: {some[0].reason}"
    found.advice = some[0].advice
    return found
