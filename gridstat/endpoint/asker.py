"""How the parts of a connection ask the cloud: a command out, the use of its outcomes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from gridstat.endpoint.asking import refusal
from gridstat.net.command.endpoint_messages import RefusedOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from gridstat.net.command.endpoint_messages import EndPointCommand, Outcome

Result = TypeVar("Result")


class Asker(Protocol):
    """Asks within the connection's own deadline; `use` runs on the session's thread."""

    def ask(
        self,
        command: EndPointCommand,
        use: Callable[[tuple[Outcome, ...], tuple[bytes, ...]], Result],
    ) -> Future[Result]:
        """The result, or the error that came instead."""
        ...


def spread(outcomes: tuple[Outcome, ...], asked: Sequence[object]) -> tuple[Outcome, ...]:
    """One outcome for each thing asked: a request refused as a whole has a single one."""
    if len(outcomes) == 1 and len(asked) != 1:
        return outcomes * len(asked)
    return outcomes


def nothing(outcomes: tuple[Outcome, ...], _newest: tuple[bytes, ...]) -> None:
    """For commands whose outcomes say nothing but no; a refusal is raised."""
    for outcome in outcomes:
        if isinstance(outcome, RefusedOutcome):
            raise refusal(outcome)
