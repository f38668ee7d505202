"""Attack: an end-point has the events that it may read sent to somebody else's address."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.attacks.attacked_grid import MALLORY, MIRROR, PUBLISHER
from lab.attacks.hostile_end_point import HostileEndPoint

if TYPE_CHECKING:
    from lab.attacks.attacked_grid import AttackedGrid

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
PORT = 40_404
AIMED_S = 2.0
PROBES_MAX = 60
"""Probes may reach an address until it is proved: few, and no larger than what asked for them."""


def test_events_go_to_no_address_that_nobody_proved(attacked: AttackedGrid) -> None:
    grid = attacked.grid
    victim = grid.namespaces[MALLORY].host
    name = next(iter(attacked.load.variables_of(PUBLISHER)))
    with HostileEndPoint(grid, MIRROR) as mirror:
        attached = mirror.ask("attach", edge="e2", host=victim, port=PORT)
        answer = mirror.ask("subscribe", name=name) if "refused" not in attached else attached
        during = attacked.attacker(MALLORY).ask("receive", seconds=AIMED_S, host=victim, port=PORT)
        mirror.kill()
        after = attacked.attacker(MALLORY).ask("receive", seconds=AIMED_S, host=victim, port=PORT)
    assert during["events"] == 0, (answer, during)
    assert after["events"] == 0, "events go on after the session ended"
    assert during["datagrams"] <= PROBES_MAX
    assert after["datagrams"] <= PROBES_MAX


def test_an_end_point_that_receives_where_it_says_gets_its_events(attacked: AttackedGrid) -> None:
    """The proof asks nothing of an honest end-point."""
    grid = attacked.grid
    here = grid.namespaces[MIRROR].host
    name = next(iter(attacked.load.variables_of(PUBLISHER)))
    with HostileEndPoint(grid, MIRROR) as mirror:
        assert "refused" not in mirror.ask("attach", edge="e2")
        assert "refused" not in mirror.ask("subscribe", name=name)
        found = attacked.attacker(MIRROR).ask("receive", seconds=AIMED_S, host=here)
    assert found["events"] >= attacked.rate
