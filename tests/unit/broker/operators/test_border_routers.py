"""Operators remove and add routers at which channels to other clouds end."""

from __future__ import annotations

import pytest

from gridstat.model.cloud import Router, RouterRole
from gridstat.model.errors import StillInUse
from gridstat.model.flooding import FloodTerm
from gridstat.net.command.operator_messages import AddRouter, RemoveChannel, RemoveRouter
from gridstat.net.command.tree_messages import CloseBorder, CommitFlooding, FloodedVariable
from tests.unit.broker.floods.flooded_cloud import charges, no, operate
from tests.unit.broker.segments.family import FAR, IN, OUT, Family

REMOVE = RemoveRouter(request_id=2, name="c1/i0")
ADD = AddRouter(request_id=3, router=Router("c1/i0", RouterRole.INNER))


def flood(cloud: Family, generation: int, terms: dict[int, FloodTerm]) -> None:
    wanted = FloodedVariable(variable=FAR, generation=generation, terms=terms)
    cloud.say(CommitFlooding(term=7, flooded=(wanted,)))
    cloud.settle()


def charged_routers(cloud: Family) -> set[str]:
    routers = cloud.broker.reservations.resources.routers
    return {name for name, account in routers.items() if account.events}


def without_a_border_router() -> Family:
    """Its file has lost i0, to which the parent's channels still lead."""
    cloud = Family()
    cloud.start()
    cloud.join()
    cloud.routers_given = [one for one in cloud.routers_given if one.name != "c1/i0"]
    cloud.channels_given = [
        one for one in cloud.channels_given if "c1/i0" not in (one.from_router, one.to_router)
    ]
    cloud.kill_broker()
    cloud.start(without="c1/i0")
    cloud.join()
    return cloud


def test_a_router_is_not_removed_while_channels_to_other_clouds_end_there() -> None:
    cloud = Family()
    cloud.start()
    cloud.join()
    for found in list(cloud.broker.registry.channels.values()):
        if "c1/i0" in {found.from_router, found.to_router}:
            start, end = found.from_router, found.to_router
            remove = RemoveChannel(request_id=1, from_router=start, to_router=end)
            assert operate(cloud, remove).refused is None
    answer = no(operate(cloud, REMOVE))
    assert answer.code == StillInUse.code
    assert "c2/b→c1/i0" in answer.reason
    for number in (IN, OUT):
        cloud.say(CloseBorder(term=7, channel_id=number))
    assert operate(cloud, REMOVE).refused is None


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_border_router_added_during_a_flood_is_charged_and_freed_with_it(
    *, is_killed: bool
) -> None:
    cloud = without_a_border_router()
    flood(cloud, 1, {0: FloodTerm(0)})
    assert operate(cloud, ADD).refused is None
    if is_killed:
        cloud.kill_broker()
        cloud.start(without="c1/i0")
        cloud.join()
    assert "c1/i0" in charged_routers(cloud)
    flood(cloud, 2, {})
    assert not cloud.broker.floods.variables
    assert not charged_routers(cloud)


def test_a_border_router_that_the_disk_does_not_take_is_charged_to_nobody() -> None:
    cloud = without_a_border_router()
    flood(cloud, 1, {0: FloodTerm(0)})
    before = charges(cloud)
    cloud.is_disk_full = True
    assert operate(cloud, ADD).refused is not None
    assert charges(cloud) == before
