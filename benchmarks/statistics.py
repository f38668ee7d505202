"""The arithmetic of the experiments: quantiles, bins, regression and the sources' own formulas.

Pure: lists and arrays in, numbers out. The warm-up rule is here too, so that every experiment
cuts alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

NS_PER_US = 1_000
NS_PER_S = 1_000_000_000
WARM_UP_SHARE = 0.02
WARM_UP_S = 0.5
WARM_UP_INTERPRETED_S = 1.0
"""Warm-up of the Python reference, longer, as the sources gave their managed router more time."""

REFERENCE_EVENTS_PER_MS = 0.019
"""Share of the one reference variable in a measured throughput (S0 §8.5)."""

QUANTILES = (0.5, 0.9, 0.95, 0.99)

Histogram = tuple[tuple[int, int], ...]
"""(upper edge in ns, samples) of each bucket, the lowest first."""

Windows = Sequence[tuple[int, int]]
"""Time windows, from and until, in ns of the clock that stamps events."""

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Summary:
    """Latencies of one run after the warm-up, in the columns of the sources' tables."""

    count: int
    mean_us: float
    sd_us: float
    min_us: float
    max_us: float
    p50_us: float
    p90_us: float
    p95_us: float
    p99_us: float


@dataclass(frozen=True, slots=True)
class Bin:
    """Latencies in [lower, upper), as a count and a share of all."""

    lower_us: float
    upper_us: float
    count: int
    percent: float


@dataclass(frozen=True, slots=True)
class Line:
    """Least-squares line and the share of the variance it explains."""

    slope: float
    intercept: float
    r2: float


def warm_up_count(created_ns: Int64s, *, warm_up_s: float = WARM_UP_S) -> int:
    """Return how many first samples to cut: 2 % or `warm_up_s`, the longer, but at most half."""
    count = len(created_ns)
    if count == 0:
        return 0
    by_time = int(np.searchsorted(created_ns, created_ns[0] + int(warm_up_s * NS_PER_S)))
    return min(max(by_time, math.ceil(count * WARM_UP_SHARE)), count // 2)


def summary_of(latencies_ns: Int64s) -> Summary:
    """Return the summary of latencies whose warm-up has been cut; all zero for an empty run."""
    if len(latencies_ns) == 0:
        return Summary(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    micros = latencies_ns / NS_PER_US
    p50, p90, p95, p99 = (float(value) for value in np.quantile(micros, QUANTILES))
    return Summary(
        count=len(micros),
        mean_us=float(micros.mean()),
        sd_us=float(micros.std()),
        min_us=float(micros.min()),
        max_us=float(micros.max()),
        p50_us=p50,
        p90_us=p90,
        p95_us=p95,
        p99_us=p99,
    )


def counted(created_ns: Int64s, *, warm_up_s: float, windows_ns: Windows = ()) -> Int64s:
    """Return the places of the samples that count: within the windows, or after the warm-up."""
    if not windows_ns:
        return np.arange(warm_up_count(created_ns, warm_up_s=warm_up_s), len(created_ns))
    is_within = np.zeros(len(created_ns), np.bool_)
    for from_ns, until_ns in windows_ns:
        is_within |= (created_ns >= from_ns) & (created_ns < until_ns)
    return np.flatnonzero(is_within)


def histogram_since(before: Histogram, after: Histogram) -> Histogram:
    """Return the difference of a histogram that only grows; it may have more buckets now."""
    earlier = dict(before)
    return tuple((upper, count - earlier.get(upper, 0)) for upper, count in after)


def histogram_quantile(histogram: Sequence[tuple[int, int]], quantile: float) -> int:
    """Return the upper edge of the bucket with the quantile (nearest rank); 0 for no samples."""
    assert 0.0 < quantile <= 1.0
    total = sum(count for _, count in histogram)
    rank = max(1, math.ceil(total * quantile))
    seen = 0
    for upper, count in histogram:
        seen += count
        if count and seen >= rank:
            return upper
    return 0


def histogram_mean(histogram: Sequence[tuple[int, int]]) -> float:
    """Return about the mean of the core's buckets, of which there are eight to an octave.

    Every sample counts as the middle of its bucket; 0 for no samples.
    """
    total = sum(count for _, count in histogram)
    widths = [1 << max(0, (upper - 1).bit_length() - 4) for upper, _ in histogram]
    weighed = sum(
        count * (upper - width / 2) for (upper, count), width in zip(histogram, widths, strict=True)
    )
    return weighed / total if total else 0.0


def bins_of(latencies_ns: Int64s, *, width_us: float) -> list[Bin]:
    """Return non-empty bins of equal width, labelled by both edges (S0 §8.1, S3 Fig 5.4)."""
    assert width_us > 0
    if len(latencies_ns) == 0:
        return []
    width_ns = round(width_us * NS_PER_US)
    indices, counts = np.unique(latencies_ns // width_ns, return_counts=True)
    return [
        Bin(index * width_us, (index + 1) * width_us, count, 100.0 * count / len(latencies_ns))
        for index, count in zip(indices.tolist(), counts.tolist(), strict=True)
    ]


def line_through(xs: Sequence[float], ys: Sequence[float]) -> Line:
    """Return the least-squares line over at least two points (S0-136: slope and R² per load)."""
    assert len(xs) == len(ys)
    assert len(xs) >= 2
    x, y = np.asarray(xs, float), np.asarray(ys, float)
    spread = float(((x - x.mean()) ** 2).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread
    intercept = float(y.mean()) - slope * float(x.mean())
    total = float(((y - y.mean()) ** 2).sum())
    left = float(((y - (intercept + slope * x)) ** 2).sum())
    return Line(slope, intercept, 1.0 if total == 0 else 1.0 - left / total)


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of the ratios of adjacent pairs, which a drifting machine moves least."""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True) if other]
    return median(ratios) if ratios else math.nan


def spread_percent(values: Sequence[float]) -> float:
    """Return (largest - smallest) / median of the repetitions, in per cent."""
    middle = median(values) if values else 0.0
    return 100.0 * (max(values) - min(values)) / middle if middle else 0.0


def published_events_per_ms(variables: int, publish_ms: float, *, sleep_ms: float = 1.0) -> float:
    """Return S0 Function 8.1, x / (1 + time to publish x), of a loop that publishes and sleeps."""
    assert sleep_ms > 0
    return variables / (sleep_ms + publish_ms)


def multicast_events_per_ms(
    published_per_ms: float, subscribers: int, *, reference_per_ms: float = REFERENCE_EVENTS_PER_MS
) -> float:
    """Return S0 Function 8.6: every load subscriber gets every load event; the reference once."""
    load_per_ms = published_per_ms - reference_per_ms
    return load_per_ms * subscribers + reference_per_ms


def filtered_events_per_ms(
    published_per_ms: float,
    subscribers: int,
    *,
    halved: int,
    reference_per_ms: float = REFERENCE_EVENTS_PER_MS,
) -> float:
    """Return S0 Function 8.8: `halved` of the load subscribers see every second event only."""
    assert 0 <= halved <= subscribers
    load_per_ms = published_per_ms - reference_per_ms
    return load_per_ms * (subscribers - halved) + load_per_ms / 2 * halved + reference_per_ms


def model_mean_ms(routers: int, events_per_ms: float) -> float:
    """Return S0 A29, the source's own latency model for its machines: rd + Σ (lbd + er / k)."""
    return 0.419 + routers * (0.227 + events_per_ms / 210)
