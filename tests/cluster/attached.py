"""Waits for all edges of an end-point: `connect` returns with the first, if others take long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from gridstat.endpoint.connection import Connection

WITHIN_S = 60.0


def await_edges(connection: Connection, count: int) -> None:
    """Wait until the end-point is attached to so many edges."""

    def complaint() -> str | None:
        found = connection.edges
        return None if len(found) == count else f"attached to {found} only"

    eventually(complaint, within_s=WITHIN_S)
