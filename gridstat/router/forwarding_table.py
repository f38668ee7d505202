"""Forwarding rows: the commanded paths of a variable, reduced to one flat row for the core.

For each channel and mode only the needed divisors are kept: a multiple of a smaller one adds
nothing, and neither does a mode's divisor that the baseline, always active, already serves. If
there are more than a row holds, they are rounded down to common divisors, so every order has a row.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd, lcm
from typing import TYPE_CHECKING, Final

from gridstat.core.rows import BASELINE, DIVISORS_MAX, STAMP_NEAR_NS, Route, Row, Term
from gridstat.model.rate_law import EVERY_MAX, NS_PER_S, minimal_divisors, modal_divisors
from gridstat.model.stamp_law import NS_PER_MS, ahead_ns_max

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gridstat.model.identifiers import ChannelId
    from gridstat.router.path_table import CarriedVariable, Path

FLOOD_AHEAD_NS_MAX: Final = 10 * NS_PER_S
"""Stamps of floods further ahead are dropped behind the first router."""
KNOWN_MAX: Final = 4_096
"""Combinations of divisors and modes whose terms are remembered."""
MERGED_MAX: Final = 128
"""Divisors of a row among which the best to merge are chosen."""


def forwarding_rows(variables: Iterable[CarriedVariable], paths: Iterable[Path]) -> list[Row]:
    """Return one row for each variable, ascending; paths of other variables are left out."""
    of_variable: dict[int, list[Path]] = {}
    for path in paths:
        of_variable.setdefault(path.variable_id, []).append(path)
    return [
        forwarding_row(variable, of_variable.get(variable.variable_id, ()))
        for variable in sorted(variables, key=lambda variable: variable.variable_id)
    ]


def forwarding_row(variable: CarriedVariable, paths: Iterable[Path]) -> Row:
    of_channel: dict[ChannelId, list[Path]] = {}
    for path in paths:
        of_channel.setdefault(path.channel_id, []).append(path)
    return Row(
        variable_id=variable.variable_id,
        period=variable.period,
        phase_ns=variable.phase_ns,
        source=variable.source,
        is_urgent=variable.is_urgent,
        interval_ns_min=variable.interval_ns_min,
        is_stamp_exempt=variable.is_stamp_exempt,
        routes=legal_routes(
            tuple(route(channel, of_channel[channel]) for channel in sorted(of_channel))
        ),
        floods=variable.floods,
        keeps_newest=variable.keeps_newest,
        counted_every=counted_every(variable, of_channel.values()),
        ahead_ns_max=_ahead_ns_max(variable) if variable.delay_ms else 0,
        behind_ns_max=max(variable.delay_ms * NS_PER_MS, STAMP_NEAR_NS) if variable.delay_ms else 0,
    )


def _ahead_ns_max(variable: CarriedVariable) -> int:
    """Return how far ahead a publisher's stamp may be; the routers behind know floods up to 10 s
    ahead."""
    ahead_ns = ahead_ns_max(variable.period)
    return min(ahead_ns, FLOOD_AHEAD_NS_MAX) if variable.floods else ahead_ns


def counted_every(variable: CarriedVariable, channels: Iterable[Sequence[Path]]) -> int:
    """Return the divisor of the slots whose copies are counted by incoming channel; 0: none.

    Only where paths of one contract meet: no receiver behind this router can distinguish its paths.
    With several contracts only slots due to all of them are counted. Paths that hold in some modes
    only do not count beside others: else a mode that is never entered would matter.
    """
    if not variable.keeps_newest or variable.period is None:
        return 0
    always: set[int] = set()
    at_times: set[int] = set()
    for paths in channels:
        if len(paths) > 1:
            for found in _meeting(paths):
                baseline = {path.every for path in found if path.modes & BASELINE}
                always |= baseline
                at_times |= set() if baseline else {path.every for path in found}
    everys = always or at_times
    every = lcm(*everys)
    return every if everys and every <= EVERY_MAX else 0


def _meeting(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield the paths of each contract that has several on this channel."""
    of_contract: dict[int, list[Path]] = {}
    for path in paths:
        of_contract.setdefault(path.contract, []).append(path)
    for found in of_contract.values():
        if len({path.index for path in found}) > 1:
            yield found


def route(channel_id: ChannelId, paths: Sequence[Path]) -> Route:
    """Return the route of all paths on one channel; one copy is sent, in the most urgent class of
    any path."""
    return Route(channel_id, terms(paths), priority=min(path.priority for path in paths))


def terms(paths: Iterable[Path]) -> tuple[Term, ...]:
    """Return the terms of a channel for all these paths; cached, because few combinations
    differ."""
    return _terms(frozenset([(path.every, path.modes) for path in paths]))


@lru_cache(maxsize=KNOWN_MAX)
def _terms(asked: frozenset[tuple[int, int]]) -> tuple[Term, ...]:
    everys: dict[int, set[int]] = {}
    for every, modes in asked:
        for mode in _bits(modes):
            everys.setdefault(mode.bit_length() - 1, set()).add(every)
    modes_of: dict[int, int] = {}
    for number, divisors in modal_divisors(everys).items():
        for divisor in divisors:
            modes_of[divisor] = modes_of.get(divisor, 0) | 1 << number
    return _sorted_terms(modes_of)


def _sorted_terms(modes_of: Mapping[int, int]) -> tuple[Term, ...]:
    return tuple(Term(every, modes) for every, modes in sorted(modes_of.items()))


def legal_routes(routes: tuple[Route, ...]) -> tuple[Route, ...]:
    """Return the routes with at most as many divisors as a row holds; others are rounded to common
    ones."""
    everys = {term.every for route in routes for term in route.terms}
    if len(everys) <= DIVISORS_MAX:
        return routes
    kept = _row_divisors(frozenset(everys))
    return tuple(
        Route(route.channel_id, _rounded(route.terms, kept), priority=route.priority)
        for route in routes
    )


@lru_cache(maxsize=KNOWN_MAX // 16)
def _row_divisors(everys: frozenset[int]) -> tuple[int, ...]:
    """Return at most as many divisors as a row holds, of which one divides each given one."""
    ordered = sorted(everys)
    # The best choice takes quadratic time, so the number of divisors is bounded.
    at_once = -(-len(ordered) // MERGED_MAX)
    groups = (ordered[start : start + at_once] for start in range(0, len(ordered), at_once))
    return minimal_divisors((gcd(*group) for group in groups), DIVISORS_MAX)


def _rounded(terms: Iterable[Term], kept: Iterable[int]) -> tuple[Term, ...]:
    modes_of: dict[int, int] = {}
    for term in terms:
        every = max(divisor for divisor in kept if term.every % divisor == 0)
        modes_of[every] = modes_of.get(every, 0) | term.modes
    return _sorted_terms(modes_of)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest
        mask ^= lowest
