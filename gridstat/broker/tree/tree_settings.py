"""What an operator may set of a broker above clouds; every bound and interval has a name."""

from __future__ import annotations

from dataclasses import dataclass

from gridstat.model.rate_law import NS_PER_S

NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """`parent` is the broker above this one, empty at the root."""

    name: str
    parent: str = ""
    term_min: int = 0
    """A broker whose journal is lost begins at this term, above all that others know of it."""
    reserve_within_ns: int = 5 * NS_PER_S
    """So long may a child take to answer, and each level below it as long again."""
    up_within_ns: int = 5 * NS_PER_S
    """After so long a contract is granted though not all routers have confirmed it."""
    retry_after_ns: int = NS_PER_S
    abstract_links_after_ns: int = 200 * NS_PER_MS
    """Changes of what lies between borders are told upwards together, this long after the first."""
    settle_after_ns: int = 2 * NS_PER_S
    """So long after somebody has come or gone, a way that is missing is waited for."""
    path_retry_ns: int = 200 * NS_PER_MS
    """And looked for anew so often."""
    rounds_max: int = 8
    """Plans that are tried for one generation of a contract."""
    transactions_max: int = 100_000
    unknown_child_max: int = 1 << 20
    """Segments that one child may tell of and nobody here knows; for more it is sent away."""
    snapshot_after: int = 100_000
    replan_at_once: int = 64
    numbers_block: int = 1 << 20
    """Identifiers that a broker in the middle leases at once, to hand out parts of them."""
    numbers_child_max: int = 1 << 28
    """Identifiers that one child is ever given: a sixteenth of all, since none comes back."""
    modes_defined: frozenset[int] = frozenset()
    """Operating modes that requests may name beside the baseline, as in `BrokerSettings`."""
