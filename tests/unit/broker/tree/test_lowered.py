"""Contracts between clouds that a failure lowers, and that are restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.rate_law import NS_PER_S
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.test_replanning import broken, lookups
from tests.unit.broker.tree.tree_world import TreeWorld, both_ways
from tests.unit.broker.tree.worlds import VOLTAGE, inconsistencies, published, residue

if TYPE_CHECKING:
    from gridstat.net.command.segment_messages import ContractGranted

BORDERS = ("b0", "b1", "b2")


def three_ways(settings: TreeSettings | None = None, **facts: int) -> TreeWorld:
    """Two clouds, and three disjoint pairs of channels between them."""
    channels = [found for at in BORDERS for found in both_ways(f"c1/{at}", f"c2/{at}", **facts)]
    clouds = [CloudStandIn("c1", "root"), CloudStandIn("c2", "root")]
    return published(TreeWorld({"root": ("", ("c1", "c2"), channels)}, clouds, settings)).start()


def mark(world: TreeWorld, border: str, *, is_up: bool) -> None:
    """The channel from c1 to c2 at this border."""
    on = world.brokers["root"].machine.state.channels.on
    world.clouds["c2"].tell_channel(on[f"c1/{border}", f"c2/{border}", ""], is_up=is_up)
    world.say("c2")
    world.settle()


def subscribe(world: TreeWorld, number: int = 1) -> str:
    contract = world.subscribe("c2/d", VOLTAGE, number, redundancy=2, redundancy_worst=1)
    world.settle()
    return contract


def granted(world: TreeWorld, contract: str) -> ContractGranted:
    return world.clouds["c2"].granted[contract]


def ways(world: TreeWorld, contract: str) -> list[str]:
    """The borders by which its paths leave c1."""
    found = [path.pieces[0].routers[-1] for path in granted(world, contract).paths]
    return sorted(name.partition("/")[2] for name in found)


def lowered(settings: TreeSettings | None = None, count: int = 1) -> tuple[TreeWorld, str]:
    """Contracts that have lost both their paths at once, and have one by the last way; the last."""
    world = three_ways(settings)
    contract = [subscribe(world, number) for number in range(1, count + 1)][-1]
    first, second = ways(world, contract)
    world.clouds["c1"].is_silent = True  # So that nothing is planned between the two.
    mark(world, first, is_up=False)
    mark(world, second, is_up=False)
    world.clouds["c1"].is_silent = False
    world.disconnect("c1")
    world.rest()
    assert len(granted(world, contract).paths) == 1
    assert broken(world) == 0
    return world, contract


def test_what_still_has_a_path_is_not_given_less_though_it_would_take_that() -> None:
    world = three_ways()
    mark(world, "b2", is_up=False)
    contract = subscribe(world)
    mark(world, "b0", is_up=False)
    world.rest()
    assert (granted(world, contract).generation, broken(world)) == (0, 1)
    mark(world, "b0", is_up=True)
    world.rest()
    assert (granted(world, contract).generation, broken(world)) == (0, 0)
    assert ways(world, contract) == ["b0", "b1"]


def test_what_has_no_path_left_takes_one_and_has_two_again_when_a_channel_returns() -> None:
    world, contract = lowered()
    assert "redundancy 2 lowered to 1" in granted(world, contract).degraded[0]
    mark(world, "b0", is_up=True)
    world.advance(NS_PER_S // 10)
    assert len(granted(world, contract).paths) == 2
    assert granted(world, contract).degraded == ()
    world.rest()
    assert inconsistencies(world) == []
    world.end(contract)
    world.rest()
    assert residue(world) == []


def test_what_has_less_than_it_was_promised_gets_it_back_after_a_restart_of_its_owner() -> None:
    world, contract = lowered()
    world.kill("root")
    world.rest()
    assert len(granted(world, contract).paths) == 2
    assert inconsistencies(world) == []


def test_a_promise_is_kept_through_a_second_failure() -> None:
    world, contract = lowered()
    (last,) = ways(world, contract)
    mark(world, last, is_up=False)
    world.rest()
    assert (len(granted(world, contract).paths), broken(world)) == (1, 1)
    for border in BORDERS:
        mark(world, border, is_up=True)
    world.rest()
    assert (len(granted(world, contract).paths), broken(world)) == (2, 0)


def test_a_contract_that_was_granted_less_when_it_was_asked_stays_as_it_was_granted() -> None:
    """Subscribe when there is less: as inside a cloud, more must be requested later."""
    world = three_ways()
    mark(world, "b1", is_up=False)
    mark(world, "b2", is_up=False)
    contract = subscribe(world)
    assert len(granted(world, contract).paths) == 1
    world.sent.clear()
    mark(world, "b1", is_up=True)
    mark(world, "b2", is_up=True)
    world.rest()
    world.kill("root")
    world.rest()
    assert granted(world, contract).generation == 0
    assert lookups(world) == 0


def test_what_has_less_is_tried_more_and_more_seldom_whatever_hints_come() -> None:
    world, contract = lowered()
    world.sent.clear()
    for _ in range(300):
        world.clouds["c1"].retell()
        world.say("c1")
        world.settle()
        world.advance(NS_PER_S // 5)
    assert 1 <= lookups(world) <= 8
    world.sent.clear()
    world.advance(3_600 * NS_PER_S)
    assert 1 <= lookups(world) <= 3_600 // 24 + 1, "the longest delay is 24 to 32 s"
    assert len(granted(world, contract).paths) == 1


def test_room_that_becomes_free_is_given_to_what_has_less() -> None:
    world, contract = lowered()
    world.clouds["c1"].capacity = len(world.clouds["c1"].segments)
    for border in BORDERS:
        mark(world, border, is_up=True)
    world.rest()
    assert len(granted(world, contract).paths) == 1
    world.clouds["c1"].capacity += 1
    world.rest()
    assert len(granted(world, contract).paths) == 2


def test_a_change_of_a_contract_that_has_less_is_a_promise_of_its_own() -> None:
    world, contract = lowered()
    world.subscribe("c2/d", VOLTAGE, 1, granted(world, contract).generation + 1, redundancy=1)
    world.settle()
    changed = granted(world, contract)
    for border in BORDERS:
        mark(world, border, is_up=True)
    world.rest()
    assert granted(world, contract) == changed


def test_what_is_broken_does_not_wait_for_what_only_has_less() -> None:
    world, contract = lowered(TreeSettings(name="", replan_at_once=2), count=3)
    (last,) = ways(world, contract)
    world.clouds["c1"].is_silent = True
    world.sent.clear()
    mark(world, next(one for one in BORDERS if one != last), is_up=True)
    world.advance(1)
    assert lookups(world) == 1, "of two at a time one may be spent on these"
    mark(world, last, is_up=False)
    world.advance(NS_PER_S // 2)
    assert lookups(world) == 2
