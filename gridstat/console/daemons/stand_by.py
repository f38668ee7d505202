"""Start of a broker: at once, or as a stand-by that waits until the active broker's lease is free.

A stand-by that shares a journal in a database follows the journal while it waits, so that little is
left to read when it takes over.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from gridstat.broker.records.journal import Journal
from gridstat.broker.records.operations import SNAPSHOT_MARK
from gridstat.broker.records.sqlite_store import SqliteStore
from gridstat.console.config.config_errors import complaint
from gridstat.console.config.toml_file import beside
from gridstat.model.errors import CertificateRefused, ConfigurationError, LinkDown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FOLLOW_EVERY_S: Final = 0.25
AGAIN_AFTER_S: Final = 0.5
URLS: Final = ("postgresql://", "postgres://")
_ALMOST_URL: Final = re.compile(r"[@=]|://|^[^/]*:|^\s*postgres", re.IGNORECASE)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JournalPlan:
    """Journal of a broker as its file names it: a file, or a database that others share."""

    broker: str
    place: Path | str
    lease_s: float


def journal_plan(file: Path, text: str, *, broker: str, lease_s: float) -> JournalPlan:
    """Return the journal's plan from the settings; a URL with a mistake is refused, not taken for a
    file.

    As a file it would be a journal of each process's own, and all of them would be in charge.
    """
    if text.startswith(URLS):
        return JournalPlan(broker, text, lease_s)
    if _ALMOST_URL.search(text):
        raise complaint(  # Without the text: it may have a password in it.
            str(file),
            "journal",
            "neither a file nor a database",
            hint=f"a database is written as in {URLS[0]}gridstat@192.0.2.9/gridstat; the name of "
            "a file has no @, no = and no ://, no : before a /, and does not begin with postgres",
        )
    return JournalPlan(broker, beside(file, text), lease_s)


def open_journal(plan: JournalPlan, *, may_be_older: bool = False) -> Journal:
    """Open the journal for reading; writing is possible once its lease is claimed.

    It may be older than the one that was last written there only where the terms are raised.
    """
    if isinstance(plan.place, Path):
        return Journal(SqliteStore(plan.place, may_be_older=may_be_older))
    try:
        # The driver of PostgreSQL is an extra.
        from gridstat.broker.records.postgres_database import PostgresDatabase
        from gridstat.broker.records.postgres_store import PostgresStore  # Likewise.
    except ImportError as error:
        raise ConfigurationError(
            f"journal: a database needs what is not installed: {error}",
            hint="pip install 'gridstat[postgres]'",
        ) from error
    return Journal(PostgresStore(PostgresDatabase(plan.place, plan.broker, plan.lease_s)))


class Restorable(Protocol):
    """Machine that follows the journal to its end before it starts."""

    def restore(self, written: Sequence[bytes]) -> None:
        """Go on by operations that follow those before."""


class Candidate(Protocol):
    """A broker that has not started yet."""

    @property
    def broker(self) -> Restorable: ...

    @property
    def journal(self) -> Journal: ...

    async def close(self) -> None:
        """Leave nothing behind."""


CandidateT = TypeVar("CandidateT", bound=Candidate)
Answer = TypeVar("Answer")


class _WaitReporter:
    """Reports why a broker waits, once; each absence of its database goes to the log."""

    def __init__(self, waits: Callable[[str], None]) -> None:
        self._waits = waits
        self._is_blind = False
        self._has_told_why = False
        self._has_told_of_another = False

    def away(self, error: LinkDown) -> None:
        reason = str(error.args[0])
        if not self._is_blind:
            log.warning("standing_by_blindly reason=%r", reason)
            self._is_blind = True
        if not self._has_told_why:
            self._has_told_why = True
            self._waits(reason)

    def reached(self) -> None:
        self._is_blind = False

    def another(self) -> None:
        if not self._has_told_of_another:
            self._has_told_why = self._has_told_of_another = True
            self._waits("")


async def in_charge(
    make: Callable[[], CandidateT], stopping: asyncio.Event, *, waits: Callable[[str], None]
) -> CandidateT | None:
    """A broker whose journal is its own to write, standing where it ends; None if stopped before.

    `waits` is called once if another is in charge, with "", and before that with why the database
    cannot be reached, if so. A broker that starts before its database waits for it.
    """
    reporter = _WaitReporter(waits)
    while not stopping.is_set():
        try:
            candidate = await _made(make, stopping)
            if candidate is None:
                return None
            is_ready = False
            try:
                is_ready = await _follow(candidate, stopping, reporter)
            finally:
                if not is_ready:
                    await candidate.close()
        except CertificateRefused:
            raise  # Of our own certificates: no time mends those.
        except LinkDown as error:
            reporter.away(error)
            await _pause(stopping, AGAIN_AFTER_S)
            continue
        if is_ready:
            return candidate
    return None


async def _follow(candidate: Candidate, stopping: asyncio.Event, reporter: _WaitReporter) -> bool:
    """Return True once the lease is claimed; False if the candidate must be made again, since a
    snapshot has replaced what it has read, or if the process is stopped.

    A broker does not take charge of a journal that it cannot read. `LinkDown` is raised if that
    shows only after the claim: otherwise it would keep the lease from brokers that can.
    """
    journal = candidate.journal
    has_answered = has_read = False
    while not stopping.is_set():
        wait_s = FOLLOW_EVERY_S
        try:
            if has_answered:
                wait_s = await _answer(journal.claim, journal, stopping)
            written = await _answer(journal.load, journal, stopping)
        except LinkDown as error:
            if stopping.is_set():
                return False
            if not wait_s:
                raise
            reporter.away(error)
            await _pause(stopping, AGAIN_AFTER_S)
            continue
        reporter.reached()
        if has_read and written and written[0] == SNAPSHOT_MARK:
            return False
        if written:
            candidate.broker.restore(written)
            has_read = True
        if not wait_s:
            return True
        if has_answered:
            reporter.another()
            await _pause(stopping, min(wait_s, FOLLOW_EVERY_S))
        has_answered = True
    return False


async def _made(make: Callable[[], CandidateT], stopping: asyncio.Event) -> CandidateT | None:
    """Return the candidate; None if the process is stopped first, even while the database is
    opened.

    From a thread of its own: for those of the event loop a process waits before it ends.
    """
    made: Future[CandidateT] = Future()
    threading.Thread(target=_make, args=(make, made), name="candidate", daemon=True).start()
    making = asyncio.wrap_future(made)
    ending = asyncio.create_task(stopping.wait())
    await asyncio.wait((making, ending), return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    return None if made.cancel() else await making


def _make(make: Callable[[], CandidateT], made: Future[CandidateT]) -> None:
    """Make the candidate; if the caller has stopped waiting, close its journal, the only open
    part."""
    try:
        candidate = make()
    except BaseException as error:
        if made.set_running_or_notify_cancel():
            made.set_exception(error)
        return
    if made.set_running_or_notify_cancel():
        made.set_result(candidate)
    else:
        candidate.journal.close()


async def _answer(
    question: Callable[[], Answer], journal: Journal, stopping: asyncio.Event
) -> Answer:
    """Return the answer to a question that runs in a thread; if the process is stopped, interrupt
    it, which raises `LinkDown`."""
    asking = asyncio.create_task(asyncio.to_thread(question))
    ending = asyncio.create_task(stopping.wait())
    await asyncio.wait((asking, ending), return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if not asking.done():
        journal.interrupt()
    return await asking


async def _pause(stopping: asyncio.Event, wait_s: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), wait_s)
