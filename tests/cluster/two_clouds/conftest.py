"""Two clouds for all tests of the folder: they take seconds to start, and tests share them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.two_clouds.clouds import TwoClouds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="package")
def running_clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoClouds]:
    with TwoClouds(tmp_path_factory.mktemp("clouds")) as running:
        running.start()
        yield running


@pytest.fixture
def own_clouds(tmp_path: Path) -> Iterator[TwoClouds]:
    """Clouds for a test that starts processes again and has to leave none behind."""
    with TwoClouds(tmp_path) as running:
        running.start()
        yield running


@pytest.fixture
def clouds(running_clouds: TwoClouds) -> Iterator[TwoClouds]:
    """The same clouds; the end-points of a test leave with it."""
    yield running_clouds
    running_clouds.close_connections()
