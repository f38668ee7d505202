"""A cloud for the tests of one file, and a publisher at it; a file may have a cloud of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.end_points.local_cloud import LocalCloud

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.endpoint.connection import Connection


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    with LocalCloud(tmp_path_factory.mktemp("cloud")) as made:
        yield made


@pytest.fixture
def pmu(cloud: LocalCloud) -> Iterator[Connection]:
    with cloud.connect("c1/north/pmu-1") as made:
        yield made
