"""Replayed variables: admitted beside all promises, in a share of each router."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.capacity.allocator import Allocator
from gridstat.model.errors import ChannelFull, RouterFull
from gridstat.model.qos import LATENCY_US_MAX, PRESETS, PRIORITY_REPLAY, QosRequest
from tests.unit.broker.clouds import (
    DIAMOND,
    EVENT_BYTES,
    LADDER,
    LINE,
    ask,
    cloud,
    grant,
    numbers,
    refuse,
    variable,
    wide_enough,
)

if TYPE_CHECKING:
    from gridstat.model.status import StatusVariable


def replayed(number: int = 9, hertz: int = 30, *, speed: int = 10) -> StatusVariable:
    return replace(variable(number, hertz), replay_speed=speed)


def test_replay_is_granted_in_its_own_class_and_without_a_latency() -> None:
    contract = grant(
        Allocator(cloud(LINE, latency_us=50_000)),
        ask(1, replayed(), ("a", "c"), PRESETS["stabilisation"]),
    )
    assert contract.granted[0].priority == PRIORITY_REPLAY
    assert contract.granted[0].latency_us == LATENCY_US_MAX
    assert any("replayed" in note for note in contract.degraded)


def test_replay_changes_no_number_that_a_promise_rests_on() -> None:
    allocator = Allocator(cloud(LINE, bandwidth=wide_enough(30 * EVENT_BYTES)))
    grant(allocator, ask(1, variable(), ("a", "c")))
    before = numbers(allocator.resources)
    grant(allocator, ask(2, replayed(speed=1_000), ("a", "c"), subscriber="x"))
    after = numbers(allocator.resources)
    assert after["routers"] == before["routers"]
    bytes_before = [allocator.resources.channel(n).bytes.value for n in (1, 3)]
    assert bytes_before == [30 * EVENT_BYTES] * 2
    allocator.release(2)
    assert numbers(allocator.resources) == before


def test_a_live_subscription_gets_the_last_of_a_channel_that_replay_uses() -> None:
    allocator = Allocator(cloud(LINE, bandwidth=wide_enough(30 * EVENT_BYTES)))
    for number in range(2, 10):
        grant(allocator, ask(number, replayed(number), ("a", "c")))
    grant(allocator, ask(1, variable(), ("a", "c")))
    assert refuse(allocator, ask(20, variable(20), ("a", "c"))).code == ChannelFull.code


def test_replay_is_granted_on_a_channel_that_is_full() -> None:
    allocator = Allocator(cloud(LINE, bandwidth=wide_enough(30 * EVENT_BYTES)))
    grant(allocator, ask(1, variable(), ("a", "c")))
    assert grant(allocator, ask(2, replayed(), ("a", "c"))).paths[0].routers == ("a", "b", "c")


def test_a_router_takes_a_fourth_of_its_capacity_as_replay_and_refuses_more_of_it_only() -> None:
    allocator = Allocator(cloud(LINE, events_per_s_max=4_800))
    # Three hundred in and as many out, of the 1,200 that each router takes.
    grant(allocator, ask(1, replayed(1), ("a", "c")))
    grant(allocator, ask(2, replayed(2), ("a", "c")))
    refusal = refuse(allocator, ask(3, replayed(3), ("a", "c")))
    assert refusal.code == RouterFull.code
    assert "1200 events/s of replay" in refusal.reason
    assert refusal.shortfall == "600 events/s"
    grant(allocator, ask(4, variable(4, 60), ("a", "c")))
    allocator.release(1)
    grant(allocator, ask(3, replayed(3), ("a", "c")))


def test_replay_goes_round_a_router_that_takes_no_more_of_it() -> None:
    allocator = Allocator(cloud(DIAMOND, events_per_s_max=4_800))
    first = grant(allocator, ask(1, replayed(1, speed=20), ("a", "d")))
    inner = first.paths[0].routers[1]
    assert refuse(allocator, ask(2, replayed(2, speed=20), ("a", inner))).code == RouterFull.code


def test_replay_keeps_its_class_when_its_contract_changes() -> None:
    allocator = Allocator(cloud(LINE))
    grant(allocator, ask(1, replayed(), ("a", "c")))
    answer = allocator.change(ask(1, replayed(), ("a", "c"), QosRequest(every=3, priority=1)))
    assert not hasattr(answer, "code")
    assert allocator.contract(1).granted[0].priority == PRIORITY_REPLAY
    assert allocator.contract(1).granted[0].every == 3


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_replayed_live_contracts_and_accounts_are_as_without_it(seed: int) -> None:
    random = Random(seed)
    beside, alone = (
        Allocator(cloud(LADDER, bandwidth=200 * EVENT_BYTES, events_per_s_max=20_000))
        for _ in range(2)
    )
    edges = ("e0", "e1", "e2", "e3")
    for number in range(1, 80):
        ends = (random.choice(edges), random.choice(edges))
        qos = QosRequest(every=random.choice((1, 2, 3)), redundancy=random.choice((1, 1, 2)))
        if random.random() < 0.5:
            speed = random.choice((1, 10, 30))
            beside.allocate(ask(number, replayed(number, speed=speed), ends, qos))
        else:
            asked = ask(number, variable(random.randrange(1_000, 1_020)), ends, qos)
            first, second = beside.allocate(asked), alone.allocate(asked)
            assert first == second
        if random.random() < 0.4:
            gone = random.choice([0, *beside.contracts])
            for allocator in (beside, alone):
                if gone in allocator.contracts:
                    allocator.release(gone)
        assert _live(beside) == _live(alone)
    for number in list(beside.contracts):
        beside.release(number)
    assert all(not account.replays for account in beside.resources.routers.values())
    assert not any(carriage.streams for carriage in beside.resources.channels.values())


def _live(allocator: Allocator) -> list[object]:
    resources = allocator.resources
    return [
        [(one.events.value, one.latency_us) for one in resources.routers.values()],
        [
            (one.bytes.value, one.burst.worst(), one.latency_us)
            for one in resources.channels.values()
        ],
    ]
