"""A thousand subscriptions race for the last twentieth of a cloud's capacity.

Once at the allocator alone, and once through a leaf broker whose journal is late, or full.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.capacity.allocation import Allocation, Refusal
from gridstat.broker.capacity.allocator import Allocator
from gridstat.broker.capacity.planning import claims_of
from gridstat.model.errors import ChannelFull, RouterFull, StorageFailed
from gridstat.model.qos import QosRequest
from gridstat.net.command.endpoint_messages import Unsubscribe
from tests.unit.broker.clouds import LADDER, Recount, ask, cloud, numbers, variable
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, PMU, publish, subscribe
from tests.unit.broker.stand_ins import variable as variable_of

if TYPE_CHECKING:
    from gridstat.broker.capacity.allocation import AllocationRequest
    from gridstat.broker.capacity.resources import Resources

BANDWIDTH = 400_000
SUBSCRIBERS = 1_000
ENDS = ("e0 e1", "e2 e3")
ALL_MODES = (frozenset(range(1, 64)),)


def filled_to_95_percent() -> Allocator:
    """Redundant subscriptions of 60 events a second until a rail is 95 % full."""
    resources = cloud(LADDER, bandwidth=BANDWIDTH, queue_events_max=100_000)
    allocator = Allocator(resources)
    number = 0
    while _fullest(resources) < 0.95:
        number += 1
        request = ask(number, variable(number, 60), ENDS, QosRequest(redundancy=2))
        assert isinstance(allocator.allocate(request), Allocation)
    return allocator


def _fullest(resources: Resources) -> float:
    return max(float(carriage.bytes.value) / BANDWIDTH for carriage in resources.channels.values())


def _request(number: int, random: Random) -> AllocationRequest:
    return ask(
        number,
        variable(number, 60),
        ENDS,
        QosRequest(every=random.choice([1, 2, 3, 5]), redundancy=random.choice([1, 2])),
    )


async def _race(allocator: Allocator, seed: int) -> list[Allocation | Refusal]:
    """Run subscribers that wait a random number of steps between requests, and may leave again."""
    random = Random(seed)

    async def subscribe(number: int, turns: int, leaves: bool) -> Allocation | Refusal:
        for _ in range(turns):
            await asyncio.sleep(0)
        answer = allocator.allocate(_request(number, random))
        _nothing_above_capacity(allocator.resources)
        if leaves and isinstance(answer, Allocation):
            await asyncio.sleep(0)
            allocator.release(number)
        return answer

    return await asyncio.gather(
        *(
            subscribe(100_000 + number, random.randint(0, 20), random.random() < 0.2)
            for number in range(SUBSCRIBERS)
        )
    )


def _nothing_above_capacity(resources: Resources) -> None:
    assert not any(carriage.is_overloaded for carriage in resources.channels.values())
    assert not any(account.is_overloaded for account in resources.routers.values())


@pytest.mark.parametrize("seed", [1, 2])
def test_a_race_at_95_percent_never_exceeds_capacity_and_refusals_leave_nothing(seed: int) -> None:
    allocator = filled_to_95_percent()
    answers = asyncio.run(_race(allocator, seed))
    refused = [answer for answer in answers if isinstance(answer, Refusal)]
    assert len(refused) > SUBSCRIBERS / 2
    assert len(refused) < SUBSCRIBERS
    assert {refusal.code for refusal in refused} <= {ChannelFull.code, RouterFull.code}
    assert all(refusal.bottleneck and refusal.shortfall for refusal in refused)
    # What is reserved is what the contracts that stand come to, and not a byte more.
    claims = [
        claim
        for contract in allocator.contracts.values()
        for claim in claims_of(contract.request, contract.granted, contract.paths)
    ]
    recount = Recount(claims, ALL_MODES)
    for number, carriage in allocator.resources.channels.items():
        assert carriage.bytes.value == recount.bytes_per_s(number) <= BANDWIDTH
    for name, account in allocator.resources.routers.items():
        assert account.events.value == recount.events_per_s(name)
    for number in list(allocator.contracts):
        allocator.release(number)
    empty = cloud(LADDER, bandwidth=BANDWIDTH, queue_events_max=100_000)
    assert numbers(allocator.resources) == numbers(empty)


def _write_some(cloud: Conversation, random: Random) -> None:
    """The journal comes to a few of the entries that wait, or fails the first."""
    if random.random() < 0.05 and cloud.held_persists:
        cloud.fail_first_write()
    else:
        cloud.write(random.randint(0, 8))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_race_through_a_broker_with_a_late_journal_never_exceeds_capacity(seed: int) -> None:
    random = Random(seed)
    cloud = pair(bandwidth_bytes_per_s=20_000)
    names = [f"{PMU}/v{number}" for number in range(20)]
    cloud.ask(PMU, "c1/e0", publish(*(variable_of(name) for name in names)))
    resources = cloud.broker.reservations.resources
    empty = numbers(resources)
    cloud.is_journal_held = True
    for _ in range(SUBSCRIBERS):
        quality = QosRequest(every=random.choice([1, 2, 3, 5]), redundancy=random.choice([1, 2]))
        cloud.send(
            CENTRE, random.choice(["c1/e2", "c1/e3"]), subscribe(random.choice(names), quality)
        )
        _nothing_above_capacity(resources)
        if random.random() < 0.3:
            _write_some(cloud, random)
            _nothing_above_capacity(resources)
        if random.random() < 0.05:
            everything = Unsubscribe(subscription_ids=())
            cloud.send(CENTRE, "c1/e2", everything)
            _nothing_above_capacity(resources)
    cloud.is_journal_held = False
    cloud.write()
    cloud.settle()
    codes = Counter(
        getattr(outcome, "code", 0) for outcomes in cloud.answers.values() for outcome in outcomes
    )
    assert codes[ChannelFull.code] > SUBSCRIBERS / 20, "the channels have been full"
    assert codes[StorageFailed.code], "and the disk too"
    contracts = cloud.broker.reservations.allocator.contracts
    assert contracts.keys() == cloud.broker.registry.subscriptions.keys()
    cloud.ask(CENTRE, "c1/e2", Unsubscribe(subscription_ids=()))
    cloud.settle()
    assert numbers(resources) == empty
