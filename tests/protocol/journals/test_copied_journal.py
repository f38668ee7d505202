"""A database whose commits wait for a copy of it: nothing is acknowledged that the copy lacks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import psycopg

from tests.cluster.eventually import eventually
from tests.protocol.journals.holders import holder
from tests.protocol.journals.places import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import Connection

    from tests.protocol.journals.places import DatabasePlace

WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
COMMIT = b"SELECT pg_logical_emit_message(true, 'probe', '')"
"""The least that there is to be copied."""
ACTIVE = psycopg.pq.TransactionStatus.ACTIVE


@contextmanager
def absent_copy(place: DatabasePlace) -> Iterator[Connection]:
    """Commits wait for a copy that is not there; the block has an administrator's connection."""
    with psycopg.connect(place.url, autocommit=True) as administrator:
        administrator.execute("SET synchronous_commit = off")
        set_copies(administrator, "= 'copy'")
        try:
            await_waiting(administrator, place)
            yield administrator
        finally:
            set_copies(administrator, "TO DEFAULT")


def set_copies(administrator: Connection, value: str) -> None:
    administrator.execute(f"ALTER SYSTEM SET synchronous_standby_names {value}")
    administrator.execute("SELECT pg_reload_conf()")


def await_waiting(administrator: Connection, place: DatabasePlace) -> None:
    """Wait until commits wait; the server applies its new settings after a while."""
    with closing(psycopg.connect(place.url, autocommit=True)) as probe:
        wire, server = probe.pgconn, probe.info.backend_pid

        def complaint() -> str | None:
            if wire.transaction_status != ACTIVE:
                wire.send_query(COMMIT)
            wire.consume_input()
            while not wire.is_busy() and wire.get_result():
                pass
            is_waiting = (server,) in administrator.execute(WAITING).fetchall()
            return None if is_waiting else "nothing waits for the copy"

        eventually(complaint)
        administrator.execute("SELECT pg_terminate_backend(%s)", (server,))
        eventually(lambda: "it waits" if administrator.execute(WAITING).fetchall() else None)


def waiting(administrator: Connection, but: int = 0) -> int:
    """Return the server process that waits for the copy."""
    found: list[int] = []

    def complaint() -> str | None:
        rows = administrator.execute(WAITING).fetchall()
        found.extend(pid for (pid,) in rows if pid != but)
        return None if found else "nobody waits for the copy"

    eventually(complaint)
    return found[0]


def test_what_was_broken_off_while_it_waited_for_a_copy_waits_for_it_again(
    shared: DatabasePlace,
) -> None:
    """Break a commit off that is in the database; the question for its outcome waits, too."""
    with holder(shared) as found, ThreadPoolExecutor(1) as other:
        found.persist(b"a")
        with absent_copy(shared) as administrator:
            asked = other.submit(found.persist, b"b")
            broken = waiting(administrator)
            administrator.execute("SELECT pg_terminate_backend(%s)", (broken,))
            waiting(administrator, but=broken)
            assert not asked.done()
        asked.result()
        assert found.journal.figures()["reconnects"] == 1
    assert load(shared) == [b"a", b"b"]


def test_what_is_told_not_to_wait_for_a_copy_waits_for_it_again(shared: DatabasePlace) -> None:
    """The server calls such a commit a success, and so does it the question about it."""
    with holder(shared) as found, ThreadPoolExecutor(1) as other:
        found.persist(b"a")
        with absent_copy(shared) as administrator:
            asked = other.submit(found.persist, b"b")
            told = 0
            for _ in range(3):
                told = waiting(administrator, but=told)
                administrator.execute("SELECT pg_cancel_backend(%s)", (told,))
            waiting(administrator, but=told)
            assert not asked.done()
        asked.result()
        assert found.journal.figures()["reconnects"] == 3
    assert load(shared) == [b"a", b"b"]
