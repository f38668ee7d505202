"""Attack: an end-point with a certificate, and no rule for it, reads what belongs to others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import NotAuthorised
from lab.attacks.attacked_grid import MALLORY, PUBLISHER
from lab.attacks.hostile_end_point import HostileEndPoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.attacks.attacked_grid import AttackedGrid

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.fixture
def mallory(attacked: AttackedGrid) -> Iterator[HostileEndPoint]:
    with HostileEndPoint(attacked.grid, MALLORY) as made:
        yield made


def test_it_may_neither_subscribe_nor_find_nor_catch_by_a_pattern(
    attacked: AttackedGrid, mallory: HostileEndPoint
) -> None:
    name = next(iter(attacked.load.variables_of(PUBLISHER)))
    assert mallory.ask("attach", edge="e3") == {"edges": ["c1/e3"]}, "a certificate is enough"
    for order in (
        {"do": "subscribe", "name": name},
        {"do": "find", "pattern": "**"},
        {"do": "catch", "pattern": "**", "seconds": 1.0},
    ):
        assert mallory.ask(**order).get("code") == NotAuthorised.code, order
    here = attacked.grid.namespaces[MALLORY].host
    found = attacked.attacker(MALLORY).ask("receive", seconds=1.0, host=here)
    assert found["events"] == 0
