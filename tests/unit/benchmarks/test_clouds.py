"""Clouds for experiments: their shapes, what is read of them, and the arithmetic of storms."""

from __future__ import annotations

import pytest

from benchmarks.allocation import allocation_times_ms
from benchmarks.cloud_chain import hops_of
from benchmarks.cloud_plan import chain, line, two_rings
from benchmarks.cloud_rig import histogram_of, routers_behind
from benchmarks.path_latencies import kept_share, prediction_error, sample_of
from benchmarks.statistics import histogram_mean
from benchmarks.storm_stream import ratio
from benchmarks.subscribing import Storm, quantile
from gridstat.model.cloud import RouterRole
from gridstat.model.latency_model import Hop
from gridstat.model.paths import Arc, Found, PathGraph, disjoint_paths


def test_ten_edges_around_two_rings_of_five_are_twenty_routers() -> None:
    topology = two_rings(10, 5)
    assert len(topology.routers) == 20
    assert len(topology.channels) == 60
    assert [channel.channel_id for channel in topology.channels] == list(range(1, 61))


@pytest.mark.parametrize("ring", [1, 2, 3, 5])
def test_between_any_two_edges_of_the_rings_two_ways_share_no_inner_router(ring: int) -> None:
    topology = two_rings(3, ring)
    arcs = tuple(
        Arc(channel.channel_id, channel.from_router, channel.to_router, cost=1, latency_us=1)
        for channel in topology.channels
    )
    graph = PathGraph(arcs, {router.name: 1 for router in topology.routers})
    found = disjoint_paths(graph, ["c1/e0"], ["c1/e2"], [1_000, 1_000], clock=lambda: 0.0)
    assert isinstance(found, Found)
    assert found.is_node_disjoint


def test_no_channel_of_the_rings_is_there_twice() -> None:
    for ring in (1, 2, 3):
        ends = [(way.from_router, way.to_router) for way in two_rings(2, ring).channels]
        assert len(set(ends)) == len(ends)


def test_a_chain_begins_and_ends_with_an_edge_even_if_it_is_the_same_one() -> None:
    assert [router.name for router in chain(1).routers] == ["c1/e0"]
    assert chain(1).channels == ()
    roles = {router.name: router.role for router in chain(4).routers}
    edges = {name for name, role in roles.items() if role is RouterRole.EDGE}
    assert edges == {"c1/e0", "c1/e3"}
    assert len(chain(4).channels) == 6


def test_every_router_of_a_line_is_an_edge_so_that_paths_of_all_lengths_begin_at_the_first() -> (
    None
):
    topology = line(5)
    assert [router.name for router in topology.routers] == [f"c1/e{at}" for at in range(5)]
    assert all(router.role is RouterRole.EDGE for router in topology.routers)
    assert len(topology.channels) == 8


def test_a_router_is_behind_while_it_is_absent_or_has_not_confirmed() -> None:
    routers = [
        {"name": "c1/e0", "is_connected": True, "in_step": True},
        {"name": "c1/e1", "is_connected": True, "in_step": False},
        {"name": "c1/e2", "is_connected": False, "in_step": True},
    ]
    assert routers_behind({"routers": routers}) == ["c1/e1", "c1/e2"]


def test_buckets_of_metrics_become_a_histogram_of_their_own_counts() -> None:
    name = "gridstat_router_forwarding_latency_seconds"
    text = (
        f"# TYPE {name} histogram\n"
        f'{name}_bucket{{le="1e-06"}} 3.0\n'
        f'{name}_bucket{{le="2e-06"}} 10.0\n'
        f'{name}_bucket{{le="+Inf"}} 10.0\n'
        "# TYPE other gauge\n"
        "other 5.0\n"
    )
    assert histogram_of(text) == [(1_000, 3), (2_000, 7)]


def test_the_mean_of_a_histogram_counts_each_sample_as_the_middle_of_its_bucket() -> None:
    # From 896 to 960 and from 1,024 to 1,152 ns: eight buckets to an octave.
    assert histogram_mean([(960, 1)]) == 928
    assert histogram_mean([(960, 1), (1_152, 3)]) == (928 + 3 * 1_088) / 4
    assert histogram_mean([(5, 2)]) == 4.5
    assert histogram_mean([]) == 0


def test_a_granted_path_becomes_the_hops_of_the_law() -> None:
    survey = {
        "routers": [
            {"name": "c1/e0", "events_per_s": 200},
            {"name": "c1/e1", "events_per_s": 300.5},
        ],
        "channels": [
            {"channel_id": 7, "burst_events": 31},
            {"channel_id": 8, "burst_events": 9},
        ],
    }
    path = {"routers": ["c1/e0", "c1/e1"], "channel_ids": [7]}
    assert hops_of(path, survey) == (Hop(200.0, 31), Hop(300.5, 0))


def test_a_storm_is_counted_by_what_was_granted() -> None:
    storm = Storm(
        granted=500,
        failed=1,
        reasons=("ChannelFull",),
        seconds=0.25,
        took_ms=(1.0, 2.0),
        broker_cpu_s=0.2,
        router_cpu_s=0.0,
        client_cpu_s=0.0,
        requests_per_commit=2.0,
    )
    assert storm.per_s == 2_000
    assert storm.each_ms(storm.broker_cpu_s) == pytest.approx(0.4)


def test_quantiles_of_few_samples_are_samples() -> None:
    assert [quantile((1.0, 2.0, 3.0, 9.0), share) for share in (0.0, 0.5, 0.99)] == [1.0, 3.0, 9.0]
    assert quantile((), 0.5) == 0.0


def test_the_error_of_predictions_is_the_median_and_relative_to_what_was_measured() -> None:
    assert prediction_error([(150, 100), (90, 100), (400, 100)]) == 0.5


def test_a_prediction_is_kept_when_what_was_measured_is_within_it() -> None:
    assert kept_share([(150, 100), (100, 100), (90, 100), (99, 100)]) == 0.5


def test_the_ratio_of_a_storm_is_none_where_nothing_was_measured() -> None:
    assert ratio(150.0, 100.0) == 1.5
    assert ratio(150.0, 0.0) == 0.0


def test_a_sample_of_paths_takes_every_variable_once_and_to_another_edge() -> None:
    names = [f"c1/pmu-{at}/phasor-{quantity}" for at in range(10) for quantity in range(2)]
    clients = [f"c1/client-{at}" for at in range(10)]
    sample = sample_of(names, clients)
    taken = [(name, client) for client, some in sample.items() for name in some]
    assert sorted(name for name, _ in taken) == sorted(names)
    ends = {(name.split("/")[1], client) for name, client in taken}
    assert len(ends) == 20
    assert all(name.split("-")[1][0] != client[-1] for name, client in taken)


def test_allocations_in_a_small_cloud_are_timed_and_granted() -> None:
    took_ms, granted = allocation_times_ms(routers=20, requests=12, redundancy=2)
    assert len(took_ms) == 12
    assert took_ms == sorted(took_ms)
    assert granted > 6
