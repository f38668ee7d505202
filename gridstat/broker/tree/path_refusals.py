"""Refusals for contracts across clouds: no path found, too slow, or too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from gridstat.broker.capacity import admission
from gridstat.broker.capacity.allocation import Refusal
from gridstat.broker.capacity.path_skew import reason
from gridstat.broker.requests.outcomes import refused
from gridstat.model.errors import (
    LatencyNotSatisfiable,
    PathTooLong,
    RedundancyNotSatisfiable,
    Refused,
    SearchUndecided,
    SecurityNotSatisfiable,
    SkewNotSatisfiable,
)
from gridstat.model.qos import PATH_ROUTERS_MAX
from gridstat.net.command.segment_messages import PIECES_MAX, joined_routers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.broker.tree.path_planner import ScopePathQuery
    from gridstat.broker.tree.transaction import Transaction
    from gridstat.broker.tree.tree_operations import ScopePath
    from gridstat.model.paths import NotFound
    from gridstat.net.command.endpoint_messages import RefusedOutcome
    from gridstat.net.command.segment_messages import SegmentedPath


LATENCY_CODES: Final = frozenset({LatencyNotSatisfiable.code, SkewNotSatisfiable.code})
REASONS_OF_NUMBER: Final = LATENCY_CODES | {RedundancyNotSatisfiable.code, SearchUndecided.code}
"""Refusals that depend on how many paths exist, with a bound or without."""


def not_found(transaction: Transaction, answer: NotFound, query: ScopePathQuery) -> RefusedOutcome:
    """Return the refusal for a query to which the border graph has no answer."""
    ends = _ends(transaction)
    if answer.reason == "length":
        return _too_long(transaction, f"{answer.routers} border routers", answer.routers)
    if answer.reason == "budget":
        return undecided(transaction, query.count)
    if answer.reason == "latency":
        takes_us = answer.latency_us_best + transaction.ends_us
        missing_us = max(1, answer.latency_us_best - query.bound_us)
        text = f"{query.count} paths {ends} take {takes_us} µs at best, {missing_us} µs too much"
        kind: type[Refused] = LatencyNotSatisfiable
        wanted_us = min(qos.latency_us for qos in transaction.quality.values())
        if transaction.is_skewed and takes_us <= wanted_us:
            kind = SkewNotSatisfiable
            why = reason(transaction.variable, takes_us)
            text = f"of {query.count} paths {ends} one is too slow for a second one: {why}"
        return refused(Refusal.of(kind, text, bottleneck=ends, shortfall=f"{missing_us} µs"))
    return too_few(transaction, query.count, answer.paths_max)


def too_few(transaction: Transaction, wanted: int, count: int) -> RefusedOutcome:
    """Return the refusal for a number of disjoint paths of which fewer exist."""
    ends = _ends(transaction)
    missing = max(1, wanted - count)
    text = f"{wanted} disjoint paths {ends} are requested, and {count} exist"
    unit = "path" if missing == 1 else "paths"
    return refused(
        Refusal.of(RedundancyNotSatisfiable, text, bottleneck=ends, shortfall=f"{missing} {unit}")
    )


def too_slow_all(transaction: Transaction, count: int, takes_us: int) -> RefusedOutcome:
    """Return the refusal for paths of which as many exist as would do, but not as fast."""
    ends = _ends(transaction)
    missing_us = takes_us - transaction.wanted_us
    if missing_us <= 0:  # They are fast enough, but not with what children and channels may take.
        assert transaction.known.late is not None
        return transaction.known.late
    wanted = transaction.count_desired
    text = f"{count} disjoint paths {ends} take"
    if count < wanted:
        text = f"{wanted} disjoint paths {ends} are requested, and {count} exist, which take"
    text += f" {takes_us} µs, {missing_us} µs too much"
    kind: type[Refused] = LatencyNotSatisfiable
    if takes_us <= min(qos.latency_us for qos in transaction.qualities[0].values()):
        kind = SkewNotSatisfiable
        text += f": {reason(transaction.variable, takes_us)}"
    return refused(Refusal.of(kind, text, bottleneck=ends, shortfall=f"{missing_us} µs"))


def counted(transaction: Transaction, count: int, takes_us: int) -> RefusedOutcome:
    """Return the refusal once so many paths are known to exist, the slowest with that latency."""
    if count >= transaction.count_worst:
        return too_slow_all(transaction, count, takes_us)
    few = too_few(transaction, transaction.count_desired, count)
    missing_us = takes_us - transaction.wanted_us
    if missing_us <= 0:
        return few
    text = f"{few.reason}, and take {takes_us} µs, {missing_us} µs too much"
    return structs.replace(few, reason=text)


def fewer_granted(transaction: Transaction) -> RefusedOutcome | None:
    """Return why fewer paths are granted than desired; None if that is known already."""
    known, why = transaction.known, transaction.refusal
    is_lower = transaction.count < transaction.count_desired
    if why is None or not is_lower or why.code not in REASONS_OF_NUMBER:
        return None
    if known.paths_max > transaction.count:
        if known.is_undecided:
            return undecided(transaction, transaction.count_desired)
        if known.late is not None:
            return _fewer_in_time(transaction)
    return too_few(transaction, transaction.count_desired, transaction.count)


def _fewer_in_time(transaction: Transaction) -> RefusedOutcome:
    ends, wanted, count = _ends(transaction), transaction.count_desired, transaction.count
    bound_us = transaction.wanted_us
    text = f"{wanted} disjoint paths {ends} are requested, and {count} were found in {bound_us} µs"
    return refused(Refusal.of(LatencyNotSatisfiable, text, bottleneck=ends))


def undecided(transaction: Transaction, wanted: int) -> RefusedOutcome:
    """Return the refusal for paths of which the searches have shown nothing in their time."""
    ends = _ends(transaction)
    text = admission.undecided(wanted, ends)
    return refused(Refusal.of(SearchUndecided, text, bottleneck=ends))


def join_refusal(
    transaction: Transaction,
    joined: tuple[tuple[SegmentedPath, ...], tuple[ScopePath, ...]] | None,
    scope_paths: tuple[ScopePath, ...] | None,
    bound_us: int,
) -> RefusedOutcome | None:
    """Return the refusal for replies that do not make a contract; None if they do.

    A result without refusal becomes durable and is sent to others, so it keeps the bounds that
    messages have.
    """
    if joined is None:
        return too_slow("as they do not join to whole paths")
    routers = max(len(joined_routers(path.pieces)) for path in joined[0])
    if routers > PATH_ROUTERS_MAX:
        return _too_long(transaction, f"{routers} routers", routers)
    if any(len(path.pieces) > PIECES_MAX for path in joined[0]):
        return _too_long(transaction, f"more than {PIECES_MAX} pieces", 0)
    if scope_paths is None or any(path.latency_us > bound_us for path in joined[0]):
        return too_slow("all together", is_skewed=transaction.is_skewed)
    return None


def joined_otherwise(transaction: Transaction) -> RefusedOutcome:
    """Return the refusal of paths that children have joined so that two run the same risk."""
    text = f"the clouds have joined paths {_ends(transaction)} that run the same risk"
    return refused(Refusal.of(RedundancyNotSatisfiable, text, bottleneck=_ends(transaction)))


def too_slow(detail: str, *, is_skewed: bool = False) -> RefusedOutcome:
    """Return the refusal of paths above their bound; `is_skewed`: that of several together."""
    text = f"the paths that the clouds can offer are too slow, {detail}"
    if is_skewed:
        return refused(SkewNotSatisfiable(f"{text}: copies would come too late"))
    return refused(LatencyNotSatisfiable(text))


def unsealed(labels: Sequence[str]) -> RefusedOutcome:
    """Return the refusal of a demand for sealed channels: the first plain one on every path."""
    channels = [f"channel {label}" for label in labels]
    are = "is" if len(channels) == 1 else "are"
    around = "it" if len(channels) == 1 else "them"
    text = f"{' and '.join(channels)} {are} not sealed, and no sealed path leads around {around}"
    hint = 'mark the channel security = "hop" at the broker above both clouds, or ask without it'
    return refused(
        Refusal.of(SecurityNotSatisfiable, text, hint=hint, bottleneck=", ".join(channels))
    )


def unconfirmed(child: str) -> RefusedOutcome:
    """Return the refusal of a segment that the child does not confirm to be sealed."""
    return refused(
        SecurityNotSatisfiable(
            f"broker {child} does not confirm that its channels are sealed: it, or a broker below "
            "it, is of an earlier release, which does not know such a demand",
            hint="upgrade that broker, or ask without security",
        )
    )


def no_path(transaction: Transaction) -> RefusedOutcome:
    text = f"no path to {_destination(transaction)} was found in {transaction.rounds} rounds"
    return refused(Refusal.of(RedundancyNotSatisfiable, text))


def _too_long(transaction: Transaction, crossed: str, routers: int) -> RefusedOutcome:
    ends = _ends(transaction)
    text = (
        f"a path {ends} crosses {crossed}, and a contract names {PATH_ROUTERS_MAX} routers a path"
    )
    shortfall = f"{routers - PATH_ROUTERS_MAX} routers" if routers else ""
    return refused(Refusal.of(PathTooLong, text, bottleneck=ends, shortfall=shortfall))


def _ends(transaction: Transaction) -> str:
    return f"from the cloud of {transaction.variable.name} to {_destination(transaction)}"


def _destination(transaction: Transaction) -> str:
    return transaction.subscriber.partition("/")[0] or "the next cloud"
