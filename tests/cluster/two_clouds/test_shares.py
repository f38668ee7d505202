"""What one identity may reserve on the channels between two clouds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.options import qos
from gridstat.model.errors import QuotaReached
from gridstat.model.status import BuiltinType
from lab.open_access import CLOUD_TOML
from tests.cluster.eventually import eventually
from tests.cluster.two_clouds.clouds import EAST, WEST, TwoClouds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gridstat.endpoint.subscriber import Subscription

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
SHARED = CLOUD_TOML.replace("capacity_share = 1.0\n", "")
"""Rules that let everybody do everything, and leave each the share of a channel that all have."""
RECORDER = """
[[cloud.access_rule]]
name = "recorder"
who = "c2/shares/recorder"
may = ["subscribe"]
what = "**"
capacity_share = 1.0
"""
RATE = 50
"""A variable of this rate takes 4,200 of the 20,000 bytes/s of a channel, nearly a quarter."""
ONCE = qos(latency_ms=1_000)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[TwoClouds]:
    with TwoClouds(tmp_path, access=SHARED + RECORDER) as running:
        running.start()
        yield running


def test_an_identity_has_a_quarter_of_a_channel_between_clouds_unless_a_rule_grants_more(
    shared: TwoClouds,
) -> None:
    publishers = [shared.connect(f"c1/shares/pmu{number}", WEST) for number in range(3)]
    names = [
        publisher.publish("value", BuiltinType.FLOAT64, rate=RATE).name for publisher in publishers
    ]
    desk = shared.connect("c2/shares/desk", EAST)
    held = [desk.subscribe(name, qos=ONCE) for name in names[:2]]
    assert {path.routers[1] for each in held for path in each.contract.paths} == {"c1/b0", "c1/b1"}
    with pytest.raises(QuotaReached, match="c2/shares/desk may reserve 25 % of channel c1/b"):
        desk.subscribe(names[2], qos=ONCE)
    recorder = shared.connect("c2/shares/recorder", EAST)
    assert [recorder.subscribe(name, qos=ONCE).contract.paths for name in names]
    held[0].unsubscribe()

    def refusal() -> str | None:
        """Return None once what was ended is given back, and can be reserved again."""
        try:
            again: list[Subscription] = [desk.subscribe(names[2], qos=ONCE)]
        except QuotaReached as refused:
            return str(refused)
        return None if again[0].contract.paths else "no path"

    eventually(refusal)
