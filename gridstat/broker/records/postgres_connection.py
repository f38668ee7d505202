"""Connection to PostgreSQL with a timeout on silence.

A server whose machine is gone, whose disk is stuck or that is stopped sends nothing at all, and the
operating system reports that after hours, if ever.
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
    """Longest silence of a connection during a request; `is_interrupted` may be set by any
    thread."""

    silence_s_max: float
    is_interrupted: bool = False

    def complaint(self, silence_s: float) -> str:
        if self.is_interrupted:
            return "the request was interrupted"
        if silence_s > self.silence_s_max:
            return f"the database has not answered for {self.silence_s_max} s"
        return ""


class PostgresConnection(psycopg.Connection[TupleRow]):
    """Connection on which each request is answered or fails; a failed connection is closed.

    The timeout counts silence, not the whole request, since a journal may be long. The class is
    derived because the driver allows only its method of waiting to be replaced.
    """

    timeouts = ConnectionTimeouts(float("inf"))

    @contextmanager
    def warnings_as_errors(self) -> Iterator[list[str]]:
        """Close the connection and raise if a commit in this block succeeds with a warning.

        The server warns if it stopped waiting for replicas: the commit is durable here, but not
        there yet.
        """
        warnings: list[str] = []

        def collect(notice: errors.Diagnostic) -> None:
            if notice.severity_nonlocalized == "WARNING":
                warnings.append(notice.message_primary or "a warning")

        self.add_notice_handler(collect)
        try:
            yield warnings
        finally:
            self.remove_notice_handler(collect)
        if warnings:
            self.close()
            raise psycopg.OperationalError("; ".join(warnings))

    def wait(
        self,
        gen: PQGen[Answer],
        *args: Any,  # noqa: ANN401 - Whatever this release of the driver knows.
        **kwargs: Any,  # noqa: ANN401 - Likewise.
    ) -> Answer:
        return super().wait(self._watched(gen), *args, **kwargs)

    def _watched(self, gen: PQGen[Answer]) -> PQGen[Answer]:
        """Yield what the driver waits for, and check the timeout each time the driver asks."""
        received_s = time.monotonic()
        try:
            request = next(gen)
            while True:
                ready = yield request
                now_s = time.monotonic()
                if ready:
                    received_s = now_s
                if reason := self.timeouts.complaint(now_s - received_s):
                    self.close()
                    raise psycopg.OperationalError(reason)
                request = gen.send(ready)
        except StopIteration as done:
            answer: Answer = done.value
            return answer
