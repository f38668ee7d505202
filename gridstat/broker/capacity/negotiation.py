"""Negotiation of quality: the levels between desired and worst, best first.

Latency is lowered first, then redundancy, then the rate, so that events keep arriving as often as
requested. Priority costs the cloud nothing and is always granted as desired. The divisors of a
subscription form a chain over its modes: each divides the next, and those that do not are rounded
down. Otherwise a change of mode could open a gap of their least common multiple.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from gridstat.model.errors import IntervalNotSatisfiable
from gridstat.model.qos import LATENCY_US_MAX, PRIORITY_REPLAY
from gridstat.model.rate_law import Period
from gridstat.model.sparse_law import carried_every, is_carried

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gridstat.model.qos import ModalQos, Qos, QosRequest

Quality = dict[int, "Qos"]
"""Granted or requested quality of each mode."""
LATENCY_HEADROOM: Final = Fraction(5, 4)
"""Factor above the prediction with which a latency worse than desired is granted, if allowed.

Without it the next subscription on the same path would make the contract late at once.
"""


class Band(Struct, frozen=True):
    """Desired and worst acceptable quality of each mode, with notes on what was rounded.

    A level is a number of steps down from the desired quality: the divisors are doubled so often,
    and there are so many paths fewer, as far as the worst quality of each mode allows.
    """

    desired: Quality
    worst: Quality
    notes: tuple[str, ...]
    period: Period | None = None

    @property
    def every_steps(self) -> int:
        """Number of doublings after which every divisor has reached its worst value."""
        return max(
            (self.worst[mode].every // qos.every).bit_length()
            - (self.worst[mode].every == qos.every)
            for mode, qos in self.desired.items()
        )

    @property
    def redundancy_steps(self) -> int:
        return max(
            qos.redundancy - self.worst[mode].redundancy for mode, qos in self.desired.items()
        )

    @property
    def is_wide(self) -> bool:
        """True if any level below the desired quality is acceptable."""
        return bool(self.has_latency_range or self.every_steps or self.redundancy_steps)

    @property
    def has_latency_range(self) -> bool:
        return any(
            self.worst[mode].latency_us > qos.latency_us for mode, qos in self.desired.items()
        )

    def level(self, every_steps: int, redundancy_steps: int, *, is_slow: bool) -> Quality:
        if not (every_steps or redundancy_steps or is_slow):
            return _chained(self.desired)
        lowered = {}
        for mode, qos in self.desired.items():
            worst = self.worst[mode]
            lowered[mode] = replace(
                qos,
                every=self._lowered(qos.every, every_steps, worst.every),
                redundancy=max(qos.redundancy - redundancy_steps, worst.redundancy),
                latency_us=worst.latency_us if is_slow else qos.latency_us,
            )
        return _chained(lowered)

    def _lowered(self, every: int, steps: int, worst: int) -> int:
        """Return the divisor doubled `steps` times at most, within its worst value.

        Doubling stops earlier where cores would reject events that are so far apart as forged.
        """
        found = min(every << steps, worst)
        while not is_carried(found, self.period):
            steps -= 1
            found = min(every << steps, worst)
        return found

    def levels_of(self, every_steps: int) -> Iterator[Quality]:
        """Yield all levels at these divisors, best first: latency is lowered before redundancy."""
        for redundancy_steps in range(self.redundancy_steps + 1):
            yield self.level(every_steps, redundancy_steps, is_slow=False)
            if self.has_latency_range:
                yield self.level(every_steps, redundancy_steps, is_slow=True)

    def last(self, every_steps: int) -> Quality:
        """Return the worst acceptable level at these divisors."""
        return self.level(every_steps, self.redundancy_steps, is_slow=True)


def band_of(qos: ModalQos, period: Period | None) -> Band:
    """Return the band of a request for a variable of this period; raises if there is none."""
    desired: Quality = {}
    worst: Quality = {}
    notes: list[str] = []
    for mode in sorted(qos.modes):
        desired[mode], worst[mode], found = _limits(qos.modes[mode], period)
        if found:
            notes.extend(_in_mode(mode, note) for note in found)
    if len(desired) == 1:
        return Band(desired, worst, tuple(notes), period)
    chained = _chained(desired)
    notes.extend(
        _in_mode(
            mode,
            f"every {desired[mode].every} rounded down to {chained[mode].every}, "
            "since the divisors of all modes form a chain",
        )
        for mode in desired
        if chained[mode].every != desired[mode].every
    )
    return Band(desired, worst, tuple(notes), period)


def replay_band(band: Band) -> Band:
    """Return the band for a replayed variable: best effort, in its own class, no latency bound."""

    def best_effort(quality: Quality) -> Quality:
        return {
            mode: replace(qos, latency_us=LATENCY_US_MAX, priority=PRIORITY_REPLAY)
            for mode, qos in quality.items()
        }

    note = "replayed: it uses what live traffic leaves, and no latency is promised"
    return Band(
        best_effort(band.desired), best_effort(band.worst), (*band.notes, note), band.period
    )


def differences(desired: Quality, granted: Quality, why: str) -> tuple[str, ...]:
    """Return texts that state what was granted below the desired quality."""
    if granted == desired:
        return ()
    found = []
    for mode, wanted in desired.items():
        offered = granted[mode]
        if offered.latency_us > wanted.latency_us:
            found.append(
                (mode, f"latency {wanted.latency_us} µs lowered to {offered.latency_us} µs")
            )
        if offered.redundancy < wanted.redundancy:
            found.append((mode, f"redundancy {wanted.redundancy} lowered to {offered.redundancy}"))
        if offered.every > wanted.every:
            found.append((mode, f"every {wanted.every} lowered to every {offered.every}"))
    return tuple(_in_mode(mode, f"{text}: {why}" if why else text) for mode, text in found)


@lru_cache(maxsize=4_096)
def _limits(request: QosRequest, period: Period | None) -> tuple[Qos, Qos, tuple[str, ...]]:
    try:
        desired = request.desired(period)
    except IntervalNotSatisfiable:
        return _published_too_slowly(request, period)
    notes: tuple[str, ...] = ()
    if request.interval is not None and period is not None:
        requested = Fraction(request.interval.seconds, request.interval.per_seconds)
        offered = Fraction(period.seconds, period.per_seconds) * desired.every
        if offered != requested:
            notes = (
                f"interval {requested} s rounded down to {offered} s, a multiple of the period",
            )
    every = carried_every(desired.every, period)
    if every != desired.every:
        notes = (
            *notes,
            f"every {desired.every} rounded down to {every}, since sparser events could not be "
            "distinguished from forged time stamps",
        )
    worst = request.worst(period)
    if worst.every == desired.every:
        worst = replace(worst, every=every)
    return replace(desired, every=every), worst, notes


def _published_too_slowly(
    request: QosRequest, period: Period | None
) -> tuple[Qos, Qos, tuple[str, ...]]:
    """Return every slot, if the worst acceptable interval allows it; otherwise raise."""
    if request.interval_worst is None:
        request.desired(period)
    at_worst = replace(request, interval=request.interval_worst, interval_worst=None)
    every_slot = replace(request, interval=None, interval_worst=None)
    worst = replace(every_slot, every_worst=at_worst.desired(period).every)
    note = f"interval {request.interval} lowered to {period}: it is not published more often"
    return every_slot.desired(period), worst.worst(period), (note,)


def _chained(quality: Mapping[int, Qos]) -> Quality:
    """Return divisors of which each is a multiple of the next smaller one, all rounded down."""
    if len(quality) == 1:
        return dict(quality)
    chained = dict(quality)
    smaller = 1
    for mode in sorted(quality, key=lambda mode: (quality[mode].every, mode)):
        smaller = quality[mode].every // smaller * smaller
        chained[mode] = replace(quality[mode], every=smaller)
    return chained


def _in_mode(mode: int, text: str) -> str:
    return f"mode {mode}: {text}" if mode else text


def with_headroom_us(qos: Qos, slowest_us: int) -> int:
    """Return the latency to promise where the slowest path is predicted to take so long."""
    return min(qos.latency_us, ceil(LATENCY_HEADROOM * slowest_us))
