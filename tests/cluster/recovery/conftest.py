"""One cloud for all tests of a module; each leaves it whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.recovery.square import Square
from tests.holdings import nothing_left_behind

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTLE_S = 5.0


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    """Check for leaks by module, since tests kill and start processes of the module's cloud."""
    with nothing_left_behind("module", within_s=SETTLE_S):
        yield


@pytest.fixture(scope="module")
def running_square(
    _nothing_is_left_behind: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Square]:
    with Square(tmp_path_factory.mktemp("square")) as made:
        yield made


@pytest.fixture
def square(running_square: Square) -> Iterator[Square]:
    """The same cloud, whole, and without the contracts of earlier tests."""
    running_square.await_whole()
    yield running_square
    running_square.view.tell("unsubscribe_all")
