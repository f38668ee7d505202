"""Requests in an undefined mode are refused above clouds, too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridstat.broker.settings import BrokerSettings
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.errors import ModeNotDefined
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.net.command.operator_messages import ListFlooding
from tests.unit.broker.floods.test_tree_flooding import PARENTS, flood, floods, publish, stop, ways
from tests.unit.broker.stand_ins import EVERY_MODE
from tests.unit.broker.tree import worlds
from tests.unit.broker.tree.family import Family

NONE: frozenset[int] = frozenset()
IN_THREE = ModalQos({0: QosRequest(), 3: QosRequest(every=2)})
REASON = "mode 3 is not defined"


def undefining(*brokers: str, leaves: frozenset[int] = NONE) -> Family:
    """Six clouds; these brokers define no mode, the others are as of an older release."""
    found = Family(
        PARENTS,
        {cloud: ways(2, cloud) for cloud in "abcdef"},
        {"root": ways(0, "abcdef"), "p": ways(1, "abc"), "q": ways(1, "def")},
        settings=(
            BrokerSettings("", modes_defined=leaves),
            TreeSettings("", modes_defined=EVERY_MODE),
        ),
    )
    for name in brokers:
        forget_modes(found, name)
    found.start()
    publish(found)
    return found


def forget_modes(family: Family, name: str) -> None:
    node = family.brokers[name]
    node.settings = replace(node.settings, modes_defined=NONE)
    node.kill()


@pytest.mark.parametrize("broker", ["root", "p"])
def test_a_broker_above_clouds_refuses_to_flood_in_an_undefined_mode(broker: str) -> None:
    family = undefining("root", "p", "q")
    answer = flood(family, broker, 3)
    assert answer.refused is not None
    assert (answer.refused.code, answer.refused.reason) == (ModeNotDefined.code, REASON)
    assert answer.refused.hint == "defined: none yet besides the baseline; leave `modes` out"
    assert floods(family) == {}
    assert not family.brokers[broker].broker.parts.flooding.floods
    assert flood(family, broker).refused is None


@pytest.mark.parametrize("leaves", [NONE, EVERY_MODE], ids=["by clouds", "by the broker below"])
def test_a_parent_of_an_older_release_is_refused_to_flood_in_an_undefined_mode(
    leaves: frozenset[int],
) -> None:
    family = undefining("p", leaves=leaves)
    answer = flood(family, "root", 3)
    assert answer.refused is not None
    assert (answer.refused.code, answer.refused.reason) == (ModeNotDefined.code, REASON)
    assert floods(family) == {}


def test_an_owner_refuses_a_contract_that_a_cloud_of_an_older_release_lets_pass() -> None:
    world = worlds.two_clouds(TreeSettings(name="", modes_defined=NONE))
    cloud = world.clouds["c2"]
    contract = cloud.ask("c2/sub", worlds.VOLTAGE, 1, 0, IN_THREE)
    world.say("c2")
    world.settle()
    refused = cloud.refused[contract].refused
    assert (refused.code, refused.reason) == (ModeNotDefined.code, REASON)
    assert not world.brokers["root"].machine.state.holdings.of(contract)


def test_a_change_to_an_undefined_mode_is_refused_by_the_owner_and_changes_nothing() -> None:
    world = worlds.two_clouds(TreeSettings(name="", modes_defined=NONE))
    cloud = world.clouds["c2"]
    contract = cloud.ask("c2/sub", worlds.VOLTAGE, 1, 0, ModalQos())
    world.say("c2")
    world.settle()
    before = world.brokers["root"].machine.state.holdings.of(contract)
    assert before
    cloud.ask("c2/sub", worlds.VOLTAGE, 1, 1, IN_THREE)
    world.say("c2")
    world.settle()
    assert cloud.refused[contract].refused.code == ModeNotDefined.code
    assert world.brokers["root"].machine.state.holdings.of(contract) == before


def test_an_old_flood_above_clouds_stays_is_warned_of_and_can_be_stopped() -> None:
    family = undefining(leaves=EVERY_MODE)
    assert flood(family, "p", 3).refused is None
    before = floods(family)
    node = family.brokers["p"]
    node.settings = replace(node.settings, modes_defined=NONE)
    for leaf in family.leaves.values():
        leaf.settings = replace(leaf.settings, modes_defined=NONE)
    for name in ("p", "a", "b", "c"):
        family.kill(name)
    family.settle()
    assert floods(family) == before
    (note,) = [note for note in node.notes if note.word == "modes_not_defined"]
    assert note.is_warning
    assert dict(note.facts) == {"modes": "3", "floods": 1}
    (listed,) = family.operate("p", ListFlooding(request_id=3)).facts["floods"]
    assert [(term["mode"], term["is_defined"]) for term in listed["modes"]] == [(3, False)]
    assert flood(family, "p").refused is None
    assert stop(family, "p", 3).refused is None
    (listed,) = family.operate("p", ListFlooding(request_id=4)).facts["floods"]
    assert [(term["mode"], term["is_defined"]) for term in listed["modes"]] == [(0, True)]
