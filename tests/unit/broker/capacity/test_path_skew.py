"""No path of a contract is so slow that its copies are no longer recognised when they come."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from gridstat.broker.capacity.allocation import Allocation, Refusal
from gridstat.broker.capacity.allocator import Allocator
from gridstat.broker.capacity.path_skew import recognised_us
from gridstat.model.errors import ChannelFull, LatencyNotSatisfiable, SkewNotSatisfiable
from gridstat.model.qos import QosRequest
from gridstat.model.rate_law import Period
from gridstat.model.window_law import latency_us_recognised, window_slots
from tests.unit.broker.clouds import DIAMOND, ask, cloud, grant, refuse, variable

TWO = QosRequest(redundancy=2, latency_us=2_000_000)
TRIPLE = (*DIAMOND, ("a", "e"), ("e", "d"))
"""Three ways from a to d: over b, c and e."""


def skewed(links: tuple[tuple[str, str], ...] = DIAMOND, **slow_us: int) -> Allocator:
    """An allocator in whose cloud the channels from these routers take so long."""
    resources = cloud(links)
    for near, latency_us in slow_us.items():
        number = resources.channel_between(near, "d")
        channel = resources.channel(number).channel
        assert channel is not None
        resources.remove_channel(number)
        resources.add_channel(replace(channel, latency_us=latency_us))
    return Allocator(resources)


@pytest.mark.parametrize("hertz", [30, 120, 1_000, 4_000])
@pytest.mark.parametrize("slow_ms", [0, 80, 300, 500])
def test_paths_that_differ_by_half_a_second_are_granted_up_to_4_khz(
    hertz: int, slow_ms: int
) -> None:
    allocator = skewed(c=slow_ms * 1_000)
    contract = grant(allocator, ask(1, variable(hertz=hertz), ("a", "d"), TWO))
    slots = window_slots(Period(1, hertz))
    late_us = max(path.latency_us for path in contract.paths)
    assert late_us <= latency_us_recognised(slots, Fraction(hertz))


@pytest.mark.parametrize(("hertz", "slow_ms"), [(1_000, 950), (4_000, 990), (20_000, 200)])
def test_a_second_path_beyond_the_window_is_refused_with_that_reason(
    hertz: int, slow_ms: int
) -> None:
    allocator = skewed(c=slow_ms * 1_000)
    taken = variable(hertz=hertz)
    refusal = refuse(allocator, ask(1, taken, ("a", "d"), TWO))
    assert refusal.code == SkewNotSatisfiable.code == 1110
    assert f"recognised for {recognised_us(taken)} µs only" in refusal.reason
    assert refusal.shortfall.endswith(" µs")
    assert "fewer paths" in refusal.hint
    assert not allocator.contracts


def test_one_path_as_slow_as_that_is_granted() -> None:
    allocator = skewed(b=950_000, c=950_000)
    contract = grant(
        allocator, ask(1, variable(hertz=1_000), ("a", "d"), QosRequest(latency_us=2_000_000))
    )
    assert len(contract.paths) == 1


def test_a_contract_that_may_have_one_path_is_lowered_to_it_and_says_why() -> None:
    allocator = skewed(c=950_000)
    qos = replace(TWO, redundancy_worst=1)
    contract = grant(allocator, ask(1, variable(hertz=1_000), ("a", "d"), qos))
    assert len(contract.paths) == 1
    assert any("too slow for a second one" in note for note in contract.degraded)


def test_what_is_too_slow_for_the_request_itself_is_refused_for_its_latency() -> None:
    allocator = skewed(c=950_000)
    qos = replace(TWO, latency_us=900_000)
    refusal = refuse(allocator, ask(1, variable(hertz=1_000), ("a", "d"), qos))
    assert refusal.code == LatencyNotSatisfiable.code


def test_a_third_path_is_taken_in_the_place_of_one_that_is_too_slow() -> None:
    allocator = skewed(TRIPLE, c=950_000, e=100_000)
    contract = grant(allocator, ask(1, variable(hertz=1_000), ("a", "d"), TWO))
    assert {path.routers[1] for path in contract.paths} == {"b", "e"}


def test_a_path_is_not_replaced_by_one_that_is_too_slow() -> None:
    allocator = skewed(TRIPLE, c=950_000)
    contract = grant(allocator, ask(1, variable(hertz=1_000), ("a", "d"), TWO))
    index = next(at for at, path in enumerate(contract.paths) if path.routers[1] == "e")
    allocator.resources.mark_channel(contract.paths[index].channel_ids[0], is_up=False)
    answer = allocator.replace_path(1, index)
    assert isinstance(answer, Refusal)
    assert answer.code == SkewNotSatisfiable.code
    assert allocator.contract(1) == contract


def test_a_path_is_replaced_by_a_slower_one_within_the_window() -> None:
    allocator = skewed(TRIPLE, c=500_000)
    contract = grant(allocator, ask(1, variable(hertz=1_000), ("a", "d"), TWO))
    index = next(at for at, path in enumerate(contract.paths) if path.routers[1] == "e")
    allocator.resources.mark_channel(contract.paths[index].channel_ids[0], is_up=False)
    answer = allocator.replace_path(1, index)
    assert isinstance(answer, Allocation)
    assert answer.paths[index].routers[1] == "c"


def test_no_later_load_makes_a_path_slower_than_copies_are_recognised() -> None:
    taken = variable(hertz=1_000)
    bound_us = recognised_us(taken)
    assert bound_us is not None
    probe = grant(skewed(c=0), ask(1, taken, ("a", "d"), TWO))
    spare_us = bound_us - max(path.latency_us for path in probe.paths)
    allocator = skewed(c=spare_us - 30)
    contract = grant(allocator, ask(1, taken, ("a", "d"), TWO))
    assert bound_us - max(path.latency_us for path in contract.paths) < 200
    answers = [
        allocator.allocate(ask(number, variable(number, hertz=4_000), ("c", "d")))
        for number in range(2, 40)
    ]
    assert any(isinstance(answer, Refusal) for answer in answers)
    last = next(answer for answer in answers if isinstance(answer, Refusal))
    assert last.code != ChannelFull.code
    assert "subscription 1" in last.reason
    assert not allocator.resources.promises.late()


def test_a_declared_delay_does_not_count_since_all_copies_have_it() -> None:
    taken = replace(variable(hertz=1_000), delay_ms=5_000)
    qos = replace(TWO, latency_us=7_000_000)
    contract = grant(skewed(c=500_000), ask(1, taken, ("a", "d"), qos))
    assert max(path.latency_us for path in contract.paths) > 5_500_000
    refusal = refuse(skewed(c=950_000), ask(1, taken, ("a", "d"), qos))
    assert refusal.code == SkewNotSatisfiable.code
