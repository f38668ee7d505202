"""A PostgreSQL database that stores journals of brokers, and how a broker connects to it.

`gridstat_brokers` has one row per broker: the holder of its lease, the expiry, the length of the
lease, the count of claims (`tenure`), and the end of the journal. `gridstat_operations` holds the
rows of the journals. Times are those of the database. All brokers that share a journal use one
role.
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
RENEWALS_PER_LEASE: Final = 4
"""Renewals in the time of one lease; three in a row may fail."""
_CREATE_LOCK: Final = 0x67726964
"""Advisory lock: two brokers that start at once must not both create the tables."""
_CREATE: Final = (
    "CREATE TABLE IF NOT EXISTS gridstat_brokers ("
    "broker text PRIMARY KEY, schema integer NOT NULL, holder text NOT NULL, "
    "tenure bigint NOT NULL, expires timestamptz NOT NULL, "
    "number bigint NOT NULL, checksum bytea NOT NULL)",
    "CREATE TABLE IF NOT EXISTS gridstat_operations ("
    "broker text NOT NULL, number bigint NOT NULL, operation bytea NOT NULL, "
    "checksum bytea NOT NULL, PRIMARY KEY (broker, number))",
    # Tables of earlier releases lack this column, and their holders do not set it.
    "ALTER TABLE gridstat_brokers ADD COLUMN IF NOT EXISTS lease_s float8 NOT NULL DEFAULT 0",
)
_IS_CREATED: Final = (
    "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('gridstat_brokers') "
    "AND attname = 'lease_s' AND to_regclass('gridstat_operations') IS NOT NULL"
)
_SET_SESSION: Final = (
    "SELECT set_config('lock_timeout', %s, false), set_config('statement_timeout', '0', false), "
    "set_config('default_transaction_isolation', 'read committed', false)"
)
_END_SESSIONS: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = session_user "
    "AND starts_with(application_name, %s) AND pid <> pg_backend_pid()"
)
"""Ends sessions of our own role only, since any role may use any session name."""

_UNAVAILABLE_STATES: Final = frozenset({"25006", "55P03"})
"""SQL states of a read-only server, and of a lock that was not free within a lease."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PostgresDatabase:
    """Journal of one broker in a database; `holder` identifies this process."""

    url: str
    broker: str
    lease_s: float = LEASE_S
    holder: str = field(default_factory=lambda: uuid4().hex)

    @property
    def renew_after_s(self) -> float:
        return self.lease_s / RENEWALS_PER_LEASE

    def __str__(self) -> str:
        """Return a text for people, without the password that the URL may hold."""
        known = self._url_parts()
        host, database = known.get("host", "the usual host"), known.get("dbname", "the usual one")
        return f"of {self.broker} in database {database} at {host}"

    def connection_options(self, use: str) -> dict[str, Any]:
        """Return the connection options beside the URL."""
        return {
            "application_name": session_name(self.holder, use),
            "client_encoding": "utf8",
            "connect_timeout": CONNECTED_WITHIN_S,
            "tcp_user_timeout": round(self.lease_s * 1_000),
            # Detects a dead server after a request was acknowledged by TCP.
            "keepalives_idle": 1,
            "keepalives_interval": 1,
            "keepalives_count": max(1, round(self.lease_s)),
        }

    def session_settings(self) -> tuple[str, tuple[str]]:
        """Return the statement that sets up each session, overriding role, database and URL.

        A wait for a lock ends with the time of a lease. A statement has no time limit, since a
        journal may take long to read. Under a stricter isolation level renewals and commits, which
        update the same row, would fail.
        """
        return _SET_SESSION, (f"{round(self.lease_s * 1_000)}ms",)

    def connect(self, use: str, timeouts: ConnectionTimeouts) -> PostgresConnection:
        """Connect with durable commits; raises `psycopg.Error`."""
        connection = PostgresConnection.connect(
            self.url, autocommit=True, **self.connection_options(use)
        )
        connection.timeouts = timeouts
        try:
            connection.execute(*self.session_settings())
            # remote_apply is stronger than on, and is kept.
            connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false) "
                "WHERE current_setting('synchronous_commit') <> 'remote_apply'"
            )
        except BaseException:
            connection.close()
            raise
        return connection

    def open(self, use: str, timeouts: ConnectionTimeouts) -> PostgresConnection:
        """Connect at the start of a process; raise `LinkDown` if the server is unavailable.

        A server that answers and refuses us raises `StorageFailed`, since waiting does not help.
        """
        try:
            return self.connect(use, timeouts)
        except psycopg.Error as error:
            if not self._accepts_connections():
                raise unreachable(self, error) from error
        try:
            return self.connect(use, timeouts)  # It may have come up in between.
        except psycopg.Error as error:
            raise cannot_open(self, error) from error

    def check(self) -> None:
        """Raise `ConfigurationError` for a malformed URL, without quoting the URL.

        The driver's error quotes the part that it cannot read, which may be a password.
        """
        try:
            is_plain = _has_plain_names(self._url_parts())
        except psycopg.Error:
            is_plain = False
        if not is_plain:
            raise ConfigurationError(
                "journal: not a PostgreSQL URL",
                hint="write it as in postgresql://gridstat@192.0.2.9/gridstat; "
                "in a password %, @, / and : are %25, %40, %2F and %3A",
            )

    def _accepts_connections(self) -> bool:
        """Return whether the server accepts connections; the driver's errors do not tell."""
        where = psycopg.conninfo.make_conninfo(self.url, connect_timeout=CONNECTED_WITHIN_S)
        return psycopg.pq.PGconn.ping(where.encode()) == psycopg.pq.Ping.OK

    def _url_parts(self) -> dict[str, Any]:
        return dict(psycopg.conninfo.conninfo_to_dict(self.url))


