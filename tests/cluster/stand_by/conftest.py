"""One cloud with two brokers for tests of take-overs; each leaves both of them alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.stand_by import BROKERS, PATIENT_LEASE_S, DoubledCloud
from tests.cluster.eventually import eventually
from tests.holdings import nothing_left_behind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.postgres import DatabaseServer

SETTLE_S = 5.0


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left_behind(database_server: DatabaseServer) -> Iterator[None]:
    """Check for leaks by module, since the tests kill processes and start others, a server too."""
    with nothing_left_behind(
        "module", within_s=SETTLE_S, but=lambda: frozenset({str(database_server.pid)})
    ):
        yield


@pytest.fixture(scope="module")
def running_cloud(
    _nothing_is_left_behind: None,
    database_server: DatabaseServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[DoubledCloud]:
    folder = tmp_path_factory.mktemp("doubled")
    with DoubledCloud(folder, database_server.url(), lease_s=PATIENT_LEASE_S) as cloud:
        cloud.start()
        yield cloud


@pytest.fixture
def cloud(running_cloud: DoubledCloud) -> Iterator[DoubledCloud]:
    """The same cloud, whole, with one broker in charge and the other standing by."""
    for name in BROKERS:
        if not running_cloud.daemons[name].is_running:
            running_cloud.daemons[name].start()
        running_cloud.await_state(name)
    eventually(running_cloud.complaint)
    yield running_cloud
    running_cloud.close_connections()
