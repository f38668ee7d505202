"""The root of a tree dies, another process takes over: the clouds join it, and lose nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.stand_by.replacing import OTHERS, replaced
from tests.cluster.stand_by.rooted import RootedClouds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.postgres import DatabaseServer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


@pytest.fixture
def clouds(tmp_path: Path, database_server: DatabaseServer) -> Iterator[RootedClouds]:
    with RootedClouds(tmp_path, database_server.url()) as made:
        made.start()
        yield made


@pytest.mark.feature("S0-123")
def test_a_root_that_is_killed_in_the_middle_of_requests_is_replaced(
    clouds: RootedClouds,
) -> None:
    refused, _, term = replaced(clouds, "rooted", lambda: clouds.survey()["root"]["term"])
    assert refused == []
    facts = clouds.survey()["root"]
    assert facts["contracts"] == 1 + OTHERS
    assert facts["term"] > term
