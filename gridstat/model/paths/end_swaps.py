"""Swaps of ends between walks that meet, so that their latencies keep the bounds better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.model.paths.problem import excess_us

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SWAPS_MAX: Final = 8

Timed = list[tuple[int, int]]
"""Routers on a walk, each with the latency up to it."""


def swap_ends(
    walks: list[tuple[int, ...]],
    reached: Sequence[Timed],
    known_us: list[int],
    bounds_us: Sequence[int],
) -> list[tuple[int, ...]]:
    """Return the walks after swaps; each swap is the one that reduces the excess most."""
    walks, timed = list(walks), list(reached)
    least_us = excess_us([*known_us, *(walk[-1][1] for walk in timed)], bounds_us)
    for _ in range(SWAPS_MAX):
        best: tuple[int, int, int, int] | None = None
        for one, other, at, there, latencies_us in _swaps(timed):
            over_us = excess_us([*known_us, *latencies_us], bounds_us)
            if over_us < least_us:
                least_us, best = over_us, (one, other, at, there)
        if best is None:
            break
        one, other, at, there = best
        walks[one], walks[other] = (
            walks[one][: at + 1] + walks[other][there + 1 :],
            walks[other][: there + 1] + walks[one][at + 1 :],
        )
        ahead_us = timed[one][at][1] - timed[other][there][1]
        timed[one], timed[other] = (
            timed[one][: at + 1] + [(to, us + ahead_us) for to, us in timed[other][there + 1 :]],
            timed[other][: there + 1] + [(to, us - ahead_us) for to, us in timed[one][at + 1 :]],
        )
    return walks


def _swaps(timed: Sequence[Timed]) -> Iterator[tuple[int, int, int, int, list[int]]]:
    """Yield pairs of walks and the positions where they meet, with all latencies after a swap."""
    whole_us = [walk[-1][1] for walk in timed]
    for one in range(len(timed)):
        positions = {router: (at, us) for at, (router, us) in enumerate(timed[one][:-1])}
        for other in range(one + 1, len(timed)):
            for there, (router, there_us) in enumerate(timed[other][:-1]):
                if router in positions:
                    at, at_us = positions[router]
                    swapped_us = whole_us.copy()
                    swapped_us[one] = at_us + whole_us[other] - there_us
                    swapped_us[other] = there_us + whole_us[one] - at_us
                    yield one, other, at, there, swapped_us
