"""Databases of their own for brokers that others have the name of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

if TYPE_CHECKING:
    from lab.postgres import DatabaseServer


def own_database(server: DatabaseServer, name: str) -> str:
    """Create a database without any other journal or lease, and return its URL."""
    with psycopg.connect(server.url(), autocommit=True) as administrator:
        administrator.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return server.url().replace("/postgres?", f"/{name}?")
