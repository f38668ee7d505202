"""Requests that wait for a reported way, or for the broker above."""

from __future__ import annotations

from gridstat.model.errors import NoSuchVariable
from gridstat.net.command.endpoint_messages import RefusedOutcome
from gridstat.net.command.segment_messages import ContractRefused
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import TreeWorld, both_ways, variable
from tests.unit.broker.tree.worlds import VOLTAGE, inconsistencies, residue, two_clouds


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


def without_publisher() -> TreeWorld:
    """Return root over west over c1 and c2; west has neither root nor c1, the publisher's cloud."""
    brokers = {
        "root": ("", ("west",), []),
        "west": ("root", ("c1", "c2"), both_ways("c1/w0", "c2/w0")),
    }
    world = TreeWorld(brokers, [CloudStandIn("c1", "west"), CloudStandIn("c2", "west")])
    world.clouds["c1"].variables[VOLTAGE] = variable(VOLTAGE, 1)
    world.cut = {"west", "c1"}
    return world.start()


def test_a_request_for_the_parent_is_answered_here_once_its_publishers_cloud_has_joined() -> None:
    world = without_publisher()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    world.cut = {"west"}
    world.settle()
    world.cut = set()
    world.rest()
    assert contract in world.clouds["c2"].granted
    assert inconsistencies(world) == []
    world.end(contract)
    world.rest()
    assert residue(world) == []


def test_a_request_for_the_parent_that_was_ended_is_not_taken_up_here() -> None:
    world = without_publisher()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    world.end(contract)
    world.cut = set()
    world.rest()
    assert contract not in world.clouds["c2"].granted
    assert residue(world) == []


def test_a_refusal_from_above_ends_no_contract_that_was_granted_here_meanwhile() -> None:
    world = without_publisher()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.cut = set()
    world.rest()
    assert contract in world.clouds["c2"].granted
    why = RefusedOutcome(code=NoSuchVariable.code, reason="nobody publishes it")
    late = ContractRefused(term=1, contract=contract, generation=0, refused=why)
    world.sent.clear()
    world.post("root", "west", late)
    world.settle()
    assert not [word for _, to, word in world.sent if to == "c2" and word == late]
    assert contract in world.clouds["c2"].granted
