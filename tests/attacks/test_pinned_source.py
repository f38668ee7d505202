"""Attack: a foreign host sends on a channel while its sender is away, and then keeps it out.

A receiver believed the host that it heard last, and no other until that one was silent.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lab.attacks.attacked_grid import SUBSCRIBER
from lab.grid_plan import link_name
from lab.relay import Direction

if TYPE_CHECKING:
    from lab.attacks.attacked_grid import AttackedGrid

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
FOREIGN_HOST = "127.9.9.9"
"""An address of the subscriber's own machine that no router has."""
FORGED_S = 5.0
SILENT_S = 1.5
"""Longer than the second after which another host was believed."""
BACK_S_MAX = 3.0
WIRE = link_name(SUBSCRIBER, "e2")


def test_a_foreign_host_cannot_lock_out_the_true_sender(attacked: AttackedGrid) -> None:
    [hop] = attacked.hops(("e2", SUBSCRIBER))
    from_ns = time.time_ns()
    stranger = attacked.attacker(SUBSCRIBER)
    network = attacked.grid.network
    network.cut(WIRE, direction=Direction.BACKWARD)
    time.sleep(SILENT_S)
    stranger.begin("probe", **hop.words, seconds=FORGED_S, from_host=FOREIGN_HOST)
    time.sleep(0.5)
    network.heal(WIRE, direction=Direction.BACKWARD)
    try:
        attacked.grid.wait_for(attacked.load.complaint, within_s=BACK_S_MAX)
    finally:
        stranger.finish()
    # The other way was whole all the time.
    verdict = attacked.judged(from_ns)
    assert verdict.is_clean, str(verdict)
