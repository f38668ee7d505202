"""The latency law: the predicted p90 of a path, from its hops, their load and their bursts.

Law (S0 A29, refitted on our core, for a quantile instead of the mean): the ends' own part, and for
every router a constant, a part that grows with the events a second through it, and a part for each
event that may arrive at the same instant; plus the latencies of the channels. ADR-0015 explains why
the p90 is predicted, and why the fit is raised until 19 of 20 runs are within it.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PREDICTED_QUANTILE: Final = 0.90
"""Highest quantile that is repeatable from run to run on a virtual machine."""

US_PER_S: Final = 1_000_000
_EVENTS: Final = 1_000
_PULL: Final = 1e-9
"""Weight of the earlier coefficients, which matter only where samples say nothing."""


@dataclass(frozen=True, slots=True)
class Hop:
    """Load of a router on the path and of its outgoing channel, as input of the law.

    The load counts events in and out together; the last router's channel leads to the subscriber.
    """

    events_per_s: float = 0.0
    burst_events: int = 0
    burst_bytes: int = 0
    bandwidth_bytes_per_s: int = 0
    channel_latency_us: int = 0


@dataclass(frozen=True, slots=True)
class Measurement:
    """A path, and the predicted quantile as it was measured on it."""

    hops: tuple[Hop, ...]
    latency_us: float


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """Coefficients in microseconds; none is negative, so more load never predicts less."""

    ends_us: float
    hop_us: float
    us_per_1000_events_per_s: float
    us_per_burst_event: float

    def __post_init__(self) -> None:
        assert all(coefficient >= 0 for coefficient in astuple(self))

    def router_us(self, events_per_s: float) -> int:
        """Return the latency of a router at this load, rounded up."""
        return ceil(self.hop_us + self.us_per_1000_events_per_s * events_per_s / _EVENTS)

    def burst_us(self, events: int, burst_bytes: int, bandwidth_bytes_per_s: int) -> int:
        """Return the delay of the last event of a burst, rounded up."""
        return ceil(
            self.us_per_burst_event * events + serialisation_us(burst_bytes, bandwidth_bytes_per_s)
        )

    def channel_us(self, hop: Hop) -> int:
        """Return the latency of a channel: its own, and that of a burst ahead of an event."""
        return hop.channel_latency_us + self.burst_us(
            hop.burst_events, hop.burst_bytes, hop.bandwidth_bytes_per_s
        )

    def predict(self, hops: Sequence[Hop]) -> int:
        """Return the predicted p90 from end-point to end-point."""
        return ceil(self.ends_us) + sum(
            self.router_us(hop.events_per_s) + self.channel_us(hop) for hop in hops
        )


LATENCY_MODEL_DEFAULT: Final = LatencyModel(
    ends_us=216.0, hop_us=107.0, us_per_1000_events_per_s=1.07, us_per_burst_event=1.36
)
"""Coefficients from `benchmarks/results/latency-law.json`.

