"""Settings of a leaf broker: every bound and interval, with its default."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from gridstat.model.band_law import BandPolicy
from gridstat.model.keys.key_settings import KEYS_DEFAULT, KeySettings
from gridstat.model.probe_law import ProbeSettings
from gridstat.model.quota import Quota
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from gridstat.model.access_rules import AccessRule

NS_PER_MS = 1_000_000
HOLD_GROWTH_MAX = 32
"""Factor by which the hold-down of a contract that flaps grows at most."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """Limits of one end-point, and of their number."""

    endpoints_max: int = 100_000
    edges_max: int = 2
    publications_max: int = 100_000
    subscriptions_max: int = 100_000
    contracts_elsewhere_max: int = 1_000_000
    """Contracts of all end-points with other clouds; an ended one counts until the parent knows."""
    patterns_max: int = 1_000
    pending_requests_max: int = 1_024
    capacity_share: float = 1.0
    """Part of each channel that one identity may reserve; a cloud's file has less by default."""
    commands_per_s: int = 0
    """Commands a second of one identity; 0: not bounded. A cloud's file bounds them by default."""

    @property
    def of_identity(self) -> Quota:
        """Quota of an identity that no rule names."""
        return _quota_of(self)


@dataclass(frozen=True, slots=True)
class BandSettings:
    """What happens when a request does not fit (`model/band_law.py`).

    A contract that was lowered is raised after `raise_after_ns` at the earliest. Each time that it
    is lowered again soon, this time doubles, up to `raise_after_ns_max`.
    """

    policy: BandPolicy = BandPolicy.BANDS
    raise_after_ns: int = 10 * NS_PER_S
    raise_after_ns_max: int = HOLD_GROWTH_MAX * 10 * NS_PER_S


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Access rules of the broker's file, and whether they are enforced.

    None leaves it to the journal: a new one enforces, one from before there were rules observes
    until it has rules.
    """

    rules: tuple[AccessRule, ...] = ()
    is_enforced: bool | None = None


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """`grace_ns` is the time for which an absent end-point keeps its contracts and variables."""

    cloud: str
    parent: str = ""
    """Name of the parent broker; empty for a cloud without a parent."""
    term_min: int = 0
    """Lowest term of a start; a broker that lost its journal needs one above its routers' term."""
    grace_ns: int = 60 * NS_PER_S
    flush_after_ns: int = 2 * NS_PER_MS
    confirm_within_ns: int = 5 * NS_PER_S
    change_lead_ns: int = 200 * NS_PER_MS
    """Least time between the announcement of a new period and its first slot."""
    retire_after_ns: int = 2 * NS_PER_S
    """Time for which the old identifier of a variable is carried after its successor took over."""
    overlap_ns_min: int = 20 * NS_PER_MS
    settle_after_ns: int = 100 * NS_PER_MS
    """Time after an attachment at which the contracts of an end-point are moved to its edges."""
    retry_after_ns: int = NS_PER_S
    snapshot_after: int = 100_000
    """Operations since the last snapshot after which the journal is compacted."""
    notices_kept_max: int = 256
    replan_at_once: int = 64
    """Subscriptions moved in one turn after a failure; other events are handled in between."""
    catch_at_once: int = 8
    """Variables that patterns match in one turn, for the same reason."""
    publish_at_once: int = 16
    """Variables of one request that are registered in one turn, for the same reason."""
    subscribe_at_once: int = 64
    """Subscriptions of one request; those beyond are refused, since one turn decides them all."""
    end_at_once: int = 64
    """Contracts and variables that are ended in one turn, for the same reason."""
    revoke_at_once: int = 512
    """Contracts that are judged in one turn after a change of access rules."""
    ask_within_ns: int = 8 * NS_PER_S
    """Time that other clouds have to answer; end-points wait a little longer."""
    release_after_ns: int = 100 * NS_PER_MS
    """Time for which a released segment still carries events that are on their way."""
    numbers_at_once: int = 4_096
    """Identifiers of variables that a cloud leases from its parent at a time."""
    quarantine_ns: int = 3_600 * NS_PER_S
    """Time for which the identifier of a withdrawn variable is given to no other."""
    modes_defined: frozenset[int] = frozenset()
    """Operating modes that requests may name beside the baseline; a request for others is refused.

    Nothing switches modes yet, so a daemon defines none; simulations and tests do.
    """
    quotas: Quotas = field(default_factory=Quotas)
    probes: ProbeSettings = field(default_factory=ProbeSettings)
    keys: KeySettings = KEYS_DEFAULT
    """Times of the seeds that this broker gives."""
    access: AccessSettings = field(default_factory=AccessSettings)
    bands: BandSettings = field(default_factory=BandSettings)


@lru_cache(maxsize=64)
def _quota_of(quotas: Quotas) -> Quota:
    return Quota(
        capacity_share=quotas.capacity_share,
        commands_per_s=quotas.commands_per_s,
        variables=quotas.publications_max,
        subscriptions=quotas.subscriptions_max,
        sessions=quotas.edges_max,
    )
