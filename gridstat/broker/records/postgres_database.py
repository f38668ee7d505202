"""A PostgreSQL database that keeps the journals of brokers, and how one of them connects to it.

gridstat_brokers has a row a broker: who may write its journal, until when, for how long at a time
and for the how-manieth time (`tenure`), and where the journal ends. gridstat_operations has the
journals themselves. Times are the database's own. All brokers that share a journal use one role.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import psycopg

from gridstat.broker.records.postgres_connection import ConnectionTimeouts, PostgresConnection
from gridstat.model.errors import ConfigurationError, LinkDown, StorageFailed

if TYPE_CHECKING:
    from psycopg import Connection

CONNECTED_WITHIN_S: Final = 2
LEASE_S: Final = 2.0
RENEWALS: Final = 4
"""In the time of one lease: three in a row may fail."""
_CREATE_LOCK: Final = 0x67726964
"""Two brokers that start at once would both create the tables, and one would fail."""
_CREATE: Final = (
    "CREATE TABLE IF NOT EXISTS gridstat_brokers ("
    "broker text PRIMARY KEY, schema integer NOT NULL, holder text NOT NULL, "
    "tenure bigint NOT NULL, expires timestamptz NOT NULL, "
    "number bigint NOT NULL, checksum bytea NOT NULL)",
    "CREATE TABLE IF NOT EXISTS gridstat_operations ("
    "broker text NOT NULL, number bigint NOT NULL, operation bytea NOT NULL, "
    "checksum bytea NOT NULL, PRIMARY KEY (broker, number))",
    # Tables of earlier releases lack it; a holder of one leaves it as it was.
    "ALTER TABLE gridstat_brokers ADD COLUMN IF NOT EXISTS lease_s float8 NOT NULL DEFAULT 0",
)
_IS_CREATED: Final = (
    "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('gridstat_brokers') "
    "AND attname = 'lease_s' AND to_regclass('gridstat_operations') IS NOT NULL"
)
_SETTLE: Final = (
    "SELECT set_config('lock_timeout', %s, false), set_config('statement_timeout', '0', false), "
    "set_config('default_transaction_isolation', 'read committed', false)"
)
_END_SESSIONS: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = session_user "
    "AND starts_with(application_name, %s) AND pid <> pg_backend_pid()"
)
"""Only our own role's: anybody may give a session any name, and only we may end ours."""

_AWAY: Final = frozenset({"25006", "55P03"})
"""Of a server that only reads, and of a lock that another has kept for the time of a lease."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PostgresDatabase:
    """One broker's journal in a database; `holder` stands for this process and no other."""

    url: str
    broker: str
    lease_s: float = LEASE_S
    holder: str = field(default_factory=lambda: uuid4().hex)

    @property
    def renew_after_s(self) -> float:
        return self.lease_s / RENEWALS

    def __str__(self) -> str:
        """Without the password that the URL may have."""
        known = self._facts()
        host, database = known.get("host", "the usual host"), known.get("dbname", "the usual one")
        return f"of {self.broker} in database {database} at {host}"

    def words(self, use: str) -> dict[str, Any]:
        """What a connection for this use says beside the URL."""
        return {
            "application_name": session_name(self.holder, use),
            "client_encoding": "utf8",
            "connect_timeout": CONNECTED_WITHIN_S,
            "tcp_user_timeout": round(self.lease_s * 1_000),
            # What was asked and acknowledged is missed only by who looks after it.
            "keepalives_idle": 1,
            "keepalives_interval": 1,
            "keepalives_count": max(1, round(self.lease_s)),
        }

    def settling(self) -> tuple[str, tuple[str]]:
        """What each connection says first, whatever role, database and URL have set.

        Who waits for a lock goes when nobody waits for him any more. A journal may take long to
        read. Under a stricter isolation renewals and commits, which meet in one row, would fail.
        """
        return _SETTLE, (f"{round(self.lease_s * 1_000)}ms",)

    def connect(self, use: str, patience: ConnectionTimeouts) -> PostgresConnection:
        """A connection whose commits are durable; raises `psycopg.Error`."""
        connection = PostgresConnection.connect(self.url, autocommit=True, **self.words(use))
        connection.patience = patience
        try:
            connection.execute(*self.settling())
            # A server that waits for its copies to apply a commit is even better.
            connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false) "
                "WHERE current_setting('synchronous_commit') <> 'remote_apply'"
            )
        except BaseException:
            connection.close()
            raise
        return connection

    def open(self, use: str, patience: ConnectionTimeouts) -> PostgresConnection:
        """As `connect`, of a process that starts: `LinkDown` from a server that is away.

        One that answers and refuses us is no matter of waiting: `StorageFailed`.
        """
        try:
            return self.connect(use, patience)
        except psycopg.Error as error:
            if not self._answers():
                raise unreached(self, error) from error
        try:
            return self.connect(use, patience)  # It may have come up in between.
        except psycopg.Error as error:
            raise unopened(self, error) from error

    def check(self) -> None:
        """Raise `ConfigurationError` where the URL is none, without a word of what it says.

        The driver repeats what it cannot read, and that may be a password.
        """
        try:
            is_sound = _is_sound(self._facts())
        except psycopg.Error:
            is_sound = False
        if not is_sound:
            raise ConfigurationError(
                "journal: not a PostgreSQL URL",
                hint="write it as in postgresql://gridstat@192.0.2.9/gridstat; "
                "in a password %, @, / and : are %25, %40, %2F and %3A",
            )

    def _answers(self) -> bool:
        """Whether a server accepts connections; of one that fails, the driver tells only words."""
        where = psycopg.conninfo.make_conninfo(self.url, connect_timeout=CONNECTED_WITHIN_S)
        return psycopg.pq.PGconn.ping(where.encode()) == psycopg.pq.Ping.OK

    def _facts(self) -> dict[str, Any]:
        return dict(psycopg.conninfo.conninfo_to_dict(self.url))


