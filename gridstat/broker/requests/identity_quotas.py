"""Quotas of identities at a leaf broker: the cloud's default, raised by access rules."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from gridstat.broker.requests.fair_queue import TokenBuckets
from gridstat.broker.settings import Quotas
from gridstat.model.access_rules import SESSIONS_MAX, Action, Wish
from gridstat.model.errors import QuotaReached
from gridstat.model.quota import COUNT_MAX, raised

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.capacity.allocation import Allocation
    from gridstat.broker.capacity.identity_shares import IdentityShares
    from gridstat.broker.permissions import Permissions
    from gridstat.broker.records.registry import EndPoint
    from gridstat.broker.settings import BrokerSettings
    from gridstat.model.access_rules import AccessRule
    from gridstat.model.quota import Quota

KNOWN_MAX: Final = 10_000
UNRULED: Final = Quotas().of_identity
"""Quota of an identity in a cloud that bounds none, as before there were quotas."""
HINT: Final = (
    "end some, or ask an operator of the cloud for an access rule with more {what} for {who}"
)


class IdentityQuotas:
    """Quota of every identity; what was granted before a quota was lowered is kept.

    A cloud that only observes its rules notes what the quotas would refuse, beside what the rules
    would (`gridstat access why --observed`).
    """

    def __init__(
        self,
        settings: BrokerSettings,
        shares: IdentityShares,
        permissions: Permissions,
    ) -> None:
        self._settings = settings
        self._shares = shares
        self._permissions = permissions
        self._known: dict[str, tuple[tuple[AccessRule, ...], Quotas, Quota]] = {}
        """Quotas by identity, each with the rules and the default that it follows from."""
        self._buckets = TokenBuckets(self.ruled)
        shares.quota_of = self.of
        shares.is_raised = self.raises_share

    def of(self, who: str) -> Quota:
        """Return the quota of an identity that is in force; while rules are only observed, none of
        its figures is below that of a cloud without quotas."""
        found = self.ruled(who)
        return found if self._permissions.is_enforced else raised(found, (UNRULED,))

    def ruled(self, who: str) -> Quota:
        """Return the quota of an identity by the default and the rules."""
        rules, default = self._permissions.rules.rules_of(who), self._settings.quotas
        known = self._known.get(who)
        if known is not None and known[0] is rules and known[1] is default:
            return known[2]
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        found = raised(default.of_identity, rules)
        self._known[who] = rules, default, found
        return found

    def raises_share(self, who: str) -> bool:
        """Return whether a rule gives an identity a larger share than the default."""
        return self.ruled(who).capacity_share > self._settings.quotas.of_identity.capacity_share

    def check_variables(self, endpoint: EndPoint) -> None:
        """Raise unless an end-point may publish one more variable."""
        who, count = endpoint.name, len(endpoint.publications)
        if count >= self.ruled(who).variables:
            refusal = _reached(who, count, "publications", "variables")
            wish = Wish(who, Action.PUBLISH, f"{who}/**")
            self._refuse(wish, "variables", count, refusal)

    def check_subscriptions(self, endpoint: EndPoint) -> None:
        """Raise unless an end-point may hold one more contract."""
        who, count = endpoint.name, len(endpoint.subscriptions)
        if count >= self.ruled(who).subscriptions:
            refusal = _reached(who, count, "subscriptions", "subscriptions")
            wish = Wish(who, Action.SUBSCRIBE, f"{who}/**")
            self._refuse(wish, "subscriptions", count, refusal)

    def check_caught(self, publisher: str, variable_id: int, subscriber: str) -> None:
        """Raise unless a pattern of the subscriber may catch this variable of a publisher.

        A variable counts once, however many patterns catch it. A subscriber whose rule raises its
        own figure is bounded by that one alone.
        """
        if publisher == subscriber:
            return
        caught = self._shares.caught_of(publisher)
        default = self._settings.quotas.of_identity.subscriptions
        if variable_id in caught or self.ruled(subscriber).subscriptions > default:
            return
        if len(caught) >= self.ruled(publisher).subscriptions:
            words = "variables that patterns have caught"
            refusal = _reached(publisher, len(caught), words, "subscriptions")
            wish = Wish(publisher, Action.PUBLISH, f"{publisher}/**")
            self._refuse(wish, "subscriptions", len(caught), refusal)

    def _refuse(self, wish: Wish, figure: str, count: int, refusal: QuotaReached) -> None:
        """Raise a refusal, or note it while the cloud observes and had no such bound before."""
        if count >= getattr(self.of(wish.who), figure):
            raise refusal
        most = SESSIONS_MAX if figure == "sessions" else COUNT_MAX
        self._permissions.note_quota(wish, {figure: min(most, 2 * count + 1)}, refusal)

    # Figures that are only noted here; others enforce them.

    def note_command(self, who: str, tokens: int, now_ns: int) -> None:
        """Note a command that would have to wait, while the cloud observes."""
        if self._permissions.is_enforced:
            return
        if self._buckets.ready_ns(who, now_ns) > now_ns:
            per_s = self.ruled(who).commands_per_s
            refusal = QuotaReached(f"{who} sends more than {per_s} commands a second")
            wish = Wish(who, Action.FIND, f"{who}/**")
            more = {"commands_per_s": min(COUNT_MAX, 2 * per_s + 1)}
            self._permissions.note_quota(wish, more, refusal)
        else:
            self._buckets.use(who, tokens, now_ns)

    def note_shares(self, contract: Allocation) -> None:
        """Note a granted contract that exceeds its subscriber's share, while the cloud observes."""
        who = contract.request.subscriber
        if self._permissions.is_enforced or not who or contract.request.variable.is_replay:
            return
        most = self._shares.most_used_of(who, contract)
        share = self.ruled(who).share
        if most > share:
            refusal = QuotaReached(
                f"{who} reserves {float(100 * most):.1f} % of a channel, more than its share of "
                f"{float(100 * share):g} %"
            )
            wish = Wish(who, Action.SUBSCRIBE, contract.request.variable.name)
            more = {"capacity_share": min(1.0, ceil(most * 100) / 100)}
            self._permissions.note_quota(wish, more, refusal)

    def check_sessions(self, who: str, edges: Iterable[str]) -> None:
        """Raise unless an end-point that is attached to these edges may attach to one more."""
        there = sorted(edges)
        if len(there) >= self.ruled(who).sessions:
            refusal = QuotaReached(
                f"{who} is attached to {' and '.join(there)} already",
                hint="detach first, or attach again to one of those",
            )
            wish = Wish(who, Action.PUBLISH, f"{who}/**")
            self._refuse(wish, "sessions", len(there), refusal)


def _reached(who: str, count: int, words: str, what: str) -> QuotaReached:
    return QuotaReached(f"{who} has {count} {words} already", hint=HINT.format(what=what, who=who))
