"""A QoS broker gives seeds to both ends of its channels until their removal is durable.

It learns of the ends from reports, which may come before its channels have their numbers again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.keys.key_settings import KeySettings
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.machine import Connected, Received
from gridstat.net.command.operator_messages import RemoveChannel
from gridstat.net.command.router_messages import SeedAccepted
from gridstat.net.command.tree_messages import (
    BorderSeed,
    BorderSeedAccepted,
    BorderSeedWanted,
    TreeJoined,
)
from tests.unit.broker.tree.tree_world import hello
from tests.unit.broker.tree.worlds import deep_tree, two_clouds

if TYPE_CHECKING:
    from tests.unit.broker.tree.tree_world import TreeWorld

QUICK = TreeSettings(name="", keys=KeySettings(epoch_ms=1_000, reseed_ms=10_000))
SENDER, RECEIVER = "c1/b0", "c2/b0"
REMOVAL = RemoveChannel(request_id=77, from_router=SENDER, to_router=RECEIVER)


def keyed() -> tuple[TreeWorld, int]:
    """A root that has given both ends of a channel a seed, and the channel."""
    world = two_clouds(QUICK)
    accounts = world.brokers["root"].machine.state.channels.accounts
    number = next(at for at, each in accounts.items() if each.channel.from_router == SENDER)
    report(world, number, SENDER)
    report(world, number, RECEIVER)
    accept(world, number)
    assert len(seeds(world, number, SENDER)) == 1
    return world, number


def report(world: TreeWorld, number: int, router: str) -> None:
    """Tell the broker above of a new session of a router at the end of a channel."""
    wanted = BorderSeedWanted(term=1, channel_id=number, router=router)
    cloud = router.partition("/")[0]
    world.post(cloud, world.parents[cloud], wanted)
    world.settle()


def accept(world: TreeWorld, number: int) -> None:
    """Accept the last seed as the receiver of a channel."""
    offered = seeds(world, number, RECEIVER)[-1].seed
    accepted = SeedAccepted(channel_id=number, number=offered.number, first_epoch=5)
    world.post("c2", "root", BorderSeedAccepted(term=1, accepted=accepted))
    world.settle()


def seeds(world: TreeWorld, number: int, router: str) -> list[BorderSeed]:
    """Return the seeds of a channel that went to a router."""
    found = [word for _, _, word in world.sent if isinstance(word, BorderSeed)]
    return [each for each in found if (each.seed.channel_id, each.router) == (number, router)]


def number_of(world: TreeWorld, owner: str, from_router: str) -> int:
    accounts = world.brokers[owner].machine.state.channels.accounts
    return next(at for at, each in accounts.items() if each.channel.from_router == from_router)


def lose_journal_and_parent(world: TreeWorld) -> None:
    """Start west without its journal while root is away: its channels have no final numbers."""
    world.cut.add("west")
    world.disconnect("west")
    west = world.brokers["west"]
    west.settings = replace(west.settings, term_min=2)
    west.written.clear()
    world.kill("west")
    world.settle()
    assert not is_placed(world)


def is_placed(world: TreeWorld) -> bool:
    return world.brokers["west"].machine.parts.context.is_placed


def return_parent(world: TreeWorld) -> None:
    world.cut.discard("west")
    world.settle()


def served(world: TreeWorld) -> object:
    return world.brokers["root"].machine.survey()["keys"]["sealed_channels"]


def begin_removal(world: TreeWorld) -> None:
    """Ask the root to remove the channel; the operation is not written yet."""
    world._tell("root", Connected("operator/op", hello("operator/op")))
    world._tell("root", Received("operator/op", REMOVAL))
    assert world.brokers["root"].writing


def test_a_removal_that_cannot_be_written_leaves_the_keys_of_its_channel_in_service() -> None:
    world, number = keyed()
    world.fail_writes["root"] = {0}
    assert world.operate("root", REMOVAL).refused is not None
    assert served(world) == 1
    offers = len(seeds(world, number, RECEIVER))
    world.advance(20 * NS_PER_S)
    assert len(seeds(world, number, RECEIVER)) > offers
    accept(world, number)
    assert len(seeds(world, number, SENDER)) == 2


def test_a_removed_channel_gets_no_seed_any_more() -> None:
    world, number = keyed()
    assert world.operate("root", REMOVAL).refused is None
    assert served(world) == 0
    offers = len(seeds(world, number, RECEIVER))
    world.advance(60 * NS_PER_S)
    assert len(seeds(world, number, RECEIVER)) == offers


def test_a_session_that_begins_while_a_removal_fails_gets_its_seed() -> None:
    world, number = keyed()
    begin_removal(world)
    offers = len(seeds(world, number, RECEIVER))
    wanted = BorderSeedWanted(term=1, channel_id=number, router=RECEIVER)
    world._tell("root", Received("broker/c2", wanted))
    world.fail_writes["root"] = {0}
    world.settle()
    assert len(seeds(world, number, RECEIVER)) == offers + 1
    assert served(world) == 1


def test_the_time_of_a_seed_and_a_lost_session_come_while_a_removal_is_written() -> None:
    world, _ = keyed()
    begin_removal(world)
    process = world.brokers["root"]
    held = process.writing.popleft()
    world.advance(60 * NS_PER_S)
    assert "→".join((SENDER, RECEIVER)) in str(process.machine.survey()["keys"]["overdue"])
    world.cut.add("c2")
    world.disconnect("c2")
    process.writing.append(held)
    world.settle()
    assert served(world) == 0


def test_a_report_that_comes_before_the_numbers_of_a_lost_journal_is_not_lost() -> None:
    world = deep_tree(QUICK)
    number = number_of(world, "west", "c1/w0")
    lose_journal_and_parent(world)
    report(world, number, "c1/w0")
    report(world, number, "c2/w0")
    assert seeds(world, number, "c2/w0") == []
    return_parent(world)
    assert number_of(world, "west", "c1/w0") == number
    assert len(seeds(world, number, "c2/w0")) == 1


def test_a_report_for_a_broker_above_is_not_taken_by_a_channel_with_its_number() -> None:
    world = deep_tree(QUICK)
    number = number_of(world, "root", "c1/r1")
    lose_journal_and_parent(world)
    assert number in world.brokers["west"].machine.state.channels.accounts
    report(world, number, "c1/r1")
    return_parent(world)
    wanted = BorderSeedWanted(term=2, channel_id=number, router="c1/r1")
    assert world.sent.count(("west", "root", wanted)) == 1


def test_reports_outlive_a_place_that_cannot_be_written() -> None:
    world = deep_tree(QUICK)
    number = number_of(world, "west", "c1/w0")
    lose_journal_and_parent(world)
    report(world, number, "c1/w0")
    world.cut.discard("west")
    world.connect_all()
    process = world.brokers["west"]
    while not process.writing:
        assert world.step()
    assert is_placed(world)  # Not durably.
    wanted = BorderSeedWanted(term=1, channel_id=number, router="c2/w0")
    world._tell("west", Received("broker/c2", wanted))
    world.fail_writes["west"] = {0}
    world.settle()
    assert not is_placed(world)
    world.sent.clear()
    return_parent(world)
    assert len(seeds(world, number, "c2/w0")) == 1


def test_an_exchange_goes_on_when_the_place_changes_and_the_numbers_do_not() -> None:
    world = deep_tree(QUICK)
    number = number_of(world, "west", "c1/w0")
    report(world, number, "c1/w0")
    report(world, number, "c2/w0")
    offers = seeds(world, number, "c2/w0")
    place = TreeJoined(term=1, depth=1, above=("root",), prefixes=(0, 5))
    world.post("root", "west", place)
    world.settle()
    placed = world.brokers["west"].machine.state.placed
    assert placed is not None
    assert placed.prefixes == (0, 5)
    assert seeds(world, number, "c2/w0") == offers
    assert len(offers) == 1
