"""Processes that want to write one journal in a database, as far as the journal knows of them."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gridstat.broker.records.journal import Journal
from gridstat.broker.records.postgres_database import PostgresDatabase, session_name
from gridstat.broker.records.postgres_store import PostgresStore
from tests.cluster.eventually import eventually
from tests.protocol.journals.places import do

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.protocol.journals.places import DatabasePlace


RENEWALS = (
    "SELECT count(*) FROM pg_stat_activity, gridstat_brokers WHERE broker = %s "
    "AND application_name = '{session}' AND state = 'idle' "
    "AND starts_with(query, 'UPDATE gridstat_brokers')"
)


class Holder:
    """One process's journal, and what it would have died of."""

    def __init__(self, place: DatabasePlace) -> None:
        self.losses: list[str] = []
        self.deaths: list[str] = []
        self.where = PostgresDatabase(place.url, place.broker, place.lease_s)
        self.store = PostgresStore(self.where, lost=lambda _, reason: self.losses.append(reason))
        self.journal = Journal(self.store, died=lambda: self.deaths.append("died"))

    def persist(self, *operations: bytes) -> None:
        """Make operations durable, one after another."""

        async def persist_all() -> None:
            for operation in operations:
                await self.journal.persist(1, (operation,))

        asyncio.run(persist_all())


class Interrupted:
    """A lease that lets something happen between a transaction's rows and its fence."""

    def __init__(self, found: Holder, happens: Callable[[], None]) -> None:
        self._inner = found.store._lease
        self._happens = happens
        self._asked = 0

    @property
    def tenure(self) -> int:
        """Asked for before the transaction, and by its last statement."""
        self._asked += 1
        if self._asked == 2:
            self._happens()
        return self._inner.tenure

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def unrenewed(found: Holder, place: DatabasePlace) -> str | None:
    """Return None once the first renewal is over, which would undo a test's change of the lease."""
    session = session_name(found.where.holder, "lease")
    done = do(place, RENEWALS.format(session=session))
    return None if done == [(1,)] else "the lease has not been renewed"


@contextmanager
def holder(place: DatabasePlace) -> Iterator[Holder]:
    """Yield a holder that is in charge, unless another is."""
    found = Holder(place)
    try:
        if found.journal.claim() == 0:
            eventually(lambda: None if found.losses else unrenewed(found, place))
            found.journal.load()
        yield found
    finally:
        found.journal.close()
