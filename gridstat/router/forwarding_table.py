"""What is done: the commanded paths of a variable, boiled down to one flat row for the core.

Per channel and mode only the divisors that matter are kept: a multiple of a smaller one adds
nothing, and neither does a mode's divisor that the baseline, always active, already serves. What
is more than a row holds is rounded down to common divisors, so whatever is ordered has a row.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd, lcm
from typing import TYPE_CHECKING, Final

from gridstat.core.rows import BASELINE, DIVISORS_MAX, Route, Row, Term
from gridstat.model.rate_law import EVERY_MAX, minimal_divisors, modal_divisors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gridstat.model.identifiers import ChannelId
    from gridstat.router.path_table import CarriedVariable, Path

KNOWN_MAX: Final = 4_096
"""Combinations of divisors and modes whose terms are remembered."""
MERGED_MAX: Final = 128
"""Divisors of a row among which the best to merge are chosen."""


def forwarding_rows(variables: Iterable[CarriedVariable], paths: Iterable[Path]) -> list[Row]:
    """One row per variable, ascending; paths of variables that are not given are left out."""
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
    )


def counted_every(variable: CarriedVariable, channels: Iterable[Sequence[Path]]) -> int:
    """Of which slots copies are counted by the channel they came on; 0: of none.

    Only where paths of one contract meet: then nobody behind this router can tell its paths apart.
    With several contracts only the slots that are due to all of them tell of each. Those that hold
    in some modes only have no say beside others: else a mode that is never entered would.
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
    """The paths of each contract that takes this channel by several of them."""
    of_contract: dict[int, list[Path]] = {}
    for path in paths:
        of_contract.setdefault(path.contract, []).append(path)
    for found in of_contract.values():
        if len({path.index for path in found}) > 1:
            yield found


def route(channel_id: ChannelId, paths: Sequence[Path]) -> Route:
    """All paths on one channel; one copy goes out, in the most urgent class that any asks for."""
    return Route(channel_id, terms(paths), priority=min(path.priority for path in paths))


def terms(paths: Iterable[Path]) -> tuple[Term, ...]:
    """What a channel needs for all these paths; only few combinations ever differ."""
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
    """The routes with no more divisors than a row holds; any too many become common ones."""
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
    """At most as many as a row holds, of which one divides each of these."""
    ordered = sorted(everys)
    # The best choice takes the square of their number; nobody may make a router slow by that.
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
