"""Attack: a stranger goes on sending the probes of a dead router, so that nobody notices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from lab.attacks.attacked_grid import AttackedGrid

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
FORGED_S = 4.0


def test_a_dead_router_is_noticed_whatever_a_stranger_sends_for_it(attacked: AttackedGrid) -> None:
    [hop] = attacked.hops(("e0", "e2"))
    grid = attacked.grid
    stranger = attacked.attacker("e0")
    stranger.begin("probe", **hop.words, seconds=FORGED_S)
    grid.daemons["e0"].kill()
    try:
        silence_s = []

        def complaint() -> str | None:
            found = attacked.source("e2", hop.channel_id)
            silence_s.append(found["silence_seconds"])
            return None if silence_s[-1] >= 1 else f"silent for {silence_s[-1]} s"

        eventually(complaint, within_s=FORGED_S - 1)

        def is_up() -> str | None:
            [channel] = [
                each for each in grid.survey()["channels"] if each["label"] == "c1/e0→c1/e2"
            ]
            return "the channel counts as up" if channel["is_up"] else None

        eventually(is_up, within_s=2)
    finally:
        stranger.finish()
        grid.restart("e0")
