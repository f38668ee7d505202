"""What is done: the commanded paths of a variable, boiled down to one flat row for the core.

Per channel and mode only the divisors that matter are kept: a multiple of a smaller one adds
nothing, and neither does a mode's divisor that the baseline, always active, already serves.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gridstat.core.rows import BASELINE, Route, Row, Term
from gridstat.model.rate_law import minimal_divisors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gridstat.model.identifiers import ChannelId
    from gridstat.router.path_table import CarriedVariable, Path

KNOWN_MAX: Final = 4_096
"""Combinations of divisors and modes whose terms are remembered."""


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
        routes=tuple(route(channel, of_channel[channel]) for channel in sorted(of_channel)),
        floods=variable.floods,
        keeps_newest=variable.keeps_newest,
    )


def route(channel_id: ChannelId, paths: Sequence[Path]) -> Route:
    """All paths on one channel; one copy goes out, in the most urgent class that any asks for."""
    return Route(channel_id, terms(paths), priority=min(path.priority for path in paths))


def terms(paths: Iterable[Path]) -> tuple[Term, ...]:
    """What a channel needs for all these paths; only few combinations ever differ."""
    return _terms(frozenset([(path.every, path.modes) for path in paths]))


@lru_cache(maxsize=KNOWN_MAX)
def _terms(asked: frozenset[tuple[int, int]]) -> tuple[Term, ...]:
    modes_of: dict[int, int] = {}
    always = minimal_divisors(every for every, modes in asked if modes & BASELINE)
    for divisor in always:
        modes_of[divisor] = BASELINE
    for mode in _bits(_union(asked) & ~BASELINE):
        everys = (every for every, modes in asked if modes & mode)
        unserved = [every for every in everys if all(every % divisor for divisor in always)]
        for divisor in minimal_divisors(unserved):
            modes_of[divisor] = modes_of.get(divisor, 0) | mode
    return tuple(Term(every, modes) for every, modes in sorted(modes_of.items()))


def _union(asked: Iterable[tuple[int, int]]) -> int:
    union = 0
    for _, modes in asked:
        union |= modes
    return union


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest
        mask ^= lowest
