"""Latencies promised for the parts of a contract: their sum is within its bound."""

from __future__ import annotations

from gridstat.broker.tree.latency_shares import Division, Part, divide, fit_to_bounds
from gridstat.broker.tree.owned_channels import OwnedChannels, Prediction
from gridstat.broker.tree.path_planner import PlannedPath, Step
from gridstat.broker.tree.tree_operations import ScopePath, body_of
from gridstat.model.errors import LatencyNotSatisfiable
from gridstat.model.qos import Qos
from gridstat.net.command.segment_messages import Gate, Reserve
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import TreeWorld, channel, variable
from tests.unit.broker.tree.worlds import VOLTAGE, inconsistencies, residue

FAR_US, NEAR_US = 5_000, 100


def bound(latency_us: int) -> dict[int, Qos]:
    return {0: Qos(every=1, latency_us=latency_us, redundancy=1, priority=3)}


def three_clouds() -> TreeWorld:
    """Return three clouds; one channel into and one out of c2 is long, and c2 joins other pairs."""
    channels = [
        channel("c1/b0", "c2/in0", latency_us=FAR_US),
        channel("c1/b1", "c2/in1", latency_us=NEAR_US),
        channel("c2/out0", "c3/b0", latency_us=NEAR_US),
        channel("c2/out1", "c3/b1", latency_us=FAR_US),
    ]
    names = ("c1", "c2", "c3")
    clouds = [CloudStandIn(name, "root") for name in names]
    slow = {("c2/in0", "c2/out1"): 6_000, ("c2/in1", "c2/out0"): 6_000}
    clouds[1].slow_us.update(slow)
    world = TreeWorld({"root": ("", names, channels)}, clouds)
    world.clouds["c1"].variables[VOLTAGE] = variable(VOLTAGE, 1)
    return world.start()


def test_what_is_promised_on_a_path_keeps_the_bound_though_a_cloud_joins_other_channels() -> None:
    world = three_clouds()
    contract = world.subscribe("c3/d", VOLTAGE, redundancy=2, latency_us=20_000)
    world.settle()
    granted = world.clouds["c3"].granted[contract]
    assert len(granted.paths) == 2
    inside_us = sum(
        found.reserve.granted[0].latency_us
        for cloud in world.clouds.values()
        for found in cloud.segments.values()
    )
    (held,) = (found for found, _ in world.brokers["root"].machine.state.holdings.all())
    for way in body_of(held).scope_paths:
        assert inside_us + sum(way.shares_us) <= 20_000
    assert inconsistencies(world) == []
    world.end(contract)
    world.rest()
    assert residue(world) == []


def test_shares_of_channels_are_cut_to_the_bound_and_not_below_what_they_take() -> None:
    channels = OwnedChannels([channel("a/out", "b/in", latency_us=100)])
    (number,) = channels.accounts
    gate_out, gate_in = Gate(router="a/out", channel_id=number), Gate("b/in", number)
    parts = {
        "a": Part("a", (), (gate_out,), bound(300), ()),
        "b": Part("b", (gate_in,), (), bound(300), ()),
    }
    takes_us = channels.latency_us(number)
    wide = ScopePath(0, 0, (number,), (takes_us + 500,))
    division = Division(parts, (wide,))
    kept = fit_to_bounds(division, (wide,), bound(600 + takes_us + 50), channels)
    assert kept == (ScopePath(0, 0, (number,), (takes_us + 50,)),)
    assert fit_to_bounds(division, (wide,), bound(600 + takes_us - 1), channels) is None
    assert fit_to_bounds(division, (wide,), bound(600 + takes_us + 500), channels) == (wide,)


def test_a_way_that_is_too_slow_with_the_newcomer_on_it_is_not_divided() -> None:
    gate_out, gate_in = Gate("a/out", 7), Gate("b/in", 7)
    steps = (Step("a", None, gate_out, 400, ()), Step("b", gate_in, None, 400, ()))
    way = PlannedPath(steps, (7,))
    assert divide([way], bound(1_000), {7: Prediction(230, 30)}) is None
    assert divide([way], bound(1_030), {7: Prediction(230, 30)}) is not None


def test_the_slack_of_a_loaded_cloud_with_a_short_estimate_is_an_even_share_at_the_second_try() -> (
    None
):
    """The far channel has nearly all of the estimated latency, and no need of its slack."""
    clouds = [CloudStandIn("c1", "root", near_us=1), CloudStandIn("c2", "root", near_us=9_000)]
    clouds[0].variables[VOLTAGE] = variable(VOLTAGE, 1)
    clouds[0].loaded_us = 15_000
    world = TreeWorld({"root": ("", ("c1", "c2"), [channel("c1/b", "c2/b")])}, clouds).start()
    contract = world.subscribe("c2/d", VOLTAGE, latency_us=100_000)
    world.settle()
    assert contract in world.clouds["c2"].granted
    asked_us = [
        message.granted[0].latency_us
        for _, to, message in world.sent
        if to == "c1" and isinstance(message, Reserve)
    ]
    assert [latency_us > clouds[0].loaded_us for latency_us in asked_us] == [False, True]
    world.end(contract)
    world.rest()
    assert residue(world) == []


def test_a_cloud_that_is_too_slow_for_even_shares_too_is_refused() -> None:
    clouds = [CloudStandIn("c1", "root"), CloudStandIn("c2", "root")]
    clouds[0].variables[VOLTAGE] = variable(VOLTAGE, 1)
    clouds[0].loaded_us = 60_000
    world = TreeWorld({"root": ("", ("c1", "c2"), [channel("c1/b", "c2/b")])}, clouds).start()
    contract = world.subscribe("c2/d", VOLTAGE, latency_us=100_000)
    world.settle()
    assert world.clouds["c2"].refused[contract].refused.code == LatencyNotSatisfiable.code
    world.rest()
    assert residue(world) == []


def test_even_shares_of_a_way_are_its_bound_at_most() -> None:
    gate_out, gate_in = Gate("a/out", 7), Gate("b/in", 7)
    steps = (Step("a", None, gate_out, 1, ()), Step("b", gate_in, None, 400, ()))
    division = divide(
        [PlannedPath(steps, (7,))], bound(1_000), {7: Prediction(230, 30)}, is_even=True
    )
    assert division is not None
    shares_us = [division.parts[name].granted[0].latency_us for name in "ab"]
    assert [*shares_us, *division.scope_paths[0].shares_us] == [1 + 123, 400 + 123, 230 + 123]
    assert divide(
        [PlannedPath(steps, (7,))], bound(600), {7: Prediction(230, 30)}, is_even=True
    ) is (None)
