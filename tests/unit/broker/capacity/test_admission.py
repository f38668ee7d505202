"""Refusals: each limit has a code of its own, and names what binds and by how much."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.capacity.allocator import Allocator
from gridstat.model.cloud import EventChannel, Router
from gridstat.model.errors import (
    BackPressured,
    BurstTooLarge,
    ChannelFull,
    IntervalNotSatisfiable,
    LatencyNotSatisfiable,
    RedundancyNotSatisfiable,
    RouterFull,
)
from gridstat.model.identifiers import ChannelId, VariableId
from gridstat.model.qos import QosRequest
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from tests.unit.broker.clouds import (
    DIAMOND,
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
    from gridstat.broker.capacity.resources import Resources


def widened(resources: Resources, near: str, far: str, bandwidth: int) -> None:
    """Give one channel another bandwidth."""
    number = resources.channel_between(near, far)
    channel = resources.channel(number).channel
    assert channel is not None
    resources.remove_channel(number)
    resources.add_channel(replace(channel, bandwidth_bytes_per_s=bandwidth))


@pytest.mark.feature("S0-52")
def test_a_full_channel_is_named_with_the_missing_bytes() -> None:
    resources = cloud(LINE, bandwidth=10_000)
    widened(resources, "b", "c", 2_000)
    refusal = refuse(Allocator(resources), ask(1, variable(), ("a", "c")))
    assert refusal.code == ChannelFull.code == 1039
    assert refusal.bottleneck == "channel b→c"
    assert refusal.shortfall == "60 bytes/s"  # 40 for the events, and 20 for probes.
    assert refusal.hint


@pytest.mark.feature("S0-52")
def test_a_full_router_is_named_with_the_missing_events() -> None:
    resources = cloud([("a", "b")], events_per_s_max=1_000)
    resources.add_router(Router("c", events_per_s_max=59))
    resources.add_channel(EventChannel(ChannelId(9), "b", "c"))
    refusal = refuse(Allocator(resources), ask(1, variable(), ("a", "c")))
    assert refusal.code == RouterFull.code == 1043
    assert (refusal.bottleneck, refusal.shortfall) == ("router c", "1 events/s")


@pytest.mark.feature("S0-52")
def test_an_impossible_latency_is_refused_with_the_missing_microseconds() -> None:
    allocator = Allocator(cloud(LINE, latency_us=5_000))
    fastest = grant(allocator, ask(1, variable(), ("a", "c")))
    takes_us = fastest.paths[0].latency_us
    allocator.release(1)
    refusal = refuse(allocator, ask(1, variable(), ("a", "c"), QosRequest(latency_us=8_000)))
    assert refusal.code == LatencyNotSatisfiable.code == 1036
    missing_us, unit = refusal.shortfall.split()
    # The idle cloud is predicted a step or two faster than the one with the first subscription.
    assert (takes_us - 8_000) - 60 <= int(missing_us) <= takes_us - 8_000
    assert unit == "µs"


@pytest.mark.feature("S0-52")
def test_too_few_disjoint_paths_are_counted() -> None:
    request = ask(1, variable(), ("a", "d"), QosRequest(redundancy=4))
    refusal = refuse(Allocator(cloud(DIAMOND)), request)
    assert refusal.code == RedundancyNotSatisfiable.code == 1038
    assert refusal.shortfall == "2 paths"
    assert refusal.bottleneck == "from a to d"


def test_ends_without_any_path_lack_one() -> None:
    resources = cloud([("a", "b"), ("c", "d")])
    refusal = refuse(Allocator(resources), ask(1, variable(), ("a", "d")))
    assert (refusal.code, refusal.shortfall) == (1038, "1 path")


@pytest.mark.feature("S0-52")
def test_a_variable_that_is_published_too_slowly_is_refused() -> None:
    request = ask(1, variable(1, 30), ("a", "c"), QosRequest(interval=Period(1, 60)))
    refusal = refuse(Allocator(cloud(LINE)), request)
    assert refusal.code == IntervalNotSatisfiable.code == 1037


def test_an_aperiodic_variable_without_a_bound_is_refused() -> None:
    unbounded = StatusVariable(VariableId(1), "c1/a", BuiltinType.BOOL, None)
    refusal = refuse(Allocator(cloud(LINE)), ask(1, unbounded, ("a", "c")))
    assert refusal.code == 1037
    assert "interval_ns_min" in refusal.hint


@pytest.mark.feature("S0-52", "S0-137")
def test_a_synchronised_burst_beyond_the_queue_is_refused_though_the_rate_fits() -> None:
    allocator = Allocator(cloud(LINE, bandwidth=1_000_000, queue_events_max=4))
    for number in range(1, 5):
        grant(allocator, ask(number, variable(number, 1), ("a", "c")))
    refusal = refuse(allocator, ask(5, variable(5, 1), ("a", "c")))
    assert refusal.code == BurstTooLarge.code == 1044
    assert (refusal.bottleneck, refusal.shortfall) == ("channel a→b", "1 events")
    shifted = variable(6, 1, phase_ns=500_000_000)
    grant(allocator, ask(6, shifted, ("a", "c")))


def test_a_channel_without_a_declared_bandwidth_has_no_queue_to_overflow() -> None:
    allocator = Allocator(cloud(LINE, queue_events_max=1))
    for number in range(1, 5):
        grant(allocator, ask(number, variable(number), ("a", "c")))


@pytest.mark.feature("S0-52")
def test_a_congested_channel_admits_nothing_and_is_named() -> None:
    allocator = Allocator(cloud(LINE))
    allocator.resources.mark_back_pressure(3, is_on=True)
    refusal = refuse(allocator, ask(1, variable(), ("a", "c")))
    assert refusal.code == BackPressured.code == 1045
    assert refusal.bottleneck == "channel b→c"
    allocator.resources.mark_back_pressure(3, is_on=False)
    grant(allocator, ask(1, variable(), ("a", "c")))


def test_a_congested_channel_is_gone_round() -> None:
    allocator = Allocator(cloud(DIAMOND))
    resources = allocator.resources
    resources.mark_back_pressure(resources.channel_between("a", "b"), is_on=True)
    assert grant(allocator, ask(1, variable(), ("a", "d"))).paths[0].routers[1] == "c"


def test_the_limit_that_really_binds_is_named_and_not_the_first_met() -> None:
    # Over b a channel is full; over c there is room, but not in time. Bandwidth is what binds.
    resources = cloud(DIAMOND, bandwidth=100_000)
    widened(resources, "a", "b", 20_000)
    number = resources.channel_between("a", "c")
    resources.remove_channel(number)
    resources.add_channel(EventChannel(ChannelId(number), "a", "c", latency_us=50_000))
    allocator = Allocator(resources)
    grant(allocator, ask(1, variable(1, 250), ("a", "b")))
    request = ask(2, variable(2, 60), ("a", "d"), QosRequest(latency_us=20_000))
    refusal = refuse(allocator, request)
    assert refusal.code == ChannelFull.code
    assert (refusal.bottleneck, refusal.shortfall) == ("channel a→b", "1280 bytes/s")


def test_a_topology_without_the_paths_is_blamed_before_its_full_channels() -> None:
    resources = cloud(DIAMOND, bandwidth=10)
    request = ask(1, variable(), ("a", "d"), QosRequest(redundancy=3))
    assert refuse(Allocator(resources), request).code == RedundancyNotSatisfiable.code


def test_a_refusal_of_several_full_elements_names_one_of_them() -> None:
    resources = cloud(LINE, bandwidth=100, events_per_s_max=20)
    refusal = refuse(Allocator(resources), ask(1, variable(), ("a", "c")))
    assert refusal.code in {ChannelFull.code, RouterFull.code}
    assert refusal.bottleneck
    assert refusal.shortfall


def test_the_last_byte_can_be_had_and_one_more_cannot() -> None:
    least = wide_enough(68 * 30)
    for bandwidth, fits in ((least, True), (least - 1, False)):
        resources = cloud(LINE, bandwidth=bandwidth)
        before = numbers(resources)
        answer = Allocator(resources).allocate(ask(1, variable(), ("a", "c")))
        assert hasattr(answer, "paths") is fits
        assert fits or numbers(resources) == before


def test_a_third_of_a_rate_fits_into_exactly_a_third_of_the_room() -> None:
    # 100/s every 3rd slot are 2,266.67 bytes/s, and probes 22.90: 2,289 are too few by a fraction.
    for bandwidth, fits in ((2_290, True), (2_289, False)):
        request = ask(1, variable(1, 100), ("a", "c"), QosRequest(every=3))
        answer = Allocator(cloud(LINE, bandwidth=bandwidth)).allocate(request)
        assert hasattr(answer, "paths") is fits
