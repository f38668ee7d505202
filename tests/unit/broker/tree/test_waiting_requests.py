"""Requests that wait for a reported way."""

from __future__ import annotations

from tests.unit.broker.tree.worlds import VOLTAGE, residue, two_clouds


def test_a_request_that_was_given_up_while_it_waited_is_not_planned_in_place_of_its_heir() -> None:
    world = two_clouds()
    root = world.brokers["root"].machine
    receiver = world.clouds["c2"]
    for is_up in (False, True):
        for number in receiver.open_channels:
            receiver.tell_channel(number, is_up=is_up)
        world.say("c2")
        world.settle()
        receiver.is_silent = is_up
        contract = world.subscribe("c2/d", VOLTAGE)
        world.settle()
        assert root.survey()["transactions"] == 1
        if not is_up:
            world.end(contract)
            world.settle()
    charged = [found for found in root.state.channels.accounts.values() if found.relied_us]
    world.advance(world.brokers["root"].settings.path_retry_ns)
    assert [sum(found.relied_us.values()) for found in charged] == [1]
    receiver.is_silent = False
    world.end(contract)
    world.rest()
    assert residue(world) == []
