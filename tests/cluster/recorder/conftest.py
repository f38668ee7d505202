"""One cloud for all tests of the folder; each has recorders and end-points of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.one_cloud.cloud import Cloud, cloud_text

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def running_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with Cloud(tmp_path_factory.mktemp("cloud"), cloud_text()) as running:
        running.start()
        yield running


@pytest.fixture
def cloud(running_cloud: Cloud) -> Iterator[Cloud]:
    """The same cloud; the end-points of a test leave with it."""
    yield running_cloud
    running_cloud.close_connections()
