"""A connection to PostgreSQL that waits for an answer for a while, and not for ever.

A server whose machine is gone, whose disk stands still or that is stopped says nothing at all, and
the system tells of it after hours, if ever.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.rows import TupleRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import errors
    from psycopg.abc import PQGen

Answer = TypeVar("Answer")


@dataclass(slots=True)
class ConnectionTimeouts:
    """How long a connection may say nothing while it is asked; `is_over` from any thread."""

    silence_s_max: float
    is_over: bool = False

    def complaint(self, silence_s: float) -> str:
        if self.is_over:
            return "nobody waits for its answer any more"
        if silence_s > self.silence_s_max:
            return f"the database has not answered for {self.silence_s_max} s"
        return ""


class PostgresConnection(psycopg.Connection[TupleRow]):
    """Whoever asks hears an answer, or that it is broken; it is closed then.

    Counted is silence and not time, since a journal may be long. A derived class, since only its
    way of waiting differs, and the driver lets that be replaced and nothing else do it.
    """

    patience = ConnectionTimeouts(float("inf"))

    @contextmanager
    def unwarned(self) -> Iterator[list[str]]:
        """A commit in this block that succeeds with a warning leaves a broken connection.

        So does one that somebody has told to wait no longer for the copies of the database: it is
        durable here, and not yet there.
        """
        warnings: list[str] = []

        def hear(notice: errors.Diagnostic) -> None:
            if notice.severity_nonlocalized == "WARNING":
                warnings.append(notice.message_primary or "a warning")

        self.add_notice_handler(hear)
        try:
            yield warnings
        finally:
            self.remove_notice_handler(hear)
        if warnings:
            self.close()
            raise psycopg.OperationalError("; ".join(warnings))

    def wait(
        self,
        gen: PQGen[Answer],
        *words: Any,  # noqa: ANN401 - Whatever this release of the driver knows.
        **more: Any,  # noqa: ANN401 - Likewise.
    ) -> Answer:
        return super().wait(self._watched(gen), *words, **more)

    def _watched(self, gen: PQGen[Answer]) -> PQGen[Answer]:
        """The same, asked several times a second, by the driver, whether to go on."""
        heard_s = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now_s = time.monotonic()
                if ready:
                    heard_s = now_s
                if reason := self.patience.complaint(now_s - heard_s):
                    self.close()
                    raise psycopg.OperationalError(reason)
                wanted = gen.send(ready)
        except StopIteration as done:
            answer: Answer = done.value
            return answer
