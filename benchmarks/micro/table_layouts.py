"""Our forwarding row beside S0's close and sparse tables; only ratios within a run mean anything.

Cells are the cases of S0 Tab 4.1: `channels` (ol) with `intervals` (si) each, the event sent on
one, half or all of them, its interval the last, middle or first that the close table meets. Series
grow the subscriptions. Run it with `python -m benchmarks.micro.table_layouts`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from dataclasses import dataclass
from itertools import product
from statistics import geometric_mean, median
from typing import TYPE_CHECKING

from benchmarks.micro.layout_library import Layout, LayoutKind, bench
from benchmarks.statistics import median_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

CHANNELS = (1, 4, 16, 64, 256)
INTERVALS = (1, 2, 4, 8, 12)
SENT = ("one", "half", "all")
POSITIONS = ("worst", "average", "best")
SUBSCRIPTIONS = (10, 100, 1_000, 10_000)
SUBSCRIPTIONS_PER_CHANNEL = 10
PRIMES = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
DIVISORS_OF_60 = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60)
SLOT_FIRST = 50_000_000_000
"""About today's slot, at thirty events a second, so that divisions cost the same as in a router."""

RUNS = 7
RUN_NS = 1_000_000

Paths = tuple[tuple[int, int], ...]
"""(channel, every) of each subscription."""


@dataclass(frozen=True, slots=True)
class Case:
    """Tables of equal kind and the slots that they decide on; `labels` are printed."""

    labels: tuple[str, ...]
    variables: tuple[Paths, ...]
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """Median nanoseconds and mean tests an event, and our time over theirs, run by run."""

    case: Case
    event_ns: Mapping[LayoutKind, float]
    tests: Mapping[LayoutKind, float]
    ours_to_close: float
    ours_to_sparse: float