`gridstat experiment run latency-law` refits them. The ends' part holds a `send` of the public API.
Load and bursts are those of one router (`forwarding.json`), since chains on two processors show
less of them.
"""


def serialisation_us(burst_bytes: int, bandwidth_bytes_per_s: int) -> float:
    """Return the time to send a burst at this bandwidth; 0 if the bandwidth is undeclared."""
    return burst_bytes * US_PER_S / bandwidth_bytes_per_s if bandwidth_bytes_per_s else 0.0


def fit(
    measurements: Sequence[Measurement], earlier: LatencyModel = LATENCY_MODEL_DEFAULT
) -> tuple[LatencyModel, float]:
    """Return the coefficients of least squares, and their mean absolute error in microseconds.

    Relative errors are squared: otherwise a few long bursts would dominate. A coefficient that the
    measurements do not determine (no load varied, say) keeps its earlier value. A negative one is
    set to 0 and the others are fitted again.
    """
    assert measurements, "nothing to fit"
    assert all(one.latency_us > 0 for one in measurements)
    rows = [[value / one.latency_us for value in _row(one.hops)] for one in measurements]
    wanted = [1.0 - _known_us(one.hops) / one.latency_us for one in measurements]
    model = LatencyModel(*_fit_without_negatives(rows, wanted, list(astuple(earlier))))
    errors = [abs(_unrounded_us(model, one.hops) - one.latency_us) for one in measurements]
    return model, sum(errors) / len(errors)


def raised(model: LatencyModel, measurements: Sequence[Measurement], share: float) -> LatencyModel:
    """Return the law scaled up until it covers this share of the measurements.

    A least-squares fit covers about half of them; a contract should be kept more often.
    """
    assert 0 < share <= 1
    factors = sorted(
        (one.latency_us - known_us) / (_unrounded_us(model, one.hops) - known_us)
        for one in measurements
        if (known_us := _known_us(one.hops)) < one.latency_us
    )
    factor = max(1.0, factors[ceil(share * len(factors)) - 1]) if factors else 1.0
    return LatencyModel(*(factor * coefficient for coefficient in astuple(model)))


def _unrounded_us(model: LatencyModel, hops: Sequence[Hop]) -> float:
    parts = zip(_row(hops), astuple(model), strict=True)
    return _known_us(hops) + sum(float(value * coefficient) for value, coefficient in parts)


def _row(hops: Sequence[Hop]) -> list[float]:
    return [
        1.0,
        float(len(hops)),
        sum(hop.events_per_s for hop in hops) / _EVENTS,
        float(sum(hop.burst_events for hop in hops)),
    ]


def _known_us(hops: Sequence[Hop]) -> float:
    return sum(
        hop.channel_latency_us + serialisation_us(hop.burst_bytes, hop.bandwidth_bytes_per_s)
        for hop in hops
    )


def _fit_without_negatives(
    rows: list[list[float]], wanted: list[float], earlier: list[float]
) -> list[float]:
    free = list(range(len(earlier)))
    while True:
        found = [0.0] * len(earlier)
        for index, value in zip(free, _least_squares(rows, wanted, earlier, free), strict=True):
            found[index] = value
        negative = [index for index in free if found[index] < 0]
        if not negative:
            return found
        free.remove(min(negative, key=lambda index: found[index]))


def _least_squares(
    rows: list[list[float]], wanted: list[float], earlier: list[float], free: list[int]
) -> list[float]:
    """Minimise the squared errors, with a tiny weight for the earlier coefficients.

    Columns are scaled to the same length first, so that the weight is equal for all.
    """
    scales = [sum(row[column] ** 2 for row in rows) ** 0.5 or 1.0 for column in free]
    columns = [
        [row[column] / scale for row in rows] for column, scale in zip(free, scales, strict=True)
    ]
    pulled = [earlier[column] * scale for column, scale in zip(free, scales, strict=True)]
    matrix = [[sum(a * b for a, b in zip(x, y, strict=True)) for y in columns] for x in columns]
    right = [sum(a * b for a, b in zip(x, wanted, strict=True)) for x in columns]
    for index, value in enumerate(pulled):
        matrix[index][index] += _PULL
        right[index] += _PULL * value
    solved = _solve(matrix, right)
    return [value / scale for value, scale in zip(solved, scales, strict=True)]


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve by Gaussian elimination with pivoting; the added weight makes the matrix regular."""
    count = len(right)
    system = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for at in range(count):
        pivot = max(range(at, count), key=lambda row: abs(system[row][at]))
        system[at], system[pivot] = system[pivot], system[at]
        for row in range(at + 1, count):
            factor = system[row][at] / system[at][at]
            for column in range(at, count + 1):
                system[row][column] -= factor * system[at][column]
    solved = [0.0] * count
    for at in reversed(range(count)):
        rest = sum(system[at][column] * solved[column] for column in range(at + 1, count))
        solved[at] = (system[at][count] - rest) / system[at][at]
    return solved
