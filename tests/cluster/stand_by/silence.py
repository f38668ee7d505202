"""A database that stops answering one process, and lets all others go on."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psycopg

from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

JOURNALS = (
    "SELECT pid FROM pg_stat_activity, gridstat_brokers WHERE broker = %s "
    "AND datname = current_database() AND application_name ~ '^gridstat .* journal$' "
    "AND starts_with(application_name, 'gridstat ' || holder) = %s"
)


WAITS = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name ~ '^gridstat .* journal$' AND wait_event_type = 'Lock'"
)


@contextmanager
def unread_journals(url: str) -> Iterator[None]:
    """Wait until a process waits for rows of a journal, and keep them locked during the block."""
    with psycopg.connect(url) as locking, psycopg.connect(url, autocommit=True) as administrator:
        locking.execute("LOCK TABLE gridstat_operations")
        eventually(
            lambda: None if administrator.execute(WAITS).fetchone() else "nobody reads a journal"
        )
        yield


@contextmanager
def silence(url: str, broker: str, *, of_who_is_in_charge: bool) -> Iterator[None]:
    """Stop the database process that serves one broker's journal during the block."""
    with psycopg.connect(url, autocommit=True) as administrator:
        found = administrator.execute(JOURNALS, (broker, of_who_is_in_charge)).fetchall()
    ((server,),) = found
    os.kill(server, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(server, signal.SIGCONT)
