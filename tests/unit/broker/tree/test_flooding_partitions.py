"""While a broker is cut off from its parent its operators still decide what is theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import Refused
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.operator_messages import SetFlooding
from gridstat.net.command.router_messages import FloodOrder
from tests.unit.broker.tree.test_flooding import (
    EVERYWHERE,
    VOLTAGE,
    charges,
    flood,
    floods,
    publish,
    six_clouds,
    stop,
)

if TYPE_CHECKING:
    from tests.unit.broker.tree.family import Family


def cut_off_while_reserving(family: Family) -> None:
    """p floods, holds what the root wants reserved, and never hears what becomes of that."""
    assert flood(family, "p", every=2).refused is None
    family.ask("root", SetFlooding(request_id=1, name=VOLTAGE))
    held = family.brokers["p"].broker.state.flooding.floods
    while not held[VOLTAGE].reserved_generation:
        assert family.step()
    family.disconnect("p")
    family.settle()


@pytest.mark.parametrize("is_given_up", [True, False])
def test_a_broker_that_is_cut_off_while_its_parent_reserves_can_stop_its_own_flood(
    *, is_given_up: bool
) -> None:
    family = six_clouds()
    publish(family)
    before = charges(family)
    cut_off_while_reserving(family)
    if is_given_up:
        family.pass_time(1_000 * NS_PER_S)
    refused = flood(family, "p", every=3).refused  # More would need room: that has to wait.
    assert refused is not None
    assert refused.code == Refused.code
    assert stop(family, "p").refused is None
    assert floods(family) == {}
    for cloud in "abc":
        assert family.leaves[cloud].broker.registry.floods[VOLTAGE].reserved
    family.connect("p")
    family.settle()
    if is_given_up:
        assert (floods(family), charges(family)) == ({}, before)
    else:
        assert floods(family) == dict.fromkeys(EVERYWHERE, (FloodOrder(level=0),))
        stop(family, "root")
        assert (floods(family), charges(family)) == ({}, before)
