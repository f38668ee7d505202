"""A variable at very many intervals: no row is rounded, so no more is sent than is charged."""

from __future__ import annotations

from random import Random

import pytest

from gridstat.broker.capacity.allocation import AllocationRequest, Refusal
from gridstat.broker.capacity.allocator import Allocator
from gridstat.model.errors import IntervalNotSatisfiable
from gridstat.model.identifiers import ChannelId
from gridstat.model.qos import QosRequest
from gridstat.model.rate_law import union_rate
from gridstat.router.forwarding_table import forwarding_row
from gridstat.router.path_table import CarriedVariable, Path
from tests.unit.broker.clouds import LINE, ask, cloud, grant, numbers, refuse, variable

PRIMES = [number for number in range(2, 500) if all(number % n for n in range(2, number))]
VOLTAGE = variable()


def asked(number: int, every: int) -> AllocationRequest:
    """Return requests, each of a separate subscriber."""
    return ask(number, VOLTAGE, ("a", "c"), QosRequest(every=every), subscriber=f"s{number}")


def crowd(allocator: Allocator) -> tuple[int, Refusal]:
    """Take a variable at ever more intervals; the first number that is refused, and why."""
    for number, prime in enumerate(PRIMES, start=1):
        answer = allocator.allocate(asked(number, prime))
        if isinstance(answer, Refusal):
            return number, answer
    raise AssertionError("nothing was refused")


def delivered(allocator: Allocator, edge: str) -> list[tuple[int, tuple[int, ...]]]:
    """The subscriptions that are delivered at an edge, with the divisors of the router's row."""
    contracts = [one for one in allocator.contracts.values() if one.paths[0].routers[-1] == edge]
    paths = [
        Path(
            VOLTAGE.variable_id,
            ChannelId(1_000 + one.request.subscription_id),
            one.granted[0].every,
        )
        for one in contracts
    ]
    carried = CarriedVariable(VOLTAGE.variable_id, VOLTAGE.period)
    row = forwarding_row(carried, paths)
    return [
        (route.channel_id - 1_000, tuple(term.every for term in route.terms))
        for route in row.routes
    ]


def test_more_divisors_than_a_row_holds_are_refused_and_the_limit_is_named() -> None:
    allocator = Allocator(cloud(LINE))
    number, refused = crowd(allocator)
    assert 50 < number <= 65
    assert refused.code == IntervalNotSatisfiable.code
    assert "the 64 that a router keeps" in refused.reason
    assert refused.bottleneck == f"variable {VOLTAGE.name}"

    grant(allocator, asked(number, PRIMES[3]))  # Others take it so, too.
    before = numbers(allocator.resources)
    refuse(allocator, asked(number + 1, PRIMES[90]))
    assert numbers(allocator.resources) == before, "a refusal leaves no trace"
    for each, everys in delivered(allocator, "c"):
        assert everys == (allocator.contract(each).granted[0].every,)


def test_an_interval_that_nobody_takes_any_more_makes_room() -> None:
    allocator = Allocator(cloud(LINE))
    number, _ = crowd(allocator)
    allocator.release(20)
    grant(allocator, asked(number, PRIMES[number - 1]))


@pytest.mark.parametrize("seed", range(3))
def test_no_delivery_is_faster_than_it_is_charged_whatever_is_asked(seed: int) -> None:
    rng = Random(seed)
    allocator = Allocator(cloud(LINE))
    for number in range(1, 150):
        every = rng.choice((rng.choice(PRIMES), rng.randint(1, 2_000)))
        allocator.allocate(asked(number, every))
        if rng.random() < 0.1:
            allocator.release(rng.choice(sorted(allocator.contracts)))
    for each, everys in delivered(allocator, "c"):
        assert union_rate(everys) == union_rate((allocator.contract(each).granted[0].every,))
    for number in sorted(allocator.contracts):
        allocator.release(number)
    assert numbers(allocator.resources) == numbers(cloud(LINE))