def _has_plain_names(parts: dict[str, Any]) -> bool:
    """Return whether no part of a password was taken for a host, port or database name.

    A / or @ in a password ends it for the driver, and the rest becomes a name that may be printed.
    """
    host, database = str(parts.get("host", "")), str(parts.get("dbname", ""))
    ports = [port for port in str(parts.get("port", "")).split(",") if port]
    are_names = "@" not in host and "@" not in database and "/" not in database
    return are_names and all(port.isascii() and port.isdigit() for port in ports)


def session_name(holder: str, use: str) -> str:
    """Return the name under which a server lists the connections of one process."""
    return f"gridstat {holder} {use}".rstrip()


def end_sessions(connection: Connection, holder: str, use: str = "") -> None:
    """End the sessions of a process, so that they hold no locks and commit nothing more.

    The fence works without this, so a server that refuses it prevents no take-over.
    """
    if not holder:
        return
    try:
        connection.execute(_END_SESSIONS, (session_name(holder, use),))
    except psycopg.errors.InsufficientPrivilege as error:
        log.warning("sessions_not_ended reason=%r", error_text(error))


def create_tables(connection: Connection, database: PostgresDatabase) -> None:
    """Create the tables for all brokers, and a row for this one without a holder."""
    if connection.execute(_IS_CREATED).fetchone() != (1,):
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATE_LOCK,))
            for statement in _CREATE:
                connection.execute(statement)
    connection.execute(
        "INSERT INTO gridstat_brokers VALUES (%s, 0, '', 0, 'epoch', 0, '') ON CONFLICT DO NOTHING",
        (database.broker,),
    )
    synced = connection.execute("SELECT current_setting('fsync')").fetchone()
    if synced != ("on",):
        log.warning("database_not_durable hint='set fsync = on, or a power cut loses contracts'")


def error_text(error: psycopg.Error) -> str:
    """Return the text of an error in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def unreachable(database: PostgresDatabase, error: psycopg.Error) -> LinkDown:
    return LinkDown(f"journal {database} cannot be reached: {error_text(error)}")


def cannot_open(database: PostgresDatabase, error: psycopg.Error) -> StorageFailed:
    return StorageFailed(
        f"journal {database} cannot be opened: {error_text(error)}",
        hint="is the database there, and may this role connect to it and create tables?",
    )


def is_unavailable(connection: Connection | None, error: psycopg.Error) -> bool:
    """Return whether waiting can help: the server is down, closing, read-only or locked."""
    state = error.sqlstate or "08000"
    return (
        connection is None
        or connection.closed
        or state[:2] in {"08", "57"}
        or state in _UNAVAILABLE_STATES
    )
