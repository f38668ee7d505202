"""Places of a journal, for tests that hold for all of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import psycopg

from gridstat.broker.records.journal import Journal, end_process
from gridstat.broker.records.postgres_database import PostgresDatabase
from gridstat.broker.records.postgres_store import PostgresStore
from gridstat.broker.records.sqlite_store import SqliteStore
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gridstat.broker.records.journal_rows import Store

LEASE_S = 60.0
"""Lease that is long enough for a busy machine."""
EXPIRES = "UPDATE gridstat_brokers SET expires ="


class Place(Protocol):
    def store(self) -> Store: ...


@dataclass(frozen=True, slots=True)
class FilePlace:
    path: Path

    def store(self) -> SqliteStore:
        return SqliteStore(self.path)


@dataclass(frozen=True, slots=True)
class DatabasePlace:
    url: str
    broker: str = "c1"
    lease_s: float = LEASE_S

    def store(self) -> PostgresStore:
        """Open the store as a new process would; it also has the outcome of a lost lease."""
        return PostgresStore(PostgresDatabase(self.url, self.broker, self.lease_s))


def opened(place: Place, *, died: Callable[[], None] = end_process) -> Journal:
    """A journal that may be written, and knows where it ends."""
    journal = Journal(place.store(), died=died)
    assert journal.claim() == 0
    journal.load()
    return journal


def write(place: Place, *groups: tuple[bytes, ...]) -> None:
    """Make groups of operations durable, one after another, and leave."""
    journal = opened(place)

    async def persist_all() -> None:
        for token, operations in enumerate(groups, start=1):
            await journal.persist(token, operations)

    asyncio.run(persist_all())
    journal.close()


def load(place: Place) -> list[bytes]:
    journal = Journal(place.store())
    try:
        return journal.load()
    finally:
        journal.close()


def do(place: DatabasePlace, statement: str) -> list[Any]:
    """Run a statement as the database's administrator; %s stands for the broker."""
    with psycopg.connect(place.url, autocommit=True) as connection:
        done = connection.execute(statement, (place.broker,))
        return done.fetchall() if done.description else []


def expire(place: DatabasePlace) -> None:
    """Expire the lease, as if the holder had been silent for its duration."""
    do(place, f"{EXPIRES} clock_timestamp() WHERE broker = %s")


def renewed(place: DatabasePlace) -> None:
    """Wait until a lease has been renewed twice."""
    expiry = "SELECT expires FROM gridstat_brokers WHERE broker = %s"
    seen = set(do(place, expiry))

    def unmoved() -> str | None:
        seen.update(do(place, expiry))
        return None if len(seen) > 2 else "the lease has not been renewed twice"

    eventually(unmoved)
