"""The allocator: paths, negotiation, changes and replacements, each all or nothing."""

from __future__ import annotations

from random import Random

import pytest

from gridstat.broker.capacity.allocation import Allocation, AllocationRequest, Refusal
from gridstat.broker.capacity.allocator import Allocator
from gridstat.broker.capacity.latency_promises import PathKey
from gridstat.broker.capacity.resources import Resources
from gridstat.model.cloud import EventChannel, Router
from gridstat.model.errors import (
    ChannelFull,
    NoSuchRouter,
)
from gridstat.model.identifiers import ChannelId
from gridstat.model.qos import PRESETS, QosRequest
from gridstat.model.rate_law import Period
from tests.unit.broker.clouds import (
    DIAMOND,
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


def test_a_lone_subscription_is_granted_as_desired() -> None:
    contract = grant(Allocator(cloud(LINE)), ask(1, variable(), ("a", "c")))
    assert contract.paths[0].routers == ("a", "b", "c")
    assert contract.granted[0].every == 1
    assert contract.degraded == ()
    assert contract.everys(0) == {0: 1}


def test_publisher_and_subscriber_of_one_edge_need_no_channel() -> None:
    allocator = Allocator(cloud(LINE))
    contract = grant(allocator, ask(1, variable(), ("a", "a")))
    assert contract.paths[0].channel_ids == ()
    assert allocator.resources.router("a").events.value == 60


def test_two_edges_at_both_ends_share_no_router() -> None:
    allocator = Allocator(cloud(LADDER))
    contract = grant(allocator, ask(1, variable(), ("e0 e1", "e2 e3"), QosRequest(redundancy=2)))
    routers = [set(path.routers) for path in contract.paths]
    assert not routers[0] & routers[1]
    assert contract.is_node_disjoint
    assert not contract.shares_edge


def test_one_edge_is_shared_and_said_to_be() -> None:
    allocator = Allocator(cloud(DIAMOND))
    contract = grant(allocator, ask(1, variable(), ("a", "d"), QosRequest(redundancy=2)))
    assert contract.shares_edge
    assert contract.is_node_disjoint


@pytest.mark.feature("S0-48", "S0-50")
@pytest.mark.parametrize("seed", range(20))
def test_on_random_clouds_every_admitted_path_keeps_its_bound_and_its_room(seed: int) -> None:
    random = Random(seed)
    names = [f"r{index}" for index in range(8)]
    links = {(names[at], names[at + 1]) for at in range(7)} | {
        tuple(sorted(random.sample(names, 2))) for _ in range(8)
    }
    pairs = [(near, far) for near, far in sorted(links)]
    resources = cloud(pairs, bandwidth=20_000, events_per_s_max=600)
    allocator = Allocator(resources)
    for number in range(1, 25):
        source, target = random.sample(names, 2)
        qos = QosRequest(
            latency_us=random.choice([15_000, 40_000, 200_000]),
            redundancy=random.choice([1, 2]),
            redundancy_worst=1,
        )
        allocator.allocate(ask(number, variable(random.randint(1, 12)), (source, target), qos))
    assert 5 <= len(allocator.contracts) < 24
    for contract in allocator.contracts.values():
        for index, path in enumerate(contract.paths):
            now_us = resources.path_us(path.routers, path.channel_ids)
            assert now_us <= contract.granted[0].latency_us
            assert now_us == resources.promises.latency_us(PathKey(contract.subscription_id, index))
    assert not any(carriage.is_overloaded for carriage in resources.channels.values())
    assert not any(account.is_overloaded for account in resources.routers.values())
    assert resources.promises.late() == []


@pytest.mark.feature("S0-60")
def test_a_second_subscription_at_the_same_edge_and_interval_costs_nothing_upstream() -> None:
    allocator = Allocator(cloud(LINE, bandwidth=100_000))
    grant(allocator, ask(1, variable(), ("a", "c"), subscriber="one"))
    before = numbers(allocator.resources)
    load = allocator.resources.router("b").events.value
    grant(allocator, ask(2, variable(), ("a", "c"), subscriber="two"))
    assert numbers(allocator.resources)["channels"] == before["channels"]
    assert allocator.resources.router("b").events.value == load
    assert allocator.resources.router("c").events.value == 90


def test_channels_that_carry_the_variable_already_are_preferred() -> None:
    # Both ways from a to d are equally long; the second subscription joins the first one's.
    links = [*DIAMOND, ("d", "e"), ("d", "f")]
    allocator = Allocator(cloud(links))
    for taken, way in ((variable(1), "b"), (variable(2), "c")):
        other = "c" if way == "b" else "b"
        blocked = allocator.resources.channel_between("a", other)
        allocator.resources.mark_channel(blocked, is_up=False)
        first = grant(allocator, ask(10 + taken.variable_id, taken, ("a", "e")))
        assert first.paths[0].routers[1] == way
        allocator.resources.mark_channel(blocked, is_up=True)
        second = grant(allocator, ask(20 + taken.variable_id, taken, ("a", "f")))
        assert second.paths[0].routers[1] == way


@pytest.mark.feature("S0-64")
def test_no_channel_carries_what_nobody_behind_it_takes() -> None:
    allocator = Allocator(cloud([("a", "b"), ("b", "c"), ("b", "d")]))
    grant(allocator, ask(1, variable(), ("a", "c"), QosRequest(every=2)))
    grant(allocator, ask(2, variable(), ("a", "d"), QosRequest(every=6)))
    resources = allocator.resources

    def divisors(near: str, far: str) -> tuple[int, ...]:
        carriage = resources.channel(resources.channel_between(near, far))
        return carriage.streams[1].counts.divisors(0)

    assert divisors("b", "d") == (6,)
    assert divisors("b", "c") == (2,)
    assert resources.channel(resources.channel_between("a", "b")).bytes.value == 15 * 68
    assert resources.channel(resources.channel_between("b", "d")).bytes.value == 5 * 68
    assert not resources.channel(resources.channel_between("c", "b")).streams


@pytest.mark.feature("S0-59")
def test_unsubscribing_restores_every_number_exactly() -> None:
    allocator = Allocator(cloud(LADDER, bandwidth=50_000))
    grant(allocator, ask(1, variable(1), ("e0 e1", "e2 e3"), QosRequest(redundancy=2)))
    before = numbers(allocator.resources)
    for number in range(2, 12):
        taken = variable(number % 3 + 1, 30)
        qos = QosRequest(every=number, redundancy=2)
        grant(allocator, ask(number, taken, ("e0 e1", "e2 e3"), qos))
    for number in (5, 2, 11, 3, 4, 10, 6, 7, 9, 8):
        allocator.release(number)
    assert numbers(allocator.resources) == before
    allocator.release(1)
    assert not allocator.contracts
    assert numbers(allocator.resources) == numbers(cloud(LADDER, bandwidth=50_000))


@pytest.mark.feature("S0-63")
def test_25_ms_of_a_10_ms_variable_is_granted_as_20_ms_and_reported() -> None:
    request = ask(1, variable(1, 100), ("a", "c"), QosRequest(interval=Period(25, 1_000)))
    contract = grant(Allocator(cloud(LINE)), request)
    assert contract.granted[0].every == 2
    assert contract.degraded == (
        "interval 1/40 s rounded down to 1/50 s, a multiple of the period",
    )


@pytest.mark.feature("S3-5")
def test_35_ms_of_a_10_ms_variable_is_granted_as_30_ms() -> None:
    request = ask(1, variable(1, 100), ("a", "c"), QosRequest(interval=Period(35, 1_000)))
    assert grant(Allocator(cloud(LINE)), request).granted[0].every == 3


def test_divisors_of_the_modes_are_rounded_down_to_a_chain_and_reported() -> None:
    modes = {1: QosRequest(every=2), 2: QosRequest(every=5), 3: QosRequest(every=9)}
    contract = grant(Allocator(cloud(LINE)), ask(1, variable(), ("a", "c"), modes))
    assert {mode: qos.every for mode, qos in contract.granted.items()} == {1: 2, 2: 4, 3: 8}
    assert [note.split(",")[0] for note in contract.degraded] == [
        "mode 2: every 5 rounded down to 4",
        "mode 3: every 9 rounded down to 8",
    ]


def test_each_mode_uses_the_first_of_the_paths() -> None:
    modes = {0: QosRequest(every=4), 1: QosRequest(every=2, redundancy=2)}
    contract = grant(Allocator(cloud(LADDER)), ask(1, variable(), ("e0 e1", "e2 e3"), modes))
    assert contract.everys(0) == {0: 4, 1: 2}
    assert contract.everys(1) == {1: 2}


def test_a_second_path_may_take_the_time_that_its_own_modes_allow() -> None:
    resources = cloud(DIAMOND, latency_us=0)
    slow = resources.channel_between("a", "c")
    resources.remove_channel(slow)
    resources.add_channel(EventChannel(ChannelId(slow), "a", "c", latency_us=5_000))
    modes = {1: QosRequest(latency_us=1_000), 2: QosRequest(latency_us=9_000, redundancy=2)}
    contract = grant(Allocator(resources), ask(1, variable(), ("a", "d"), modes))
    assert [path.routers[1] for path in contract.paths] == ["b", "c"]
    assert contract.latency_us_max(0) == 1_000
    assert contract.latency_us_max(1) == 9_000


@pytest.mark.feature("S3-75")
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_each_application_class_is_held_to_its_bound(name: str) -> None:
    preset = PRESETS[name]
    near = cloud(LADDER, latency_us=100)
    far = cloud(LADDER, latency_us=preset.latency_us)
    request = ask(1, variable(), ("e0 e1", "e2 e3"), preset)
    contract = grant(Allocator(near), request)
    assert all(path.latency_us <= preset.latency_us for path in contract.paths)
    assert refuse(Allocator(far), request).code == 1036


@pytest.mark.feature("S0-54")
def test_latency_is_given_up_before_redundancy() -> None:
    allocator = Allocator(cloud(LADDER, latency_us=2_000))
    quality = QosRequest(
        latency_us=4_000, latency_us_worst=50_000, redundancy=2, redundancy_worst=1
    )
    contract = grant(allocator, ask(1, variable(), ("e0 e1", "e2 e3"), quality))
    granted = contract.granted[0]
    assert granted.redundancy == 2
    assert 4_000 < max(path.latency_us for path in contract.paths) <= granted.latency_us < 50_000
    assert "latency 4000 µs lowered to" in contract.degraded[0]


@pytest.mark.feature("S0-54")
def test_redundancy_is_given_up_before_how_often() -> None:
    allocator = Allocator(cloud(LINE, bandwidth=1_000_000))
    quality = QosRequest(redundancy=3, redundancy_worst=1, every_worst=10)
    contract = grant(allocator, ask(1, variable(), ("a", "c"), quality))
    assert (contract.granted[0].redundancy, contract.granted[0].every) == (1, 1)
    assert contract.degraded[0].startswith("redundancy 3 lowered to 1: ")


@pytest.mark.feature("S0-54")
def test_the_fastest_divisor_that_fits_is_granted_and_says_why() -> None:
    # 30/s are 2,040 bytes/s; a quarter of that is the first that 600 bytes/s hold.
    allocator = Allocator(cloud(LINE, bandwidth=600))
    contract = grant(allocator, ask(1, variable(), ("a", "c"), QosRequest(every_worst=30)))
    assert contract.granted[0].every == 4
    (note,) = contract.degraded
    assert note.startswith("every 1 lowered to every 4: channel a→b is full")


def test_a_band_that_does_not_fit_at_its_worst_is_refused_by_its_worst() -> None:
    allocator = Allocator(cloud(LINE, bandwidth=600))
    refusal = refuse(allocator, ask(1, variable(), ("a", "c"), QosRequest(every_worst=3)))
    assert (refusal.code, refusal.shortfall) == (1039, "86 bytes/s")


def test_an_interval_below_the_period_is_granted_as_the_period_within_the_band() -> None:
    quality = QosRequest(interval=Period(1, 100), interval_worst=Period(1, 10))
    contract = grant(Allocator(cloud(LINE)), ask(1, variable(1, 30), ("a", "c"), quality))
    assert contract.granted[0].every == 1
    assert "not published more often" in contract.degraded[0]


def test_a_full_way_is_left_for_one_with_room() -> None:
    allocator = Allocator(cloud(DIAMOND, bandwidth=wide_enough(68 * 30)))
    first = grant(allocator, ask(1, variable(1), ("a", "d")))
    second = grant(allocator, ask(2, variable(2), ("a", "d")))
    assert {first.paths[0].routers[1], second.paths[0].routers[1]} == {"b", "c"}
    assert refuse(allocator, ask(3, variable(3), ("a", "d"))).code == ChannelFull.code


def test_a_refusal_leaves_no_trace() -> None:
    allocator = Allocator(cloud(DIAMOND, bandwidth=wide_enough(68 * 30)))
    grant(allocator, ask(1, variable(1), ("a", "d")))
    before = numbers(allocator.resources)
    for number in range(2, 9):
        qos = QosRequest(redundancy=2, latency_us=100 * number, every_worst=number)
        allocator.allocate(ask(number, variable(2, 120), ("a", "d"), qos))
    assert list(allocator.contracts) == [1]
    assert numbers(allocator.resources) == before


def test_an_unknown_edge_is_refused_by_name() -> None:
    refusal = refuse(Allocator(cloud(LINE)), ask(1, variable(), ("a", "x")))
    assert refusal.code == NoSuchRouter.code
    assert "x" in refusal.reason


def test_a_load_that_would_make_an_older_contract_late_is_refused() -> None:
    allocator = Allocator(cloud(LINE, bandwidth=100_000, latency_us=0))
    strict = grant(allocator, ask(1, variable(1), ("a", "c")))
    tight_us = strict.paths[0].latency_us
    allocator.release(1)
    grant(allocator, ask(1, variable(1), ("a", "c"), QosRequest(latency_us=tight_us)))
    answers = [allocator.allocate(ask(n, variable(n), ("b", "c"))) for n in range(2, 20)]
    refused = [answer for answer in answers if isinstance(answer, Refusal)]
    assert refused
    assert "would make subscription 1, which is granted already, late" in refused[0].reason
    assert allocator.resources.promises.late() == []


def test_the_same_requests_get_the_same_answers_in_the_same_order() -> None:
    def answers() -> list[Allocation | Refusal]:
        allocator = Allocator(cloud(LADDER, bandwidth=9_000))
        return [allocator.allocate(request) for request in requests()]

    def requests() -> list[AllocationRequest]:
        random = Random(7)
        ends = [("e0 e1", "e2 e3"), ("e2 e3", "e0 e1"), ("e0", "e3")]
        return [
            ask(
                number,
                variable(random.randint(1, 6)),
                random.choice(ends),
                QosRequest(every=random.randint(1, 4), redundancy=random.randint(1, 2)),
            )
            for number in range(1, 60)
        ]

    assert answers() == answers()


def test_many_routers_with_room_for_one_crossing_do_not_hide_a_free_way() -> None:
    """Both paths share the hub h, so others may be shared too; each fast one has room for one."""
    resources = Resources()
    narrow = [f"r{number:02}" for number in range(14)]
    links = [("s", "p"), ("s", "q"), ("u", "h"), ("v", "h"), ("h", "y"), ("h", "z")]
    links += [("y", "t"), ("z", "t")]
    links += [(side, name) for name in narrow for side in "pquv"]
    for name in sorted({name for link in links for name in link}):
        most = 2 * 30 + 29 if name in narrow else 1_000_000
        resources.add_router(Router(name, events_per_s_max=most))
    ends = [end for near, far in links for end in ((near, far), (far, near))]
    for number, (near, far) in enumerate(ends, start=1):
        latency_us = 1_000 - 10 * int(near[1:]) if near in narrow else 100
        channel = EventChannel(ChannelId(number), near, far, latency_us=latency_us, security="none")
        resources.add_channel(channel)
    allocator = Allocator(resources)
    granted = grant(allocator, ask(1, variable(1), ("s", "t"), QosRequest(redundancy=2)))
    crossed = [name for path in granted.paths for name in path.routers if name in narrow]
    assert len(crossed) == len(set(crossed)) == 2
    # One crossing of all the others, then nothing is left.
    for number in range(2, 8):
        grant(allocator, ask(number, variable(number), ("s", "t"), QosRequest(redundancy=2)))
    refused = refuse(allocator, ask(8, variable(8), ("s", "t"), QosRequest(redundancy=2)))
    assert refused.bottleneck.startswith("router r")
