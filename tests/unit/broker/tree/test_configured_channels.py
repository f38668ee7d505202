"""A broker's file is another after a restart: its channels keep the numbers that they had."""

from __future__ import annotations

import pytest

from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.operator_messages import AddChannel, RemoveChannel
from tests.unit.broker.tree.tree_world import TreeWorld, channel
from tests.unit.broker.tree.worlds import VOLTAGE, inconsistencies, residue, two_clouds


def numbers(world: TreeWorld) -> dict[tuple[str, str], int]:
    on = world.brokers["root"].machine.state.channels.on
    return {(start, end): number for (start, end, _), number in on.items()}


def labels(world: TreeWorld, contract: str) -> set[str]:
    """The own channels that a contract is charged for."""
    state = world.brokers["root"].machine.state
    return {
        state.channels.accounts[number].channel.label
        for found in state.holdings.of(contract)
        for number in found.channel_ids
    }


def restart_with(world: TreeWorld, *, is_compact: bool) -> None:
    root = world.brokers["root"]
    if is_compact:
        root.written = root.machine.snapshot()
    world.kill("root")
    world.rest()


@pytest.mark.parametrize("is_compact", [False, True])
def test_a_channel_in_front_of_the_file_changes_no_number(is_compact: bool) -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    before, held = numbers(world), labels(world, contract)
    root = world.brokers["root"]
    root.channels = [channel("c1/b9", "c2/b9"), *reversed(root.channels)]
    for _ in range(2):
        restart_with(world, is_compact=is_compact)
        after = numbers(world)
        assert {ends: after[ends] for ends in before} == before
        assert after["c1/b9", "c2/b9"] == max(before.values()) + 1
        assert labels(world, contract) == held
    assert inconsistencies(world) == []


@pytest.mark.parametrize("is_compact", [False, True])
def test_a_contract_over_a_channel_that_the_file_names_no_more_is_led_another_way(
    is_compact: bool,
) -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    before, (held,) = numbers(world), labels(world, contract)
    root = world.brokers["root"]
    gone = next(found for found in root.channels if found.label == held)
    kept = [found for found in root.channels if found is not gone]
    root.channels = kept
    restart_with(world, is_compact=is_compact)
    assert labels(world, contract)
    assert held not in labels(world, contract)
    restart_with(world, is_compact=is_compact)
    assert (gone.from_router, gone.to_router) not in numbers(world)
    assert numbers(world).items() <= before.items()
    assert inconsistencies(world) == []
    root.channels = [gone, *kept]
    restart_with(world, is_compact=is_compact)
    assert numbers(world)[gone.from_router, gone.to_router] not in {
        before[found.from_router, found.to_router] for found in kept
    }
    world.end(contract)
    world.rest()
    assert residue(world) == []


def test_the_file_may_name_what_an_operator_has_added() -> None:
    world = two_clouds()
    added = channel("c1/b9", "c2/b9")
    assert world.operate("root", AddChannel(request_id=0, channel=added)).refused is None
    before = numbers(world)
    root = world.brokers["root"]
    root.channels = [added, *root.channels]
    for is_compact in (False, True, False):
        restart_with(world, is_compact=is_compact)
        assert numbers(world) == before
    world.advance(NS_PER_S)
    assert inconsistencies(world) == []


@pytest.mark.parametrize("is_compact", [False, True])
def test_the_number_of_a_channel_that_was_removed_is_given_to_no_other(is_compact: bool) -> None:
    world = two_clouds()
    add = AddChannel(request_id=0, channel=channel("c1/x", "c2/x"))
    removed = world.operate("root", add).facts["channel_id"]
    world.operate("root", RemoveChannel(request_id=0, from_router="c1/x", to_router="c2/x"))
    root = world.brokers["root"]
    root.channels = [*root.channels, channel("c1/z", "c2/z")]
    for _ in range(2):
        restart_with(world, is_compact=is_compact)
    assert numbers(world)["c1/z", "c2/z"] == removed + 1
    add = AddChannel(request_id=0, channel=channel("c1/y", "c2/y"))
    assert world.operate("root", add).facts["channel_id"] == removed + 2


def test_a_number_that_could_not_be_made_durable_is_free_before_and_after_a_restart() -> None:
    world = two_clouds()
    add = AddChannel(request_id=0, channel=channel("c1/x", "c2/x"))
    world.fail_writes["root"] = {0}
    assert world.operate("root", add).refused is not None
    assert inconsistencies(world) == []
