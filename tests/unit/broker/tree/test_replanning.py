"""Frequency and number of new plans for contracts that are not whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.segment_messages import (
    ContractGranted,
    Lookup,
    SegmentBroken,
    SegmentRestored,
)
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import TreeWorld, both_ways, variable
from tests.unit.broker.tree.worlds import VOLTAGE, deep_tree, published, residue, two_clouds

if TYPE_CHECKING:
    import pytest

    from gridstat.net.command.segment_messages import SegmentedPath


def lookups(world: TreeWorld) -> int:
    return sum(isinstance(word, Lookup) for _, _, word in world.sent)


def fall_silent(world: TreeWorld, *, is_up: bool = False) -> None:
    """All channels from c1 to c2."""
    for (start, _, _), number in world.brokers["root"].machine.state.channels.on.items():
        if start.startswith("c1/"):
            world.clouds["c2"].tell_channel(number, is_up=is_up)
    world.say("c2")
    world.settle()


def test_hints_make_a_contract_that_nothing_leads_round_be_tried_more_and_more_seldom() -> None:
    world = two_clouds()
    world.subscribe("c2/d", VOLTAGE)
    world.settle()
    fall_silent(world)
    world.rest()
    world.sent.clear()
    for _ in range(300):
        world.clouds["c1"].retell()
        world.say("c1")
        world.settle()
        world.advance(NS_PER_S // 5)
    assert 1 <= lookups(world) <= 8
    fall_silent(world, is_up=True)
    world.rest()
    assert world.brokers["root"].machine.survey()["broken"] == 0


def test_a_channel_that_is_back_makes_all_be_tried_at_once_however_often_they_were() -> None:
    world = two_clouds()
    world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.settle()
    (first, *_) = sorted(world.brokers["root"].machine.state.channels.accounts)
    other = first + 2
    for number in (first, other):
        world.clouds["c2"].tell_channel(number, is_up=False)
    world.say("c2")
    world.settle()
    for _ in range(100):
        world.clouds["c1"].retell()
        world.say("c1")
        world.settle()
        world.advance(NS_PER_S)
    world.sent.clear()
    world.clouds["c2"].tell_channel(first, is_up=True)
    world.say("c2")
    world.settle()
    world.advance(1)
    assert lookups(world) == 1


def test_no_more_contracts_than_may_be_are_planned_anew_at_a_time() -> None:
    world = two_clouds(TreeSettings(name="", replan_at_once=3))
    for number in range(1, 11):
        world.subscribe("c2/d", VOLTAGE, number)
    world.settle()
    world.clouds["c1"].is_silent = True
    world.sent.clear()
    fall_silent(world)
    world.advance(2 * NS_PER_S)
    assert lookups(world) == 3
    world.clouds["c1"].is_silent = False
    world.disconnect("c1")
    world.rest()
    fall_silent(world, is_up=True)
    world.rest()
    assert world.brokers["root"].machine.survey()["broken"] == 0


OTHER = "c1/pmu/x"


def channel_of(world: TreeWorld, contract: str) -> int:
    return world.clouds["c2"].granted[contract].paths[0].pieces[1].channel_ids[0]


def crowded() -> tuple[TreeWorld, str, str]:
    """The way of one contract is down, and another one fills the only way round."""
    world = two_clouds(bandwidth_bytes_per_s=6_000)
    world.clouds["c1"].variables[OTHER] = variable(OTHER, 99)
    first = world.subscribe("c2/d", VOLTAGE, 1)
    world.settle()
    second = world.subscribe("c2/d", OTHER, 2)
    world.settle()
    assert channel_of(world, first) != channel_of(world, second)
    world.clouds["c2"].tell_channel(channel_of(world, first), is_up=False)
    world.say("c2")
    world.rest()
    assert broken(world) == 1
    return world, first, second


def broken(world: TreeWorld) -> int:
    found = world.brokers["root"].machine.survey()["broken"]
    assert isinstance(found, int)
    return found


def test_a_contract_that_ends_makes_room_for_one_that_is_broken_at_once() -> None:
    world, first, second = crowded()
    free = channel_of(world, second)
    world.end(second)
    world.settle()
    world.advance(1)
    assert broken(world) == 0
    assert channel_of(world, first) == free
    world.end(first)
    world.rest()
    assert residue(world) == []


def test_ends_of_many_contracts_do_not_have_one_that_is_broken_tried_each_time() -> None:
    world = two_clouds()
    for number in range(1, 32):
        world.subscribe("c2/d", VOLTAGE, number)
        world.settle()
    world.clouds["c1"].capacity = 0
    (channel, *_) = sorted(world.brokers["root"].machine.state.channels.accounts)
    world.clouds["c2"].tell_channel(channel, is_up=False)
    world.say("c2")
    world.rest()
    before = broken(world)
    world.sent.clear()
    for number in range(2, 32):
        world.end(f"c2#{number}")
        world.settle()
        world.advance(1)
    assert 1 <= lookups(world) <= before


def test_room_that_becomes_free_inside_a_cloud_is_found_though_nobody_tells_of_it() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    world.clouds["c1"].capacity = 0
    world.clouds["c2"].tell_channel(channel_of(world, contract), is_up=False)
    world.say("c2")
    world.rest()
    assert broken(world) == 1
    world.sent.clear()
    world.advance(3_600 * NS_PER_S)
    assert lookups(world) <= 3_600 // 24 + 1, "the longest delay is 24 to 32 s"
    world.clouds["c1"].capacity = 10
    world.rest()
    assert broken(world) == 0


def test_what_came_back_while_a_look_up_took_long_is_not_shunned() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.settle()
    ((key, found),) = world.clouds["c2"].segments.items()
    gate = found.reserve.entries[0].channel_id
    broken = SegmentBroken(
        term=1, contract=contract, generation=key[1], reason="i3 is down", broken=(gate,)
    )
    world.clouds["c1"].is_silent = True
    world.post("c2", "root", broken)
    world.settle()
    world.advance(NS_PER_S // 100)
    assert lookups(world) == 2, "c1 is asked where the variable is now"
    world.post("c2", "root", SegmentRestored(term=1, contract=contract, generation=key[1]))
    world.settle()
    world.clouds["c1"].is_silent = False
    world.disconnect("c1")
    world.rest()
    granted = world.clouds["c2"].granted[contract]
    assert (granted.generation, len(granted.paths)) == (1, 2)


def test_a_new_plan_that_crosses_a_change_is_not_taken_for_its_answer_on_the_way() -> None:
    """Lose a change above while a new plan has its generation; it must be sent again."""
    world = deep_tree()
    contract = world.subscribe("c4/d", VOLTAGE, latency_us=200_000)
    world.settle()
    held = world.clouds["c4"].granted[contract]
    changed = held.generation + 1
    world.subscribe("c4/d", VOLTAGE, generation=changed, latency_us=300_000)
    world.step()
    ((sender, receiver, _),) = world.queue
    assert (sender, receiver) == ("mid", "east")
    world.queue.appendleft(("east", "mid", structs.replace(held, generation=changed)))
    world.step()
    world.disconnect("mid")
    world.settle()
    granted = world.clouds["c4"].granted[contract]
    assert granted.asked == changed
    assert {quality.latency_us for quality in granted.granted.values()} == {300_000}


def test_the_subscribers_cloud_is_told_which_paths_do_not_work_and_when_they_do_again() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.settle()
    state = world.brokers["root"].machine.state
    held = world.clouds["c2"].granted[contract]
    assert (held.paths_down, held.degraded) == ((), ())
    numbers = [
        {number for piece in path.pieces for number in piece.channel_ids}
        & state.channels.accounts.keys()
        for path in held.paths
    ]
    for index, (number,) in enumerate(numbers):
        world.clouds["c2"].tell_channel(number, is_up=False)
        world.say("c2")
        world.rest()
        told = world.clouds["c2"].granted[contract]
        assert (told.generation, told.paths_down) == (held.generation, tuple(range(index + 1)))
        label = state.channels.accounts[number].channel.label
        assert any(label in word for word in told.degraded)
    world.sent.clear()
    world.rest()
    repeated = [word for _, _, word in world.sent if isinstance(word, ContractGranted)]
    assert repeated == []  # However often it is tried in vain.
    for (number,) in numbers:
        world.clouds["c2"].tell_channel(number, is_up=True)
        world.say("c2")
        world.rest()
    told = world.clouds["c2"].granted[contract]
    assert (told.paths_down, told.degraded) == ((), ())


def test_a_cloud_that_has_another_path_from_the_same_channel_is_asked_for_it() -> None:
    """Both channels are needed, so none leads around the one behind which a path is broken."""
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.settle()
    ((key, found),) = world.clouds["c2"].segments.items()
    gate = found.reserve.entries[0].channel_id
    broken = SegmentBroken(
        term=1, contract=contract, generation=key[1], reason="i3 is down", broken=(gate,)
    )
    world.post("c2", "root", broken)
    world.rest()
    granted = world.clouds["c2"].granted[contract]
    assert (granted.generation, len(granted.paths), granted.paths_down) == (1, 2, ())


def test_two_contracts_are_not_tried_at_the_same_times() -> None:
    """Each would find the room taken that the other reserves and then gives up."""
    world = two_clouds()
    for number in (1, 2):
        world.subscribe("c2/d", VOLTAGE, number)
    world.settle()
    fall_silent(world)
    world.sent.clear()
    at_once = 0
    for _ in range(600):
        before = lookups(world)
        world.advance(NS_PER_S // 10)
        at_once += lookups(world) - before > 1
    assert lookups(world) >= 8
    assert at_once <= 1, "only the first attempts are made together"


def cut_after_a_restart(ways_most: int) -> tuple[TreeWorld, tuple[SegmentedPath, ...]]:
    """A root that begins anew, and one of the two borders of a contract is cut off.

    Two channels are left, at the other border; the subscriber's cloud reserves so many paths there.
    """
    channels = [
        *both_ways("c1/b0", "c2/b0"),
        *both_ways("c1/b1", "c2/b1"),
        *both_ways("c1/b1", "c2/b1", name="beside"),
    ]
    clouds = [
        CloudStandIn("c1", "root", ways=2),
        CloudStandIn("c2", "root", ways=2, ways_most=ways_most),
    ]
    world = published(TreeWorld({"root": ("", ("c1", "c2"), channels)}, clouds)).start()
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.settle()
    world.kill("root")
    world.rest()
    on = world.brokers["root"].machine.state.channels.on
    world.clouds["c2"].tell_channel(on["c1/b0", "c2/b0", ""], is_up=False)
    world.say("c2")
    world.rest()
    return world, world.clouds["c2"].granted[contract].paths


def test_a_root_that_begins_anew_does_not_take_unknown_distances_for_one_path_a_border() -> None:
    world, paths = cut_after_a_restart(ways_most=2)
    assert [path.pieces[1].routers for path in paths] == [("c1/b1", "c2/b1")] * 2
    assert broken(world) == 0


def test_paths_that_a_root_only_supposes_are_not_granted_if_the_cloud_does_not_have_them() -> None:
    world, paths = cut_after_a_restart(ways_most=1)
    assert {path.pieces[1].routers[0] for path in paths} == {"c1/b0", "c1/b1"}
    assert broken(world) == 1


def test_a_subscriber_that_was_far_from_a_border_when_it_asked_may_be_near_to_it_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = two_clouds()
    cloud = world.clouds["c2"]
    near, other = cloud._near()  # What it reports with its requests.
    far = structs.replace(other, latency_us=10_000_000)
    monkeypatch.setattr(cloud, "_near", lambda: (near, far))
    world.subscribe("c2/d", VOLTAGE, latency_us=1_000_000)
    world.settle()
    (held,) = world.brokers["root"].machine.state.holdings.all()
    for number in held[0].channel_ids:
        cloud.tell_channel(number, is_up=False)
    world.say("c2")
    world.settle()
    assert world.brokers["root"].machine.survey()["broken"] == 1
    world.rest()
    assert world.brokers["root"].machine.survey()["broken"] == 0