def cell(channels: int, intervals: int, *, sent: str, position: str) -> Case:
    """Return a case of S0 Tab 4.1: some channels have an interval that is due, the others not."""
    rank = {"best": 0, "average": intervals // 2, "worst": intervals - 1}[position]
    is_due, is_not, *others = PRIMES[rank], PRIMES[rank + 1], *PRIMES[:rank], *PRIMES[rank + 2 :]
    others = others[: intervals - 1]
    count = {"one": 1, "half": channels // 2, "all": channels}[sent]
    lucky = set(random.Random(channels).sample(range(channels), count))
    paths = tuple(
        (channel, every)
        for channel in range(channels)
        for every in (*others, is_due if channel in lucky else is_not)
    )
    slots = (
        slot for slot in _multiples(is_due) if all(slot % other for other in (*others, is_not))
    )
    return Case(
        labels=(position, sent, str(channels), str(intervals)),
        variables=(paths,),
        slots=tuple(next(slots) for _ in range(64)),
    )


def cells() -> Iterator[Case]:
    for position, sent, channels, intervals in product(POSITIONS, SENT, CHANNELS, INTERVALS):
        if channels > 1 or sent == "all":  # With one channel, one and all are the same.
            yield cell(channels, intervals, sent=sent, position=position)


def grid_rates(subscriptions: int) -> Case:
    """Return ten subscriptions a channel at the rates of grids: divisors of sixty a second."""
    chosen = random.Random(subscriptions)
    channels = max(1, subscriptions // SUBSCRIPTIONS_PER_CHANNEL)
    paths = tuple((i % channels, chosen.choice(DIVISORS_OF_60[2:])) for i in range(subscriptions))
    return Case(("grid rates", str(subscriptions)), (paths,), _stream(60))


def scattered(subscriptions: int) -> Case:
    """Return any of 64 divisors, so that few channels have the same: our worst case."""
    chosen = random.Random(subscriptions)
    channels = max(1, subscriptions // SUBSCRIPTIONS_PER_CHANNEL)
    paths = tuple((i % channels, chosen.randrange(16, 80)) for i in range(subscriptions))
    return Case(("scattered", str(subscriptions)), (paths,), _stream(240))


def chain(channels: int) -> Case:
    """Return intervals that are multiples of the one before: the best case of the sparse table."""
    paths = tuple((channel, 2 << channel % 12) for channel in range(channels))
    return Case(("chain", str(channels)), (paths,), _stream(256))


def many_variables(variables: int) -> Case:
    """Return more rows than the caches hold, of four channels with two intervals each."""
    chosen = random.Random(variables)
    rows = tuple(
        tuple((channel, every) for channel in range(4) for every in chosen.sample((2, 3, 5, 7), 2))
        for _ in range(variables)
    )
    return Case(("many variables", str(variables)), rows, _stream(2))


SERIES: Mapping[str, tuple[Callable[[int], Case], Sequence[int]]] = {
    "grid_rates": (grid_rates, SUBSCRIPTIONS),
    "scattered": (scattered, SUBSCRIPTIONS),
    "chain": (chain, (12, 48, 192)),
    "many_variables": (many_variables, (10_000,)),
}


def build(case: Case, kind: LayoutKind) -> list[Layout]:
    """Return the case's filled tables in random order, as events of many variables come."""
    tables = []
    for paths in case.variables:
        table = Layout(kind)
        for channel, every in paths:
            table.insert(channel, every)
        tables.append(table)
    random.Random(len(tables)).shuffle(tables)
    return tables


def measure(case: Case, *, runs: int = RUNS, run_ns: int = RUN_NS) -> Result:
    """Measure all layouts after each other in every run, as the machine may change between runs."""
    tables = {kind: build(case, kind) for kind in LayoutKind}
    events = len(case.slots) * len(case.variables)
    repetitions = {}
    for kind in LayoutKind:
        once_ns = min(bench(tables[kind], case.slots, repetitions=1) for _ in range(3))
        repetitions[kind] = max(1, run_ns // max(1, once_ns))
    times: dict[LayoutKind, list[float]] = {kind: [] for kind in LayoutKind}
    for _ in range(runs):
        for kind in LayoutKind:
            elapsed_ns = bench(tables[kind], case.slots, repetitions=repetitions[kind])
            times[kind].append(elapsed_ns / (events * repetitions[kind]))
    tests = {
        kind: sum(tables[kind][0].tests(slot) for slot in case.slots) / len(case.slots)
        for kind in LayoutKind
    }
    for table in (table for of_kind in tables.values() for table in of_kind):
        table.close()
    return Result(
        case=case,
        event_ns={kind: median(times[kind]) for kind in LayoutKind},
        tests=tests,
        ours_to_close=median_ratio(times[LayoutKind.OURS], times[LayoutKind.CLOSE]),
        ours_to_sparse=median_ratio(times[LayoutKind.OURS], times[LayoutKind.SPARSE]),
    )


def summary(results: Sequence[Result], series: Mapping[str, Sequence[Result]]) -> dict[str, object]:
    """Return flat fields, then cells of position, sent, channels, intervals and both ratios."""
    fields: dict[str, object] = {"name": "table_layouts", "cell_count": len(results)}
    for name in ("close", "sparse"):
        ratios = [_ratio(result, name) for result in results]
        fields[f"ours_to_{name}_mean"] = _rounded(geometric_mean(ratios))
        fields[f"ours_to_{name}_median"] = _rounded(median(ratios))
        fields[f"ours_to_{name}_max"] = _rounded(max(ratios))
        fields[f"ours_faster_than_{name}_share"] = _rounded(_share(ratios))
        for channels in CHANNELS:
            those = [r for r in results if r.case.labels[2] == str(channels)]
            mean = geometric_mean([_ratio(result, name) for result in those])
            fields[f"ours_to_{name}_{channels}_channels"] = _rounded(mean)
        for key, members in series.items():
            for member in members:
                field = f"{key}_{member.case.labels[1]}_ours_to_{name}"
                fields[field] = _rounded(_ratio(member, name))
    fields["cells"] = [
        [*result.case.labels, _rounded(result.ours_to_close), _rounded(result.ours_to_sparse)]
        for result in results
    ]
    return fields


def show_cells(results: Sequence[Result]) -> None:
    print("Our time over theirs, S0 Tab 4.1 (close / sparse); below 1 ours is faster")
    columns = "".join(f"{f'{intervals} intervals':>15}" for intervals in INTERVALS)
    print(f"{'close meets it':15}{'sent on':8}{'channels':>8}{columns}")
    for start in range(0, len(results), len(INTERVALS)):
        row = results[start : start + len(INTERVALS)]
        position, sent, channels, _ = row[0].case.labels
        ratios = "".join(f"{f'{r.ours_to_close:.2f} /{r.ours_to_sparse:5.2f}':>15}" for r in row)
        print(f"{position:15}{sent:8}{channels:>8}{ratios}")


def show_series(series: Mapping[str, Sequence[Result]]) -> None:
    heads = "".join(f"{kind.name.lower():>10}" for kind in LayoutKind) * 2
    print(f"\n{'':24}{'nanoseconds an event':>30}{'tests an event':>30}")
    print(f"{'series':16}{'size':>8}{heads}{'to close':>10}{'to sparse':>10}")
    for result in (result for members in series.values() for result in members):
        name, size = result.case.labels
        times = "".join(f"{result.event_ns[kind]:10.1f}" for kind in LayoutKind)
        tests = "".join(f"{result.tests[kind]:10.1f}" for kind in LayoutKind)
        ratios = f"{result.ours_to_close:10.2f}{result.ours_to_sparse:10.2f}"
        print(f"{name:16}{size:>8}{times}{tests}{ratios}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Our forwarding row beside S0's two tables.")
    parser.add_argument("--runs", type=int, default=RUNS, help="interleaved runs of each case")
    parser.add_argument("--json", action="store_true", help="print the JSON line only")
    asked = parser.parse_args()
    results = [measure(case, runs=asked.runs) for case in cells()]
    series = {
        key: [measure(make(size), runs=asked.runs) for size in sizes]
        for key, (make, sizes) in SERIES.items()
    }
    if not asked.json:
        show_cells(results)
        show_series(series)
    print(json.dumps({**summary(results, series), "runs": asked.runs}))


def _multiples(every: int) -> Iterator[int]:
    slot = SLOT_FIRST // every * every
    while True:
        slot += every
        yield slot


def _stream(count: int) -> tuple[int, ...]:
    return tuple(range(SLOT_FIRST, SLOT_FIRST + count))


def _ratio(result: Result, name: str) -> float:
    return result.ours_to_close if name == "close" else result.ours_to_sparse


def _share(ratios: Sequence[float]) -> float:
    return sum(ratio < 1 for ratio in ratios) / len(ratios)


def _rounded(ratio: float) -> float:
    return ratio if math.isnan(ratio) else round(ratio, 3)


if __name__ == "__main__":
    main()
