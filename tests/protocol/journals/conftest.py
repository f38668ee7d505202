"""A journal's place of each kind, new for every test."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.protocol.journals.places import DatabasePlace, FilePlace, Place

if TYPE_CHECKING:
    from pathlib import Path

    from lab.postgres import DatabaseServer


@pytest.fixture
def shared(database_server: DatabaseServer) -> DatabasePlace:
    """Return the journal of a new broker, in a database that many use."""
    return DatabasePlace(database_server.url(), f"broker-{uuid4().hex[:8]}")


@pytest.fixture(params=["file", "database"])
def place(request: pytest.FixtureRequest, tmp_path: Path, shared: DatabasePlace) -> Place:
    return FilePlace(tmp_path / "broker" / "journal.db") if request.param == "file" else shared
