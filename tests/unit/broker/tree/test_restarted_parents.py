"""A parent that is killed while its children reserve, and its requests after the restart."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gridstat.broker.tree.tree_operations import body_of
from gridstat.net.command.segment_messages import Release, Reserve, Reserved
from gridstat.net.command.tree_messages import BorderSeed, BorderSeedWanted
from tests.unit.broker.tree.scripted_root import ask, below_scripted_root, hold_up, let_go
from tests.unit.broker.tree.worlds import deep_tree, inconsistencies, residue


def test_what_a_broker_in_the_middle_reserves_for_an_ended_process_is_given_back() -> None:
    world = deep_tree()
    contract = world.subscribe("c4/d", "c1/pmu/v")
    hold_up(world, "c1")
    world.kill("root")
    world.settle()
    world.end(contract)
    world.settle()
    let_go(world, "c1")
    world.rest()
    assert residue(world) == []
    assert inconsistencies(world) == []


@pytest.mark.parametrize("when", ["looking up", "asking its clouds", "reserved", "leaving"])
def test_another_question_by_the_same_name_gets_an_answer_of_its_own(when: str) -> None:
    world, root = below_scripted_root()
    contract = "c9#1"
    ask(world, contract, every=4)
    if when == "asking its clouds":
        hold_up(world, "c1")
    elif when != "looking up":
        world.settle()
    if when == "leaving":
        world.clouds["c1"].is_silent = True
        world.post("root", "west", Release(term=1, contract=contract, generation=0))
        world.settle()
        root.heard.clear()
    ask(world, contract, every=1)
    world.settle()
    let_go(world, "c1")
    world.rest()
    assert isinstance(root.heard[-1], Reserved)
    everys = {
        qos.every
        for name in ("c1", "c2")
        for found in world.clouds[name].segments.values()
        for qos in found.reserve.granted.values()
    }
    assert everys == {1}
    (held,) = [found for found, _ in world.brokers["west"].machine.state.holdings.all()]
    assert body_of(held).granted[0].every == 1


def test_the_same_question_is_answered_alike_and_nothing_is_reserved_anew() -> None:
    world, root = below_scripted_root()
    ask(world, "c9#1")
    world.settle()
    ask(world, "c9#1")
    world.settle()
    one, other = (word for word in root.heard if isinstance(word, Reserved))
    assert one.search_us > 0
    assert other == replace(one, search_us=0), "what was searched once is charged once"
    reserves = [to for _, to, word in world.sent if isinstance(word, Reserve) and to == "c1"]
    assert len(reserves) == 1


def test_a_release_decides_on_a_reservation_that_waits_for_another_release() -> None:
    world, _ = below_scripted_root()
    ask(world, "c9#1", every=4)
    world.settle()
    world.clouds["c1"].is_silent = True
    ask(world, "c9#1", every=1)
    world.settle()
    world.post("root", "west", Release(term=1, contract="c9#1", generation=0))
    world.settle()
    let_go(world, "c1")
    world.rest()
    assert residue(world) == []


def test_a_restarted_owner_learns_again_who_wants_seeds_of_its_channels() -> None:
    world = deep_tree()
    accounts = world.brokers["root"].machine.state.channels.accounts.items()
    number = next(number for number, each in accounts if each.channel.from_router == "c1/r1")
    world.post("c1", "west", BorderSeedWanted(term=1, channel_id=number, router="c1/r1"))
    world.post("c3", "mid", BorderSeedWanted(term=1, channel_id=number, router="c3/r1"))
    world.settle()
    world.sent.clear()
    world.kill("root")
    world.settle()
    seeds = [(to, each) for _, to, each in world.sent if isinstance(each, BorderSeed)]
    assert [(to, each.router, each.seed.channel_id) for to, each in seeds] == [
        ("east", "c3/r1", number),
        ("mid", "c3/r1", number),
        ("c3", "c3/r1", number),
    ]
