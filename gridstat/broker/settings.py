"""What an operator may set of a leaf broker; every bound and interval has a name and a default."""

from __future__ import annotations

from dataclasses import dataclass, field

from gridstat.model.probe_law import ProbeSettings
from gridstat.model.rate_law import NS_PER_S

NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Quotas:
    """What one end-point may hold, and how many end-points there may be."""

    endpoints_max: int = 100_000
    edges_max: int = 2
    publications_max: int = 100_000
    subscriptions_max: int = 100_000
    contracts_elsewhere_max: int = 1_000_000
    """Of all end-points with other clouds, also what has ended and the parent does not know yet."""
    patterns_max: int = 1_000
    pending_requests_max: int = 1_024


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """`grace_ns` is how long an absent end-point keeps what it has; the rest paces the talk."""

    cloud: str
    parent: str = ""
    """The name of the broker above; none for a cloud that stands alone."""
    term_min: int = 0
    """A broker whose journal is lost begins at this term, above all that its routers know."""
    grace_ns: int = 60 * NS_PER_S
    flush_after_ns: int = 2 * NS_PER_MS
    confirm_within_ns: int = 5 * NS_PER_S
    change_lead_ns: int = 200 * NS_PER_MS
    """A new period is announced at least so long before it holds."""
    retire_after_ns: int = 2 * NS_PER_S
    """An old identifier of a variable is carried so long after its successor took over."""
    overlap_ns_min: int = 20 * NS_PER_MS
    settle_after_ns: int = 100 * NS_PER_MS
    """So long after an end-point has attached are its contracts fitted to where it is now."""
    retry_after_ns: int = NS_PER_S
    snapshot_after: int = 100_000
    """Operations since the last snapshot after which the journal is compacted."""
    notices_kept_max: int = 256
    replan_at_once: int = 64
    """Subscriptions moved in one turn after a failure, so that others are heard in between."""
    catch_at_once: int = 16
    """Variables that patterns catch in one turn, for the same reason."""
    ask_within_ns: int = 8 * NS_PER_S
    """So long may other clouds take to answer; end-points wait a little longer."""
    release_after_ns: int = 100 * NS_PER_MS
    """What a parent releases is carried on for so long: events may be on their way on it."""
    numbers_at_once: int = 4_096
    """Identifiers of variables that a cloud leases from its parent at a time."""
    quarantine_ns: int = 3_600 * NS_PER_S
    """So long is the identifier of a variable that is gone given to no other."""
    modes_defined: frozenset[int] = frozenset()
    """Operating modes that requests may name beside the baseline; a request for others is refused.

    Nothing switches modes yet, so a daemon defines none; simulations and tests do.
    """
    quotas: Quotas = field(default_factory=Quotas)
    probes: ProbeSettings = field(default_factory=ProbeSettings)
