"""Room by bands: who is lowered for a request that does not fit, and who is raised again."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.capacity.allocation import Allocation
from gridstat.broker.capacity.allocator import Allocator
from gridstat.broker.capacity.band_planning import every_of
from gridstat.broker.capacity.path_cache import SPLITS_S
from gridstat.model.cloud import EventChannel, Router
from gridstat.model.identifiers import ChannelId
from gridstat.model.qos import QosRequest
from gridstat.model.rate_law import MODAL_DIVISORS_MAX, NS_PER_S
from tests.unit.broker.clouds import EVENT_BYTES, LINE, ask, cloud, grant, variable, wide_enough

if TYPE_CHECKING:
    from fractions import Fraction

WIDE = QosRequest(every_worst=60)


def channel_of(events_per_s: int) -> Allocator:
    """A cloud whose channels carry so many events a second beside their probes."""
    return Allocator(cloud(LINE, bandwidth=wide_enough(events_per_s * EVENT_BYTES)))


def anybody(_: int) -> bool:
    return True


def subscribe(allocator: Allocator, number: int, qos: QosRequest = WIDE) -> Allocation | None:
    """Subscribe to a variable of its own as a broker does: as desired, or by the bands."""
    request = ask(number, variable(number, 60), ("a", "b"), qos)
    answer = allocator.allocate(request)
    if isinstance(answer, Allocation) and every_of(answer.granted) == qos.every:
        return answer
    if isinstance(answer, Allocation):
        allocator.release(number)
    room = allocator.make_room(request, anybody)
    if room is not None:
        return room.contract
    answer = allocator.allocate(request)
    return answer if isinstance(answer, Allocation) else None


def everys(allocator: Allocator) -> dict[int, int]:
    return {number: every_of(found.granted) for number, found in allocator.contracts.items()}


def carried(allocator: Allocator) -> Fraction:
    hop = allocator.resources.channel(1)
    return hop.bytes.value / EVENT_BYTES


def rebalance(allocator: Allocator) -> None:
    below = [number for number, every in everys(allocator).items() if every > 1]
    allocator.rebalance(below, may_change=anybody, may_rise=anybody)


def test_ten_early_subscribers_do_not_shut_out_a_higher_priority() -> None:
    allocator = channel_of(600)
    for number in range(1, 11):
        grant(allocator, ask(number, variable(number, 60), ("a", "b"), WIDE))
    newcomer = subscribe(allocator, 11, QosRequest(priority=1))
    assert newcomer is not None
    assert every_of(newcomer.granted) == 1
    assert sorted(everys(allocator).values()) == [1] * 9 + [2] * 2
    assert carried(allocator) == 600


def test_a_lowered_contract_says_for_whom() -> None:
    allocator = channel_of(60)
    subscribe(allocator, 1)
    subscribe(allocator, 2, QosRequest(every=2, priority=1))
    assert allocator.contract(1).degraded == (
        "every 1 lowered to every 2: room for subscription 2 with priority 1",
    )


def test_a_higher_priority_is_not_lowered_for_a_lower_one() -> None:
    allocator = channel_of(60)
    subscribe(allocator, 1, QosRequest(priority=2, every_worst=60))
    before = allocator.contract(1)
    assert subscribe(allocator, 2, QosRequest(priority=3, every_worst=60)) is None
    assert allocator.contract(1) is before


def test_a_request_that_no_band_makes_room_for_changes_nothing() -> None:
    allocator = channel_of(60)
    subscribe(allocator, 1, QosRequest(every_worst=2))
    before = everys(allocator), carried(allocator)
    assert subscribe(allocator, 2, QosRequest(priority=1)) is None
    assert (everys(allocator), carried(allocator)) == before


def test_who_may_not_be_lowered_is_not() -> None:
    allocator = channel_of(60)
    subscribe(allocator, 1)
    request = ask(2, variable(2, 60), ("a", "b"), QosRequest(priority=1))
    assert allocator.make_room(request, lambda number: number != 1) is None


def test_lowering_one_of_two_takers_of_a_variable_is_not_tried_in_vain() -> None:
    """The second taker needs every slot: to lower the first would free nothing."""
    allocator = channel_of(60)
    taken = variable(1, 60)
    grant(allocator, ask(1, taken, ("a", "b"), WIDE))
    grant(allocator, ask(2, taken, ("a", "b"), QosRequest(priority=1)))
    request = ask(3, variable(3, 60), ("a", "b"), QosRequest(priority=1, every_worst=4))
    assert allocator.make_room(request, anybody) is None
    assert everys(allocator) == {1: 1, 2: 1}


def test_room_that_returns_raises_all_again() -> None:
    allocator = channel_of(600)
    for number in range(1, 31):
        assert subscribe(allocator, number) is not None
    assert subscribe(allocator, 31, QosRequest(priority=1)) is not None
    rebalance(allocator)
    assert sorted(everys(allocator).values()) == [1] + [3] * 18 + [4] * 12
    allocator.release(31)
    rebalance(allocator)
    assert everys(allocator) == dict.fromkeys(range(1, 31), 3)
    for number in range(11, 31):
        allocator.release(number)
    rebalance(allocator)
    assert everys(allocator) == dict.fromkeys(range(1, 11), 1)


def test_a_second_split_changes_nothing() -> None:
    allocator = channel_of(600)
    for number in range(1, 38):
        subscribe(allocator, number)
    rebalance(allocator)
    before = everys(allocator)
    rebalance(allocator)
    assert everys(allocator) == before


def test_a_live_contract_that_asks_for_more_makes_room_too() -> None:
    allocator = channel_of(45)
    grant(allocator, ask(1, variable(1, 60), ("a", "b"), QosRequest(every=2, every_worst=60)))
    grant(allocator, ask(2, variable(2, 60), ("a", "b"), QosRequest(every=4, priority=2)))
    request = ask(2, variable(2, 60), ("a", "b"), QosRequest(every=2, priority=2))
    room = allocator.make_room(request, anybody)
    assert room is not None
    assert everys(allocator) == {1: 4, 2: 2}
    allocator.release_retired(2)
    assert carried(allocator) == 45


@pytest.mark.parametrize("seed", range(100))
def test_the_order_of_arrival_is_irrelevant(seed: int) -> None:
    """Thirty subscribers and one of the highest priority come in any order: the same split."""
    random = Random(seed)
    allocator = channel_of(600)
    order = list(range(1, 32))
    random.shuffle(order)
    for number in order:
        qos = QosRequest(priority=1) if number == 31 else WIDE
        assert subscribe(allocator, number, qos) is not None
    rebalance(allocator)
    found = everys(allocator)
    assert found.pop(31) == 1
    assert sorted(found.values()) == [3] * 18 + [4] * 12
    assert carried(allocator) <= 600


def two_channels(near: int, far: int) -> Allocator:
    """a – b – c, whose channels carry so many events a second beside their probes."""
    resources = cloud((("a", "b"),), bandwidth=wide_enough(near * EVENT_BYTES))
    resources.add_router(Router("c"))
    bandwidth = wide_enough(far * EVENT_BYTES)
    channel = EventChannel(
        ChannelId(3), "b", "c", bandwidth_bytes_per_s=bandwidth, latency_us=100, security="none"
    )
    resources.add_channel(channel)
    return Allocator(resources)


def test_who_is_lowered_for_equals_loads_no_full_channel_elsewhere_more() -> None:
    """Takers at 3 and at 4 need every second slot of a variable together, two at 3 every third."""
    allocator = two_channels(30, 20)
    taken = variable(1, 60)
    grant(allocator, ask(1, taken, ("a", "c"), QosRequest(every=3, every_worst=60)))
    grant(allocator, ask(2, taken, ("b", "c"), QosRequest(every=3)))
    grant(allocator, ask(3, variable(3, 60), ("a", "b"), WIDE))
    assert everys(allocator) == {1: 3, 2: 3, 3: 8}
    allocator.rebalance([3], may_change=anybody, may_rise=anybody)
    assert everys(allocator) == {1: 3, 2: 3, 3: 6}
    assert not allocator.resources.channel(3).is_overloaded


def test_who_is_lowered_for_a_newcomer_loads_no_full_channel_elsewhere_more() -> None:
    allocator = two_channels(30, 20)
    taken = variable(1, 60)
    grant(allocator, ask(1, taken, ("a", "c"), QosRequest(every=3, every_worst=4)))
    grant(allocator, ask(2, taken, ("b", "c"), QosRequest(every=3)))
    request = ask(3, variable(3, 60), ("a", "b"), QosRequest(every=4, priority=1))
    assert allocator.make_room(request, anybody) is None
    assert everys(allocator) == {1: 3, 2: 3}
    assert not allocator.resources.channel(3).is_overloaded


def test_who_is_raised_fits_on_all_its_hops() -> None:
    """The split looks at the first channel, where there is room; the second one is full."""
    allocator = two_channels(120, 60)
    grant(allocator, ask(4, variable(4, 60), ("b", "c"), QosRequest(every=2)))
    grant(allocator, ask(1, variable(1, 60), ("a", "c"), WIDE))
    grant(allocator, ask(5, variable(5, 60), ("a", "b")))
    grant(allocator, ask(2, variable(2, 60), ("a", "b"), WIDE))
    assert everys(allocator) == {1: 2, 2: 2, 4: 2, 5: 1}
    allocator.release(5)
    allocator.rebalance([2], may_change=anybody, may_rise=anybody)
    assert everys(allocator) == {1: 2, 2: 1, 4: 2}
    assert not allocator.resources.channel(3).is_overloaded


def test_nobody_is_raised_over_a_congested_channel() -> None:
    allocator = channel_of(60)
    grant(allocator, ask(1, variable(1, 60), ("a", "b"), QosRequest(every=2)))
    grant(allocator, ask(2, variable(2, 60), ("a", "b"), WIDE))
    allocator.release(1)
    allocator.resources.mark_back_pressure(1, is_on=True)
    rebalance(allocator)
    assert everys(allocator) == {2: 2}
    allocator.resources.mark_back_pressure(1, is_on=False)
    rebalance(allocator)
    assert everys(allocator) == {2: 1}


def test_who_is_lowered_gets_no_divisor_that_a_row_has_no_place_for() -> None:
    """A row of a variable holds so many divisors; with one more, routers round some down."""
    allocator = two_channels(60, 60)
    taken = variable(1, 60)
    for number in range(1, MODAL_DIVISORS_MAX):
        grant(allocator, ask(number, taken, ("b", "c"), QosRequest(every=100 + number)))
    grant(allocator, ask(100, taken, ("a", "b"), WIDE))
    request = ask(101, variable(2, 60), ("a", "b"), QosRequest(every=2, priority=1))
    assert allocator.make_room(request, anybody) is None
    assert every_of(allocator.contract(100).granted) == 1


def narrow_cloud(count: int) -> Allocator:
    """A full channel of so many contracts that may be lowered."""
    allocator = channel_of(15 * count)
    for number in range(1, count + 1):
        qos = QosRequest(every=4, every_worst=60)
        grant(allocator, ask(number, variable(number, 60), ("a", "b"), qos))
    return allocator


def spend_the_splits(allocator: Allocator) -> int:
    """Ask for room until a turn has no time left for it; return how often there was room."""
    for number in range(1_000, 10_000):
        if (
            allocator.make_room(ask(number, variable(number, 60), ("a", "b"), WIDE), anybody)
            is None
        ):
            return number - 1_000
        allocator.release(number)
    raise AssertionError("the splits have no bound")


def test_the_splits_of_a_turn_have_a_budget_and_are_charged() -> None:
    allocator = narrow_cloud(100)
    allocator.begin_turn()
    assert 2 < spend_the_splits(allocator) < 100
    assert allocator.end_turn() >= SPLITS_S * NS_PER_S
    request = ask(101, variable(101, 60), ("a", "b"), WIDE)
    assert allocator.make_room(request, anybody) is not None, "the next request has its own"


def test_the_searches_of_a_turn_go_on_when_its_time_for_splits_is_spent() -> None:
    allocator = narrow_cloud(10)
    allocator.begin_turn()
    spend_the_splits(allocator)
    assert isinstance(allocator.allocate(ask(11, variable(11, 60), ("b", "c"))), Allocation)


def test_a_split_considers_so_many_contracts_at_most_first_those_that_are_to_rise() -> None:
    allocator = narrow_cloud(8)
    grant(allocator, ask(9, variable(9, 60), ("b", "c"), QosRequest(every=60, every_worst=90)))
    allocator.release(3)
    asked: list[int] = []

    def may_rise(number: int) -> bool:
        asked.append(number)
        return True

    grant(allocator, ask(10, variable(10, 60), ("a", "b"), QosRequest(every=4, every_worst=60)))
    allocator.release(5)
    low = ask(11, variable(11, 60), ("a", "b"), QosRequest(every=2, every_worst=60, priority=6))
    grant(allocator, low)
    assert everys(allocator)[11] == 4
    allocator.release(1)
    allocator.rebalance([11], may_change=anybody, may_rise=may_rise, considered_max=3)
    assert asked == [2, 4, 11]
    assert everys(allocator)[11] == 2


def test_a_split_by_the_timer_that_takes_too_long_changes_nothing() -> None:
    allocator = narrow_cloud(40)
    allocator.release(1)
    wide = ask(41, variable(41, 60), ("a", "b"), WIDE)
    grant(allocator, wide)
    allocator.begin_turn()
    spend_the_splits(allocator)
    before = everys(allocator)
    assert allocator.rebalance([41], may_change=anybody, may_rise=anybody) is None
    assert everys(allocator) == before
    allocator.end_turn()
    assert allocator.rebalance([41], may_change=anybody, may_rise=anybody) is not None
