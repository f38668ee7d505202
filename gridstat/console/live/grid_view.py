"""View of a grid for `gridstat up` and `gridstat tree`: one survey of each broker."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from gridstat.console.operator_session import operator_desk, operator_name
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
class GridView:
    """One look: surveys by broker, why some have none, newest values, and the pipeline."""

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
    """A session with every broker that the folder tells of; one that is away delays no other.

    `closed` are those that this machine cannot even ask, as it has no certificate for them.
    """

    def __init__(
        self, desks: Mapping[str, OperatorSession], closed: Mapping[str, GridStatError]
    ) -> None:
        self._desks = desks
        self._closed = closed

    async def ask(
        self, command: OperatorCommand, *, session_within_s: float | None = None
    ) -> tuple[dict[str, Facts], dict[str, GridStatError]]:
        """Facts by broker, and of the others why there are none."""
        desks = self._desks.values()
        found = await asyncio.gather(*(_asked(desk, command, session_within_s) for desk in desks))
        answers = {**self._closed, **dict(zip(self._desks, found, strict=True))}
        return (
            {name: facts for name, facts in answers.items() if isinstance(facts, dict)},
            {name: error for name, error in answers.items() if isinstance(error, GridStatError)},
        )

    async def survey(
        self, *, session_within_s: float | None = None
    ) -> tuple[dict[str, Facts], dict[str, str]]:
        """Surveys, and of the others why there is none."""
        surveys, away = await self.ask(Survey(request_id=0), session_within_s=session_within_s)
        return surveys, {name: reason_of(error) for name, error in away.items()}


def reason_of(error: GridStatError) -> str:
    """Return in one line why a broker did not reply; for a certificate also the remedy."""
    told = str(error.args[0])
    return f"{told} ({error.hint})" if isinstance(error, CertificateRefused) else told


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
        desks: dict[str, OperatorSession] = {}
        closed: dict[str, GridStatError] = {}
        for name in dict.fromkeys(names or (access.cloud, *access.tree)):
            try:
                desk = operator_desk(access.beside(name), who)
                desks[name] = await stack.enter_async_context(desk)
            except GridStatError as error:
                closed[name] = error
        yield WatchedBrokers(desks, closed)


async def _asked(
    desk: OperatorSession, command: OperatorCommand, session_within_s: float | None
) -> Facts | GridStatError:
    try:
        return await desk.ask(command, session_within_s=session_within_s)
    except GridStatError as error:
        return error
