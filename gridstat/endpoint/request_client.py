"""How the parts of a connection ask the cloud: a command out, the use of its outcomes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from gridstat.endpoint.options import refusal
from gridstat.net.command.endpoint_messages import RefusedOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from gridstat.net.command.endpoint_messages import EndPointCommand, Outcome

Result = TypeVar("Result")


class RequestClient(Protocol):
    """Asks within the connection's own deadline; `use` runs on the session's thread."""

    def ask(
        self,
        command: EndPointCommand,
        use: Callable[[tuple[Outcome, ...], tuple[bytes, ...]], Result],
    ) -> Future[Result]:
        """The result, or the error that came instead."""
        ...


def awaited(future: Future[Result], give_back: Callable[[Result], object]) -> Result:
    """The answer. Whoever is interrupted while waiting, by Ctrl-C say, does not want it any more:
    it is given back, by the session if it has not come yet, else here."""
    try:
        return future.result()
    except BaseException:
        if not future.cancel():
            future.add_done_callback(lambda done: _return(done, give_back))
        raise


def _return(done: Future[Result], give_back: Callable[[Result], object]) -> None:
    if done.exception() is None:
        give_back(done.result())


def spread(outcomes: tuple[Outcome, ...], asked: Sequence[object]) -> tuple[Outcome, ...]:
    """One outcome for each thing asked: a request refused as a whole has a single one."""
    if len(outcomes) == 1 and len(asked) != 1:
        return outcomes * len(asked)
    return outcomes


def raise_refusals(outcomes: tuple[Outcome, ...], _newest: tuple[bytes, ...]) -> None:
    """For commands whose outcomes say nothing but no; a refusal is raised."""
    for outcome in outcomes:
        if isinstance(outcome, RefusedOutcome):
            raise refusal(outcome)


def ignore_outcomes(_outcomes: tuple[Outcome, ...], _newest: tuple[bytes, ...]) -> None:
    """For what is said for the cloud's sake: it is done with or without its consent."""
