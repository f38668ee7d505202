"""Settings of a broker above clouds; every bound and interval has a name."""

from __future__ import annotations

from dataclasses import dataclass

from gridstat.broker.settings import HOLD_GROWTH_MAX
from gridstat.model.band_law import BandPolicy
from gridstat.model.keys.key_settings import KEYS_DEFAULT, KeySettings
from gridstat.model.rate_law import NS_PER_S

NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """`parent` is the broker above this one, empty at the root."""

    name: str
    parent: str = ""
    term_min: int = 0
    """Lowest term at start; a broker with a lost journal starts above all terms others know."""
    reserve_within_ns: int = 5 * NS_PER_S
    """Time for a child's reply, and as much again for each level below it."""
    up_within_ns: int = 5 * NS_PER_S
    """Time after which a contract is granted although routers have not all confirmed it."""
    retry_after_ns: int = NS_PER_S
    abstract_links_after_ns: int = 200 * NS_PER_MS
    """Delay of a report on abstract links, so that several changes are sent together."""
    settle_after_ns: int = 2 * NS_PER_S
    """Time after a join or leave during which a request waits for a missing path."""
    path_retry_ns: int = 200 * NS_PER_MS
    """Interval at which a missing path is searched again meanwhile."""
    rounds_max: int = 24
    """Number of plans tried for one quality of a contract, and for each kind of disjointness."""
    rounds_again_max: int = 8
    """The same for a contract that is planned again, perhaps with many others."""
    transactions_max: int = 100_000
    unknown_child_max: int = 1 << 20
    """Unknown segments that one child may report; a child with more is disconnected."""
    snapshot_after: int = 100_000
    replan_at_once: int = 64
    numbers_block: int = 1 << 20
    """Identifiers that a broker in the middle leases at once, to give out parts of them."""
    numbers_child_max: int = 1 << 28
    """Identifiers that one child gets at most: a sixteenth of all, since none is returned."""
    modes_defined: frozenset[int] = frozenset()
    """Operating modes that requests may name beside the baseline, as in `BrokerSettings`."""
    capacity_share_max: float = 1.0
    """Part of a channel that one identity may reserve, whatever its own cloud grants; a broker's
    file has less by default."""
    policy: BandPolicy = BandPolicy.BANDS
    """Whether contracts are lowered for others where a channel of this broker is full. None is
    ended for another: `BandPolicy.PREEMPT` means the same as `BandPolicy.BANDS` here."""
    raise_after_ns: int = 10 * NS_PER_S
    """Time after which a contract that was lowered for another is raised at the earliest."""
    raise_after_ns_max: int = HOLD_GROWTH_MAX * 10 * NS_PER_S
    """Bound of that time, which doubles each time that the contract is lowered again soon."""
    keys: KeySettings = KEYS_DEFAULT
    """Times of the seeds that this broker gives."""
