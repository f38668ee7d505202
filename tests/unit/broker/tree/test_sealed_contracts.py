"""Contracts between clouds that demand sealed channels alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from gridstat.broker.tree.tree_operations import body_of
from gridstat.model.errors import SecurityNotSatisfiable
from gridstat.net.command.segment_messages import AskContract, Reserve
from tests.unit.broker.tree import worlds
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import TreeWorld, both_ways, qos_of

if TYPE_CHECKING:
    from gridstat.model.channel_security import Security
    from gridstat.model.cloud import EventChannel
    from gridstat.net.command.endpoint_messages import RefusedOutcome

SEALED = qos_of(security="hop", latency_us=100_000)
TWICE = qos_of(security="hop", latency_us=100_000, redundancy=2)


def marked(channels: list[EventChannel], security: Security) -> list[EventChannel]:
    return [replace(found, security=security) for found in channels]


def two_clouds(first: Security = "hop", second: Security = "hop") -> TreeWorld:
    """Two clouds, and two pairs of channels between them with these securities."""
    channels = [
        *marked(both_ways("c1/b0", "c2/b0"), first),
        *marked(both_ways("c1/b1", "c2/b1"), second),
    ]
    clouds = [CloudStandIn("c1", "root"), CloudStandIn("c2", "root")]
    return worlds.published(TreeWorld({"root": ("", ("c1", "c2"), channels)}, clouds)).start()


def ask(world: TreeWorld, demand: object = SEALED, generation: int = 0) -> str:
    assert isinstance(demand, type(SEALED))
    contract = world.clouds["c2"].ask("c2/sub", worlds.VOLTAGE, 1, generation, demand)
    world.say("c2")
    world.settle()
    return contract


def refusal(world: TreeWorld, contract: str) -> RefusedOutcome:
    world.rest()  # A broker that was joined just now waits for further paths.
    return world.clouds["c2"].refused[contract].refused


def crossed(world: TreeWorld, contract: str) -> set[str]:
    """Labels of the channels between clouds that the contract uses."""
    state = world.brokers["root"].machine.state
    held = state.holdings.current(contract)
    assert held is not None
    return {state.channels.accounts[number].channel.label for number in held.channel_ids}


def test_a_sealed_contract_goes_over_sealed_channels_alone_and_every_broker_confirms_it() -> None:
    world = two_clouds("none", "hop")
    contract = ask(world)
    assert world.clouds["c2"].granted[contract].is_sealed
    assert crossed(world, contract) == {"c1/b1→c2/b1"}
    asked = [message for _, _, message in world.sent if isinstance(message, Reserve)]
    assert asked
    assert all(message.is_sealed for message in asked)


def test_without_the_demand_the_plain_channel_is_used_and_nothing_is_confirmed() -> None:
    world = two_clouds("none", "hop")
    contract = ask(world, qos_of(latency_us=100_000, redundancy=2))
    assert not world.clouds["c2"].granted[contract].is_sealed
    assert crossed(world, contract) == {"c1/b0→c2/b0", "c1/b1→c2/b1"}


def test_a_refusal_names_the_first_plain_channel_on_every_path() -> None:
    world = two_clouds("none", "none")
    refused = refusal(world, ask(world))
    assert refused.code == SecurityNotSatisfiable.code
    assert refused.reason == (
        "channel c1/b0→c2/b0 and channel c1/b1→c2/b1 are not sealed, and no sealed path leads "
        "around them"
    )
    assert 'security = "hop"' in refused.hint


def test_a_second_sealed_path_that_is_missing_is_refused_by_its_plain_channel() -> None:
    world = two_clouds("hop", "none")
    refused = refusal(world, ask(world, TWICE))
    assert refused.code == SecurityNotSatisfiable.code
    assert refused.reason == (
        "channel c1/b1→c2/b1 is not sealed, and no sealed path leads around it"
    )


def test_a_replan_never_moves_a_sealed_contract_to_a_plain_channel() -> None:
    world = two_clouds("hop", "none")
    contract = ask(world)
    number = world.brokers["root"].machine.state.channels.on["c1/b0", "c2/b0", ""]
    world.clouds["c2"].tell_channel(number, is_up=False)
    world.say("c2")
    world.rest()
    assert crossed(world, contract) == {"c1/b0→c2/b0"}
    assert world.clouds["c2"].granted[contract].paths_down == (0,)
    world.clouds["c2"].tell_channel(number, is_up=True)
    world.say("c2")
    world.rest()
    assert crossed(world, contract) == {"c1/b0→c2/b0"}
    assert world.clouds["c2"].granted[contract].paths_down == ()


def test_a_restarted_owner_still_knows_the_demand() -> None:
    world = two_clouds("hop", "none")
    contract = ask(world)
    world.kill("root")
    world.rest()
    number = world.brokers["root"].machine.state.channels.on["c1/b0", "c2/b0", ""]
    world.clouds["c2"].tell_channel(number, is_up=False)
    world.say("c2")
    world.rest()
    assert crossed(world, contract) == {"c1/b0→c2/b0"}


def test_a_channel_that_the_file_makes_plain_loses_its_sealed_contracts() -> None:
    world = two_clouds()
    contract = ask(world)
    (used,) = crossed(world, contract)
    process = world.brokers["root"]
    process.channels = [
        replace(found, security="none") if found.label == used else found
        for found in process.channels
    ]
    world.kill("root")
    world.rest()
    assert crossed(world, contract) == {"c1/b0→c2/b0", "c1/b1→c2/b1"} - {used}
    assert world.clouds["c2"].granted[contract].is_sealed


def test_a_change_to_sealed_channels_moves_the_contract_or_is_refused() -> None:
    world = two_clouds("none", "hop")
    contract = ask(world, qos_of(latency_us=100_000))
    world.clouds["c2"].granted.clear()
    ask(world, SEALED, generation=1)
    world.rest()
    assert world.clouds["c2"].granted[contract].is_sealed
    assert crossed(world, contract) == {"c1/b1→c2/b1"}


@pytest.mark.parametrize("older", ["c1", "c2"])
def test_a_child_of_an_earlier_release_is_refused_in_words(older: str) -> None:
    world = two_clouds()
    world.clouds[older].is_older = True
    contract = ask(world)
    refused = refusal(world, contract)
    assert refused.code == SecurityNotSatisfiable.code
    assert f"broker {older} does not confirm" in refused.reason
    assert "upgrade" in refused.hint
    world.rest()
    assert not any(cloud.segments for cloud in world.clouds.values())
    assert not world.brokers["root"].machine.state.holdings.of(contract)


def row(plain: set[str]) -> TreeWorld:
    """Four clouds: c1 reaches c4 by c2 or by c3; those in `plain` have a plain channel inside."""
    channels = [
        found
        for middle, at in (("c2", 0), ("c3", 1))
        for one, other in (("c1", middle), (middle, "c4"))
        for found in both_ways(
            f"{one}/b{at}" if one == "c1" else f"{one}/out",
            f"{other}/in" if other == middle else f"{other}/b{at}",
        )
    ]
    clouds = [CloudStandIn(f"c{at}", "root") for at in range(1, 5)]
    for cloud in clouds:
        if cloud.name in plain:
            ends = (f"{cloud.name}/in", f"{cloud.name}/out")
            cloud.plain_ways = {ends, ends[::-1]}
    names = tuple(cloud.name for cloud in clouds)
    return worlds.published(TreeWorld({"root": ("", names, channels)}, clouds)).start()


@pytest.mark.parametrize("plain", ["c2", "c3"])
def test_a_cloud_between_that_is_not_sealed_is_avoided(plain: str) -> None:
    world = row({plain})
    contract = world.clouds["c4"].ask("c4/sub", worlds.VOLTAGE, 1, 0, SEALED)
    world.say("c4")
    world.settle()
    assert world.clouds["c4"].granted[contract].is_sealed
    assert not world.clouds[plain].segments
    assert world.clouds["c3" if plain == "c2" else "c2"].segments


def test_the_channel_of_a_cloud_between_is_named_where_no_sealed_way_is_left() -> None:
    world = row({"c2", "c3"})
    contract = world.clouds["c4"].ask("c4/sub", worlds.VOLTAGE, 1, 0, SEALED)
    world.say("c4")
    world.settle()
    refused = world.clouds["c4"].refused[contract].refused
    assert refused.code == SecurityNotSatisfiable.code
    assert refused.reason in {
        f"channel {cloud}/in→{cloud}/out is not sealed" for cloud in ("c2", "c3")
    }


def test_the_demand_reaches_every_level_of_a_deep_tree_and_each_confirms() -> None:
    world = worlds.deep_tree()
    contract = world.clouds["c4"].ask("c4/sub", worlds.VOLTAGE, 1, 0, SEALED)
    world.say("c4")
    world.rest()
    assert world.clouds["c4"].granted[contract].is_sealed
    demanded = [message for _, _, message in world.sent if isinstance(message, Reserve)]
    assert {message.is_sealed for message in demanded} == {True}
    held = [
        body_of(holding)
        for process in world.brokers.values()
        for holding in process.machine.state.holdings.of(contract)
    ]
    assert len(held) > 1
    assert all(body.is_sealed for body in held)


def test_a_cloud_of_an_earlier_release_deep_in_the_tree_is_refused_in_words() -> None:
    world = worlds.deep_tree()
    world.clouds["c4"].is_older = True
    contract = world.clouds["c4"].ask("c4/sub", worlds.VOLTAGE, 1, 0, SEALED)
    world.say("c4")
    world.rest()
    refused = world.clouds["c4"].refused[contract].refused
    assert refused.code == SecurityNotSatisfiable.code
    assert "does not confirm" in refused.reason


def test_a_broker_between_that_drops_the_demand_does_not_confirm_it() -> None:
    """An earlier release reads a request without the field, and sends it on without it."""
    sent = AskContract(
        term=1, contract="c2#1", generation=0, name=worlds.VOLTAGE, subscriber="c2/sub", qos=SEALED
    )
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(sent))
    for request in fields["qos"]["modes"].values():
        request.pop("security")
    world = two_clouds()
    world.post("c2", "root", msgspec.convert(fields, AskContract, strict=False))
    world.settle()
    assert not world.clouds["c2"].granted["c2#1"].is_sealed
