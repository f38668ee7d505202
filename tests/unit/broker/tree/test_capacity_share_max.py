"""Shares of channels between clouds: what a cloud grants, and what the owner allows at most."""

from __future__ import annotations

import pytest

from gridstat.broker.tree.owned_channels import OwnedChannels
from gridstat.broker.tree.scope_shares import Charge
from gridstat.broker.tree.tree_operations import ScopePath
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.errors import QuotaReached
from gridstat.net.command.segment_messages import Payer
from tests.unit.broker.tree.tree_world import channel, variable
from tests.unit.broker.tree.worlds import VOLTAGE, two_clouds

BANDWIDTH = 10_000
"""One variable of 50 a second takes 3,400."""


@pytest.mark.parametrize(("share_max", "is_granted"), [(0.3, False), (0.5, True), (1.0, True)])
def test_a_cloud_grants_its_own_no_more_of_a_channel_than_the_owner_allows(
    share_max: float, *, is_granted: bool
) -> None:
    settings = TreeSettings("root", capacity_share_max=share_max)
    world = two_clouds(settings, bandwidth_bytes_per_s=BANDWIDTH)
    assert world.clouds["c2"].share_ppm == 10**6, "its own cloud grants it all"
    contract = world.subscribe("c2/d", VOLTAGE)
    world.rest()
    assert (contract in world.clouds["c2"].granted) == is_granted
    if not is_granted:
        refused = world.clouds["c2"].refused[contract].refused
        assert refused.code == QuotaReached.code
        assert "c2/d may reserve 30 % of channel" in refused.reason
        assert "capacity_share_max in [quota] of the broker that owns" in refused.reason


def test_what_patterns_catch_counts_once_for_the_publisher_between_clouds() -> None:
    channels = OwnedChannels([channel("c1/a", "c2/b", bandwidth_bytes_per_s=BANDWIDTH)])
    (number,) = channels.accounts
    shares = channels.shares
    publisher = Payer(name="c1/pmu", share_ppm=400_000)

    def caught(who: str, share_ppm: int, name: str, variable_id: int) -> Charge:
        payers = Payer(name=who, share_ppm=share_ppm), publisher
        way = ScopePath(0, 0, (number,), (0,))
        return Charge(variable(name, variable_id), {0: 1}, (way,), payers)

    strangers = [caught(f"c2/s{at}", 400_000, VOLTAGE, 1) for at in range(4)]
    for charge in strangers:
        shares.add(charge)
        assert list(shares.obstacles(charge, ())) == []
    assert shares.caught("c1/pmu", number) == 3_400
    assert "c1/pmu" not in shares.books(), "its own account is free"

    other = caught("c2/s0", 1_000_000, "c1/pmu/w", 2)
    shares.add(other)
    assert list(shares.obstacles(other, ())) == [], "its own cloud grants the subscriber more"
    shares.remove(other)
    stranger = caught("c2/x", 400_000, "c1/pmu/w", 2)
    shares.add(stranger)
    (obstacle,) = shares.obstacles(stranger, ())
    assert "c1/pmu may let patterns reserve 40 %" in obstacle.reason
    for charge in (*strangers, stranger):
        shares.remove(charge)
    assert shares.caught("c1/pmu", number) == 0
    assert shares.books() == {}
