"""Fixtures of the attacks: certificates for those on listeners, a grid for those on events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.attacks.attacked_grid import AttackedGrid
from tests.holdings import nothing_left_behind
from tests.protocol.command_parties import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTLE_S = 20.0


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(
    request: pytest.FixtureRequest, _libraries_have_started_their_threads: None
) -> Iterator[None]:
    """Check for leaks; a test may start a daemon of the grid again that it has killed."""
    is_on_grid = "under_attack" in request.fixturenames
    grid = request.getfixturevalue("under_attack").grid if is_on_grid else None

    def daemons() -> frozenset[str]:
        running = [] if grid is None else grid.daemons.values()
        return frozenset(str(daemon.pid) for daemon in running if daemon.is_running)

    with nothing_left_behind("test", within_s=SETTLE_S, but=daemons):
        yield


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    """Return certificates of all parties, of one authority."""
    return Registry(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def under_attack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedGrid]:
    """Return a grid in a user namespace, for all attacks on the event path.

    None of them may have an effect, so one grid serves them all.
    """
    with AttackedGrid(tmp_path_factory.mktemp("grid"), as_user=True) as made:
        yield made


@pytest.fixture
def attacked(under_attack: AttackedGrid) -> AttackedGrid:
    """Return the grid once it is whole: what an attack before has damaged is not counted again."""
    under_attack.await_whole()
    return under_attack
