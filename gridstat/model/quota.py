"""Quotas of one identity: how much of a cloud one certificate name may use.

Law. An identity is the name in an end-point's certificate. Each identity has the default quota of
its cloud, and access rules raise single figures of it (`model/access_rules.py`); no rule lowers
one. A contract counts on each channel of its paths with the bytes a second of its own rate, also
where several contracts share a stream. It counts for its subscriber. A contract that a pattern has
made counts for the publisher of the variable too, in an account apart from that of the publisher's
own contracts: a publisher must not use up the quota of a stranger who subscribes to `**`. There a
variable counts once on each channel, with the largest rate of all contracts that caught it: many
strangers must not use up the quota of a publisher. A subscriber whose own rule raises a figure is
not bounded by the publishers' figure. Commands pass a token bucket: `commands_per_s` of them a
second, and a burst of `BURST_S` seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from gridstat.model.errors import LayoutError

if TYPE_CHECKING:
    from collections.abc import Iterable

COUNT_MAX: Final = 10**7
SHARE_PPM: Final = 10**6
"""Parts of a whole channel in which brokers tell one another a share."""
BURST_S: Final = 2
"""Seconds of an identity's commands that may come at once after a pause."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Bounds of one identity; `capacity_share` is its part of each channel's bandwidth.

    `commands_per_s` of 0 leaves the rate of commands unbounded. `subscriptions` counts contracts,
    `sessions` the edge routers to which the identity is attached at a time.
    """

    capacity_share: float = 0.25
    commands_per_s: int = 200
    variables: int = 10_000
    subscriptions: int = 10_000
    sessions: int = 2

    def __post_init__(self) -> None:
        if not 0 <= self.capacity_share <= 1:
            raise LayoutError(f"capacity_share is {self.capacity_share}, not from 0 to 1")
        for name in ("commands_per_s", "variables", "subscriptions", "sessions"):
            value = getattr(self, name)
            if not 0 <= value <= COUNT_MAX:
                raise LayoutError(f"{name} is {value}, not from 0 to {COUNT_MAX}")

    @property
    def share(self) -> Fraction:
        """Part of a channel's bandwidth, exactly as written."""
        return exact_share(self.capacity_share)


class RaisedQuota(Protocol):
    """Rule that may raise figures of a quota; None leaves a figure as it is."""

    @property
    def capacity_share(self) -> float | None: ...
    @property
    def commands_per_s(self) -> int | None: ...
    @property
    def variables(self) -> int | None: ...
    @property
    def subscriptions(self) -> int | None: ...
    @property
    def sessions(self) -> int | None: ...


def raised(quota: Quota, rules: Iterable[RaisedQuota]) -> Quota:
    """Return the quota with the highest figure of all rules, and never less than before."""
    share, commands = quota.capacity_share, quota.commands_per_s
    variables, subscriptions, sessions = quota.variables, quota.subscriptions, quota.sessions
    for rule in rules:
        share = max(share, rule.capacity_share or 0)
        if rule.commands_per_s is not None and commands:
            commands = max(commands, rule.commands_per_s) if rule.commands_per_s else 0
        variables = max(variables, rule.variables or 0)
        subscriptions = max(subscriptions, rule.subscriptions or 0)
        sessions = max(sessions, rule.sessions or 0)
    found = replace(
        quota,
        capacity_share=share,
        commands_per_s=commands,
        variables=variables,
        subscriptions=subscriptions,
        sessions=sessions,
    )
    return quota if found == quota else found


def share_ppm(quota: Quota) -> int:
    """Return the share of a channel in millionths, rounded down."""
    return int(quota.share * SHARE_PPM)


@lru_cache(maxsize=1_024)
def exact_share(share: float) -> Fraction:
    """Return a share as its decimal text says: 0.1 is a tenth."""
    return Fraction(str(share))
