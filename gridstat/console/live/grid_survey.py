"""Survey of a grid for `gridstat up` and `gridstat tree`: one survey of each broker."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from gridstat.console.operator_session import open_operator_session, operator_name
from gridstat.model.errors import CertificateRefused, GridStatError
from gridstat.net.command.identity import Identity, Role
from gridstat.net.command.messages import Survey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from gridstat.console.access import Access
    from gridstat.console.live.pipeline_view import PipelineView
    from gridstat.console.operator_session import OperatorSession
    from gridstat.net.command.messages import OperatorCommand

Facts: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GridSurvey:
    """Surveys by broker, the reasons of missing ones, newest values, and the pipeline."""

    surveys: Mapping[str, Facts]
    away: Mapping[str, str]
    values: Mapping[str, float]
    pipeline: PipelineView | None = None

    @property
    def clouds(self) -> list[Facts]:
        """Surveys of the leaf brokers, the first cloud first."""
        return [facts for facts in self.surveys.values() if "cloud" in facts]

    @property
    def has_tree(self) -> bool:
        return len(self.surveys) + len(self.away) > 1


class WatchedBrokers:
    """Sessions with all brokers in the folder; a broker that is away delays no other.

    `closed` are brokers for which this machine has no certificate.
    """

    def __init__(
        self, sessions: Mapping[str, OperatorSession], closed: Mapping[str, GridStatError]
    ) -> None:
        self._sessions = sessions
        self._closed = closed

    async def ask(
        self, command: OperatorCommand, *, session_within_s: float | None = None
    ) -> tuple[dict[str, Facts], dict[str, GridStatError]]:
        """Return facts by broker, and errors by broker for the others."""
        sessions = self._sessions.values()
        found = await asyncio.gather(
            *(_asked(session, command, session_within_s) for session in sessions)
        )
        answers = {**self._closed, **dict(zip(self._sessions, found, strict=True))}
        return (
            {name: facts for name, facts in answers.items() if isinstance(facts, dict)},
            {name: error for name, error in answers.items() if isinstance(error, GridStatError)},
        )

    async def survey(
        self, *, session_within_s: float | None = None
    ) -> tuple[dict[str, Facts], dict[str, str]]:
        """Return surveys by broker, and the reasons of missing ones."""
        surveys, away = await self.ask(Survey(request_id=0), session_within_s=session_within_s)
        return surveys, {name: reason_of(error) for name, error in away.items()}


def reason_of(error: GridStatError) -> str:
    """Return in one line why a broker did not reply; for a certificate also the remedy."""
    text = str(error.args[0])
    return f"{text} ({error.hint})" if isinstance(error, CertificateRefused) else text


@asynccontextmanager
async def watched_brokers(
    access: Access, names: Iterable[str] = (), who: str = ""
) -> AsyncIterator[WatchedBrokers]:
    """Open sessions with the named brokers, else with all: the folder's own cloud, then the tree
    from its root down.

    The sessions are closed with the block.
    """
    # A name that no operator can have is refused at once, not broker by broker.
    Identity(Role.OPERATOR, operator_name(access.cloud, who))
    async with AsyncExitStack() as stack:
        sessions: dict[str, OperatorSession] = {}
        closed: dict[str, GridStatError] = {}
        for name in dict.fromkeys(names or (access.cloud, *access.tree)):
            try:
                session = open_operator_session(access.beside(name), who)
                sessions[name] = await stack.enter_async_context(session)
            except GridStatError as error:
                closed[name] = error
        yield WatchedBrokers(sessions, closed)


async def _asked(
    session: OperatorSession, command: OperatorCommand, session_within_s: float | None
) -> Facts | GridStatError:
    try:
        return await session.ask(command, session_within_s=session_within_s)
    except GridStatError as error:
        return error
