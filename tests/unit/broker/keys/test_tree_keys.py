"""A QoS broker gives seeds to both ends of its channels until their removal is durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.keys.key_settings import KeySettings
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.machine import Connected, Received
from gridstat.net.command.operator_messages import RemoveChannel
from gridstat.net.command.router_messages import SeedAccepted
from gridstat.net.command.tree_messages import BorderSeed, BorderSeedAccepted, BorderSeedWanted
from tests.unit.broker.tree.tree_world import hello
from tests.unit.broker.tree.worlds import two_clouds

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
    """Tell the root of a new session of a router at the end of a channel."""
    wanted = BorderSeedWanted(term=1, channel_id=number, router=router)
    world.post(router.partition("/")[0], "root", wanted)
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
