"""`python -m lab.simulation.bands`: what bands and priorities are worth beside first come.

Each seed draws a network and demands with priorities and bands. The same demands come in the same
order to two allocators: one serves first come, the other lowers contracts within their bands and
splits anew from time to time, as a broker does. The value of what is granted is the sum over
contracts of their priority's weight: whoever is within its band is content. That is judged. The sum
in which each weight counts by the share of the desired rate that was granted is reported beside it:
bands buy contracts with rates, so it may be lower.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from gridstat.broker.capacity.allocation import Allocation, AllocationRequest
from gridstat.broker.capacity.allocator import Allocator
from gridstat.broker.capacity.band_planning import every_of, rates_of
from gridstat.broker.capacity.resources import Resources
from gridstat.model.cloud import EventChannel, Router
from gridstat.model.identifiers import ChannelId, VariableId
from gridstat.model.qos import PRIORITY_MAX, PRIORITY_MIN, ModalQos, QosRequest
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable

if TYPE_CHECKING:
    from collections.abc import Sequence

RATES: Final = (30, 50, 60)
BANDWIDTHS: Final = (20_000, 30_000, 45_000)
WORST_FACTORS: Final = (1, 2, 5, 10, 30, 60)
"""Worst acceptable divisors; 1 is a demand without a band."""
SPLIT_AFTER: Final = 10
"""Demands after which the broker's timer would split anew."""


@dataclass(frozen=True, slots=True)
class Result:
    """Contracts that were granted, their value, and the rate that the most urgent ones have."""

    granted: int
    value: int
    rate_value: float
    """The same, but each weight by the granted share of the desired rate."""
    urgent_events_per_s: float
    """Events a second of priority 1, over all contracts of that priority."""


def weight(priority: int) -> int:
    return 1 << (PRIORITY_MAX - priority)


def network(random: Random) -> tuple[Resources, list[str]]:
    """Draw a connected cloud whose channels are narrow."""
    resources = Resources()
    names = [f"r{number}" for number in range(random.randint(3, 7))]
    for name in names:
        resources.add_router(Router(name))
    links = {(names[at], names[at + 1]) for at in range(len(names) - 1)}
    for _ in range(random.randint(0, 4)):
        near, far = sorted(random.sample(names, 2))
        links.add((near, far))
    bandwidth = random.choice(BANDWIDTHS)
    ends = [end for near, far in sorted(links) for end in ((near, far), (far, near))]
    for number, (near, far) in enumerate(ends, start=1):
        resources.add_channel(
            EventChannel(
                ChannelId(number), near, far, bandwidth_bytes_per_s=bandwidth, security="none"
            )
        )
    return resources, names


def demands(random: Random, names: Sequence[str]) -> list[AllocationRequest]:
    """Draw demands in the order in which they come; their bands are wide, narrow, or none."""
    found = []
    for number in range(1, random.randint(60, 120)):
        stream = random.randint(1, 40)
        source = names[stream % len(names)]
        target = random.choice([name for name in names if name != source])
        qos = QosRequest(
            every_worst=random.choice(WORST_FACTORS),
            priority=random.randint(PRIORITY_MIN, PRIORITY_MAX),
        )
        variable = StatusVariable(
            VariableId(stream),
            f"c1/pmu/v{stream}",
            BuiltinType.FLOAT64,
            Period(1, RATES[stream % len(RATES)]),
        )
        found.append(AllocationRequest(number, variable, (source,), (target,), ModalQos({0: qos})))
    return found


def serve(seed: int, *, has_bands: bool) -> Result:
    """Serve the demands of a seed."""
    random = Random(seed)
    resources, names = network(random)
    allocator = Allocator(resources)
    for each in demands(random, names):
        if has_bands:
            _serve_by_bands(allocator, each)
        else:
            allocator.allocate(each)
    assert not any(hop.is_overloaded for hop in resources.channels.values()), "all is admitted"
    held = allocator.contracts.values()
    urgent = [
        resources.stream_cost(one.request.variable).price.event_rate / every_of(one.granted)
        for one in held
        if one.granted[0].priority == PRIORITY_MIN
    ]
    return Result(
        granted=len(held),
        value=sum(weight(one.granted[0].priority) for one in held),
        rate_value=sum(weight(one.granted[0].priority) / every_of(one.granted) for one in held),
        urgent_events_per_s=float(sum(urgent)),
    )


def _serve_by_bands(allocator: Allocator, request: AllocationRequest) -> None:
    answer = allocator.allocate(request)
    if _is_lower(answer):
        if isinstance(answer, Allocation):
            allocator.release(request.subscription_id)
        if allocator.make_room(request, _anybody) is None:
            allocator.allocate(request)
    below = [number for number, held in allocator.contracts.items() if _is_lower(held)]
    if below and request.subscription_id % SPLIT_AFTER == 0:
        allocator.rebalance(below, may_change=_anybody, may_rise=_anybody)


def _is_lower(answer: object) -> bool:
    if not isinstance(answer, Allocation):
        return True
    rates = rates_of(answer.request)
    return rates is not None and every_of(answer.granted) > rates.best


def _anybody(_: int) -> bool:
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each seed whose value is below that of first come, and the totals."""
    parser = ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args(argv)
    below = as_urgent = 0
    values, rate_values = [0, 0], [0.0, 0.0]
    for seed in range(given.first, given.first + given.seeds):
        first_come, bands = serve(seed, has_bands=False), serve(seed, has_bands=True)
        values[0] += first_come.value
        values[1] += bands.value
        rate_values[0] += first_come.rate_value
        rate_values[1] += bands.rate_value
        as_urgent += bands.urgent_events_per_s >= first_come.urgent_events_per_s
        if bands.value < first_come.value:
            below += 1
            sys.stdout.write(f"seed {seed}: {bands} instead of {first_come}\n")
    sys.stdout.write(
        f"{given.seeds} networks: value {values[1]} by bands, {values[0]} by first come "
        f"(× {values[1] / values[0]:.2f}); below first come in {below}; by rates × "
        f"{rate_values[1] / rate_values[0]:.2f}; the most urgent have as much or more in "
        f"{as_urgent}\n"
    )
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