def _is_sound(facts: dict[str, Any]) -> bool:
    """Whether no part of a password has become part of a name.

    A / or @ in a password ends it for the driver, and what follows is a host, a port or a database,
    which anybody may print.
    """
    host, database = str(facts.get("host", "")), str(facts.get("dbname", ""))
    ports = [port for port in str(facts.get("port", "")).split(",") if port]
    are_names = "@" not in host and "@" not in database and "/" not in database
    return are_names and all(port.isascii() and port.isdigit() for port in ports)


def session_name(holder: str, use: str) -> str:
    """By which a server lists the connections of one process."""
    return f"gridstat {holder} {use}".rstrip()


def end_sessions(connection: Connection, holder: str, use: str = "") -> None:
    """What a process has left behind there must not hold locks, nor commit any more.

    The fence holds without it; so a server that refuses it keeps nobody from taking over.
    """
    if not holder:
        return
    try:
        connection.execute(_END_SESSIONS, (session_name(holder, use),))
    except psycopg.errors.InsufficientPrivilege as error:
        log.warning("sessions_not_ended reason=%r", words_of(error))


def create_tables(connection: Connection, place: PostgresDatabase) -> None:
    """Tables for all brokers, and a row for this one; nobody holds its lease yet."""
    if connection.execute(_IS_CREATED).fetchone() != (1,):
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATE_LOCK,))
            for statement in _CREATE:
                connection.execute(statement)
    connection.execute(
        "INSERT INTO gridstat_brokers VALUES (%s, 0, '', 0, 'epoch', 0, '') ON CONFLICT DO NOTHING",
        (place.broker,),
    )
    synced = connection.execute("SELECT current_setting('fsync')").fetchone()
    if synced != ("on",):
        log.warning("database_not_durable hint='set fsync = on, or a power cut loses contracts'")


def words_of(error: psycopg.Error) -> str:
    """One line of what went wrong."""
    return " ".join(str(error).split()) or type(error).__name__


def unreached(place: PostgresDatabase, error: psycopg.Error) -> LinkDown:
    return LinkDown(f"journal {place} cannot be reached: {words_of(error)}")


def unopened(place: PostgresDatabase, error: psycopg.Error) -> StorageFailed:
    return StorageFailed(
        f"journal {place} cannot be opened: {words_of(error)}",
        hint="is the database there, and may this role connect to it and create tables?",
    )


def is_broken(connection: Connection | None, error: psycopg.Error) -> bool:
    """Whether only waiting can help: the server is gone, ends us, is a mere copy, or is locked."""
    state = error.sqlstate or "08000"
    return connection is None or connection.closed or state[:2] in {"08", "57"} or state in _AWAY
